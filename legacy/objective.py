"""Skip-gram and CBOW with negative sampling: loss, hand-derived gradients, weights.

Axis letters, here and in `embedder/tables/objective.py`:

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
from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """One value for each gathered row: the row itself, its gradient, or its weight."""

    input: np.ndarray  # [N, T, ...]
    output: np.ndarray  # [N, T, ...]
    noise: np.ndarray  # [N, G, K, ...]


class Pairs(NamedTuple):
    """Which pairs an update has."""

    mask: np.ndarray  # [N, G, B, C]: 1 for a pair, else 0, in the dtype of the tables
    count: np.ndarray  # [N, G, B]: n_t, the contexts of each token


class Scores(NamedTuple):
    """Scalar products of an update."""

    positive: np.ndarray  # skip-gram v_t.u_j [N, G, B, C]; CBOW h_t.u_t [N, G, B]
    noise: np.ndarray  # [N, G, B, K]: v_t.u_noise or h_t.u_noise


class Terms(NamedTuple):
    """What an objective says of an update; the loss is made from `scores` on demand."""

    scores: Scores
    gradients: Rows  # of the loss, [..., D]
    weights: Rows  # pair terms that touch each row


def pairs(
    sequence_NT, radius_NT, *, tile: int, window: int, dtype, decay: float = 1.0
) -> Pairs:
    """The pairs of an update, from sequence numbers i32[N, T] and radii i8[N, T].

    Padding has sequence -1 and radius 0, and so no pairs. A context at a distance d
    counts decay ** (d - 1).
    """
    sequence_NGC = halo(sequence_NT, tile, window, fill=-1)
    sequence_NGB = tiles(sequence_NT, tile)
    radius_NGB = tiles(radius_NT, tile).view(np.uint8)
    mask_NGBC = _distance(tile, window) <= radius_NGB[..., np.newaxis]
    mask_NGBC &= sequence_NGC[:, :, np.newaxis] == sequence_NGB[..., np.newaxis]
    mask_NGBC = mask_NGBC.astype(dtype)
    if decay != 1:
        mask_NGBC *= (decay ** (_distance(tile, window) - 1.0)).astype(dtype)
    # A product with ones is the fastest sum over a short axis.
    return Pairs(mask_NGBC, mask_NGBC @ np.ones(tile + 2 * window, dtype))


def skipgram(
    rows: Rows, pairs: Pairs, *, window: int, negative: int, out: Rows | None = None
) -> Terms:
    """Scores, row gradients and row weights of the skip-gram loss of an update.

        L = sum_t [ sum_{j in ctx(t)} softplus(-v_t.u_j)
                    + (negative/K) n_t sum_k softplus(v_t.u_noise(t, k)) ]

    Weights. Input row: n_t. Output row: the centres that have it as context; as noise:
    (negative/K) times the sum of n_t over its tile.

    Args:
        out: where to put the gradients; C-contiguous.
    """
    tile, num_noise = pairs.mask.shape[2], rows.noise.shape[2]
    out = out or Rows(*map(np.empty_like, rows))
    centre_NGBD = tiles(rows.input, tile)
    context_NGCD = halo(rows.output, tile, window, fill=0)
    positive_NGBC = centre_NGBD @ transposed(context_NGCD)
    noise_NGBK = centre_NGBD @ transposed(rows.noise)
    # dL/d(v_t.u_j) = -sigmoid(-v_t.u_j), and for noise (negative/K) n_t sigmoid(v_t.u).
    up_NGBC = _minus_one_plus_exp(positive_NGBC)
    np.divide(pairs.mask, up_NGBC, out=up_NGBC)
    down_NGBK = _noise_derivative(noise_NGBK, pairs.count, negative)
    _product_sum(up_NGBC, context_NGCD, down_NGBK, rows.noise, out=out.input)
    fold(transposed(up_NGBC) @ centre_NGBD, window, out=out.output)
    np.matmul(transposed(down_NGBK), centre_NGBD, out=out.noise)
    contexts_NGC = np.ones(tile, pairs.mask.dtype) @ pairs.mask
    weights = Rows(
        input=untile(pairs.count),
        output=folded(contexts_NGC, rows.output.shape[:2], window),
        noise=_noise_weight(pairs.count, negative, num_noise),
    )
    return Terms(Scores(positive_NGBC, noise_NGBK), out, weights)


def skipgram_loss(scores: Scores, pairs: Pairs, *, negative: int) -> float:
    """Skip-gram loss of an update, from the scores of `skipgram`, summed in float64."""
    return _loss(scores, pairs.mask, pairs.count, negative)


def cbow(
    rows: Rows,
    pairs: Pairs,
    *,
    window: int,
    negative: int,
    out: Rows | None = None,
    mean: bool = True,
    log_noise: Rows | None = None,
) -> Terms:
    """Scores, row gradients and row weights of the CBOW loss of an update.

        L = sum over t with n_t > 0 of
            [ softplus(-h_t.u_t) + (negative/K) sum_k softplus(h_t.u_noise(t, k)) ]

    with h_t the mean of v_j over ctx(t). This is its true gradient, which word2vec.c
    and gensim do not apply: they do not divide it by n_t.

    Weights. Input row: the sum of 1/n_t over the centres that it is a context of; the
    number of these if h_t is a sum. Output row: 1 for an active centre (n_t > 0); as
    noise: (negative/K) times the active centres of its tile.

    Args:
        out: where to put the gradients; C-contiguous.
        mean: False: h_t is the sum of v_j, without a factor 1/n_t anywhere.
        log_noise: log weights of output and noise rows, [N, T] and [N, G, K]: the
            scores have these taken off, and the loss is that of a softmax over the
            token and the noise,
                sum_t [ log(exp(s_t) + sum_k exp(s_tk)) - s_t ],
            in which noise has the weight 1/K. None: the loss above.
    """
    tile, num_noise = pairs.mask.shape[2], rows.noise.shape[2]
    out = out or Rows(*map(np.empty_like, rows))
    context_NGCD = halo(rows.input, tile, window, fill=0)
    target_NGBD = tiles(rows.output, tile)
    active_NGB = active(pairs)
    share_NGBC = context_shares(pairs, mean)
    hidden_NGBD = share_NGBC @ context_NGCD
    positive_NGB = np.vecdot(hidden_NGBD, target_NGBD)
    noise_NGBK = hidden_NGBD @ transposed(rows.noise)
    if log_noise is None:
        # dL/d(h_t.u_t) = -sigmoid(-h_t.u_t), and for noise (negative/K) sigmoid(h_t.u).
        up_NGB1 = (active_NGB / _minus_one_plus_exp(positive_NGB))[..., np.newaxis]
        down_NGBK = _noise_derivative(noise_NGBK, active_NGB, negative)
    else:
        negative = 1
        positive_NGB = positive_NGB - tiles(log_noise.output, tile)
        noise_NGBK = noise_NGBK - log_noise.noise[:, :, np.newaxis]
        log_sum_NGB = _log_sum(positive_NGB, noise_NGBK)
        up_NGB1 = (active_NGB * np.expm1(positive_NGB - log_sum_NGB))[..., np.newaxis]
        down_NGBK = np.exp(noise_NGBK - log_sum_NGB[..., np.newaxis])
        down_NGBK *= active_NGB[..., np.newaxis]
    hidden_gradient_NGBD = down_NGBK @ rows.noise
    hidden_gradient_NGBD += up_NGB1 * target_NGBD
    fold(transposed(share_NGBC) @ hidden_gradient_NGBD, window, out=out.input)
    np.multiply(up_NGB1, hidden_NGBD, out=tiles(out.output, tile))
    np.matmul(transposed(down_NGBK), hidden_NGBD, out=out.noise)
    shares_NGC = np.ones(tile, pairs.mask.dtype) @ share_NGBC
    weights = Rows(
        input=folded(shares_NGC, rows.input.shape[:2], window),
        output=untile(active_NGB),
        noise=_noise_weight(active_NGB, negative, num_noise),
    )
    return Terms(Scores(positive_NGB, noise_NGBK), out, weights)


def cbow_loss(scores: Scores, pairs: Pairs, *, negative: int) -> float:
    """CBOW loss of an update, from the scores of `cbow`, summed in float64."""
    active_NGB = active(pairs)
    return _loss(scores, active_NGB, active_NGB, negative)


def softmax_loss(scores: Scores, pairs: Pairs) -> float:
    """Loss of `cbow` with `log_noise`, summed in float64."""
    each_NGB = _log_sum(scores.positive, scores.noise) - scores.positive
    return float((active(pairs) * each_NGB).sum(dtype=np.float64))


def _log_sum(positive_NGB, noise_NGBK):
    """log(exp(positive) + sum over K of exp(noise)), [N, G, B]."""
    both = np.concatenate([positive_NGB[..., np.newaxis], noise_NGBK], axis=-1)
    most = both.max(axis=-1)
    return most + np.log(np.exp(both - most[..., np.newaxis]).sum(axis=-1))


def num_skipgram_terms(pairs: Pairs) -> float:
    """Positive terms of the skip-gram loss: the pairs."""
    return float(pairs.count.sum(dtype=np.float64))


def num_cbow_terms(pairs: Pairs) -> float:
    """Positive terms of the CBOW loss: the active centres."""
    return float(np.count_nonzero(pairs.count))


def _loss(scores: Scores, positive_terms, noise_terms_NGB, negative: int) -> float:
    num_noise = scores.noise.shape[-1]
    positive = (positive_terms * softplus(-scores.positive)).sum(dtype=np.float64)
    noise_NGB = softplus(scores.noise).sum(axis=-1, dtype=np.float64)
    return float(positive + negative / num_noise * (noise_terms_NGB * noise_NGB).sum())


def softplus(x):
    """log(1 + exp(x)), without overflow; three times as fast as `np.logaddexp`."""
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _minus_one_plus_exp(x):
    """-(1 + exp(x)), the reciprocal of -sigmoid(-x).

    Where exp overflows, the reciprocal is 0, the right limit.
    """
    with np.errstate(over="ignore"):
        y = np.exp(x)
    return np.subtract(-1, y, out=y)


def _noise_derivative(noise_NGBK, terms_NGB, negative: int):
    """(negative/K) terms sigmoid(score), [N, G, B, K]."""
    scale_NGB = terms_NGB * (-negative / noise_NGBK.shape[-1])
    y_NGBK = _minus_one_plus_exp(np.negative(noise_NGBK))
    return np.divide(scale_NGB[..., np.newaxis], y_NGBK, out=y_NGBK)


def _noise_weight(terms_NGB, negative: int, num_noise: int):
    """(negative/K) times the terms of a tile, for each of its noise ids, [N, G, K]."""
    weight_NG = negative / num_noise * terms_NGB.sum(axis=-1)
    return np.repeat(weight_NG[..., np.newaxis], num_noise, axis=-1)


def context_shares(pairs: Pairs, mean: bool):
    """What each context counts in h_t, [N, G, B, C]: 1/n_t, or 1 in a sum."""
    if not mean:
        return pairs.mask
    return pairs.mask / np.maximum(pairs.count, 1)[..., np.newaxis]


def active(pairs: Pairs):
    return (pairs.count > 0).astype(pairs.count.dtype)


def _product_sum(a_NGBC, b_NGCD, c_NGBK, d_NGKD, *, out) -> None:
    """Puts a @ b + c @ d, [N, G, B, D], into `out` [N, T, D]."""
    out_NGBD = tiles(out, a_NGBC.shape[2])
    np.matmul(a_NGBC, b_NGCD, out=out_NGBD)
    out_NGBD += c_NGBK @ d_NGKD


def transposed(x):
    """The last two axes exchanged; `np.matmul` takes the view as it is."""
    return x.swapaxes(-1, -2)


def tiles(x, tile: int):
    """[N, T, ...] -> [N, G, B, ...], a view of a contiguous array."""
    num_blocks, num_tokens, *rest = x.shape
    return x.reshape(num_blocks, num_tokens // tile, tile, *rest)


def untile(x):
    """[N, G, B, ...] -> [N, T, ...]."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])


