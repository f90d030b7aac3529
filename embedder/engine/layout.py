"""Layouts: which devices take part, and which part of the arrays each of them has.

Devices are a grid, data x tables. The blocks of an update are sharded along `data`;
parameters with a row for each id are sharded along `tables`, by columns or by rows, or
replicated. Where they are sharded by rows, blocks are sharded along both axes.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from embedder.engine.exchange import Exchange, TableSplit

Mode = Literal["jit", "sharded", "pmap"]
"""One device; several by `jit` of `shard_map` over a mesh; several by `pmap`."""

PMAP_AXIS = "devices"
"""The one axis of pmap."""


class Layout(NamedTuple):
    """Which devices take part, and what each of them has."""

    mode: Mode = "jit"
    tables: TableSplit = "replicated"
    data_devices: int = 1  # along the axis that shares blocks
    table_devices: int = 1  # along the axis that shares tables

    @property
    def num_devices(self) -> int:
        return self.data_devices * self.table_devices

    @property
    def block_devices(self) -> int:
        """Between how many devices the blocks of an update are split."""
        return self.num_devices if self.tables == "rows" else self.data_devices

    @property
    def exchange(self) -> Exchange:
        """What the step is mapped over."""
        if self.mode == "jit":
            return Exchange()
        sizes = {"data": self.data_devices, "tables": self.table_devices}
        axes = ("data", "tables") if self.tables == "rows" else ("data",)
        blocks = tuple(axis for axis in axes if sizes[axis] > 1)
        tables = None if self.tables == "replicated" else "tables"
        if self.mode == "pmap":  # its one axis is either of them
            blocks, tables = blocks and (PMAP_AXIS,), tables and PMAP_AXIS
        return Exchange(blocks, tables, self.tables)

    def device_shape(self, num_rows: int, vector_size: int) -> tuple[int, int]:
        """Rows and columns of a table that a device has."""
        match self.tables:
            case "replicated":
                return num_rows, vector_size
            case "columns":
                return num_rows, -(-vector_size // self.table_devices)
            case "rows":
                return -(-num_rows // self.table_devices), vector_size

    def whole_shape(self, num_rows: int, vector_size: int) -> tuple[int, int]:
        """Rows and columns of a table filled up to what devices have together."""
        rows, columns = self.device_shape(num_rows, vector_size)
        match self.tables:
            case "replicated":
                return rows, columns
            case "columns":
                return rows, columns * self.table_devices
            case "rows":
                return rows * self.table_devices, columns

    def num_blocks(self, blocks_per_update: int) -> int:
        """Blocks of an update, with the empty ones that fill it up."""
        return -(-blocks_per_update // self.block_devices) * self.block_devices


ONE_DEVICE = Layout()


def mesh_of(layout: Layout) -> Mesh:
    """The grid of devices, data x tables."""
    devices = np.array(jax.devices()[: layout.num_devices])
    grid = devices.reshape(layout.data_devices, layout.table_devices)
    return Mesh(grid, ("data", "tables"))


def table_spec(layout: Layout) -> P:
    """How a table [V, D] lies on the mesh."""
    return {
        "replicated": P(),
        "columns": P(None, "tables"),
        "rows": P("tables", None),
    }[layout.tables]


def batch_spec(layout: Layout, axes: Any) -> Any:
    """The sharding of a batch: a tree as `axes`, where None is an array not split."""
    split = P(None, layout.exchange.blocks)
    return jax.tree.map(
        lambda axis: P() if axis is None else split, axes, is_leaf=_is_none
    )


def map_batch(function: Callable[[Any, Any], Any], batch: Any, of_arrays: Any) -> Any:
    """`batch` with `function(array, x)` in place of each array, x of a tree as `batch`.

    An array that is None stays so.
    """
    return jax.tree.map(
        lambda array, x: None if array is None else function(array, x),
        batch,
        of_arrays,
        is_leaf=_is_none,
    )


def _is_none(x: Any) -> bool:
    return x is None
