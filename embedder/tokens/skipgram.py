"""Skip-gram with negative sampling: each token predicts each of its contexts.

    L = sum_t [ sum_{j in ctx(t)} softplus(-v_t.u_j)
                + (negative/K) n_t sum_k softplus(v_t.u_k) ]                    (7)

with v rows of the input table, u of the output table, ctx(t) the contexts of token t,
n_t their number, and k over the K noise ids of the tile of t. With a bootstrap or
weights of sessions each term counts m_t times; m_t stands for m_t w_t of (67). The
gradients are derived by JAX (`train_step.row_gradients`), by hand in the oracle and in
`cpu/skipgram.py`:

    dL/dv_t = -sum_j sigmoid(-v_t.u_j) u_j
              + (negative/K) n_t sum_k sigmoid(v_t.u_k) u_k                    (33)
    dL/du_j = -sum_t sigmoid(-v_t.u_j) v_t                                     (34)
    dL/du_k = (negative/K) sum_t n_t sigmoid(v_t.u_k) v_t                      (35)

A tile gathers the input rows of its B tokens, and the output rows of its C positions
and K noise ids. Axis letters are those of `objective.py`, numbers those of
`embedder/ALGORITHM.md`.

Reference: Mikolov et al. 2013, arXiv:1310.4546, eq. 4; noise ids shared by a tile as
in Ji et al. 2016, arXiv:1604.04661.
"""

import jax
import jax.numpy as jnp

from embedder.tokens.objective import (
    Architecture,
    Kernel,
    Pairs,
    Rows,
    SumColumns,
    all_columns,
    einsum,
    halo,
    positive_first,
    softplus,
    split_tiles,
    weighted,
)


def row_ids(ids_NT, noise_NGK, *, window: int) -> Rows:
    """Ids of the gathered rows: input i32[N, G, B], output i32[N, G, C + K]."""
    tile = ids_NT.shape[1] // noise_NGK.shape[1]
    positions_NGC = halo(ids_NT, tile, window, fill=0)
    return Rows(
        split_tiles(ids_NT, tile), jnp.concatenate([positions_NGC, noise_NGK], axis=2)
    )


def row_weights(pairs: Pairs, *, negative: int, num_noise: int) -> Rows:
    """Weight of the terms that each gathered row is in: [N, G, B] and [N, G, C + K].

    Input row: n_t. Output row: the tokens of the tile that have it as context; as
    noise: (negative/K) times the sum of n_t over the tile. Each times m_t.
    """
    terms_NGBR = _terms(pairs, negative, num_noise)
    input_NGB = weighted(pairs.num_contexts, pairs)
    return Rows(input=input_NGB, output=terms_NGBR.sum(axis=2))


def loss(
    rows: Rows, pairs: Pairs, *, negative: int, sum_columns: SumColumns = all_columns
) -> jax.Array:
    """L of an update, a scalar, from the gathered rows."""
    num_positions = pairs.mask.shape[3]
    num_noise = rows.output.shape[2] - num_positions
    score_NGBR = sum_columns(einsum("ngbd,ngrd->ngbr", rows.input, rows.output))
    sign_111R = positive_first(num_positions, rows.output.shape[2], score_NGBR.dtype)
    terms_NGBR = _terms(pairs, negative, num_noise)
    return (terms_NGBR * softplus(sign_111R * score_NGBR)).sum()


def num_terms(pairs: Pairs) -> jax.Array:
    """Number of pairs, each times m_t, a scalar."""
    return weighted(pairs.num_contexts, pairs).sum()


def path_weights(pairs: Pairs) -> tuple[jax.Array, jax.Array]:
    """1 for each context of a token, [N, G, B, C]; n_t m_t of a token, [N, G, B]."""
    of_contexts = pairs.mask.astype(pairs.num_contexts.dtype)
    return of_contexts, weighted(pairs.num_contexts, pairs)


def path_loss(rows: Rows, pairs: Pairs, sum_columns: SumColumns) -> jax.Array:
    """L of hierarchical softmax, (90), a scalar."""
    score_NGCR = sum_columns(einsum("ngcd,ngrd->ngcr", rows.input, rows.output))
    assert pairs.signs is not None, "prepared with the tree"
    sign_NG1R = pairs.signs.reshape(*score_NGCR.shape[:2], 1, -1)
    mask_NGBC = weighted(pairs.mask.astype(score_NGCR.dtype), pairs)
    term_NGCR = jnp.repeat(mask_NGBC.swapaxes(2, 3), pairs.signs.shape[3], axis=3)
    return (term_NGCR * jnp.abs(sign_NG1R) * softplus(sign_NG1R * score_NGCR)).sum()


def _terms(pairs: Pairs, negative: int, num_noise: int) -> jax.Array:
    """How often each score counts, [N, G, B, R]: 1 for a pair, (negative/K) n_t for
    noise, times m_t."""
    mask_NGBC = pairs.mask.astype(pairs.num_contexts.dtype)
    noise_NGB1 = negative / num_noise * pairs.num_contexts[..., jnp.newaxis]
    noise_NGBK = jnp.broadcast_to(noise_NGB1, (*noise_NGB1.shape[:3], num_noise))
    return weighted(jnp.concatenate([mask_NGBC, noise_NGBK], axis=3), pairs)


SKIPGRAM = Architecture(
    *(row_ids, row_weights, loss, num_terms, path_weights, path_loss),
    kernel=Kernel(predicts_contexts=True),
)
