"""What skip-gram and CBOW share: pairs, tiles, and the contract of an architecture.

Axis letters, here, in `skipgram.py` and `cbow.py`, and in `legacy/objective.py`:

    N  blocks in an update        B  tokens in a tile (B divides T)
    T  tokens in a block          C  positions of a tile with its halo, B + 2 W, or T
    G  tiles in a block, T / B    K  noise ids of a tile
    D  dimensions of a vector     W  window: the largest distance of a context
    R  rows that a tile gathers from a table

A pair (t, j) is a token and a context of it: same block, same sequence,
0 < |t - j| <= radius of t. Each tile gathers all the rows that it needs, so that its
products are few and large.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

# float32 products in full precision on every device (a GPU would take TF32 otherwise).
einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


class Rows(NamedTuple):
    """One value for each gathered row: its id, the row, its gradient or its weight.

    R of the input table and R of the output table are the objective's own.
    """

    input: Any  # [N, G, R, ...]
    output: Any  # [N, G, R, ...]


class Pairs(NamedTuple):
    """The pairs of an update."""

    mask: jax.Array  # bool[N, G, B, C]; with `distance_decay` weights, (98)
    num_contexts: jax.Array  # [N, G, B]: n_t of each token, the sum of these
    weight: jax.Array | None = None  # [N, G, B]: m_t w_t of tokens, (67); None: all 1
    signs: jax.Array | None = None  # [N, G, B, L]: of hierarchical softmax
    log_noise: jax.Array | None = None  # [N, G, B + K]: of a sampled softmax


class SumColumns(Protocol):
    """Makes dot products over all D of those over the columns of a device's rows."""

    def __call__(self, scores: jax.Array) -> jax.Array: ...


class Kernel(NamedTuple):
    """How the kernel for CPUs has an architecture, see `cpu/thread.py`."""

    predicts_contexts: bool  # each by the token; else the token by its contexts
    is_mean: bool = True  # of contexts that predict a token; else their sum


class Architecture(NamedTuple):
    """What predicts what, over the rows of two tables: the values `SKIPGRAM`, `CBOW`,
    `CBOW_SUMS` and `CBOW_SOFTMAX`. With losses it is a `hierarchical.Objective`.

    JAX derives the gradients; the oracle and the CPU kernel have them by hand. To add
    an architecture, write a file like `skipgram.py`, and name its value in
    `config.token_objectives.ARCHITECTURES`.
    """

    row_ids: Callable[..., Rows]
    """Ids of the rows that each tile gathers with negative sampling, i32[N, G, R], from
    ids i32[N, T], noise i32[N, G, K] and, by name, `window`."""
    row_weights: Callable[..., Rows]
    """Weight of the terms of the loss that each of these rows is in, [N, G, R], from
    `Pairs` and, by name, `negative` and `num_noise`."""
    loss: Callable[..., jax.Array]
    """Sum of the terms of negative sampling, a scalar, from `Rows` [N, G, R, D],
    `Pairs` and, by name, `negative` and `sum_columns`, a `SumColumns`."""
    num_terms: Callable[[Pairs], jax.Array]
    """Weight of the positive terms, which the reported loss is a mean over."""
    path_weights: Callable[[Pairs], tuple[jax.Array, jax.Array]]
    """How often terms of hierarchical softmax have a context of a token, [N, G, B, C],
    without m_t, and a node above a token, [N, G, B]."""
    path_loss: Callable[[Rows, Pairs, SumColumns], jax.Array]
    """Sum of the terms of hierarchical softmax, a scalar, from the rows of positions
    [N, G, C, D] and of the paths of tokens [N, G, B L, D]."""
    kernel: Kernel | None = None
    """None: there is no kernel."""
    distance_decay: float | None = None
    """Weight of a context at a distance d: distance_decay ** (d - 1), (98). None: 1."""
    is_softmax: bool = False
    """Whether the loss is a sampled softmax, which `Pairs.log_noise` is for."""


