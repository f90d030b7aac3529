"""Blocks of tokens with windows and noise: pure functions of (seed, epoch, shard).

Noise ids (negative samples) are drawn in proportion to count ** ns_exponent.

A shard of an epoch is made from integer draws alone (ALGORITHM.md (3)), so that any
worker makes the same blocks, and resuming is arithmetic: position = (epoch, index of
the shard in the order of the epoch, block of the shard).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from embedder.data.bootstrap import draws_of_shards, multiplicities
from embedder.data.encoded import TokenSource
from embedder.data.packing import Packing, consecutive, whole_sequences
from embedder.data.split import held_out_of, num_held_out
from embedder.data.vocabulary import keep_limit
from embedder.errors import InputError


class NoiseTable(NamedTuple):
    """Vose's alias table: a draw picks a column i and a coin, both uniform.

    The draw is i if coin <= limit[i], else alias[i].

    Reference: Vose 1991, IEEE Trans. Software Eng. 17(9), 972-975.
    """

    limit: np.ndarray  # u32[V], for a uniform uint32 coin
    alias: np.ndarray  # i32[V]


def noise_table(counts: np.ndarray, exponent: float) -> NoiseTable:
    """The alias table of the weights `counts` ** `exponent`, for `counts` i64[V].

    A token with count 0 is not drawn. Raises InputError if the weights overflow or
    underflow float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = np.maximum(counts, 1).astype(np.float64) ** exponent
        weights[counts == 0] = 0
        total = weights.sum()
    if not 0 < total < np.inf:
        raise InputError(
            f"`ns_exponent` must leave count ** ns_exponent finite, got {exponent!r}."
        )
    scaled = weights / total * len(counts)
    probability, alias = _alias_columns(scaled)
    limit = np.clip(np.rint(np.array(probability) * 2**32), 1, 2**32) - 1
    return NoiseTable(limit.astype(np.uint32), np.array(alias, dtype=np.int32))


