"""Compiles updates for the devices of a layout; moves arrays to devices and back.

Arrays that cannot be cut into equal shards are padded: batches with empty blocks,
which change nothing, and parameters with columns of zeros and rows without an id, which
stay as they are.

One rule shards the whole state, that of the optimizer included: an array [V, D] is
sharded as the tables are, an array [V] as their rows are, and a scalar is replicated.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, NewType, Self

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from embedder.engine.mesh_layout import (
    PMAP_AXIS,
    REPLICAS,
    MeshLayout,
    batch_spec,
    map_batch,
    mesh_of,
    replicas_spec,
    table_spec,
)
from embedder.engine.state import TrainState, device_state

_ROWS_AT_ONCE = 2**16  # rows of an array that processes exchange at once


PlacedState = NewType("PlacedState", TrainState)
"""A state where updates run. `apply_updates` consumes it: do not use it again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledStep:
    """Compiled updates: the contract of XLA on every layout, and of the CPU kernel."""

    apply_updates: Callable[[PlacedState, Any], tuple[PlacedState, Any]]
    """Applies the S updates of a batch; returns the state after them, and sums."""
    place_state: Callable[[TrainState], PlacedState]
    """Copies whole arrays of NumPy to the devices; the argument stays as it is."""
    place_batch: Callable[[Any], Any]
    """Pads a batch of NumPy and moves it to the devices."""
    whole_state: Callable[[PlacedState], TrainState]
    """Gathers whole arrays of NumPy, without padding; does not consume the state."""

    def around(
        self,
        before: Callable[[TrainState], TrainState],
        after: Callable[[TrainState], TrainState],
    ) -> Self:
        """This program with `before` of each whole state that is placed, and `after` of
        each that was gathered."""
        place, whole = self.place_state, self.whole_state
        return dataclasses.replace(
            self,
            place_state=lambda state: place(before(state)),
            whole_state=lambda placed: after(whole(placed)),
        )


class Placement(NamedTuple):
    """How the arrays of some updates are sharded and padded."""

    axes: Any  # a batch with, for each array, the axis that is sharded, or None
    num_axes: Any  # a state with, for each array, its number of axes; 0: replicated
    pad_state: Callable[[TrainState], TrainState]
    unpad_state: Callable[[TrainState], TrainState]
    pad_batch: Callable[[Any], Any]
    replica_axes: Any = None  # a batch with, for each array, the axis of replicas

    @property
    def has_replicas(self) -> bool:
        """Whether the arrays of a state have a first axis of replicas."""
        return self.replica_axes is not None


def place_updates(
    updates,
    layout: MeshLayout,
    placement: Placement,
    compiler_options: dict[str, str] | None = None,
) -> CompiledStep:
    """The program of `updates`, which is what one device of `layout` computes.

    Args:
      compiler_options: of XLA, as `jax.jit` takes them. `pmap` takes none.
    """
    jit = functools.partial(
        jax.jit, donate_argnums=0, compiler_options=compiler_options
    )
    match layout.mode:
        case "jit":
            return CompiledStep(
                apply_updates=jit(updates),
                place_state=lambda state: PlacedState(device_state(state)),
                place_batch=lambda batch: batch,
                whole_state=jax.device_get,
            )
        case "sharded":
            return _by_mesh(updates, layout, placement, jit)
        case "pmap" if layout.replica_devices > 1:
            return _replicas_by_pmap(updates, layout, placement)
        case "pmap":
            return _by_pmap(updates, layout, placement)


