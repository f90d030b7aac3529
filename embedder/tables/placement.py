"""Updates of tables on the devices of a layout: sharding and padding."""

from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np

from embedder.engine.layout import Layout, map_batch
from embedder.engine.program import Placement, Program, place_updates
from embedder.engine.replicas import vmap_updates
from embedder.engine.rules import RowRule
from embedder.engine.state import TrainState
from embedder.tables.blocks import PADDING, Blocks
from embedder.tables.prepare import Batch, Model
from embedder.tables.row_factors import RowFactors, with_factors
from embedder.tables.update import host_state, updates_function

TABLE_AXES = Batch(Blocks(ids=1, sequence=1, radius=1, noise=1, weight=1), rate=None)
"""Axis 1, the blocks of S updates, is sharded."""
REPLICA_AXES = Batch(
    Blocks(ids=2, sequence=2, radius=2, noise=2, weight=2), rate=1, negative=1, cap=1
)
"""The axis of replicas in their batches, [S, N, K, ...], [S, K] and [1, K]."""


def place(
    model: Model,
    optimizer: RowRule,
    layout: Layout,
    shape: tuple[int, int],
    *,
    update: Literal["rows", "dense"],
    loss_interval: int,
    has_replicas: bool = False,
    factored: Sequence[str] = (),
) -> Program:
    """The program of the updates of `model` on `layout`.

    Args:
      model: with `tables` of the shape of a device's shard.
      shape: of a whole table, [V, D].
      has_replicas: whether the program is of replicas, `engine.replicas`.
      factored: names of the tables whose rows have factors, `tables.row_factors`.
    """
    updates = updates_function(
        model._replace(exchange=layout.exchange, num_columns=shape[1]),
        optimizer,
        update=update,
        loss_interval=loss_interval,
    )
    empty = host_state(optimizer, *np.zeros((2, 0, 0)))
    if factored:
        factors = RowFactors(**dict.fromkeys(factored, np.zeros(0)))
        empty = with_factors(empty, factors)
    placement = Placement(
        TABLE_AXES,
        jax.tree.map(np.ndim, empty),
        lambda state: _pad_tables(state, layout, shape),
        lambda state: _unpad_tables(state, shape),
        lambda batch: _pad_blocks(batch, layout),
    )
    if has_replicas:
        updates, placement = vmap_updates(updates, placement, REPLICA_AXES)
    return place_updates(updates, layout, placement)


def _pad_tables(state: TrainState, layout: Layout, shape: tuple[int, int]):
    """`state` with arrays [V, D] and [V] padded to the size of all devices together."""
    wide = layout.padded_shape(*shape)

    def fill(x):
        missing = [(0, n - m) for n, m in zip(wide, x.shape, strict=False)]
        return np.pad(x, missing) if any(map(any, missing)) else x

    return jax.tree.map(fill, state)


def _unpad_tables(state: TrainState, shape: tuple[int, int]) -> TrainState:
    def cut(x):
        whole = np.array(x[tuple(map(slice, shape[: np.ndim(x)]))], order="C")
        whole.flags.writeable = False
        return whole

    params, opt_state = jax.tree.map(cut, (state.params, state.opt_state))
    return state._replace(params=params, opt_state=opt_state)


def _pad_blocks(batch: Batch, layout: Layout) -> Batch:
    """`batch` with every update padded by empty blocks to equal shards."""
    given = batch.blocks.ids.shape[1]
    missing = layout.num_blocks(given) - given
    if missing == 0:
        return batch

    def fill(x, value):
        pad = [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2)
        return np.pad(x, pad, constant_values=value)

    return batch._replace(blocks=map_batch(fill, batch.blocks, PADDING.blocks))
