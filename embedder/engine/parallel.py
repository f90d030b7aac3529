"""The same updates on several devices: how arrays lie on them, and what compiles them.

Devices are a grid, data x tables. Blocks of an update are split along `data`; tables
along `tables`, by columns or by rows, or they are whole on every device. Where tables
are split by rows, blocks are split along both. What does not divide is filled up: with
empty blocks, which change nothing, and with columns of zeros and rows of no id, which
stay as they are.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from embedder.engine.exchange import Exchange, TableSplit
from embedder.tables.blocks import PADDING
from embedder.tables.update import (
    Batch,
    Loss,
    Model,
    TrainState,
    device_state,
    updates_function,
)

Mode = Literal["jit", "sharded", "pmap"]
"""One device; several by `jit` of `shard_map` over a mesh; several by `pmap`."""

_AXIS = "devices"  # of pmap, which has one
_ROWS_AT_ONCE = 2**16  # of a table that is brought together


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
            blocks, tables = blocks and (_AXIS,), tables and _AXIS
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


class Placed(NamedTuple):
    """Updates, and how what they take comes to the devices and back."""

    apply_updates: Callable[[TrainState, Batch], tuple[TrainState, Loss]]
    place_state: Callable[[TrainState], TrainState]  # from whole tables of NumPy
    place_batch: Callable[[Batch], Batch]
    whole_state: Callable[[TrainState], TrainState]  # to whole tables of NumPy


class Spread(NamedTuple):
    """How the arrays of some updates lie on devices, and what makes them divide."""

    axes: NamedTuple  # a batch with, for each array, the axis that is split, or None
    fill_state: Callable[[TrainState], TrainState]
    cut_state: Callable[[TrainState], TrainState]  # takes what was filled up away
    fill_batch: Callable[[NamedTuple], NamedTuple]


def place(
    model: Model,
    optimizer,
    layout: Layout,
    shape: tuple[int, int],
    *,
    update: Literal["rows", "dense"],
    loss_interval: int,
) -> Placed:
    """The updates of `model` on `layout`; `shape` is that of a table, [V, D].

    `model.tables` looks up in tables of the shape that a device has.
    """
    updates = updates_function(
        model._replace(exchange=layout.exchange),
        optimizer,
        update=update,
        loss_interval=loss_interval,
    )
    spread = Spread(
        TABLE_AXES,
        lambda state: _fill_tables(state, layout, shape),
        lambda state: _cut_tables(state, shape),
        lambda batch: _fill_blocks(batch, layout),
    )
    return place_updates(updates, layout, spread)


def place_updates(updates, layout: Layout, spread: Spread) -> Placed:
    """`updates`, the part of a device in them, for all devices of `layout`."""
    match layout.mode:
        case "jit":
            compiled = jax.jit(updates, donate_argnums=0)
            return Placed(compiled, device_state, _as_it_is, jax.device_get)
        case "sharded":
            return _by_mesh(updates, layout, spread)
        case "pmap":
            return _by_pmap(updates, layout, spread)


def _as_it_is(batch):
    return batch


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


TABLE_AXES = Batch(ids=1, sequence=1, radius=1, noise=1, rate=None)
"""Blocks are split, axis 1 of S updates."""


def batch_spec(layout: Layout, axes: NamedTuple = TABLE_AXES) -> NamedTuple:
    """How a batch lies on the mesh."""
    split = P(None, layout.exchange.blocks)
    return type(axes)(*(P() if axis is None else split for axis in axes))


def _by_mesh(updates, layout: Layout, spread: Spread) -> Placed:
    mesh, table = mesh_of(layout), table_spec(layout)
    batch = batch_spec(layout, spread.axes)
    state = TrainState(params=table, opt_state=P(), step=P())
    mapped = jax.shard_map(
        updates,
        mesh=mesh,
        in_specs=(state, batch),
        out_specs=(state, P()),
        check_vma=False,  # that copies are equal is for the tests to show
    )

    def put(values, specs):
        return jax.tree.map(
            lambda x, spec: _global_array(x, NamedSharding(mesh, spec)), values, specs
        )

    def place_state(whole: TrainState) -> TrainState:
        specs = TrainState(
            params=jax.tree.map(lambda _: table, whole.params),
            opt_state=jax.tree.map(lambda _: P(), whole.opt_state),
            step=P(),
        )
        return put(spread.fill_state(whole), specs)

    def place_batch(values):
        filled = zip(spread.fill_batch(values), batch, strict=True)
        return type(values)(
            *(None if x is None else put(x, spec) for x, spec in filled)
        )

    return Placed(
        jax.jit(mapped, donate_argnums=0),
        place_state,
        place_batch,
        lambda placed: spread.cut_state(jax.tree.map(_host_array, placed)),
    )


def _by_pmap(updates, layout: Layout, spread: Spread) -> Placed:
    num = layout.num_devices
    table = None if layout.tables == "replicated" else 0
    state = TrainState(params=table, opt_state=None, step=None)
    is_split = layout.tables != "columns"  # there every device has all blocks
    axes = spread.axes if is_split else type(spread.axes)(*[None] * len(spread.axes))
    apply_updates = jax.pmap(
        updates,
        axis_name=_AXIS,
        in_axes=(state, axes),
        out_axes=(state, None),
        devices=jax.devices()[:num],
        donate_argnums=0,
    )

    def split_table(x):
        """[V, D] -> [devices, ...]."""
        match layout.tables:
            case "replicated":
                return x
            case "columns":
                return x.reshape(len(x), num, -1).swapaxes(0, 1)
            case "rows":
                return x.reshape(num, -1, x.shape[1])

    def join_table(x):
        match layout.tables:
            case "replicated":
                return x
            case "columns":
                return x.swapaxes(0, 1).reshape(x.shape[1], -1)
            case "rows":
                return x.reshape(-1, x.shape[2])

    def place_state(whole: TrainState) -> TrainState:
        filled = spread.fill_state(whole)
        return filled._replace(params=jax.tree.map(split_table, filled.params))

    def whole_state(placed: TrainState) -> TrainState:
        host = jax.tree.map(_host_array, placed)
        joined = host._replace(params=jax.tree.map(join_table, host.params))
        return spread.cut_state(joined)

    def place_batch(batch):
        filled = spread.fill_batch(batch) if is_split else batch
        return type(batch)(
            *(
                x if axis is None else x.reshape(len(x), num, -1, *x.shape[2:])
                for x, axis in zip(filled, axes, strict=True)
            )
        )

    return Placed(apply_updates, place_state, place_batch, whole_state)


def _global_array(x, sharding: NamedSharding) -> jax.Array:
    """`x`, which every process has whole, laid out over the devices of all."""
    if isinstance(x, jax.Array) and x.sharding == sharding:
        return x
    host = np.asarray(x)
    with jax.enable_x64(True):  # float64 stays as it is
        return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)


def _host_array(x) -> np.ndarray:
    """All of `x`, whichever devices and processes have it."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
        return np.asarray(x)
    if x.is_fully_replicated:
        return np.asarray(x.addressable_data(0))
    whole = np.empty(x.shape, x.dtype)
    with jax.enable_x64(x.dtype == np.float64):
        for start in range(0, len(x), _ROWS_AT_ONCE):  # a device may not hold them all
            rows = x[start : start + _ROWS_AT_ONCE]
            whole[start : start + len(rows)] = multihost_utils.process_allgather(
                rows, tiled=True
            )
    return whole


def _fill_tables(state: TrainState, layout: Layout, shape: tuple[int, int]):
    """`state` with tables filled up to what the devices have together."""
    wide = layout.whole_shape(*shape)

    def fill(x):
        missing = [(0, n - m) for n, m in zip(wide, x.shape, strict=True)]
        return np.pad(x, missing) if any(map(any, missing)) else x

    return state._replace(params=jax.tree.map(fill, state.params))


def _cut_tables(state: TrainState, shape: tuple[int, int]) -> TrainState:
    def cut(x):
        whole = np.array(x[: shape[0], : shape[1]], order="C")
        whole.flags.writeable = False
        return whole

    return state._replace(params=jax.tree.map(cut, state.params))


def _fill_blocks(batch: Batch, layout: Layout) -> Batch:
    """`batch` with empty blocks in every update, up to what divides."""
    given = batch.ids.shape[1]
    missing = layout.num_blocks(given) - given
    if missing == 0:
        return batch

    def fill(x, value):
        pad = [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2)
        return np.pad(x, pad, constant_values=value)

    names = ("ids", "sequence", "radius", "noise")
    return batch._replace(
        **{name: fill(getattr(batch, name), getattr(PADDING, name)) for name in names}
    )
