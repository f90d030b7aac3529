"""One update of the tables, and many of them in one compiled call.

By rows: differentiate with respect to the gathered rows and scatter the result, so that
an update costs the same whatever the size of the vocabulary. A rule that is not linear
in the gradient gets the sum over the occurrences of each row, once for each distinct
row. Dense: differentiate with respect to the tables; equal for rules that leave rows
without a gradient as they are, and slow, it is there to check the first.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.engine.exchange import Exchange
from embedder.engine.rules import RowRule, plus_rows
from embedder.engine.state import TrainState
from embedder.tables import cbow, skipgram
from embedder.tables.blocks import Blocks
from embedder.tables.objective import Objective, Pairs, Rows, pairs_of
from embedder.tables.options import Architecture

Accumulators = dict[str, np.ndarray]
"""What an optimizer accumulates for each row, [V], by the name of the table."""


class Batch(NamedTuple):
    """The data of S updates."""

    blocks: Blocks  # [S, N, ...]
    rate: Any  # [S], learning rates, in the dtype of the tables


class Loss(NamedTuple):
    """Loss of an update, summed over its positive terms, and how many there are."""

    total: jax.Array
    num_terms: jax.Array


class Gathered(NamedTuple):
    """The rows that an update gathers, for the blocks of one device or of all."""

    ids: Rows  # i32[N, G, R]
    weights: Rows  # [N, G, R], pair terms of each occurrence


class Distinct(NamedTuple):
    """The distinct rows of an update, of all blocks; M occurrences have M slots.

    Slots are numbered by ascending id. A slot without a row has an id that is out of
    range of every table.
    """

    ids: Rows  # i32[M], the row of each slot: distinct and ascending
    slots: Rows  # i32[M], the slot of each occurrence


class Prepared(NamedTuple):
    """All of an update that does not depend on the tables; S of them with an axis [S].

    Computed for all updates of a call at once.
    """

    pairs: Pairs  # of the blocks of this device
    own: Rows | None  # ids of the rows of these blocks; None: those in `every`
    asked: Rows | None  # ids of all devices that hold one copy of the tables together
    every: Gathered  # of all blocks of the update
    rate: jax.Array  # learning rate
    distinct: Distinct | None = None  # only for rules that sum rows


class Carry(NamedTuple):
    """What one update hands to the next within a call."""

    state: TrainState
    zeros: dict[str, jax.Array]  # [V], by table: to sum row weights in, if a rule has


class Model(NamedTuple):
    """What all updates of a run share."""

    tables: hk.Transformed
    objective: Objective
    window: int
    negative: int
    exchange: Exchange = Exchange()
    num_columns: int | None = None  # D of whole tables; None: as a device has


def objective_of(architecture: Architecture) -> Objective:
    """The objective of that name."""
    match architecture:
        case "skipgram":
            return skipgram
        case "cbow":
            return cbow


def initial_state(model: Model, optimizer: RowRule) -> TrainState:
    """The state before the first update, with tables of NumPy."""
    no_ids = Rows(np.zeros(0, np.int32), np.zeros(0, np.int32))
    with jax.enable_x64(True):  # or float64 tables would be cut to float32
        params: Any = model.tables.init(None, no_ids)
    return host_state(optimizer, **params["tables"])


def host_state(
    optimizer: RowRule,
    input: np.ndarray,
    output: np.ndarray,
    accumulators: Accumulators | None = None,
) -> TrainState:
    """The state before any update, with these tables [V, D].

    Args:
      accumulators: of an optimizer that has some; None: those at the start.
    """
    params = {"tables": {"input": np.asarray(input), "output": np.asarray(output)}}
    with jax.enable_x64(True):
        opt_state = jax.device_get(optimizer.transformation.init(params))
    if accumulators is not None:
        opt_state = optax.tree.set(opt_state, accumulators={"tables": accumulators})
    return TrainState(params, opt_state, np.zeros((), np.int32))


def accumulators_of(state: TrainState) -> Accumulators | None:
    """The accumulators in the state of the optimizer; None: it has none."""
    found = optax.tree.get(state.opt_state, "accumulators")
    return None if found is None else found["tables"]


def make_updates(
    model: Model,
    optimizer: RowRule,
    *,
    update: Literal["rows", "dense"],
    loss_interval: int,
) -> Callable[[TrainState, Batch], tuple[TrainState, Loss]]:
    """The jitted function that applies S updates one after the other.

    It takes a state and a `Batch` with leading axis S, a multiple of `loss_interval`,
    and returns the state after them with the `Loss` [S / loss_interval] of every
    `loss_interval`-th update from the first; the others do not compute it. It donates
    the state it is given: do not use that again.
    """
    updates = updates_function(
        model, optimizer, update=update, loss_interval=loss_interval
    )
    return jax.jit(updates, donate_argnums=0)


def updates_function(
    model: Model,
    optimizer: RowRule,
    *,
    update: Literal["rows", "dense"],
    loss_interval: int,
) -> Callable[[TrainState, Batch], tuple[TrainState, Loss]]:
    """The function that `make_updates` compiles.

    On several devices it is what one of them computes, over the axes of
    `model.exchange`: with its blocks and its shard of the tables.
    """
    sums_rows = optimizer.sums_rows and update == "rows"
    by_rows = update_summed_rows if sums_rows else update_rows
    one_update = {"rows": by_rows, "dense": update_dense}[update]

    def reporting(carry: Carry, update: Prepared):
        carry, loss = one_update(model, optimizer, carry, update)
        return carry, model.exchange.sum_blocks(loss)

    def silent(carry: Carry, update: Prepared):
        return one_update(model, optimizer, carry, update)[0], None

    def group(carry: Carry, updates: Prepared):
        carry, loss = reporting(carry, jax.tree.map(lambda x: x[0], updates))
        if loss_interval == 1:
            return carry, loss
        rest = jax.tree.map(lambda x: x[1:], updates)
        return jax.lax.scan(silent, carry, rest)[0], loss

    def updates(state: TrainState, batches: Batch):
        prepared = prepare(model, batches)
        if sums_rows:
            prepared = prepared._replace(distinct=distinct_rows(prepared.every.ids))
        groups = jax.tree.map(
            lambda x: x.reshape(-1, loss_interval, *x.shape[1:]), prepared
        )
        zeros = {
            name: jnp.zeros(len(table), table.dtype)
            for name, table in state.params["tables"].items()
            if not sums_rows
        }
        carry, loss = jax.lax.scan(group, Carry(state, zeros), groups)
        return carry.state, loss

    return updates


def prepare(model: Model, batches: Batch) -> Prepared:
    """All of S updates that does not depend on the tables."""
    blocks = jax.tree.map(  # [S, N, ...] -> [S N, ...]
        lambda x: x.reshape(-1, *x.shape[2:]), batches.blocks
    )
    objective = model.objective
    ids = objective.row_ids(blocks.ids, blocks.noise, window=model.window)
    num_tiles, num_noise = blocks.noise.shape[1:]
    pairs = pairs_of(
        blocks.sequence,
        blocks.radius,
        tile=blocks.ids.shape[1] // num_tiles,
        window=model.window,
        dtype=batches.rate.dtype,
    )
    weights = objective.row_weights(pairs, negative=model.negative, num_noise=num_noise)
    ids, pairs, weights = jax.tree.map(
        lambda x: x.reshape(*batches.blocks.ids.shape[:2], *x.shape[1:]),
        (ids, pairs, weights),
    )
    exchange = model.exchange
    return Prepared(
        pairs=pairs,
        own=ids if exchange.blocks else None,
        asked=exchange.all_of_tables(ids),
        every=exchange.all_blocks(Gathered(ids, weights), axis=1),
        rate=batches.rate,
    )


def distinct_rows(ids: Rows) -> Distinct:
    """The distinct rows of S updates, by ids [S, ...] of their occurrences."""
    found = [jax.vmap(_distinct)(x.reshape(len(x), -1)) for x in ids]
    return Distinct(*(Rows(*each) for each in zip(*found, strict=True)))


def _distinct(ids):
    """The row of each slot and the slot of each occurrence, i32[M] both."""
    index = jnp.arange(len(ids), dtype=ids.dtype)
    ascending, order = jax.lax.sort((ids, index), num_keys=1, is_stable=False)
    is_new = jnp.concatenate(
        [jnp.zeros(1, ids.dtype), (ascending[1:] != ascending[:-1]).astype(ids.dtype)]
    )
    slots = jnp.cumsum(is_new, dtype=ids.dtype)
    no_rows = index + (np.iinfo(ids.dtype).max - len(ids))  # ascending too
    return (
        no_rows.at[slots].set(ascending, indices_are_sorted=True),
        jnp.zeros_like(ids).at[order].set(slots, unique_indices=True),
    )


def update_rows(model: Model, optimizer: RowRule, carry: Carry, update: Prepared):
    """The carry after one update by gathered rows, and its `Loss` of own blocks."""
    state = carry.state
    loss, gradients = row_gradients(model, state.params, update)
    gradients = model.exchange.all_blocks(gradients)
    tables = state.params["tables"]
    ids, weights, zeros = {}, {}, {}
    for name, table in tables.items():
        ids[name] = model.exchange.own_ids(table, getattr(update.every.ids, name))
        weights[name], zeros[name] = _totals(
            carry.zeros[name], ids[name], getattr(update.every.weights, name)
        )
    deltas, opt_state = optimizer.transformation.update(
        gradients._asdict(), state.opt_state, weights=weights, rate=update.rate
    )
    tables = {
        name: table.at[ids[name]].add(deltas[name]) for name, table in tables.items()
    }
    state = TrainState({"tables": tables}, opt_state, state.step + 1)
    return Carry(state, zeros), loss


def update_summed_rows(
    model: Model, optimizer: RowRule, carry: Carry, update: Prepared
):
    """As `update_rows`, by a rule that takes the summed gradient of each row."""
    state = carry.state
    loss, gradients = row_gradients(model, state.params, update)
    gradients = model.exchange.all_blocks(gradients)
    tables = state.params["tables"]
    assert update.distinct is not None
    ids, sums = {}, {}
    for name, table in tables.items():
        all_ids, slots = (getattr(rows, name) for rows in update.distinct)
        ids[name] = model.exchange.local_ids(table, all_ids)
        sums[name] = _row_sums(slots, getattr(gradients, name))
    deltas, opt_state = optimizer.transformation.update(
        {"tables": sums},
        state.opt_state,
        row_ids={"tables": ids},
        rate=update.rate,
        mean_columns=_mean_columns(model),
    )
    tables = {
        name: plus_rows(table, ids[name], deltas["tables"][name])
        for name, table in tables.items()
    }
    state = TrainState({"tables": tables}, opt_state, state.step + 1)
    return Carry(state, carry.zeros), loss


def update_dense(model: Model, optimizer: RowRule, carry: Carry, update: Prepared):
    """The carry after one update by gradients of whole tables; `Loss` of own blocks."""
    state = carry.state

    def total(params):
        rows = model.tables.apply(params, _own_ids(update))
        return _loss(model, rows, update.pairs)

    value, gradients = jax.value_and_grad(total)(state.params)
    tables = state.params["tables"]
    weights = {
        name: _row_totals(
            getattr(update.every.ids, name),
            getattr(update.every.weights, name),
            len(table),
        )
        for name, table in tables.items()
    }
    deltas, opt_state = optimizer.transformation.update(
        model.exchange.sum_blocks(gradients),
        state.opt_state,
        weights={"tables": weights},
        rate=update.rate,
        mean_columns=_mean_columns(model),
    )
    params = optax.apply_updates(state.params, deltas)
    loss = Loss(value, model.objective.num_terms(update.pairs))
    return carry._replace(state=TrainState(params, opt_state, state.step + 1)), loss


def row_gradients(model: Model, params: hk.Params, update: Prepared):
    """`Loss` of own blocks, and the gradients of the rows that they gather."""
    gathered = model.exchange.gather(
        lambda params, *ids: model.tables.apply(params, Rows(*ids)),
        params,
        _own_ids(update),
        update.asked,
    )
    # Without the barrier XLA gathers again inside the loss, and then copies the table.
    rows = jax.lax.optimization_barrier(Rows(*gathered))
    value, gradients = jax.value_and_grad(functools.partial(_loss, model))(
        rows, update.pairs
    )
    terms = model.objective.num_terms(update.pairs)
    return Loss(value, terms), gradients


def _own_ids(update: Prepared) -> Rows:
    return update.every.ids if update.own is None else update.own


def _loss(model: Model, rows: Rows, pairs: Pairs):
    """Loss of the blocks of this device, a scalar."""
    sum_columns = model.exchange.sum_columns
    return model.objective.loss(
        rows, pairs, negative=model.negative, sum_columns=sum_columns
    )


def _totals(zeros, ids, weights):
    """The summed weight of its row for each occurrence; and `zeros` [V] to reuse.

    New zeros in every update would cost time in proportion to the vocabulary.
    """
    sums = zeros.at[ids].add(weights)
    totals = sums[ids]
    # 0, but by way of what was read: else XLA copies the sums, to clear and to read.
    return totals, sums.at[ids].set(jnp.minimum(totals, 0))


def _row_sums(slots, gradients):
    """Sum of the gradients of each slot's occurrences, [M, D]."""
    flat = gradients.reshape(-1, gradients.shape[-1])
    return jnp.zeros_like(flat).at[slots].add(flat)


def _mean_columns(model: Model):
    """The mean over all columns of a table, of values [..., columns of this device]."""

    def mean(values):
        num_columns = model.num_columns or values.shape[-1]
        return model.exchange.sum_columns(values.sum(axis=-1)) / num_columns

    return mean


def _row_totals(ids, weights, num_rows: int):
    """Sum of the weights of each row's occurrences, [V]."""
    return jnp.zeros(num_rows, weights.dtype).at[ids].add(weights)
