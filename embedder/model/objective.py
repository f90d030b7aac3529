"""Skip-gram and CBOW with negative sampling, as pure functions of gathered rows.

Axis letters, here and in `legacy/objective.py`:

    N  blocks in an update        B  tokens in a tile (B divides T)
    T  tokens in a block          C  positions of a tile with its halo, B + 2 W
    G  tiles in a block, T / B    K  noise ids of a tile
    D  dimensions of a vector     W  window: the largest distance of a context

The input table gives `input_NTD`, one row a token; the output table gives
`output_NTD`, one row a token, and `noise_NGKD`, one row a noise id. A pair (t, j) is a
token and a context of it: same block, same sequence, 0 < |t - j| <= radius of t.

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
    """One value for each gathered row: the row, its gradient, or its weight."""

    input: jax.Array  # [N, T, ...]
    output: jax.Array  # [N, T, ...]
    noise: jax.Array  # [N, G, K, ...]


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


def skipgram_loss(rows: Rows, pairs: Pairs, *, window: int, negative: int):
    """Skip-gram loss of an update, a scalar.

    sum_t [ sum_{j in ctx(t)} softplus(-v_t.u_j)
            + (negative/K) n_t sum_k softplus(v_t.u_noise(t, k)) ]
    """
    tile, num_noise = pairs.mask.shape[2], rows.noise.shape[2]
    centre_NGBD = _tiles(rows.input, tile)
    context_NGCD = _halo(rows.output, tile, window)
    positive_NGBC = _einsum("ngbd,ngcd->ngbc", centre_NGBD, context_NGCD)
    noise_NGBK = _einsum("ngbd,ngkd->ngbk", centre_NGBD, rows.noise)
    positive = jnp.where(pairs.mask, _softplus(-positive_NGBC), 0).sum()
    noise = (pairs.count * _softplus(noise_NGBK).sum(axis=-1)).sum()
    return positive + negative / num_noise * noise


def cbow_loss(rows: Rows, pairs: Pairs, *, window: int, negative: int):
    """CBOW loss of an update, a scalar, with h_t the mean of v_j over ctx(t).

    sum over t with n_t > 0 of
        [ softplus(-h_t.u_t) + (negative/K) sum_k softplus(h_t.u_noise(t, k)) ]
    """
    tile, num_noise = pairs.mask.shape[2], rows.noise.shape[2]
    context_NGCD = _halo(rows.input, tile, window)
    target_NGBD = _tiles(rows.output, tile)
    share_NGBC = _shares(pairs)
    mean_NGBD = _einsum("ngbc,ngcd->ngbd", share_NGBC, context_NGCD)
    positive_NGB = _einsum("ngbd,ngbd->ngb", mean_NGBD, target_NGBD)
    noise_NGBK = _einsum("ngbd,ngkd->ngbk", mean_NGBD, rows.noise)
    each_NGB = _softplus(-positive_NGB) + (
        negative / num_noise * _softplus(noise_NGBK).sum(axis=-1)
    )
    return jnp.where(pairs.count > 0, each_NGB, 0).sum()


def skipgram_weights(pairs: Pairs, *, window: int, negative: int, num_noise: int):
    """Pair terms of each gathered row in the skip-gram loss, [N, T] and [N, G, K].

    Input row: n_t. Output row: the centres that have it as context; as noise:
    (negative/K) times the sum of n_t over its tile.
    """
    contexts_NGC = pairs.mask.sum(axis=2).astype(pairs.count.dtype)
    return Rows(
        input=_untile(pairs.count),
        output=_fold_halo(contexts_NGC, pairs.mask.shape[2], window),
        noise=_tile_noise(pairs.count, negative, num_noise),
    )


def cbow_weights(pairs: Pairs, *, window: int, negative: int, num_noise: int):
    """Pair terms of each gathered row in the CBOW loss, [N, T] and [N, G, K].

    Input row: the sum of 1/n_t over the centres that it is a context of. Output row: 1
    for an active centre (n_t > 0); as noise: (negative/K) times the active centres of
    its tile.
    """
    active_NGB = (pairs.count > 0).astype(pairs.count.dtype)
    share_NGBC = _shares(pairs)
    return Rows(
        input=_fold_halo(share_NGBC.sum(axis=2), pairs.mask.shape[2], window),
        output=_untile(active_NGB),
        noise=_tile_noise(active_NGB, negative, num_noise),
    )


def num_terms(pairs: Pairs, architecture: Architecture):
    """Positive terms of the loss: pairs (skip-gram), active centres (CBOW)."""
    match architecture:
        case "skipgram":
            return pairs.count.sum()
        case "cbow":
            return (pairs.count > 0).sum().astype(pairs.count.dtype)


@jax.custom_jvp
def _softplus(x):
    """log(1 + exp(x)), with a derivative that does not need the logarithm."""
    return jnp.logaddexp(x, 0)


@_softplus.defjvp
def _softplus_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    return _softplus(x), jax.nn.sigmoid(x) * tangent


def _tiles(x, tile: int):
    """[N, T, ...] -> [N, G, B, ...]."""
    num_blocks, num_tokens, *rest = x.shape
    return x.reshape(num_blocks, num_tokens // tile, tile, *rest)


def _untile(x):
    """[N, G, B, ...] -> [N, T, ...]."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])


