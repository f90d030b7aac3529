"""Superblocks on the devices of a mesh, of which each process keeps its own blocks.

What is drawn at random is drawn for all blocks, so that a block is the same wherever it
is made; packing, memory and transfers are of the process's own.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from embedder.engine.device_loader import DeviceLoader, Index
from embedder.engine.layout import Layout, batch_spec, mesh_of
from embedder.engine.loop import Updates


class _Superblock:
    """Arrays of a batch of which this process has the blocks `share` of each update."""

    def __init__(self, batch: dict[str, np.ndarray], share: range, num_blocks: int):
        self._batch = batch
        self._share = share
        self._num_blocks = num_blocks

    def shape(self, name: str) -> tuple[int, ...]:
        size, *rest = self._batch[name].shape
        return (size, self._num_blocks, *rest[1:]) if rest else (size,)

    def read(self, name: str, index: Index) -> np.ndarray:
        updates, *rest = index
        if not rest:
            return self._batch[name][updates]
        blocks = (rest[0].start - self._share.start, rest[0].stop - self._share.start)
        return self._batch[name][(updates, slice(*blocks), *rest[1:])]


def blocks_here(layout: Layout, blocks_per_update: int) -> range:
    """Blocks of an update that devices of this process have; those too that fill up."""
    num_blocks = layout.num_blocks(blocks_per_update)
    if layout.mode != "sharded":
        return range(blocks_per_update)
    spec = PartitionSpec(None, layout.exchange.blocks)
    sharding = NamedSharding(mesh_of(layout), spec)
    places = sharding.addressable_devices_indices_map((1, num_blocks, 1)).values()
    bounds = [blocks.indices(num_blocks)[:2] for _, blocks, _ in places]
    return range(min(start for start, _ in bounds), max(stop for _, stop in bounds))


def on_mesh(
    batches: Generator[tuple[Updates, int, NamedTuple]],
    layout: Layout,
    blocks_per_update: int,
    axes: NamedTuple,
) -> Iterator[tuple[Updates, int, NamedTuple]]:
    """The same, with batches as global arrays, placed ahead of their use.

    Args:
      batches: with the blocks that `blocks_here` says; what is on devices stays there.
      axes: which axis of each array is split.
    """
    share = blocks_here(layout, blocks_per_update)
    num_blocks = layout.num_blocks(blocks_per_update)
    passed: deque[tuple[Updates, int, NamedTuple]] = deque()
    mesh, specs = mesh_of(layout), batch_spec(layout, axes)._asdict()

    def superblocks() -> Iterator[_Superblock]:
        for updates, num_updates, batch in batches:
            passed.append((updates, num_updates, batch))
            host = {k: x for k, x in batch._asdict().items() if k in moved}
            yield _Superblock(host, share, num_blocks)

    with contextlib.closing(batches):
        first = next(batches, None)
        if first is None:
            return
        moved = [k for k, x in first[2]._asdict().items() if isinstance(x, np.ndarray)]
        batches = itertools.chain([first], batches)
        own_specs = {name: specs[name] for name in moved}
        with DeviceLoader(superblocks(), mesh, own_specs) as loader:
            for arrays in loader:
                updates, num_updates, batch = passed.popleft()
                yield updates, num_updates, batch._replace(**arrays)
