"""Layouts: which devices take part, and how arrays are sharded over them.

Devices form a grid, replicas x data x tables. Of several replicas of a model, each
group of devices along `replicas` trains some, without any communication. The blocks of
an update are sharded along `data`; parameters with a row for each id are sharded along
`tables`, by columns or by rows, or replicated. Where they are sharded by rows, blocks
are sharded along both axes.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, Sharding
from jax.sharding import PartitionSpec as P

from embedder.engine.collectives import Collectives, TableSplit

Index = tuple[slice, ...]
"""A part of an array, a slice for each axis."""

Mode = Literal["jit", "sharded", "pmap"]
"""One device; several by `jit` of `shard_map` over a mesh; several by `pmap`."""

PMAP_AXIS = "devices"
"""Name of pmap's one axis."""

REPLICAS = "replicas"
"""Name of the axis of a mesh that shards replicas."""

Axes = TypeVar("Axes", bound=tuple[Any, ...])
"""A named tuple of the arrays of a batch."""


class MeshLayout(NamedTuple):
    """Which devices take part, and how arrays are sharded over them."""

    mode: Mode = "jit"
    tables: TableSplit = "replicated"
    data_devices: int = 1  # along the axis that shards blocks
    table_devices: int = 1  # along the axis that shards tables
    replica_devices: int = 1  # along the axis that shards replicas

    @property
    def num_devices(self) -> int:
        return self.replica_devices * self.data_devices * self.table_devices

    @property
    def block_devices(self) -> int:
        """Number of devices that the blocks of an update are sharded over."""
        is_rows = self.tables == "rows"
        return self.data_devices * (self.table_devices if is_rows else 1)

    @property
    def exchange(self) -> Collectives:
        """The axes that updates communicate over."""
        if self.mode == "jit":
            return Collectives()
        sizes = {"data": self.data_devices, "tables": self.table_devices}
        axes = ("data", "tables") if self.tables == "rows" else ("data",)
        blocks = tuple(axis for axis in axes if sizes[axis] > 1)
        tables = None if self.tables == "replicated" else "tables"
        if self.mode == "pmap":  # its one axis is either of them
            blocks, tables = blocks and (PMAP_AXIS,), tables and PMAP_AXIS
        return Collectives(blocks, tables, self.tables)

    def device_shape(self, num_rows: int, vector_size: int) -> tuple[int, int]:
        """Shape of the shard of a table [num_rows, vector_size] on each device."""
        match self.tables:
            case "replicated":
                return num_rows, vector_size
            case "columns":
                return num_rows, -(-vector_size // self.table_devices)
            case "rows":
                return -(-num_rows // self.table_devices), vector_size

    def padded_shape(self, num_rows: int, vector_size: int) -> tuple[int, int]:
        """Shape of a table [num_rows, vector_size] padded to equal shards."""
        rows, columns = self.device_shape(num_rows, vector_size)
        split = self.tables
        return (
            rows * (self.table_devices if split == "rows" else 1),
            columns * (self.table_devices if split == "columns" else 1),
        )

    def num_blocks(self, blocks_per_update: int) -> int:
        """Blocks of an update with padding: a multiple of `block_devices`."""
        return -(-blocks_per_update // self.block_devices) * self.block_devices


ONE_DEVICE = MeshLayout()


def mesh_of(layout: MeshLayout) -> Mesh:
    """The mesh of devices, data x tables, over all processes; with replicas first if
    they are sharded."""
    devices = np.array(jax.devices()[: layout.num_devices])
    shape = layout.data_devices, layout.table_devices
    if layout.replica_devices == 1:
        return Mesh(devices.reshape(shape), ("data", "tables"))
    grid = devices.reshape(layout.replica_devices, *shape)
    return Mesh(grid, (REPLICAS, "data", "tables"))


def replicas_spec(layout: MeshLayout) -> P:
    """The sharding of an axis of replicas over the mesh."""
    return P(REPLICAS if layout.replica_devices > 1 else None)


def table_spec(layout: MeshLayout) -> P:
    """The sharding of a table [V, D] over the mesh."""
    return {"replicated": P(), "columns": P(None, "tables"), "rows": P("tables", None)}[
        layout.tables
    ]


def batch_spec(
    layout: MeshLayout, axes: Axes, replica_axes: Axes | None = None
) -> Axes:
    """The sharding of each array of a batch [S, blocks, ...] over the mesh.

    Args:
      axes: a batch with, for each array, 1 where its blocks are sharded, or None.
      replica_axes: a batch with the axis of the replicas of each array, or None.
    """
    if replica_axes is None:
        replica_axes = jax.tree.map(lambda axis: None, axes, is_leaf=is_none)
    blocks = layout.exchange.blocks

    def spec(axis: int | None, replica_axis: int | None) -> P:
        parts: list[Any] = [None, None, None]
        if axis is not None and blocks:
            parts[axis] = blocks
        if replica_axis is not None and layout.replica_devices > 1:
            parts[replica_axis] = REPLICAS
        while parts and parts[-1] is None:
            parts.pop()
        return P(*parts)

    return jax.tree.map(spec, axes, replica_axes, is_leaf=is_none)


def map_batch(function: Callable[[Any, Any], Any], batch: Any, of_arrays: Any) -> Any:
    """`batch` with `function(array, x)` in place of each array, x of a tree as `batch`.

    An array that is None stays so.
    """
    return jax.tree.map(
        lambda array, x: None if array is None else function(array, x),
        batch,
        of_arrays,
        is_leaf=is_none,
    )


def is_none(x: Any) -> bool:
    """For `is_leaf` of trees with arrays that may be missing."""
    return x is None


def local_indices(
    sharding: Sharding, shape: tuple[int, ...]
) -> dict[jax.Device, Index]:
    """The part of an array of `shape` that each device of this process holds."""
    indices = sharding.addressable_devices_indices_map(shape)
    return {device: index for device, index in indices.items() if index is not None}
