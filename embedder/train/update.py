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

    ids: dict[str, jax.Array]  # i32[R]
    gradients: dict[str, jax.Array]  # [R, D]
    weights: dict[str, jax.Array]  # [R], terms of each occurrence


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

    def reporting(state: TrainState, batch: Batch):
        return one_update(model, optimizer, state, batch)

    def silent(state: TrainState, batch: Batch):
        return one_update(model, optimizer, state, batch)[0], None

    def group(state: TrainState, batch: Batch):
        state, loss = reporting(state, jax.tree.map(lambda x: x[0], batch))
        if loss_interval == 1:
            return state, loss
        rest = jax.tree.map(lambda x: x[1:], batch)
        return jax.lax.scan(silent, state, rest)[0], loss

    def updates(state: TrainState, batches: Batch):
        groups = jax.tree.map(
            lambda x: x.reshape(-1, loss_interval, *x.shape[1:]), batches
        )
        return jax.lax.scan(group, state, groups)

    return jax.jit(updates, donate_argnums=0)


def update_rows(model: Model, optimizer, state: TrainState, batch: Batch):
    """The state after one update by gathered rows, and its `Loss`."""
    loss, rows = row_gradients(model, state.params, batch)
    tables = state.params["tables"]
    weights = {
        name: _row_totals(rows.ids[name], rows.weights[name], len(table))[
            rows.ids[name]
        ]
        for name, table in tables.items()
    }
    steps, opt_state = optimizer.update(
        rows.gradients, state.opt_state, weights=weights, rate=batch.rate
    )
    tables = {
        name: table.at[rows.ids[name]].add(steps[name])
        for name, table in tables.items()
    }
    return TrainState({"tables": tables}, opt_state, state.step + 1), loss


def update_dense(model: Model, optimizer, state: TrainState, batch: Batch):
    """The state after one update by gradients of whole tables, and its `Loss`."""
    ids = _row_ids(batch)
    pairs = _pairs(model, batch)

    def total(params):
        rows = model.tables.apply(params, ids["input"], ids["output"])
        return _loss(model, dict(zip(ids, rows, strict=True)), pairs, batch)

    value, gradients = jax.value_and_grad(total)(state.params)
    weights = {
        name: _row_totals(ids[name], weight, len(state.params["tables"][name]))
        for name, weight in _weights(model, pairs, batch).items()
    }
    steps, opt_state = optimizer.update(
        gradients, state.opt_state, weights={"tables": weights}, rate=batch.rate
    )
    params = optax.apply_updates(state.params, steps)
    loss = Loss(value, objective.num_terms(pairs, model.architecture))
    return TrainState(params, opt_state, state.step + 1), loss


def row_gradients(model: Model, params: hk.Params, batch: Batch):
    """`Loss` of an update and the `RowGradients` of the rows that it gathers."""
    ids = _row_ids(batch)
    pairs = _pairs(model, batch)
    gathered = model.tables.apply(params, ids["input"], ids["output"])
    # Without the barrier XLA gathers again inside the loss, and then copies the table.
    rows = dict(zip(ids, jax.lax.optimization_barrier(gathered), strict=True))
    value, gradients = jax.value_and_grad(
        lambda rows: _loss(model, rows, pairs, batch)
    )(rows)
    loss = Loss(value, objective.num_terms(pairs, model.architecture))
    return loss, RowGradients(ids, gradients, _weights(model, pairs, batch))


def _row_ids(batch: Batch) -> dict[str, jax.Array]:
    """Ids of the rows that an update gathers from each table, i32[R]."""
    tokens = batch.ids.reshape(-1)
    output = jnp.concatenate([tokens, batch.noise.reshape(-1)])
    return {"input": tokens, "output": output}


def _pairs(model: Model, batch: Batch) -> objective.Pairs:
    return objective.pairs(
        batch.sequence,
        batch.radius,
        tile=batch.ids.shape[1] // batch.noise.shape[1],
        window=model.window,
        dtype=batch.rate.dtype,
    )


def _loss(model: Model, rows: dict[str, jax.Array], pairs, batch: Batch):
    num_tokens = batch.ids.size
    shaped = Rows(
        input=rows["input"].reshape(*batch.ids.shape, -1),
        output=rows["output"][:num_tokens].reshape(*batch.ids.shape, -1),
        noise=rows["output"][num_tokens:].reshape(*batch.noise.shape, -1),
    )
    match model.architecture:
        case "skipgram":
            loss = objective.skipgram_loss
        case "cbow":
            loss = objective.cbow_loss
    return loss(shaped, pairs, window=model.window, negative=model.negative)


def _weights(model: Model, pairs, batch: Batch) -> dict[str, jax.Array]:
    """Pair terms of each gathered row, [R], by table."""
    match model.architecture:
        case "skipgram":
            terms = objective.skipgram_weights
        case "cbow":
            terms = objective.cbow_weights
    weights = terms(
        pairs,
        window=model.window,
        negative=model.negative,
        num_noise=batch.noise.shape[2],
    )
    output = jnp.concatenate([weights.output.reshape(-1), weights.noise.reshape(-1)])
    return {"input": weights.input.reshape(-1), "output": output}


def _row_totals(ids, weights, num_rows: int):
    """Sum of the weights of each row's occurrences, [V]."""
    return jnp.zeros(num_rows, weights.dtype).at[ids].add(weights)
