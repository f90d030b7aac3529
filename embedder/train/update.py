"""One update of the tables, and many of them in one compiled call.

By rows: differentiate with respect to the gathered rows and scatter the result, so that
an update costs the same whatever the size of the vocabulary. Dense: differentiate with
respect to the tables; equal for SGD, and slow, it is there to check the first.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.model import objective
from embedder.model.objective import Architecture, Rows


class Batch(NamedTuple):
    """The data of one update; with a leading axis [S], of S updates."""

    ids: jax.Array  # i32[N, T]
    sequence: jax.Array  # i32[N, T]
    radius: jax.Array  # i8[N, T]
    noise: jax.Array  # i32[N, G, K]
    rate: jax.Array  # learning rate, in the dtype of the tables


class TrainState(NamedTuple):
    """All that an update changes."""

    params: hk.Params  # {"tables": {"input": [V, D], "output": [V, D]}}
    opt_state: optax.OptState
    step: jax.Array  # i32[], updates applied so far


class Loss(NamedTuple):
    """Loss of an update, summed over its positive terms, and how many there are."""

    total: jax.Array
    num_terms: jax.Array


class RowGradients(NamedTuple):
    """Gradients of gathered rows, the ids of the rows, and their weights, by table."""

    ids: dict[str, jax.Array]  # i32[N, G, R]
    gradients: dict[str, jax.Array]  # [N, G, R, D]
    weights: dict[str, jax.Array]  # [N, G, R], terms of each occurrence


class Carry(NamedTuple):
    """What goes from one update to the next within a call."""

    state: TrainState
    zeros: dict[str, jax.Array]  # [V], by table: where row weights are summed


class Model(NamedTuple):
    """What the updates of a run have in common."""

    tables: hk.Transformed
    architecture: Architecture
    window: int
    negative: int


def initial_state(model: Model, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first update."""
    no_ids = np.zeros(0, np.int32)
    with jax.enable_x64(True):  # or float64 tables would be cut to float32
        params = model.tables.init(None, no_ids, no_ids)["tables"]
    return state_of_tables(optimizer, params["input"], params["output"])


def state_of_tables(
    optimizer: optax.GradientTransformation, input: np.ndarray, output: np.ndarray
) -> TrainState:
    """The state that has these tables, both [V, D], and no updates behind it."""
    with jax.enable_x64(True):
        params = {"tables": {"input": jnp.array(input), "output": jnp.array(output)}}
        return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32))


def make_updates(
    model: Model,
    optimizer: optax.GradientTransformationExtraArgs,
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
    one_update = {"rows": update_rows, "dense": update_dense}[update]

    def reporting(carry: Carry, batch: Batch):
        return one_update(model, optimizer, carry, batch)

    def silent(carry: Carry, batch: Batch):
        return one_update(model, optimizer, carry, batch)[0], None

    def group(carry: Carry, batch: Batch):
        carry, loss = reporting(carry, jax.tree.map(lambda x: x[0], batch))
        if loss_interval == 1:
            return carry, loss
        rest = jax.tree.map(lambda x: x[1:], batch)
        return jax.lax.scan(silent, carry, rest)[0], loss

    def updates(state: TrainState, batches: Batch):
        groups = jax.tree.map(
            lambda x: x.reshape(-1, loss_interval, *x.shape[1:]), batches
        )
        zeros = {
            name: jnp.zeros(len(table), table.dtype)
            for name, table in state.params["tables"].items()
        }
        carry, loss = jax.lax.scan(group, Carry(state, zeros), groups)
        return carry.state, loss

    return jax.jit(updates, donate_argnums=0)


def update_rows(model: Model, optimizer, carry: Carry, batch: Batch):
    """The carry after one update by gathered rows, and its `Loss`."""
    state = carry.state
    loss, rows = row_gradients(model, state.params, batch)
    tables = state.params["tables"]
    weights, zeros = {}, {}
    for name, ids in rows.ids.items():
        weights[name], zeros[name] = _totals(carry.zeros[name], ids, rows.weights[name])
    steps, opt_state = optimizer.update(
        rows.gradients, state.opt_state, weights=weights, rate=batch.rate
    )
    tables = {
        name: table.at[rows.ids[name]].add(steps[name])
        for name, table in tables.items()
    }
    state = TrainState({"tables": tables}, opt_state, state.step + 1)
    return Carry(state, zeros), loss


def update_dense(model: Model, optimizer, carry: Carry, batch: Batch):
    """The carry after one update by gradients of whole tables, and its `Loss`."""
    state = carry.state
    ids, pairs, loss_of = _objective(model, batch)

    def total(params):
        return loss_of(Rows(*model.tables.apply(params, ids.input, ids.output)))

    value, gradients = jax.value_and_grad(total)(state.params)
    tables = state.params["tables"]
    weights = {
        name: _row_totals(ids._asdict()[name], weight, len(tables[name]))
        for name, weight in _weights(model, pairs, batch)._asdict().items()
    }
    steps, opt_state = optimizer.update(
        gradients, state.opt_state, weights={"tables": weights}, rate=batch.rate
    )
    params = optax.apply_updates(state.params, steps)
    loss = Loss(value, objective.num_terms(pairs, model.architecture))
    return carry._replace(state=TrainState(params, opt_state, state.step + 1)), loss


def row_gradients(model: Model, params: hk.Params, batch: Batch):
    """`Loss` of an update and the `RowGradients` of the rows that it gathers."""
    ids, pairs, loss_of = _objective(model, batch)
    gathered = Rows(*model.tables.apply(params, ids.input, ids.output))
    # Without the barrier XLA gathers again inside the loss, and then copies the table.
    rows = jax.lax.optimization_barrier(gathered)
    value, gradients = jax.value_and_grad(loss_of)(rows)
    loss = Loss(value, objective.num_terms(pairs, model.architecture))
    weights = _weights(model, pairs, batch)
    return loss, RowGradients(ids._asdict(), gradients._asdict(), weights._asdict())


def _objective(model: Model, batch: Batch):
    """Ids of the rows of an update, its pairs, and its loss as a function of rows."""
    match model.architecture:
        case "skipgram":
            gather, loss = objective.skipgram_ids, objective.skipgram_loss
        case "cbow":
            gather, loss = objective.cbow_ids, objective.cbow_loss
    ids = gather(batch.ids, batch.noise, window=model.window)
    pairs = objective.pairs(
        batch.sequence,
        batch.radius,
        tile=batch.ids.shape[1] // batch.noise.shape[1],
        window=model.window,
        dtype=batch.rate.dtype,
    )
    return ids, pairs, lambda rows: loss(rows, pairs, negative=model.negative)


def _weights(model: Model, pairs: objective.Pairs, batch: Batch) -> Rows:
    """Pair terms of each gathered row."""
    match model.architecture:
        case "skipgram":
            terms = objective.skipgram_weights
        case "cbow":
            terms = objective.cbow_weights
    return terms(pairs, negative=model.negative, num_noise=batch.noise.shape[2])


def _totals(zeros, ids, weights):
    """Sum of the weights of each row, at each of its occurrences; and zeros [V] again.

    To make new zeros in every update would cost as much as the vocabulary is large.
    """
    sums = zeros.at[ids].add(weights)
    totals = sums[ids]
    # 0, but by way of what was read: else XLA copies the sums, to clear and to read.
    return totals, sums.at[ids].set(jnp.minimum(totals, 0))


def _row_totals(ids, weights, num_rows: int):
    """Sum of the weights of each row's occurrences, [V]."""
    return jnp.zeros(num_rows, weights.dtype).at[ids].add(weights)
