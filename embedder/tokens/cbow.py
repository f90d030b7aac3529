"""CBOW with negative sampling: the mean or the sum of contexts predicts the token.

    L = sum over t with n_t > 0 of
            [ softplus(-h_t.u_t) + (negative/K) sum_k softplus(h_t.u_k) ]       (8)
    h_t = (1/n_t) sum_{j in ctx(t)} v_j

or with `is_mean` False, of `CBOW_SUMS`, without the factor 1/n_t                  (97)

with v rows of the input table, u of the output table, ctx(t) the contexts of token t,
n_t their number, and k over the K noise ids of the tile of t. With a bootstrap or
weights of sessions each term counts m_t times; m_t stands for m_t w_t of (67). The
gradients are derived by JAX (`train_step.row_gradients`), by hand in the oracle and in
`cpu/cbow.py`:

    dL/dh_t = -sigmoid(-h_t.u_t) u_t + (negative/K) sum_k sigmoid(h_t.u_k) u_k (37)
    dL/dv_j = sum_{t: j in ctx(t)} (1/n_t) dL/dh_t                             (38)
    dL/du_t = -sigmoid(-h_t.u_t) h_t                                           (39)
    dL/du_k = (negative/K) sum_t sigmoid(h_t.u_k) h_t                          (40)

A tile gathers the input rows of its C positions, and the output rows of its B tokens
and K noise ids. Axis letters are those of `objective.py`, numbers those of
`embedder/ALGORITHM.md`.

Reference: Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546, eq. 4.
"""

import functools

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
    """Ids of the gathered rows: input i32[N, G, C], output i32[N, G, B + K]."""
    tile = ids_NT.shape[1] // noise_NGK.shape[1]
    tokens_NGB = split_tiles(ids_NT, tile)
    return Rows(
        halo(ids_NT, tile, window, fill=0),
        jnp.concatenate([tokens_NGB, noise_NGK], axis=2),
    )


def row_weights(
    pairs: Pairs, *, negative: int, num_noise: int, is_mean: bool = True
) -> Rows:
    """Weight of the terms that each gathered row is in: [N, G, C] and [N, G, B + K].

    Input row: the sum of 1/n_t over the tokens of the tile that it is a context of; of
    sums the number of these. Output row: 1 for a token that has a context; as noise:
    (negative/K) times the number of these in the tile. Each times m_t.
    """
    active_NGB = active(pairs)
    noise_NG1 = negative / num_noise * active_NGB.sum(axis=2, keepdims=True)
    noise_NGK = jnp.broadcast_to(noise_NG1, (*noise_NG1.shape[:2], num_noise))
    return Rows(
        input=weighted(context_weights(pairs, is_mean), pairs).sum(axis=2),
        output=jnp.concatenate([active_NGB, noise_NGK], axis=2),
    )


def loss(
    rows: Rows,
    pairs: Pairs,
    *,
    negative: int,
    sum_columns: SumColumns = all_columns,
    is_mean: bool = True,
) -> jax.Array:
    """L of an update, a scalar, from the gathered rows."""
    tile, num_rows = pairs.mask.shape[2], rows.output.shape[2]
    score_NGBR = scores(rows, pairs, sum_columns, is_mean)
    sign_111R = positive_first(tile, num_rows, score_NGBR.dtype)
    terms_NGBR = _terms(pairs, negative, num_rows - tile)
    return (terms_NGBR * softplus(sign_111R * score_NGBR)).sum()


def scores(
    rows: Rows, pairs: Pairs, sum_columns: SumColumns, is_mean: bool = True
) -> jax.Array:
    """h_t.u_r of the tokens of a tile and the output rows that it gathers,
    [N, G, B, B + K]."""
    of_contexts_NGBC = context_weights(pairs, is_mean)
    hidden_NGBD = einsum("ngbc,ngcd->ngbd", of_contexts_NGBC, rows.input)
    return sum_columns(einsum("ngbd,ngrd->ngbr", hidden_NGBD, rows.output))


def num_terms(pairs: Pairs) -> jax.Array:
    """Number of tokens that have a context, each times m_t, a scalar."""
    return active(pairs).sum()


def path_weights(pairs: Pairs, *, is_mean: bool = True) -> tuple[jax.Array, jax.Array]:
    """`context_weights`, [N, G, B, C], and `active`, [N, G, B]."""
    return context_weights(pairs, is_mean), active(pairs)


def path_loss(
    rows: Rows, pairs: Pairs, sum_columns: SumColumns, *, is_mean: bool = True
) -> jax.Array:
    """L of hierarchical softmax, (90), a scalar."""
    of_contexts_NGBC = context_weights(pairs, is_mean)
    hidden_NGBD = einsum("ngbc,ngcd->ngbd", of_contexts_NGBC, rows.input)
    assert pairs.signs is not None, "prepared with the tree"
    node_NGBLD = rows.output.reshape(*pairs.signs.shape, -1)
    score_NGBL = sum_columns(einsum("ngbd,ngbld->ngbl", hidden_NGBD, node_NGBLD))
    term_NGBL = active(pairs)[..., jnp.newaxis] * jnp.abs(pairs.signs)
    return (term_NGBL * softplus(pairs.signs * score_NGBL)).sum()


def context_weights(pairs: Pairs, is_mean: bool = True) -> jax.Array:
    """1/n_t, or of sums 1, for each context of a token, else 0, [N, G, B, C]."""
    mask_NGBC = pairs.mask.astype(pairs.num_contexts.dtype)
    if not is_mean:
        return mask_NGBC
    return mask_NGBC / jnp.maximum(pairs.num_contexts, 1)[..., jnp.newaxis]


def active(pairs: Pairs) -> jax.Array:
    """m_t of a token that has a context, else 0, [N, G, B]."""
    active_NGB = (pairs.num_contexts > 0).astype(pairs.num_contexts.dtype)
    return weighted(active_NGB, pairs)


def _terms(pairs: Pairs, negative: int, num_noise: int) -> jax.Array:
    """How often each score counts, [N, G, B, R]: m_t for the token, and m_t negative/K
    for noise.

    The scores of a token with the other tokens of its tile count 0: one product over
    all rows takes fewer kernels of a GPU than one for tokens and one for noise.
    """
    active_NGB = active(pairs)
    tile = active_NGB.shape[2]
    noise_BK = jnp.full((tile, num_noise), negative / num_noise, active_NGB.dtype)
    terms_BR = jnp.concatenate([jnp.eye(tile, dtype=noise_BK.dtype), noise_BK], axis=1)
    return active_NGB[..., jnp.newaxis] * terms_BR[jnp.newaxis, jnp.newaxis]


def _architecture(is_mean: bool) -> Architecture:
    of = functools.partial(functools.partial, is_mean=is_mean)
    return Architecture(
        *(row_ids, of(row_weights), of(loss), num_terms),
        *(of(path_weights), of(path_loss)),
        Kernel(predicts_contexts=False, is_mean=is_mean),
    )


CBOW, CBOW_SUMS = _architecture(is_mean=True), _architecture(is_mean=False)