def _by_mesh(
    updates, layout: MeshLayout, placement: Placement, jit: Callable
) -> CompiledStep:
    mesh, table = mesh_of(layout), table_spec(layout)
    batch = batch_spec(layout, placement.axes, placement.replica_axes)
    first = replicas_spec(layout) if placement.has_replicas else ()
    state = jax.tree.map(
        lambda num_axes: P(*first, *table[:num_axes]), placement.num_axes
    )

    def updates_and_all_sums(state, batch):
        """Every process reads the sums, those of other devices' replicas too."""
        state, sums = updates(state, batch)
        gather = functools.partial(jax.lax.all_gather, axis_name=REPLICAS, tiled=True)
        return state, jax.tree.map(gather, sums)

    mapped = jax.shard_map(
        updates if layout.replica_devices == 1 else updates_and_all_sums,
        mesh=mesh,
        in_specs=(state, batch),
        out_specs=(state, P()),
        check_vma=False,  # tests show that replicated results are equal
    )

    def put(values, specs):
        """Puts arrays on devices; `specs` may have one for all arrays of a subtree."""
        return jax.tree.map(
            lambda spec, x: jax.tree.map(
                lambda array: _global_array(array, NamedSharding(mesh, spec)), x
            ),
            specs,
            values,
        )

    def place_state(whole: TrainState) -> PlacedState:
        return PlacedState(put(placement.pad_state(whole), state))

    def place_batch(values):
        return map_batch(put, placement.pad_batch(values), batch)

    return CompiledStep(
        apply_updates=jit(mapped),
        place_state=place_state,
        place_batch=place_batch,
        whole_state=lambda placed: placement.unpad_state(
            jax.tree.map(_host_array, placed)
        ),
    )


def _by_pmap(updates, layout: MeshLayout, placement: Placement) -> CompiledStep:
    num = layout.num_devices
    fewest_axes = {"rows": 1, "columns": 2, "replicated": math.inf}[layout.tables]
    state = jax.tree.map(
        lambda num_axes: 0 if num_axes >= fewest_axes else None, placement.num_axes
    )
    is_split = layout.tables != "columns"  # there every device has all blocks
    axes = placement.axes if is_split else jax.tree.map(lambda _: None, placement.axes)
    apply_updates = jax.pmap(
        updates,
        axis_name=PMAP_AXIS,
        in_axes=(state, axes),
        out_axes=(state, None),
        devices=jax.devices()[:num],
        donate_argnums=0,
    )

    first = int(placement.has_replicas)  # axis of the rows of a table

    def split(x):
        """[V, D] or [V] -> [devices, ...], if it is sharded."""
        if x.ndim - first < fewest_axes:
            return x
        axis = x.ndim - 1 if layout.tables == "columns" else first
        parts = x.reshape(*x.shape[:axis], num, -1, *x.shape[axis + 1 :])
        return np.moveaxis(parts, axis, 0)

    def join(x):
        if x.ndim - first <= fewest_axes:
            return x
        axis = x.ndim - 2 if layout.tables == "columns" else first
        parts = np.moveaxis(x, 0, axis)
        return parts.reshape(*parts.shape[:axis], -1, *parts.shape[axis + 2 :])

    def place_state(whole: TrainState) -> PlacedState:
        return PlacedState(jax.tree.map(split, placement.pad_state(whole)))

    def whole_state(placed: PlacedState) -> TrainState:
        host = jax.tree.map(_host_array, placed)
        return placement.unpad_state(jax.tree.map(join, host))

    def place_batch(batch):
        if not is_split:
            return batch

        def split(x, axis):
            return x if axis is None else x.reshape(len(x), num, -1, *x.shape[2:])

        return map_batch(split, placement.pad_batch(batch), axes)

    return CompiledStep(
        apply_updates=apply_updates,
        place_state=place_state,
        place_batch=place_batch,
        whole_state=whole_state,
    )


def _replicas_by_pmap(
    updates, layout: MeshLayout, placement: Placement
) -> CompiledStep:
    """Each device has some replicas, and shares nothing with the others."""
    num, axes = layout.num_devices, placement.replica_axes
    apply_updates = jax.pmap(
        updates,
        axis_name=PMAP_AXIS,
        in_axes=(0, axes),
        out_axes=0,
        devices=jax.devices()[:num],
        donate_argnums=0,
    )

    def split(x, axis: int | None):
        if axis is None:
            return x
        return x.reshape(*x.shape[:axis], num, -1, *x.shape[axis + 1 :])

    def place_state(whole: TrainState) -> PlacedState:
        padded = placement.pad_state(whole)
        return PlacedState(jax.tree.map(lambda x: split(x, 0), padded))

    def whole_state(placed: PlacedState) -> TrainState:
        host = jax.tree.map(_host_array, placed)
        joined = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), host)
        return placement.unpad_state(joined)

    return CompiledStep(
        apply_updates=apply_updates,
        place_state=place_state,
        place_batch=lambda batch: map_batch(split, placement.pad_batch(batch), axes),
        whole_state=whole_state,
    )


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
