"""One update of the tables, and many of them in one compiled call.

By rows: differentiate with respect to the gathered rows and scatter the result, so that
an update costs the same whatever the size of the vocabulary. A rule that is not linear
in the gradient gets the sum over the occurrences of each row, once for each distinct
row. Dense: differentiate with respect to the tables; equal for rules that leave rows
without a gradient as they are, and slow, it is there to check the first.
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.engine.rules import RowRule, plus_rows
from embedder.engine.state import TrainState
from embedder.tokens.objective import Pairs, Rows
from embedder.tokens.prepare import (
    Batch,
    Model,
    Prepared,
    distinct_inputs,
    distinct_rows,
    prepare,
    summed_weights,
)
from embedder.tokens.row_lr_multipliers import (
    factors_of_distinct,
    join_factors,
    keep_frozen,
    leave_out_frozen,
    scale,
    split_factors,
)
from embedder.tokens.subwords import (
    TABLE,
    SubwordSizes,
    compose_words,
    set_words,
    step_subwords,
)

TABLES = "input", "output"
"""The names of the tables; with subwords there is a third, `subwords.TABLE`."""

RowState = Mapping[str, np.ndarray]
"""What an optimizer keeps for each row, [V] or [V, D], by `TABLE_NAME`; see
`embedder.engine.rules.RowArray`."""


def row_state_names(rule: RowRule) -> list[str]:
    """The names of what a rule keeps for the rows of each table."""
    return [array.of(table) for array in rule.row_arrays for table in TABLES]


class TableParts(NamedTuple):
    """What tables have besides vectors, by which compiled updates differ."""

    factored: tuple[str, ...] = ()  # tables whose rows have factors of their rates
    depth: int = 0  # L, nodes of the longest path; 0: no hierarchical softmax
    subwords: SubwordSizes | None = None


class Loss(NamedTuple):
    """Loss of an update, summed over its positive terms, and how many there are."""

    total: jax.Array
    num_terms: jax.Array


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
    row_state: RowState | None = None,
) -> TrainState:
    """The state before any update, with these tables, [V, D] and [R, D].

    Args:
      row_state: what the optimizer keeps; None: as it starts.
    """
    params = {"tables": {"input": np.asarray(input), "output": np.asarray(output)}}
    with jax.enable_x64(True):
        opt_state = jax.device_get(optimizer.transformation.init(params))
    if row_state is not None:
        opt_state = optimizer.with_row_state(opt_state, row_state)
    return TrainState(params, opt_state, np.zeros((), np.int32))


def state_shapes(
    optimizer: RowRule,
    shape: tuple[int, int],
    dtype: str,
    output_rows: int | None = None,
) -> TrainState:
    """Shapes and dtypes of a state with tables of `shape` [V, D]; no device is used.

    Args:
      output_rows: rows of the output table; None: V.
    """
    rows = shape[0], output_rows or shape[0]
    tables = (jax.ShapeDtypeStruct((n, shape[1]), np.dtype(dtype)) for n in rows)
    params: Any = {"tables": dict(zip(TABLES, tables, strict=True))}
    with jax.enable_x64(True):
        opt_state = jax.eval_shape(optimizer.transformation.init, params)
    return TrainState(params, opt_state, np.zeros((), np.int32))


def updates_function(
    model: Model,
    optimizer: RowRule,
    *,
    update: Literal["rows", "dense"],
    loss_interval: int,
    subwords: SubwordSizes | None = None,
) -> Callable[[TrainState, Batch], tuple[TrainState, Loss]]:
    """The function that applies S updates one after the other, which JAX compiles.

    It takes a state and a `Batch` with leading axis S, a multiple of `loss_interval`,
    and returns the state after them with the `Loss` [S / loss_interval] of every
    `loss_interval`-th update from the first; the others do not compute it. On several
    devices it is what one of them computes, over the axes of `model.exchange`: with its
    blocks and its shard of the tables.

    Args:
      subwords: of a model with subwords, by SGD; its state has the index of them.
    """
    sums_rows = optimizer.sums_rows and update == "rows"
    by_rows: Callable = update_summed_rows if sums_rows else update_rows
    if subwords is not None:
        by_rows = functools.partial(update_subwords, longest=subwords.longest)

    def group_of(model: Model, optimizer: RowRule, factors: dict[str, jax.Array]):
        """Applies `loss_interval` updates, of which the first reports its loss."""
        one_update: Callable = by_rows
        if update == "dense":
            one_update = functools.partial(update_dense, factors=factors)

        def silent(state: TrainState, update: Prepared):
            return one_update(model, optimizer, state, update)[0], None

        def group(state: TrainState, updates: Prepared):
            first = jax.tree.map(lambda x: x[0], updates)
            state, loss = one_update(model, optimizer, state, first)
            loss = model.exchange.sum_blocks(loss)
            if loss_interval == 1:
                return state, loss
            rest = jax.tree.map(lambda x: x[1:], updates)
            return jax.lax.scan(silent, state, rest)[0], loss

        return group

    def updates(state: TrainState, batches: Batch):
        state, factors = split_factors(state)
        own_model, rule = model, optimizer
        if batches.negative is not None:  # of a model beside others
            own_model = model._replace(negative=batches.negative[0])
        if batches.cap is not None and optimizer.with_cap is not None:
            rule = optimizer.with_cap(batches.cap[0])
        prepared = prepare(own_model, batches)
        if factors and update == "rows":
            prepared = leave_out_frozen(prepared, factors, model.exchange)
        if sums_rows:
            distinct = distinct_rows(prepared.gathered.ids)
            prepared = prepared._replace(distinct=distinct)
            if factors:
                of_slots = factors_of_distinct(distinct, factors, model.exchange)
                prepared = prepared._replace(factors=of_slots)
        elif update == "rows" and rule.share is not None:
            weights = _summed_weights(model, state.params["tables"], prepared)
            shares = jax.tree.map(rule.share, weights)
            prepared = prepared._replace(shares=shares)
        if subwords is not None:
            words = distinct_inputs(prepared.gathered.ids)
            prepared = prepared._replace(distinct=words)
        groups = jax.tree.map(
            lambda x: x.reshape(-1, loss_interval, *x.shape[1:]), prepared
        )
        state, losses = jax.lax.scan(group_of(own_model, rule, factors), state, groups)
        return join_factors(state, factors), losses

    return updates


def _summed_weights(model: Model, tables, prepared: Prepared) -> Rows:
    """The weight of the row of each occurrence, summed over its update, [S, ...]."""
    ids, weights = prepared.gathered
    return Rows(
        *(
            summed_weights(
                model.exchange.row_indices(tables[name], getattr(ids, name)),
                getattr(weights, name),
                len(tables[name]),
            )
            for name in TABLES
        )
    )


def update_rows(model: Model, optimizer: RowRule, state: TrainState, update: Prepared):
    """The state after one update by gathered rows, and its `Loss` of own blocks."""
    loss, gradients = row_gradients(model, state.params, update)
    gradients = model.exchange.all_blocks(gradients)
    deltas, opt_state = optimizer.transformation.update(
        gradients._asdict(),
        state.opt_state,
        shares=update.shares and update.shares._asdict(),
        rate=update.rate,
    )
    deltas, tables = scale(deltas, update.factors), {}
    for name, table in state.params["tables"].items():
        ids = model.exchange.row_indices(table, getattr(update.gathered.ids, name))
        tables[name] = table.at[ids].add(deltas[name])
    return TrainState({"tables": tables}, opt_state, state.step + 1), loss


def update_summed_rows(
    model: Model, optimizer: RowRule, state: TrainState, update: Prepared
):
    """As `update_rows`, by a rule that takes the summed gradient of each row."""
    loss, gradients = row_gradients(model, state.params, update)
    gradients = model.exchange.all_blocks(gradients)
    tables = state.params["tables"]
    assert update.distinct is not None
    all_ids, slots = update.distinct
    ids = {
        name: model.exchange.ascending_indices(table, getattr(all_ids, name))
        for name, table in tables.items()
    }
    sums = _row_sums(slots, gradients)._asdict()
    deltas, opt_state = optimizer.transformation.update(
        {"tables": sums},
        state.opt_state,
        row_ids={"tables": ids},
        rate=update.rate,
        mean_columns=_mean_columns(model),
    )
    by_name = scale(deltas["tables"], update.factors)
    tables = {
        name: plus_rows(table, ids[name], by_name[name])
        for name, table in tables.items()
    }
    return TrainState({"tables": tables}, opt_state, state.step + 1), loss


def update_subwords(
    model: Model,
    optimizer: RowRule,
    state: TrainState,
    update: Prepared,
    *,
    longest: int,
):
    """As `update_rows`, where the rows of subwords learn in the place of input rows.

    Args:
      longest: subwords of a word, at most.
    """
    tables, index = state.params["tables"], state.extras
    assert update.distinct is not None and update.shares is not None
    assert optimizer.share is not None, "a rule that is linear in the gradient"
    words, slots = update.distinct.ids.input, update.distinct.slots
    vectors = compose_words(index, tables[TABLE], words, longest)
    tables = tables | {"input": set_words(tables["input"], words, vectors)}
    loss, gradients = row_gradients(model, {"tables": tables}, update)
    gradients = model.exchange.all_blocks(gradients)
    deltas, opt_state = optimizer.transformation.update(
        {"output": gradients.output},
        state.opt_state,
        shares={"output": update.shares.output},
        rate=update.rate,
    )
    of_words = [
        jnp.zeros((len(words), *x.shape[1:]), x.dtype).at[slots].add(x)
        for x in (
            gradients.input.reshape(-1, gradients.input.shape[-1]),
            update.gathered.weights.input.reshape(-1),
        )
    ]
    rows = step_subwords(
        *(index, tables[TABLE], words, *of_words),
        share=optimizer.share,
        rate=update.rate,
        longest=longest,
    )
    output = tables["output"].at[update.gathered.ids.output].add(deltas["output"])
    tables = tables | {"output": output, TABLE: rows}
    return TrainState({"tables": tables}, opt_state, state.step + 1, index), loss


def update_dense(
    model: Model,
    optimizer: RowRule,
    state: TrainState,
    update: Prepared,
    factors: Mapping[str, jax.Array] = MappingProxyType({}),
):
    """The state after one update by gradients of whole tables; `Loss` of own blocks.

    Args:
      factors: of the rows of whole tables, [V], by the name of their table.
    """

    def total(params):
        rows = model.tables.apply(params, _local_ids(update))
        return _loss(model, rows, update.pairs)

    value, gradients = jax.value_and_grad(total)(state.params)
    tables = state.params["tables"]
    ids, of_rows = update.gathered.ids._asdict(), update.gathered.weights
    weights = {
        name: jnp.zeros(len(table), each.dtype).at[ids[name]].add(each)
        for (name, table), each in zip(tables.items(), of_rows, strict=True)
    }
    gradients = model.exchange.sum_blocks(gradients)
    gradients = {"tables": keep_frozen(gradients["tables"], {}, factors)}
    deltas, opt_state = optimizer.transformation.update(
        gradients,
        state.opt_state,
        weights={"tables": weights},
        rate=update.rate,
        mean_columns=_mean_columns(model),
    )
    deltas = {"tables": scale(deltas["tables"], factors)}
    after = optax.apply_updates(state.params, deltas)
    params = {"tables": keep_frozen(after["tables"], tables, factors)}
    loss = Loss(value, model.objective.num_terms(update.pairs))
    return TrainState(params, opt_state, state.step + 1), loss


def row_gradients(model: Model, params: hk.Params, update: Prepared):
    """`Loss` of own blocks, and the gradients of the rows that they gather."""
    gathered = model.exchange.gather(
        lambda params, *ids: model.tables.apply(params, Rows(*ids)),
        params,
        _local_ids(update),
        update.requested_ids,
    )
    # Without the barrier XLA gathers again inside the loss, and then copies the table.
    rows = jax.lax.optimization_barrier(Rows(*gathered))
    value, gradients = jax.value_and_grad(functools.partial(_loss, model))(
        rows, update.pairs
    )
    terms = model.objective.num_terms(update.pairs)
    return Loss(value, terms), gradients


def _local_ids(update: Prepared) -> Rows:
    return update.gathered.ids if update.local_ids is None else update.local_ids


def _loss(model: Model, rows: Rows, pairs: Pairs):
    """Loss of the blocks of this device, a scalar."""
    sum_columns = model.exchange.sum_columns
    return model.objective.loss(
        rows, pairs, negative=model.negative, sum_columns=sum_columns
    )


def _row_sums(slots, gradients: Rows) -> Rows:
    """Sum of the gradients of each slot's occurrences, [M, D] for each table.

    One array for both tables: a GPU launches one fill and one scatter, not two each.
    """
    flat = [x.reshape(-1, x.shape[-1]) for x in gradients]
    both = jnp.concatenate(flat)
    sums = jnp.zeros_like(both).at[slots].add(both)
    return Rows(*jnp.split(sums, [len(flat[0])]))


def _mean_columns(model: Model):
    """The mean over all columns of a table, of values [..., columns of this device]."""

    def mean(values):
        num_columns = model.num_columns or values.shape[-1]
        return model.exchange.sum_columns(values.sum(axis=-1)) / num_columns

    return mean