def pairs_of(
    sequence_NT,
    radius_NT,
    weight_NT=None,
    *,
    tile: int,
    window: int,
    dtype,
    distance_decay: float | None = None,
) -> Pairs:
    """The pairs of an update, from sequence numbers i32[N, T], radii i8[N, T] and
    weights u8 or f32[N, T]; None: all are 1.

    Padding has sequence -1 and radius 0, and so no pairs. `distance_decay` is that of
    the architecture.
    """
    sequence_NGC = halo(sequence_NT, tile, window, fill=-1)
    sequence_NGB = split_tiles(sequence_NT, tile)
    radius_NGB = split_tiles(radius_NT, tile).astype(jnp.int32)
    distance_1GBC = _distances(sequence_NT.shape[1], tile, window)[jnp.newaxis]
    mask_NGBC = (
        (distance_1GBC > 0)
        & (distance_1GBC <= radius_NGB[..., jnp.newaxis])
        & (sequence_NGC[:, :, jnp.newaxis] == sequence_NGB[..., jnp.newaxis])
    )
    if distance_decay is not None:
        weights_1GBC = jnp.asarray(distance_decay, dtype) ** (distance_1GBC - 1)
        mask_NGBC = jnp.where(mask_NGBC, weights_1GBC, 0)
    weight_NGB = None
    if weight_NT is not None:
        weight_NGB = split_tiles(weight_NT, tile).astype(dtype)
    return Pairs(mask_NGBC, mask_NGBC.sum(axis=-1).astype(dtype), weight_NGB)


def weighted(values: jax.Array, pairs: Pairs) -> jax.Array:
    """`values` [N, G, B, ...] of tokens times the weight m_t w_t of each, (67)."""
    if pairs.weight is None:
        return values
    missing = values.ndim - pairs.weight.ndim
    return values * pairs.weight.reshape(*pairs.weight.shape, *missing * (1,))


def all_columns(scores: jax.Array) -> jax.Array:
    """`SumColumns` of a device that has whole rows: the scores as they are."""
    return scores


@jax.custom_jvp
def softplus(x):
    """log(1 + exp(x)); its derivative, sigmoid(x), needs no logarithm."""
    return jnp.logaddexp(x, 0)


@softplus.defjvp
def _softplus_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    return softplus(x), jax.nn.sigmoid(x) * tangent


def positive_first(num_positive: int, num_rows: int, dtype) -> np.ndarray:
    """Signs of scores, [1, 1, 1, R]: -1 for the positive rows, 1 for noise after them.

    Of NumPy: what JAX computes takes a kernel in each update on a GPU.
    """
    sign_R = np.where(np.arange(num_rows) < num_positive, -1, 1)
    return sign_R.astype(dtype).reshape(1, 1, 1, -1)


def split_tiles(x, tile: int):
    """The tokens of each tile, [N, T] -> [N, G, B]."""
    return x.reshape(x.shape[0], -1, tile)


def num_positions(block: int, tile: int, window: int) -> int:
    """C: of a tile with its halo, B + 2 W; T where each halo has the whole block."""
    return block if window >= block - 1 else tile + 2 * window


def _distances(block: int, tile: int, window: int) -> jax.Array:
    """From each token of a tile to the positions of its halo, i32[G or 1, B, C]."""
    if window >= block - 1:
        position_11T = jnp.arange(block)[jnp.newaxis, jnp.newaxis]
        return jnp.abs(position_11T - position_11T.reshape(-1, tile, 1))
    position_11C = jnp.arange(-window, tile + window)[jnp.newaxis, jnp.newaxis]
    return jnp.abs(position_11C - jnp.arange(tile)[jnp.newaxis, :, jnp.newaxis])


def halo(x_NT, tile: int, window: int, *, fill: int):
    """Each tile with W positions on both sides, [N, G, C]; padding `fill` outside.

    Where both sides reach the ends of the block: the block, without padding.
    """
    num_blocks, block = x_NT.shape
    if window >= block - 1:
        shape = num_blocks, block // tile, block
        return jnp.broadcast_to(x_NT[:, jnp.newaxis], shape)
    padded = jnp.pad(x_NT, [(0, 0), (window, window)], constant_values=fill)
    starts_G1 = jnp.arange(0, x_NT.shape[1], tile)[:, jnp.newaxis]
    return padded[:, starts_G1 + jnp.arange(tile + 2 * window)[jnp.newaxis]]