def draw_noise(table: NoiseTable, size: int, rng: np.random.Generator) -> np.ndarray:
    """`size` independent noise ids, i32[size]. Draws all columns, then all coins."""
    column = rng.integers(0, len(table.limit), size=size, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    return np.where(
        coin <= table.limit[column], column.view(np.int32), table.alias[column]
    )


def _alias_columns(scaled: np.ndarray) -> tuple[list[float], list[int]]:
    """Probability of the own id of each column, and its alias (Vose 1991).

    Each column below 1 is filled up from one above 1.

    Args:
      scaled: probability of each id times their number, f64[V].
    """
    mass = scaled.tolist()  # lists: indexing an array is slower here
    probability, alias = [1.0] * len(mass), list(range(len(mass)))
    small = np.flatnonzero(scaled < 1).tolist()
    large = np.flatnonzero(scaled >= 1).tolist()
    while small and large:
        low, high = small.pop(), large.pop()
        probability[low], alias[low] = mass[low], high
        mass[high] = (mass[high] + mass[low]) - 1.0
        (small if mass[high] < 1 else large).append(high)
    return probability, alias


class Blocks(NamedTuple):
    """Blocks of T tokens, in G tiles with K noise ids each: the fields of a block.

    No other place lists them. Arrays are of NumPy, or of JAX on devices; leading
    axes are updates S and blocks N, or fewer.
    """

    ids: Any  # i32[S, N, T]
    sequence: Any  # i32[S, N, T], number of the sequence in its shard
    radius: Any  # i8[S, N, T], radius b_t of each token, from 1 to W, (3) or (66)
    noise: Any  # i32[S, N, G, K]
    weight: Any = None  # [S, N, T], m_i w_i of the sequence, (67); None: all are 1


class StepBatches(NamedTuple):
    """Consecutive updates, S of N blocks each, as a loader yields them."""

    blocks: Blocks
    position: Any  # i64[S, 3]: epoch, index of the shard, block in the shard
    progress: Any  # f64[S], fraction of the run done before each, in [0, 1)

    @property
    def num_updates(self) -> int:
        """S."""
        return len(self.position)


PADDING = StepBatches(
    Blocks(ids=0, sequence=-1, radius=0, noise=0, weight=0), position=0, progress=0
)
"""What padding holds: it has no pairs, and so changes nothing."""


class BlockShape(NamedTuple):
    """How tokens are cut into blocks."""

    window: int  # W
    block: int  # T
    tile: int  # B
    noise: int  # K
    blocks_per_update: int  # N
    whole_sequences: bool = False  # the context is the whole sequence, W = T - 1, (66)
    shrink_windows: bool = True  # draw radii; False: all are W

    def updates(self, num_blocks: int, weight: type | None = None) -> StepBatches:
        """Shapes and dtypes of any number of updates, None, of `num_blocks` each.

        Args:
          weight: dtype of the weights; None: there are none.
        """
        tokens = (None, num_blocks, self.block)
        noise = (None, num_blocks, self.block // self.tile, self.noise)
        blocks = Blocks(
            ids=ArraySpec(tokens, np.int32),
            sequence=ArraySpec(tokens, np.int32),
            radius=ArraySpec(tokens, np.int8),
            noise=ArraySpec(noise, np.int32),
            weight=None if weight is None else ArraySpec(tokens, weight),
        )
        return StepBatches(
            blocks, ArraySpec((None, 3), np.int64), ArraySpec((None,), np.float64)
        )


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array; None is an axis of any length."""

    shape: tuple[int | None, ...]
    dtype: type


@dataclass(frozen=True)
class BlockSource:
    """Makes the updates of any shard of any epoch.

    Args:
      keep_limit: a token is kept where its draw is at most this, ALGORITHM.md (27).
      noise: the alias table of the noise distribution, (28).
      epochs: numbers of the epochs of this run, which enter the draws.
      share: which blocks of each update to make, of 0 to N - 1; from N on they are
        padding.
      draws: how many draws of a bootstrap resample fall to each shard, (55); None: the
        sequences are not resampled.
      holdout: share of the sequences that no block has, (57).
    """

    encoded: TokenSource
    keep_limit: np.ndarray  # u32[V]
    noise: NoiseTable
    shape: BlockShape
    seed: int
    epochs: range
    share: range
    draws: np.ndarray | None = None  # i64[number of shards]
    holdout: float = 0.0

    @property
    def specs(self) -> StepBatches:
        """Shapes and dtypes of the updates, None of them."""
        has_draws = self.draws is not None
        weight = weight_dtype(self.encoded.has_weights, bootstrap=has_draws)
        return self.shape.updates(len(self.share), weight)

    def with_seed(self, seed: int) -> "BlockSource":
        """The source of another seed; what does not depend on it is shared."""
        draws = self.draws
        if draws is not None:
            draws = draws_of_shards(self.encoded.shard_sequences, seed)
        return replace(self, seed=seed, draws=draws)

    def shard_order(self, epoch: int) -> np.ndarray:
        """The order in which `epoch` visits the shards, i64[number of shards]."""
        rng = np.random.default_rng(
            np.random.SeedSequence([self.seed, epoch], spawn_key=(0,))
        )
        return rng.permutation(len(self.encoded.shard_tokens))

    def updates(self, epoch: int, index: int) -> StepBatches:
        """All updates of the shard that `epoch` visits at `index`, (29)."""
        order = self.shard_order(epoch)
        shard = int(order[index])
        rng = np.random.default_rng([self.seed, epoch, shard])
        ids, lengths = self.encoded.shard(shard, self.seed, epoch)
        drawn = rng.integers(0, 2**32, size=len(ids), dtype=np.uint32)
        keep = drawn <= self.keep_limit[ids]
        weight = self._weights(shard, lengths)
        if weight is not None:
            keep &= weight > 0
        if self.holdout:
            mask = held_out_of(self.encoded, shard, len(lengths), self.holdout)
            keep &= ~np.repeat(mask, lengths)
        packing = _packing(keep, lengths, self.shape, rng)
        num_blocks = packing.num_blocks
        visits = _visits(num_blocks, self.shape.blocks_per_update, self.share)
        sequence = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        tokens = _Tokens(
            ids[keep], sequence[keep], None if weight is None else weight[keep]
        )
        blocks = _make_blocks(tokens, packing, visits, self.noise, self.shape, rng)
        first = np.arange(0, num_blocks, self.shape.blocks_per_update)
        num_tokens = self.encoded.shard_tokens
        share = num_tokens[shard] * first / max(num_blocks, 1)
        done = num_tokens[order[:index]].sum() + share
        return StepBatches(
            blocks,
            position=np.stack(
                [np.full_like(first, epoch), np.full_like(first, index), first], axis=1
            ),
            progress=(epoch - self.epochs.start + done / num_tokens.sum())
            / len(self.epochs),
        )

    def _weights(self, shard: int, lengths: np.ndarray) -> np.ndarray | None:
        """m_i w_i of the sequence of each token, [n], u8 or f32; None: all are 1."""
        weights = self.encoded.weights(shard)
        if self.draws is not None:
            num_draws = int(self.draws[shard])
            drawn = multiplicities(shard, len(lengths), num_draws, self.seed)
            weights = drawn if weights is None else drawn * weights
        return None if weights is None else np.repeat(weights, lengths)


def weight_dtype(has_weights: bool, *, bootstrap: bool) -> type | None:
    """The dtype of `Blocks.weight`; None: there are none.

    Args:
      has_weights: whether the sequences of the corpus have weights.
    """
    if has_weights:
        return np.float32
    return np.uint8 if bootstrap else None


class Sampling(NamedTuple):
    """How an epoch draws tokens and noise: the settings of these names."""

    sample: float  # of tokens, ALGORITHM.md (1)
    ns_exponent: float  # of noise, (2)


def block_source(
    encoded: TokenSource,
    shape: BlockShape,
    sampling: Sampling,
    *,
    seed: int,
    epochs: range,
    share: range | None = None,
    bootstrap: bool = False,
    holdout: float = 0.0,
) -> BlockSource:
    """The source of the blocks of `epochs`.

    Args:
      share: as of `BlockSource`; None: all blocks of an update.
      bootstrap: whether to resample the sequences.
      holdout: as of `BlockSource`.

    Raises:
      InputError: `holdout` > 0 holds out no sequence, or all of them.
    """
    counts = encoded.vocabulary.drawn_counts
    num_held_out(encoded.own_sequences, holdout)  # checks it
    return BlockSource(
        encoded=encoded,
        keep_limit=keep_limit(counts, sampling.sample),
        noise=noise_table(counts, sampling.ns_exponent),
        shape=shape,
        seed=seed,
        epochs=epochs,
        share=range(shape.blocks_per_update) if share is None else share,
        draws=draws_of_shards(encoded.shard_sequences, seed) if bootstrap else None,
        holdout=holdout,
    )


def _visits(num_blocks: int, per_update: int, share: range) -> np.ndarray:
    """The blocks of each update by their index in the order of visits.

    i64[S, len(share)]; `num_blocks` stands for a block of padding.
    """
    first = np.arange(0, num_blocks, per_update)[:, np.newaxis]
    offsets = np.array(share, dtype=np.int64)[np.newaxis]
    return np.where(
        offsets < per_update, np.minimum(first + offsets, num_blocks), num_blocks
    )


def _packing(keep: np.ndarray, lengths: np.ndarray, shape: BlockShape, rng) -> Packing:
    """Where the kept tokens are in blocks."""
    if not shape.whole_sequences:
        return consecutive(int(np.count_nonzero(keep)), shape.block)
    num_before = np.concatenate([[0], np.cumsum(keep)])  # kept tokens before each
    ends = np.cumsum(lengths, dtype=np.int64)
    num_kept = num_before[ends] - num_before[ends - lengths]
    return whole_sequences(num_kept, shape.block, rng)


class _Tokens(NamedTuple):
    """The M kept tokens of a shard; see `Blocks`."""

    ids: np.ndarray  # i32[M]
    sequence: np.ndarray  # i32[M]
    weight: np.ndarray | None  # [M]


def _make_blocks(
    tokens: _Tokens,
    packing: Packing,
    visits: np.ndarray,
    table: NoiseTable,
    shape: BlockShape,
    rng: np.random.Generator,
) -> Blocks:
    """The blocks at `visits`, of S updates with N blocks each.

    The draws come in a fixed order (3): which tokens are kept and the packing, by the
    caller; then the order of blocks, radii, noise ids.
    """
    num_blocks = packing.num_blocks
    order = np.append(rng.permutation(num_blocks), num_blocks)[visits]
    size = num_blocks, shape.block
    if shape.whole_sequences or not shape.shrink_windows:
        radius = np.full(size, shape.window, np.int8)
    else:
        radius = rng.integers(1, shape.window + 1, size=size, dtype=np.int8)
    noise_size = (num_blocks, shape.block // shape.tile, shape.noise)
    noise = draw_noise(table, int(np.prod(noise_size)), rng).reshape(noise_size)
    sequence = packing.pack(tokens.sequence, fill=PADDING.blocks.sequence)[order]
    weight = tokens.weight
    if weight is not None:
        weight = packing.pack(weight, fill=PADDING.blocks.weight)[order]
    return Blocks(
        ids=packing.pack(tokens.ids, fill=PADDING.blocks.ids)[order],
        sequence=sequence,
        radius=np.where(sequence >= 0, _take(radius, visits), np.int8(0)),
        noise=_take(noise, visits),
        weight=weight,
    )


def _take(values: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """values[visits], with zeros for blocks of padding."""
    num = len(values)
    if visits.size == num and np.array_equal(visits.reshape(-1), np.arange(num)):
        return values.reshape(*visits.shape, *values.shape[1:])
    selected = values.take(visits, axis=0, mode="clip") if num else values[visits[:0]]
    selected[visits == num] = 0
    return selected