@functools.cache
def _distance(tile: int, window: int):
    """|t - j| of a tile and its halo, u8[B, C]; beyond every radius for t = j."""
    positions_C = np.arange(-window, tile + window)
    distance_BC = np.abs(positions_C - np.arange(tile)[:, np.newaxis])
    distance_BC[distance_BC == 0] = 255
    return np.minimum(distance_BC, 255).astype(np.uint8)


def halo(x, tile: int, window: int, *, fill):
    """Each tile with W positions on both sides: [N, T, ...] -> [N, G, C, ...].

    One padded copy, of which the tiles are overlapping views. Positions outside the
    block are `fill`.
    """
    num_blocks, num_tokens, *rest = x.shape
    padded = np.empty((num_blocks, num_tokens + 2 * window, *rest), x.dtype)
    padded[:, :window] = fill
    padded[:, window : window + num_tokens] = x
    padded[:, window + num_tokens :] = fill
    shape = (num_blocks, num_tokens // tile, tile + 2 * window, *rest)
    block_stride, token_stride, *inner = padded.strides
    strides = (block_stride, tile * token_stride, token_stride, *inner)
    return np.ndarray(shape, x.dtype, buffer=padded, strides=strides)


def fold(x_NGC, window: int, *, out) -> None:
    """The transpose of `halo`: sums what tiles say of a position into `out` [N, T]."""
    num_tiles, halo_tile = x_NGC.shape[1:3]
    tile = halo_tile - 2 * window
    out_NGB = tiles(out, tile)
    out_NGB[...] = x_NGC[:, :, window : window + tile]
    reach = min(-(-window // tile), num_tiles - 1)
    for offset in range(1, reach + 1):
        # The tile `offset` further on, and the one as far back, are reached in part.
        ahead = x_NGC[:, :-offset, window + offset * tile :][:, :, :tile]
        out_NGB[:, offset:, : ahead.shape[2]] += ahead
        back_end = window - (offset - 1) * tile
        back = x_NGC[:, offset:, max(0, back_end - tile) : back_end]
        out_NGB[:, :-offset, tile - back.shape[2] :] += back


def folded(x_NGC, shape, window: int):
    out_NT = np.empty(shape, x_NGC.dtype)
    fold(x_NGC, window, out=out_NT)
    return out_NT
