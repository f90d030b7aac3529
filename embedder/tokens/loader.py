"""Loads chunks: many updates in one element, prefetched.

Both loaders yield the same chunks, bit for bit. `_tfdata_epoch` alone imports
TensorFlow, inside the function; it uses the CPU only.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import jax
import numpy as np

from embedder.base.prefetch import parallel_map
from embedder.config.run_options import RunOptions
from embedder.data.blocks import PADDING, BlockSource, StepBatches
from embedder.data.tfdata import (
    check_tensorflow,
    has_tensorflow,
    import_tensorflow,
    quiet_options,
)
from embedder.engine.mesh_layout import MeshLayout, map_batch

_CHUNK_TOKENS = 2**16  # an element costs Python about 80 us
_MULTIPLE = 16  # updates in a chunk are a multiple of this: see `loss_interval`
START = (0, -1)
"""The position before the first update of an epoch: first shard, no block of it."""


def loss_interval(num_tokens: int, tokens_per_update: int) -> int:
    """The loss is computed in every n-th update of an epoch: n, 1 in small corpora."""
    return 16 if num_tokens // tokens_per_update >= 1024 else 1


def choose_updates_per_call(
    expected_tokens: float, tokens_per_update: int, limit: float = math.inf
) -> int:
    """Number of updates in a chunk: 64 k tokens, or a whole epoch if smaller.

    At most `limit` updates, rounded up to a multiple of 16. An epoch counts with four
    standard deviations more than the expected tokens, so that it seldom needs a second,
    nearly empty chunk.
    """
    whole = _CHUNK_TOKENS / tokens_per_update
    epoch = (expected_tokens + 4 * expected_tokens**0.5) / tokens_per_update + 1
    return -(-int(max(1, min(whole, epoch, limit))) // _MULTIPLE) * _MULTIPLE


def pick_loader(
    loader: Literal["auto", "tfdata", "memory"], layout: MeshLayout
) -> Literal["tfdata", "memory"]:
    """The loader of a run: TensorFlow takes seconds to import, and 650 MiB.

    Raises:
      MissingPackageError: `loader` is tfdata, and TensorFlow is not installed.
    """
    if loader == "tfdata":
        check_tensorflow()
    if loader != "auto":
        return loader
    return "memory" if is_one_cpu(layout) or not has_tensorflow() else "tfdata"


def is_one_cpu(layout: MeshLayout) -> bool:
    """Whether one CPU device computes all."""
    return layout.mode == "jit" and jax.default_backend() == "cpu"


def loader_workers(options: RunOptions) -> int:
    """Threads that make shards ahead for one replica; each keeps a shard in memory."""
    return max(1, options.workers // options.replicas)


def epoch_chunks(
    loader: Literal["tfdata", "memory"],
    source: BlockSource,
    epoch: int,
    *,
    size: int,
    workers: int,
    after: tuple[int, int] = START,
) -> Iterator[tuple[StepBatches, int]]:
    """Chunks of `size` updates of one epoch, and how many of them are real.

    The last chunk is padded with empty updates. `workers` shards are made in
    parallel, in the order of the epoch.

    Args:
      size: updates of a chunk.
      after: index of the shard and block of an update; chunks start after it.
    """
    rest = _Rest(source, epoch, *after)
    if loader == "tfdata":
        chunks = _tfdata_epoch(rest, size, workers)
    else:
        parts = parallel_map(rest.updates, rest.indices, workers)
        chunks = _rebatch(parts, size)
    for chunk in chunks:
        yield pad(chunk, size), chunk.num_updates


class _Rest(NamedTuple):
    """The updates of an epoch after one of them."""

    source: BlockSource
    epoch: int
    first: int  # index of the shard of that update
    block: int  # of that update

    @property
    def indices(self) -> range:
        """The shards that are left, by their index in the order of the epoch."""
        return range(self.first, len(self.source.encoded.shard_tokens))

    def updates(self, index: int) -> StepBatches:
        """The updates of a shard that are left."""
        updates = self.source.updates(self.epoch, index)
        if index > self.first:
            return updates
        start = np.searchsorted(updates.position[:, 2], self.block, side="right")
        return cut(updates, int(start), None)


def _tfdata_epoch(rest: _Rest, size: int, workers: int) -> Iterator[StepBatches]:
    """Chunks by tf.data; the last may have fewer updates."""
    tf = import_tensorflow()
    specs, structure = jax.tree.flatten(rest.source.specs)
    failures: list[Exception] = []

    def make(index) -> list[np.ndarray]:
        try:
            return jax.tree.leaves(rest.updates(int(index)))
        except Exception as error:  # raised below: tf.data would print pages
            failures.append(error)
            return [np.empty([0, *spec.shape[1:]], spec.dtype) for spec in specs]

    def shard(index):
        dtypes = [spec.dtype for spec in specs]
        made = tf.numpy_function(make, [index], dtypes, stateful=False)
        shaped = zip(made, specs, strict=True)
        arrays = [tf.ensure_shape(x, s.shape) for x, s in shaped]
        return jax.tree.unflatten(structure, arrays)

    dataset = (
        tf.data.Dataset.range(rest.indices.start, rest.indices.stop)
        .map(shard, num_parallel_calls=workers, deterministic=True)
        .rebatch(size)
        .prefetch(2)
        .with_options(quiet_options(tf))
    )
    for chunk in dataset.as_numpy_iterator():
        if failures:
            break
        yield chunk
    if failures:
        raise failures[0]


def _rebatch(parts: Iterable[StepBatches], size: int) -> Iterator[StepBatches]:
    """Consecutive parts as chunks of `size` updates; the last may have fewer."""
    rest = None
    for part in parts:
        if rest is not None:
            part = jax.tree.map(lambda *xs: np.concatenate(xs), rest, part)
        rest = part
        whole = rest.num_updates - rest.num_updates % size
        for start in range(0, whole, size):
            yield cut(rest, start, start + size)
        rest = cut(rest, whole, None)
    if rest is not None and rest.num_updates:
        yield rest


def cut(updates: StepBatches, start: int, stop: int | None) -> StepBatches:
    """The updates from `start` to `stop`, as views."""
    return jax.tree.map(lambda x: x[start:stop], updates)


def pad(updates: StepBatches, size: int) -> StepBatches:
    """`updates`, padded with empty ones to `size`."""
    missing = size - updates.num_updates
    if missing == 0:
        return updates

    def pad_array(x, value):
        widths = [(0, missing)] + [(0, 0)] * (x.ndim - 1)
        return np.pad(x, widths, constant_values=value)

    return map_batch(pad_array, updates, PADDING)
