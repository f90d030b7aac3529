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
from embedder.tables.subwords import TABLE, SubwordSizes, no_lists
from embedder.tables.update import host_state, updates_function

TABLE_AXES = Batch(Blocks(ids=1, sequence=1, radius=1, noise=1, weight=1), rate=None)
"""Axis 1, the blocks of S updates, is sharded."""
REPLICA_AXES = Batch(
    Blocks(ids=2, sequence=2, radius=2, noise=2, weight=2),
    **{"rate": 1, "negative": 1, "cap": 1, "above": 1},
)
"""The axis of replicas in their batches: [S, N, K, ...], [S, K], [1, K] and, of trees,
[2 V - 1, K]."""


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
    output_rows: int | None = None,
    subwords: SubwordSizes | None = None,
) -> Program:
    """The program of the updates of `model` on `layout`.

    Args:
      model: with `tables` of the shape of a device's shard.
      shape: of the whole input table, [V, D].
      has_replicas: whether the program is of replicas, `engine.replicas`.
      factored: names of the tables whose rows have factors, `tables.row_factors`.
      output_rows: rows of the output table; None: V.
      subwords: of a model with subwords.
    """
    updates = updates_function(
        model._replace(exchange=layout.exchange, num_columns=shape[1]),
        optimizer,
        update=update,
        loss_interval=loss_interval,
        subwords=subwords,
    )
    rows = shape[0], output_rows or shape[0]
    empty = host_state(optimizer, np.zeros((rows[0], 0)), np.zeros((rows[1], 0)))
    if factored:
        factors = RowFactors(**dict.fromkeys(factored, np.zeros(1)))
        empty = with_factors(empty, factors)
    if subwords is not None:
        tables = {**empty.params["tables"], TABLE: np.zeros((subwords.num_rows, 0))}
        empty = empty._replace(params={"tables": tables}, extras=no_lists())
    num_rows = jax.tree.map(_num_rows, empty)
    placement = Placement(
        TABLE_AXES,
        jax.tree.map(np.ndim, empty),
        lambda state: _pad_tables(state, layout, shape[1]),
        lambda state: _unpad_tables(state, num_rows, shape[1]),
        lambda batch: _pad_blocks(batch, layout),
    )
    if has_replicas:
        updates, placement = vmap_updates(updates, placement, REPLICA_AXES)
    return place_updates(updates, layout, placement)


def _num_rows(x) -> int:
    """Rows of an array of a state; 0 of a scalar."""
    return np.shape(x)[0] if np.ndim(x) else 0


def _pad_tables(state: TrainState, layout: Layout, vector_size: int):
    """`state` with arrays of rows, [rows, D] and [rows], padded to the size of all
    devices together."""

    def fill(x):
        wide = layout.padded_shape(_num_rows(x), vector_size)
        missing = [(0, n - m) for n, m in zip(wide, x.shape, strict=False)]
        return np.pad(x, missing) if any(map(any, missing)) else x

    return jax.tree.map(fill, state)


def _unpad_tables(state: TrainState, num_rows: TrainState, vector_size: int):
    def cut(x, rows):
        shape = rows, vector_size
        whole = np.array(x[tuple(map(slice, shape[: np.ndim(x)]))], order="C")
        whole.flags.writeable = False
        return whole

    params, opt_state = jax.tree.map(
        cut, (state.params, state.opt_state), (num_rows.params, num_rows.opt_state)
    )
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
