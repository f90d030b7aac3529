"""Superblocks: many updates in one element, made ahead of their use.

Both loaders yield the same superblocks, bit for bit. `tfdata_epoch` alone imports
TensorFlow, inside the function; it uses the CPU only.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import jax
import numpy as np

from embedder.engine.prefetch import parallel_map
from embedder.engine.tfdata import import_tensorflow, quiet_options
from embedder.tables.blocks import PADDING, BlockSource, Updates

_SUPERBLOCK_TOKENS = 2**16  # an element costs Python about 80 us: make it worth it
_MULTIPLE = 16  # updates in a superblock are a multiple of this: see `loss_interval`
START = (0, -1)
"""Before all updates of an epoch: place of the first shard, no block of it."""


def loss_interval(num_tokens: int, tokens_per_update: int) -> int:
    """Every how many updates of an epoch the loss is computed: 1 in small corpora."""
    return 16 if num_tokens // tokens_per_update >= 1024 else 1


def superblock_size(
    expected_tokens: float, tokens_per_update: int, limit: float = math.inf
) -> int:
    """Updates in a superblock: 64 k tokens, or fewer in an epoch smaller than that.

    `limit` is what it is raised to a multiple of 16 of, where that is less.

    Room for four standard deviations of the kept tokens saves a second, nearly empty
    superblock.
    """
    whole = _SUPERBLOCK_TOKENS / tokens_per_update
    epoch = (expected_tokens + 4 * expected_tokens**0.5) / tokens_per_update + 1
    return -(-int(max(1, min(whole, epoch, limit))) // _MULTIPLE) * _MULTIPLE


def epoch_superblocks(
    loader: Literal["tfdata", "memory"],
    source: BlockSource,
    epoch: int,
    *,
    size: int,
    workers: int,
    after: tuple[int, int] = START,
) -> Iterator[tuple[Updates, int]]:
    """Superblocks of `size` updates of one epoch, and how many of them are real.

    The last superblock is filled up with empty updates. `workers` shards are made at
    once, in the order of the epoch. `after` is the place of the shard and the block of
    an update: what comes after it is made.
    """
    epoch_of = {"tfdata": tfdata_epoch, "memory": memory_epoch}[loader]
    rest = _Rest(source, epoch, *after)
    superblocks = epoch_of(rest, size=size, workers=workers)
    for superblock in superblocks:
        yield fill(superblock, size), superblock.num_updates


class _Rest(NamedTuple):
    """What comes in an epoch after an update."""

    source: BlockSource
    epoch: int
    place: int  # of the shard that the update is of
    block: int

    @property
    def places(self) -> range:
        return range(self.place, len(self.source.encoded.shard_tokens))

    def updates(self, place: int) -> Updates:
        updates = self.source.updates(self.epoch, place)
        if place > self.place:
            return updates
        first = np.searchsorted(updates.position[:, 2], self.block, side="right")
        return cut(updates, int(first), None)


def memory_epoch(rest: _Rest, *, size: int, workers: int) -> Iterator[Updates]:
    """Superblocks of an epoch by threads and NumPy; the last may be shorter."""
    return _rebatch(parallel_map(rest.updates, rest.places, workers), size)


def tfdata_epoch(rest: _Rest, *, size: int, workers: int) -> Iterator[Updates]:
    """Superblocks of an epoch by tf.data; the last may be shorter."""
    tf = import_tensorflow()
    source = rest.source
    specs, structure = jax.tree.flatten(source.shape.updates(len(source.share)))
    failures: list[Exception] = []

    def make(place) -> list[np.ndarray]:
        try:
            return jax.tree.leaves(rest.updates(int(place)))
        except Exception as error:  # raised below: tf.data would print pages
            failures.append(error)
            return [np.empty([0, *spec.shape[1:]], spec.dtype) for spec in specs]

    def shard(place):
        dtypes = [spec.dtype for spec in specs]
        made = tf.numpy_function(make, [place], dtypes, stateful=False)
        shaped = zip(made, specs, strict=True)
        arrays = [tf.ensure_shape(x, s.shape) for x, s in shaped]
        return jax.tree.unflatten(structure, arrays)

    dataset = (
        tf.data.Dataset.range(rest.places.start, rest.places.stop)
        .map(shard, num_parallel_calls=workers, deterministic=True)
        .rebatch(size)
        .prefetch(2)
        .with_options(quiet_options(tf))
    )
    for superblock in dataset.as_numpy_iterator():
        if failures:
            break
        yield superblock
    if failures:
        raise failures[0]


def _rebatch(parts: Iterable[Updates], size: int) -> Iterator[Updates]:
    """Cuts consecutive parts into batches of `size` updates; the last may be less."""
    rest = None
    for part in parts:
        rest = part if rest is None else _concatenate([rest, part])
        whole = rest.num_updates - rest.num_updates % size
        for start in range(0, whole, size):
            yield cut(rest, start, start + size)
        rest = cut(rest, whole, None)
    if rest is not None and rest.num_updates:
        yield rest


def cut(updates: Updates, start: int, stop: int | None) -> Updates:
    """The updates from `start` to `stop`, as views."""
    return jax.tree.map(lambda x: x[start:stop], updates)


def _concatenate(parts: list[Updates]) -> Updates:
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def fill(updates: Updates, size: int) -> Updates:
    """`updates` with empty ones added up to `size`."""
    missing = size - updates.num_updates
    if missing == 0:
        return updates

    def pad(x, value):
        widths = [(0, missing)] + [(0, 0)] * (x.ndim - 1)
        return np.pad(x, widths, constant_values=value)

    return jax.tree.map(pad, updates, PADDING)
