"""Updates of an encoder, several of them in one compiled call."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.encoders.networks import Array, Encoder, Params
from embedder.engine.exchange import Exchange
from embedder.engine.replicas import stack_states
from embedder.engine.state import TrainState

Leaf = TypeVar("Leaf")


class Batches(NamedTuple, Generic[Leaf]):
    """S updates of B examples each.

    Features and labels are either those of the batches; or they are those of the whole
    set of n examples, replicated on the devices, and `ids` are the rows of each batch.

    Batches of K replicas have K after B in `ids`, or in `features` and `labels` of
    batches; in `weights` where each has a bootstrap resample of its own. The whole set
    and `num` are the same for all replicas.
    """

    features: Leaf  # [S, B, ...]; of the whole set [n, ...]
    labels: Leaf  # i32[S, B]; of the whole set i32[n]
    ids: Leaf | None  # i32[S, B]
    weights: Leaf  # [S, B], 1, or of a resample; 0 for padding
    num: Leaf  # i32[1]: how many of the S updates are real, the first ones
    rates: Leaf | None = None  # f[P] or f[P, K], see `own_rates`; None: none differ


AXES: Batches[int | None] = Batches(1, 1, None, 1, None)
"""For each array, the axis that is sharded over devices; None: replicated."""
AXES_OF_IDS: Batches[int | None] = Batches(None, None, 1, 1, None)
"""The same where the whole set is replicated on the devices."""


def replica_axes(is_resident: bool, bootstrap: bool) -> Batches[int | None]:
    """For each array, the axis of replicas; None: all replicas share it.

    Args:
      is_resident: whether the whole set is replicated on the devices.
      bootstrap: whether each replica has weights of its own.
    """
    weights = 2 if bootstrap else None
    if is_resident:
        return Batches(None, None, 2, weights, None, 1)
    return Batches(2, 2, None, weights, None, 1)


class Sums(NamedTuple):
    """Sums over the examples of an update, with the parameters before it."""

    loss: jax.Array
    num_examples: jax.Array
    num_correct: jax.Array


def updates_function(
    encoder: Encoder,
    optimizer_of: Callable[[jax.Array | None], optax.GradientTransformation],
    exchange: Exchange,
) -> Callable[[TrainState, Batches[jax.Array]], tuple[TrainState, Sums]]:
    """The function that applies the `num` real of S updates in order, to be compiled.

    It returns the state after them and the `Sums` of each update, [S]. It runs on each
    device, on the device's examples of every batch; gradients are of the mean loss over
    the examples of all devices.

    Args:
      optimizer_of: the optimizer with the `rates` of batches, or None.
    """

    def updates(state: TrainState, batches: Batches[jax.Array]):
        optimizer, num = optimizer_of(batches.rates), batches.num[0]
        first = state.step

        def body(number, carry):
            state, all_sums = carry
            state, sums = one_update(
                encoder, optimizer, exchange, state, *batch_at(batches, number)
            )
            # Of K networks each array that is written takes kernels on a GPU: the sums
            # are one array, and the steps are counted after the loop.
            state = state._replace(step=first)
            return state, all_sums.at[number].set(jnp.stack(sums))

        shape = len(batches.weights), len(Sums._fields)
        carry = state, jnp.zeros(shape, batches.weights.dtype)
        state, all_sums = jax.lax.fori_loop(0, num, body, carry)
        return state._replace(step=first + num), Sums(*all_sums.T)

    return updates


def batch_at(
    batches: Batches[jax.Array], number: int | jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Features [B, ...], labels [B] and weights [B] of update `number`."""
    weights = batches.weights[number]
    if batches.ids is None:
        return batches.features[number], batches.labels[number], weights
    ids = batches.ids[number]
    return batches.features[ids], batches.labels[ids], weights


def one_update(
    encoder: Encoder,
    optimizer: optax.GradientTransformation,
    exchange: Exchange,
    state: TrainState,
    features: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
) -> tuple[TrainState, Sums]:
    """The state after one update on a batch, and the sums over all its examples."""
    # A resample may have none of the examples of a small batch.
    num_examples = jnp.maximum(exchange.sum_blocks(weights.sum()), 1)

    def mean_loss(params):
        sums = loss_sums(encoder, params, features, labels, weights)
        return sums.loss / num_examples, sums

    gradients, sums = jax.grad(mean_loss, has_aux=True)(state.params)
    gradients = exchange.sum_blocks(gradients)
    deltas, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, deltas)
    return TrainState(params, opt_state, state.step + 1), exchange.sum_blocks(sums)


def loss_sums(
    encoder: Encoder, params: Params, features: Array, labels: Array, weights: Array
) -> Sums:
    """Weighted sums over examples of their cross entropy, and of those predicted right.

    The cross entropy of scores s and label y is log(sum_c exp(s_c)) - s_y.
    """
    scores = encoder.scores(params, features)
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    correct = (scores.argmax(axis=1) == labels).astype(weights.dtype)
    return Sums((losses * weights).sum(), weights.sum(), (correct * weights).sum())


def initial_state(
    params: Params, optimizer: optax.GradientTransformation
) -> TrainState:
    """The state with these parameters before the first update; arrays of NumPy."""
    with jax.enable_x64(True):
        opt_state = jax.tree.map(np.asarray, optimizer.init(params))
    return TrainState(params, opt_state, np.zeros((), np.int32))


def initial_replicas(
    params: Sequence[Params], optimizer: optax.GradientTransformation
) -> TrainState:
    """The state of K replicas with these parameters, each array with a first axis K."""
    stacked = stack_states(params)
    with jax.enable_x64(True):
        opt_state = jax.tree.map(np.asarray, jax.vmap(optimizer.init)(stacked))
    return TrainState(stacked, opt_state, np.zeros(len(params), np.int32))


def pad_batches(batches: Batches[np.ndarray], size: int) -> Batches[np.ndarray]:
    """`batches` with examples of weight 0 added to each update, up to `size`."""
    missing = size - batches.weights.shape[1]
    if missing == 0:
        return batches

    def padded(x: np.ndarray) -> np.ndarray:
        return np.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2))

    if batches.ids is None:
        batches = batches._replace(
            features=padded(batches.features), labels=padded(batches.labels)
        )
    else:
        batches = batches._replace(ids=padded(batches.ids))
    return batches._replace(weights=padded(batches.weights))
