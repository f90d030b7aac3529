"""Superblocks on the devices of a mesh, of which each process keeps its own blocks.

What is drawn at random is drawn for all blocks, so that a block is the same wherever it
is made; packing, memory and transfers are of the process's own.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from embedder.engine.device_loader import DeviceLoader, Index
from embedder.engine.layout import Layout, batch_spec, mesh_of
from embedder.engine.loop import Updates


class _Superblock:
    """Arrays of a batch, of which this process has the blocks `share` of each update.

    They are named by their index among the arrays of the batch.
    """

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
    batches: Generator[tuple[Updates, int, Any]],
    layout: Layout,
    blocks_per_update: int,
    axes: Any,
) -> Iterator[tuple[Updates, int, Any]]:
    """The same, with batches as global arrays, placed ahead of their use.

    Args:
      batches: with the blocks that `blocks_here` says; what is on devices stays there.
      axes: which axis of each array is split.
    """
    share = blocks_here(layout, blocks_per_update)
    num_blocks = layout.num_blocks(blocks_per_update)
    passed: deque[tuple[Updates, int, Any]] = deque()

    def superblocks() -> Iterator[_Superblock]:
        for updates, num_updates, batch in batches:
            passed.append((updates, num_updates, batch))
            yield _Superblock(_host_arrays(batch), share, num_blocks)

    with contextlib.closing(batches):
        first = next(batches, None)
        if first is None:
            return
        batches = itertools.chain([first], batches)
        specs = dict(enumerate(_leaves(batch_spec(layout, axes))))
        moved = {name: specs[int(name)] for name in _host_arrays(first[2])}
        with DeviceLoader(superblocks(), mesh_of(layout), moved) as loader:
            for arrays in loader:
                updates, num_updates, batch = passed.popleft()
                yield updates, num_updates, _with_arrays(batch, arrays)


def _leaves(batch: Any) -> list[Any]:
    """The arrays of a batch, with None for those that it lacks."""
    return jax.tree.leaves(batch, is_leaf=lambda x: x is None)


def _host_arrays(batch: Any) -> dict[str, np.ndarray]:
    """The arrays of NumPy in a batch, by their index among its arrays."""
    leaves = enumerate(_leaves(batch))
    return {str(index): x for index, x in leaves if isinstance(x, np.ndarray)}


def _with_arrays(batch: Any, arrays: dict[str, jax.Array]) -> Any:
    """`batch` with the arrays of these indices replaced."""
    leaves, structure = jax.tree.flatten(batch, is_leaf=lambda x: x is None)
    for index, array in arrays.items():
        leaves[int(index)] = array
    return jax.tree.unflatten(structure, leaves)
