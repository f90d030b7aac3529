"""Blocks of tokens with windows and noise: pure functions of (seed, epoch, shard).

A shard of an epoch is made from integer draws alone (ALGORITHM.md (3)), so that any
worker makes the same blocks, and resuming is arithmetic: position = (epoch, index of
the shard in the order of the epoch, block of the shard).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from embedder.engine.bootstrap import draws_of_shards, multiplicities
from embedder.tables.encoded import TokenSource
from embedder.tables.noise import NoiseTable, draw_noise, noise_table
from embedder.tables.packing import Packing, consecutive, whole_sequences
from embedder.tables.split import held_out_of, num_held_out
from embedder.tables.vocabulary import keep_limit


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


class Updates(NamedTuple):
    """Consecutive updates, S of N blocks each, as a loader yields them."""

    blocks: Blocks
    position: Any  # i64[S, 3]: epoch, index of the shard, block in the shard
    progress: Any  # f64[S], fraction of the run done before each, in [0, 1)

    @property
    def num_updates(self) -> int:
        """S."""
        return len(self.position)


PADDING = Updates(
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

    def updates(self, num_blocks: int, weight: type | None = None) -> Updates:
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
        return Updates(
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
    def specs(self) -> Updates:
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

    def updates(self, epoch: int, index: int) -> Updates:
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
        blocks = _make_blocks(
            ids, lengths, weight, keep, self.noise, self.shape, packing, visits, rng
        )
        first = np.arange(0, num_blocks, self.shape.blocks_per_update)
        tokens = self.encoded.shard_tokens
        share = tokens[shard] * first / max(num_blocks, 1)
        done = tokens[order[:index]].sum() + share
        return Updates(
            blocks,
            position=np.stack(
                [np.full_like(first, epoch), np.full_like(first, index), first], axis=1
            ),
            progress=(epoch - self.epochs.start + done / tokens.sum())
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


def block_source(
    encoded: TokenSource,
    shape: BlockShape,
    *,
    sample: float,
    ns_exponent: float,
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
        keep_limit=keep_limit(counts, sample),
        noise=noise_table(counts, ns_exponent),
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
    kept = np.concatenate([[0], np.cumsum(keep)])  # tokens before each
    ends = np.cumsum(lengths, dtype=np.int64)
    return whole_sequences(kept[ends] - kept[ends - lengths], shape.block, rng)


def _make_blocks(
    ids, lengths, weight, keep, table, shape: BlockShape, packing: Packing, visits, rng
) -> Blocks:
    """The blocks at `visits`, of S updates with N blocks each.

    The draws come in a fixed order (3): `keep` and the packing, by the caller; then the
    order of blocks, radii, noise ids.
    """
    sequence = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    num_blocks = packing.num_blocks
    order = np.append(rng.permutation(num_blocks), num_blocks)[visits]
    radius = _radii((num_blocks, shape.block), shape, rng)
    noise_size = (num_blocks, shape.block // shape.tile, shape.noise)
    noise = draw_noise(table, int(np.prod(noise_size)), rng).reshape(noise_size)
    sequence = packing.pack(sequence[keep], fill=PADDING.blocks.sequence)[order]
    if weight is not None:
        weight = packing.pack(weight[keep], fill=PADDING.blocks.weight)[order]
    return Blocks(
        ids=packing.pack(ids[keep], fill=PADDING.blocks.ids)[order],
        sequence=sequence,
        radius=np.where(sequence >= 0, _take(radius, visits), np.int8(0)),
        noise=_take(noise, visits),
        weight=weight,
    )


def _radii(size: tuple[int, int], shape: BlockShape, rng) -> np.ndarray:
    """The radius of each token, i8[`size`]: drawn (3), or W, as of (66)."""
    if shape.whole_sequences or not shape.shrink_windows:
        return np.full(size, shape.window, np.int8)
    return rng.integers(1, shape.window + 1, size=size, dtype=np.int8)


def _take(values: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """values[visits], with zeros for blocks of padding."""
    num = len(values)
    if visits.size == num and np.array_equal(visits.reshape(-1), np.arange(num)):
        return values.reshape(*visits.shape, *values.shape[1:])
    taken = values.take(visits, axis=0, mode="clip") if num else values[visits[:0]]
    taken[visits == num] = 0
    return taken
