"""Skip-gram and CBOW with negative sampling, as pure functions of gathered rows.

Axis letters, here and in `legacy/objective.py`:

    N  blocks in an update        B  tokens in a tile (B divides T)
    T  tokens in a block          C  positions of a tile with its halo, B + 2 W
    G  tiles in a block, T / B    K  noise ids of a tile
    D  dimensions of a vector     W  window: the largest distance of a context

A pair (t, j) is a token and a context of it: same block, same sequence,
0 < |t - j| <= radius of t. Each tile gathers all the rows that it needs, so that its
products are few and large: skip-gram the input rows of its tokens and the output rows
of its positions and noise ids (R = C + K); CBOW the input rows of its positions and the
output rows of its tokens and noise ids (R = B + K).

Reference: Mikolov et al. 2013, arXiv:1310.4546, eq. 4; noise shared by a tile as in
Ji et al. 2016, arXiv:1604.04661.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

Architecture = Literal["skipgram", "cbow"]

# float32 products in full precision on every device (a GPU would take TF32 otherwise).
_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


class Rows(NamedTuple):
    """One value for each gathered row: its id, the row, its gradient or its weight."""

    input: jax.Array  # skip-gram [N, G, B, ...], CBOW [N, G, C, ...]
    output: jax.Array  # skip-gram [N, G, C + K, ...], CBOW [N, G, B + K, ...]


class Pairs(NamedTuple):
    """Which pairs an update has."""

    mask: jax.Array  # bool[N, G, B, C]
    count: jax.Array  # [N, G, B]: n_t, the contexts of each token


def pairs(sequence_NT, radius_NT, *, tile: int, window: int, dtype) -> Pairs:
    """The pairs of an update, from sequence numbers i32[N, T] and radii i8[N, T].

    Padding has sequence -1 and radius 0, and so no pairs.
    """
    sequence_NGC = _halo(sequence_NT, tile, window, fill=-1)
    sequence_NGB = _tiles(sequence_NT, tile)
    radius_NGB = _tiles(radius_NT, tile).astype(jnp.int32)
    context_1C = jnp.arange(-window, tile + window)[jnp.newaxis]
    distance_BC = jnp.abs(context_1C - jnp.arange(tile)[:, jnp.newaxis])
    distance_11BC = distance_BC[jnp.newaxis, jnp.newaxis]
    mask_NGBC = (
        (distance_11BC > 0)
        & (distance_11BC <= radius_NGB[..., jnp.newaxis])
        & (sequence_NGC[:, :, jnp.newaxis] == sequence_NGB[..., jnp.newaxis])
    )
    return Pairs(mask_NGBC, mask_NGBC.sum(axis=-1).astype(dtype))


def skipgram_ids(ids_NT, noise_NGK, *, window: int) -> Rows:
    """Ids of the rows that skip-gram gathers, i32."""
    tile = ids_NT.shape[1] // noise_NGK.shape[1]
    positions_NGC = _halo(ids_NT, tile, window, fill=0)
    return Rows(
        _tiles(ids_NT, tile), jnp.concatenate([positions_NGC, noise_NGK], axis=2)
    )


def cbow_ids(ids_NT, noise_NGK, *, window: int) -> Rows:
    """Ids of the rows that CBOW gathers, i32."""
    tile = ids_NT.shape[1] // noise_NGK.shape[1]
    tokens_NGB = _tiles(ids_NT, tile)
    return Rows(
        _halo(ids_NT, tile, window, fill=0),
        jnp.concatenate([tokens_NGB, noise_NGK], axis=2),
    )


def _all_here(scores):
    return scores


def skipgram_loss(rows: Rows, pairs: Pairs, *, negative: int, sum_columns=_all_here):
    """Skip-gram loss of an update, a scalar.

    sum_t [ sum_{j in ctx(t)} softplus(-v_t.u_j)
            + (negative/K) n_t sum_k softplus(v_t.u_noise(t, k)) ]

    `sum_columns` makes dot products over D of those over the columns of `rows`, where
    other devices have the rest of them.
    """
    num_positions = pairs.mask.shape[3]
    num_noise = rows.output.shape[2] - num_positions
    score_NGBR = sum_columns(_einsum("ngbd,ngrd->ngbr", rows.input, rows.output))
    sign_R = jnp.where(jnp.arange(rows.output.shape[2]) < num_positions, -1, 1)
    sign_111R = sign_R.astype(score_NGBR.dtype)[jnp.newaxis, jnp.newaxis, jnp.newaxis]
    terms_NGBR = _skipgram_terms(pairs, negative, num_noise)
    return (terms_NGBR * _softplus(sign_111R * score_NGBR)).sum()


def cbow_loss(rows: Rows, pairs: Pairs, *, negative: int, sum_columns=_all_here):
    """CBOW loss of an update, a scalar, with h_t the mean of v_j over ctx(t).

    sum over t with n_t > 0 of
        [ softplus(-h_t.u_t) + (negative/K) sum_k softplus(h_t.u_noise(t, k)) ]

    `sum_columns` as in `skipgram_loss`.
    """
    tile = pairs.mask.shape[2]
    target_NGBD, noise_NGKD = rows.output[:, :, :tile], rows.output[:, :, tile:]
    mean_NGBD = _einsum("ngbc,ngcd->ngbd", _shares(pairs), rows.input)
    positive_NGB = sum_columns(_einsum("ngbd,ngbd->ngb", mean_NGBD, target_NGBD))
    noise_NGBK = sum_columns(_einsum("ngbd,ngkd->ngbk", mean_NGBD, noise_NGKD))
    each_NGB = _softplus(-positive_NGB) + (
        negative / noise_NGKD.shape[2] * _softplus(noise_NGBK).sum(axis=-1)
    )
    return (_active(pairs) * each_NGB).sum()


def skipgram_weights(pairs: Pairs, *, negative: int, num_noise: int) -> Rows:
    """Pair terms of each gathered row in the skip-gram loss.

    Input row: n_t. Output row: the centres of the tile that have it as context; as
    noise: (negative/K) times the sum of n_t over the tile.
    """
    terms_NGBR = _skipgram_terms(pairs, negative, num_noise)
    return Rows(input=pairs.count, output=terms_NGBR.sum(axis=2))


def cbow_weights(pairs: Pairs, *, negative: int, num_noise: int) -> Rows:
    """Pair terms of each gathered row in the CBOW loss.

    Input row: the sum of 1/n_t over the centres of the tile that it is a context of.
    Output row: 1 for an active centre (n_t > 0); as noise: (negative/K) times the
    active centres of the tile.
    """
    active_NGB = _active(pairs)
    noise_NG1 = negative / num_noise * active_NGB.sum(axis=2, keepdims=True)
    noise_NGK = jnp.broadcast_to(noise_NG1, (*noise_NG1.shape[:2], num_noise))
    return Rows(
        input=_shares(pairs).sum(axis=2),
        output=jnp.concatenate([active_NGB, noise_NGK], axis=2),
    )


def num_terms(pairs: Pairs, architecture: Architecture):
    """Positive terms of the loss: pairs (skip-gram), active centres (CBOW)."""
    match architecture:
        case "skipgram":
            return pairs.count.sum()
        case "cbow":
            return _active(pairs).sum()


@jax.custom_jvp
def _softplus(x):
    """log(1 + exp(x)), with a derivative that does not need the logarithm."""
    return jnp.logaddexp(x, 0)


@_softplus.defjvp
def _softplus_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    return _softplus(x), jax.nn.sigmoid(x) * tangent


def _skipgram_terms(pairs: Pairs, negative: int, num_noise: int):
    """How often each score counts: 1 for a pair, (negative/K) n_t for noise."""
    mask_NGBC = pairs.mask.astype(pairs.count.dtype)
    noise_NGB1 = negative / num_noise * pairs.count[..., jnp.newaxis]
    noise_NGBK = jnp.broadcast_to(noise_NGB1, (*noise_NGB1.shape[:3], num_noise))
    return jnp.concatenate([mask_NGBC, noise_NGBK], axis=3)


def _shares(pairs: Pairs):
    """1/n_t for each context of a token, else 0, [N, G, B, C]."""
    mask_NGBC = pairs.mask.astype(pairs.count.dtype)
    return mask_NGBC / jnp.maximum(pairs.count, 1)[..., jnp.newaxis]


def _active(pairs: Pairs):
    """1 for a token that has a context, else 0, [N, G, B]."""
    return (pairs.count > 0).astype(pairs.count.dtype)


def _tiles(x, tile: int):
    """[N, T] -> [N, G, B]."""
    return x.reshape(x.shape[0], -1, tile)


def _halo(x_NT, tile: int, window: int, *, fill: int):
    """Each tile with W positions on both sides, [N, G, C], `fill` beyond the block."""
    padded = jnp.pad(x_NT, [(0, 0), (window, window)], constant_values=fill)
    starts_G1 = jnp.arange(0, x_NT.shape[1], tile)[:, jnp.newaxis]
    return padded[:, starts_G1 + jnp.arange(tile + 2 * window)[jnp.newaxis]]
