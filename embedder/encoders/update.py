"""Updates of an encoder, and many of them in one compiled call."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.encoders.networks import Encoder
from embedder.engine.exchange import Exchange
from embedder.engine.state import TrainState


class Batches(NamedTuple):
    """S updates of B examples each.

    Either features and labels are those of the batches; or they are those of the whole
    set, which lies on the devices, and `ids` say which are in which batch.
    """

    features: jax.Array  # [S, B, ...]; of the whole set [n, ...]
    labels: jax.Array  # i32[S, B]; i32[n]
    ids: jax.Array | None  # i32[S, B]
    weights: jax.Array  # [S, B], 1; 0 for what fills up a batch
    num: jax.Array  # i32[1], how many of the S updates are real: the first ones


AXES = Batches(features=1, labels=1, ids=None, weights=1, num=None)
"""Which axis of each is split between devices."""
AXES_OF_IDS = Batches(features=None, labels=None, ids=1, weights=1, num=None)
"""The same where the whole set lies on every device."""


class Sums(NamedTuple):
    """What the examples of an update add up to, before it."""

    loss: jax.Array
    num_examples: jax.Array
    num_correct: jax.Array


def updates_function(
    encoder: Encoder, optimizer: optax.GradientTransformation, exchange: Exchange
) -> Callable[[TrainState, Batches], tuple[TrainState, Sums]]:
    """The function that applies `num` of S updates one after the other, to be compiled.

    It returns the state after them and the `Sums` [S] of each. With several devices it
    is one device's part, with its examples of every batch: gradients are those of the
    mean over the batches of all.
    """

    def updates(state: TrainState, batches: Batches):
        def body(number, carry):
            state, every = carry
            state, own = one_update(
                encoder, optimizer, exchange, state, *batch_at(batches, number)
            )
            return state, jax.tree.map(lambda x, v: x.at[number].set(v), every, own)

        zeros = jnp.zeros(len(batches.weights), batches.weights.dtype)
        carry = state, Sums(zeros, zeros, zeros)
        return jax.lax.fori_loop(0, batches.num[0], body, carry)

    return updates


def batch_at(batches: Batches, number):
    """Features [B, ...], labels [B] and weights [B] of one update."""
    weights = batches.weights[number]
    if batches.ids is None:
        return batches.features[number], batches.labels[number], weights
    ids = batches.ids[number]
    return batches.features[ids], batches.labels[ids], weights


def one_update(
    encoder: Encoder, optimizer, exchange: Exchange, state, features, labels, weights
) -> tuple[TrainState, Sums]:
    """The state after one update, and the sums of all examples before it."""
    num_examples = exchange.sum_blocks(weights.sum())

    def mean_loss(params):
        sums = sums_of(encoder, params, features, labels, weights)
        return sums.loss / num_examples, sums

    gradients, sums = jax.grad(mean_loss, has_aux=True)(state.params)
    gradients = exchange.sum_blocks(gradients)
    steps, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, steps)
    return TrainState(params, opt_state, state.step + 1), exchange.sum_blocks(sums)


def sums_of(encoder: Encoder, params, features, labels, weights) -> Sums:
    """What these examples add up to."""
    scores = encoder.scores(params, features)
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    correct = (scores.argmax(axis=1) == labels).astype(weights.dtype)
    return Sums((losses * weights).sum(), weights.sum(), (correct * weights).sum())


def initial_state(params, optimizer: optax.GradientTransformation) -> TrainState:
    """The state that has these parameters, and no updates behind it; of NumPy."""
    with jax.enable_x64(True):
        opt_state = jax.tree.map(np.asarray, optimizer.init(params))
    return TrainState(params, opt_state, np.zeros((), np.int32))


def fill(batches: Batches, size: int) -> Batches:
    """`batches` with examples of weight 0 added to each update, up to `size`."""
    missing = size - batches.weights.shape[1]
    if missing == 0:
        return batches

    def filled(x):
        return np.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2))

    axes = AXES if batches.ids is None else AXES_OF_IDS
    return Batches(
        *(
            x if axis is None else filled(x)
            for x, axis in zip(batches, axes, strict=True)
        )
    )