def _halo(x, tile: int, window: int, *, fill=0):
    """Each tile with W positions on both sides: [N, T, ...] -> [N, G, C, ...].

    Made of slices of shifted tiles, whose transpose is cheap where a gather's is not.
    Positions outside the block are `fill`.
    """
    x_NGB = _tiles(x, tile)
    num_tiles = x_NGB.shape[1]
    reach = min(-(-window // tile), num_tiles)
    pieces = []
    for offset in range(-reach, reach + 1):
        first = max(0, -window - offset * tile)
        last = min(tile, tile + window - offset * tile)
        pieces.append(_shift(x_NGB[:, :, first:last], offset, fill))
    x_NGC = jnp.concatenate(pieces, axis=2)
    missing = (tile + 2 * window - x_NGC.shape[2]) // 2  # a window wider than the block
    pad = [(0, 0)] * x_NGC.ndim
    pad[2] = (missing, missing)
    return jnp.pad(x_NGC, pad, constant_values=fill)


def _shift(x, offset: int, fill):
    """y[:, g] = x[:, g + offset], `fill` where there is no such tile."""
    if offset == 0:
        return x
    num_tiles = x.shape[1]
    kept = x[:, max(0, offset) : num_tiles + min(0, offset)]
    pad = [(0, 0)] * x.ndim
    pad[1] = (max(0, -offset), max(0, offset))
    return jnp.pad(kept, pad, constant_values=fill)


def _fold_halo(x_NGC, tile: int, window: int):
    """The transpose of `_halo`: sums what every tile says of a position, [N, T]."""
    num_blocks, num_tiles, _ = x_NGC.shape
    positions = jax.ShapeDtypeStruct((num_blocks, num_tiles * tile), x_NGC.dtype)
    (folded_NT,) = jax.linear_transpose(lambda x: _halo(x, tile, window), positions)(
        x_NGC
    )
    return folded_NT


def _shares(pairs: Pairs):
    """1/n_t for each context of a token, else 0, [N, G, B, C]."""
    mask_NGBC = pairs.mask.astype(pairs.count.dtype)
    return mask_NGBC / jnp.maximum(pairs.count, 1)[..., jnp.newaxis]


def _tile_noise(terms_NGB, negative: int, num_noise: int):
    """(negative/K) times the terms of a tile, for each of its noise ids, [N, G, K]."""
    weight_NG = negative / num_noise * terms_NGB.sum(axis=-1)
    return jnp.broadcast_to(weight_NG[..., jnp.newaxis], (*weight_NG.shape, num_noise))
