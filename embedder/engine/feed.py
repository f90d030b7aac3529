"""Feeds batches to a mesh: each process makes the blocks of its own devices only.

Random numbers are drawn for all blocks, so that a block has the same values in whatever
process it is made; each process packs and transfers its own blocks alone.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from embedder.engine.device_loader import DeviceLoader
from embedder.engine.loop import StepBatches
from embedder.engine.mesh_layout import (
    Index,
    MeshLayout,
    batch_spec,
    is_none,
    local_indices,
    mesh_of,
)


class _LocalBatch(NamedTuple):
    """A batch of which this process holds the blocks `local` of each update."""

    arrays: dict[str, np.ndarray]
    with_blocks: set[str]  # names of arrays [S, blocks, ...]; the others are [S, ...]
    local: range
    num_blocks: int

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self.arrays[name].shape
        if name not in self.with_blocks:
            return shape
        return (shape[0], self.num_blocks, *shape[2:])

    def read(self, name: str, index: Index) -> np.ndarray:
        if name not in self.with_blocks:
            return self.arrays[name][index]
        updates, *rest = index
        blocks = (rest[0].start - self.local.start, rest[0].stop - self.local.start)
        return self.arrays[name][(updates, slice(*blocks), *rest[1:])]


def local_blocks(layout: MeshLayout, blocks_per_update: int) -> range:
    """Which blocks of an update the devices of this process need, padding included."""
    num_blocks = layout.num_blocks(blocks_per_update)
    if layout.mode != "sharded":
        return range(blocks_per_update)
    spec = PartitionSpec(None, layout.exchange.blocks)
    sharding = NamedSharding(mesh_of(layout), spec)
    indices = local_indices(sharding, (1, num_blocks, 1)).values()
    bounds = [blocks.indices(num_blocks)[:2] for _, blocks, _ in indices]
    return range(min(start for start, _ in bounds), max(stop for _, stop in bounds))


def sharded_batches(
    batches: Generator[tuple[StepBatches, int, Any]],
    layout: MeshLayout,
    blocks_per_update: int,
    axes: Any,
    replica_axes: Any = None,
) -> Iterator[tuple[StepBatches, int, Any]]:
    """The same calls with global arrays, prefetched onto the devices of `layout`.

    Args:
      batches: the updates of a call, how many are real, and a named tuple of arrays:
        those of NumPy have the blocks `local_blocks` and are moved to the devices,
        others stay as they are.
      axes: for each array, the axis that is sharded, or None.
      replica_axes: for each array, its axis of replicas, or None; None: there is none.
    """
    local = local_blocks(layout, blocks_per_update)
    num_blocks = layout.num_blocks(blocks_per_update)
    in_flight: deque[tuple[StepBatches, int, Any]] = deque()

    with contextlib.closing(batches):
        first = next(batches, None)
        if first is None:
            return
        specs = _leaves(batch_spec(layout, axes, replica_axes))
        shards = enumerate(_leaves(axes))
        with_blocks = {str(index) for index, axis in shards if axis is not None}
        moved = {name: specs[int(name)] for name in _host_arrays(first[2])}

        def local_batches() -> Iterator[_LocalBatch]:
            for updates, num_updates, batch in itertools.chain([first], batches):
                in_flight.append((updates, num_updates, batch))
                arrays = _host_arrays(batch)
                yield _LocalBatch(arrays, with_blocks, local, num_blocks)

        with DeviceLoader(local_batches(), mesh_of(layout), moved) as loader:
            for arrays in loader:
                updates, num_updates, batch = in_flight.popleft()
                leaves, structure = jax.tree.flatten(batch, is_leaf=is_none)
                for index, array in arrays.items():
                    leaves[int(index)] = array
                yield updates, num_updates, jax.tree.unflatten(structure, leaves)


def _leaves(batch: Any) -> list[Any]:
    """The arrays of a batch, with None for those that it lacks."""
    return jax.tree.leaves(batch, is_leaf=is_none)


def _host_arrays(batch: Any) -> dict[str, np.ndarray]:
    """The arrays of NumPy in a batch, by their index among its arrays."""
    leaves = enumerate(_leaves(batch))
    return {str(index): x for index, x in leaves if isinstance(x, np.ndarray)}
