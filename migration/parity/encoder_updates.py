"""Stages of the updates of an encoder: one, 100, and 100 of each replica."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from embedder.config.encoder_options import parse_arguments
from embedder.encoders.networks.mlp import layers_of
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.replicas import unstack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from legacy import network
from migration.parity.difference import Difference, difference
from migration.parity.encoder_subject import (
    EncoderSubject,
    dtypes_of,
    layer_lines,
    numbers_of,
)
from migration.parity.equations import resample
from migration.parity.replicas import REPLICAS, oracle_configs
from migration.parity.tolerances import TOLERANCE

OPTIMIZERS = (("sgd", ()), ("sgd", ("momentum=0.9",)), ("adam", ()))
_UPDATES = 100  # of each replica


def updates_stage(num: int, subject: EncoderSubject) -> Iterator[Difference]:
    """All layers after `num` updates, by every optimizer of the oracle."""
    stage = "one update" if num == 1 else f"{num} updates"
    for optimizer, arguments in OPTIMIZERS:
        for dtype in dtypes_of(subject):
            training = subject.training(
                optimizer=optimizer,
                optimizer_args=arguments,
                dtype=dtype,
                save_every=1,  # one update a call, to stop after any
            )
            name = " ".join((optimizer, *arguments))
            state = _after(training, num)
            oracle = _oracle_after(training, num, subject.config.run.seed)
            tolerance = TOLERANCE[f"encoder {stage}", dtype]
            if (optimizer, dtype) == ("adam", "float32"):
                yield from _adam_in_float32(stage, training, state, oracle, tolerance)
                continue
            ours = layers_of(state.params)
            yield from layer_lines(
                stage, name, dtype, ours, oracle.layers, tolerance=tolerance
            )


def _adam_in_float32(
    stage: str,
    training: EncoderTrainer,
    state: TrainState,
    oracle: "_Trained",
    tolerance: float,
) -> Iterator[Difference]:
    """Adam normalises gradients, also those that are all rounding error.

    So in float32 a weight may move by a full learning rate in either direction. After
    one update, the moments of the gradients are compared; after more, the loss.
    """
    if stage == "one update":
        moments = state.opt_state[0].mu, state.opt_state[0].nu
        for name, ours, slot in zip(
            ("mean", "square"), moments, oracle.slots, strict=True
        ):
            theirs = network.layers_of(slot, training.config.encoder.layers)
            title = f"adam, {name} of gradients"
            yield from layer_lines(
                stage, title, "float32", layers_of(ours), theirs, tolerance=tolerance
            )
        return
    x, y = numbers_of(training.examples)
    inputs = network.scaled(x, "float32")
    losses = [
        np.float64(network.loss_sums(network.activations(each, inputs)[-1], y).loss)
        for each in (
            [network.Layer(*a) for a in layers_of(state.params)],
            oracle.layers,
        )
    ]
    yield difference(
        *(stage, "adam, loss after them", losses[0] / len(y), losses[1] / len(y)),
        dtype="float32",
        tolerance=TOLERANCE["adam's loss", "float32"],
    )


def _after(training: EncoderTrainer, num: int) -> TrainState:
    """The state after the first `num` updates, over several epochs if need be."""
    program, done = training.program, 0
    state = program.place_state(training.initial_state())
    for epoch in itertools.count():
        for call in training.calls(state, epoch):
            state, done = call.state, done + call.num_updates
            if done == num:
                return program.whole_state(state)
        if not done:
            raise InputError("There is no batch to train on.")


class _Trained(NamedTuple):
    """State of the oracle after some updates."""

    layers: list[network.Layer]
    slots: np.ndarray  # [slots, P], state of the optimizer


def _oracle_after(
    training: EncoderTrainer, num: int, seed: int, times: np.ndarray | None = None
) -> _Trained:
    """Of the run with `seed`.

    Args:
      times: how often each example is in its batch, i64[examples]; None: once.
    """
    options, config = training.config.encoder, training.config
    dtype, optimizer = config.run.dtype, config.run.optimizer
    x, y = numbers_of(training.examples)
    flat = np.concatenate(
        [
            array.ravel()
            for layer in network.initial_layers(
                training.config.encoder.layers, dtype, seed
            )
            for array in layer
        ]
    )
    layers = network.layers_of(flat, training.config.encoder.layers)
    gradient = np.empty_like(flat)
    into = network.layers_of(gradient, training.config.encoder.layers)
    slots = np.zeros((network.num_slots(optimizer), len(flat)), dtype)
    given = network.OPTIMIZERS[optimizer]
    given = given | parse_arguments(options.optimizer_args)
    every = itertools.chain.from_iterable(
        network.batches(training.source.train, options.batch_size, seed, epoch)
        for epoch in itertools.count()
    )
    for step, batch in enumerate(itertools.islice(every, num), start=1):
        if times is not None:
            batch = np.repeat(batch, times[batch])
        inputs = network.scaled(x[batch], dtype)
        network.gradients(layers, inputs, y[batch], max(len(batch), 1), into)
        network.apply_update(
            optimizer, given, options.learning_rate, step, flat, slots, gradient
        )
    return _Trained(layers, slots)


def replicas_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """All layers of replicas after 100 updates, replica k by the oracle of seed + k."""
    return _replicas("replicas", subject, lambda training, seed: None)


def bootstrap_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """The same with a resample for each replica.

    The oracle has an example of a batch as often as the resample of its seed.
    """
    return _replicas("bootstrap", subject, _times)


def _replicas(
    stage: str,
    subject: EncoderSubject,
    times: Callable[[EncoderTrainer, int], np.ndarray | None],
) -> Iterator[Difference]:
    """By the optimizer of the settings: "100 updates" compares all of the oracle's.

    Each seed amplifies rounding by its own factor, most of all with momentum and Adam.
    """
    optimizer = subject.config.run.optimizer
    for dtype in dtypes_of(subject):
        if (optimizer, dtype) == ("adam", "float32"):  # see `_adam_in_float32`
            continue
        training = subject.training(
            **{"replicas": REPLICAS, "bootstrap": stage == "bootstrap", "dtype": dtype},
            save_every=1,  # one update a call, to stop after any
        )
        states = unstack_states(_after(training, _UPDATES))
        seeds = [config.run.seed for config in oracle_configs(training.config)]
        oracles = [
            _oracle_after(training, _UPDATES, seed, times(training, seed))
            for seed in seeds
        ]
        yield from layer_lines(
            *(stage, f"{REPLICAS} replicas", dtype),
            _stacked([layers_of(state.params) for state in states]),
            _stacked([oracle.layers for oracle in oracles]),
            tolerance=TOLERANCE["encoder 100 updates", dtype],
        )


def _stacked(models: Sequence[Sequence[network.Layer]]) -> list[list[np.ndarray]]:
    """Weights [K, ...] and biases [K, ...] of each layer of K models."""
    return [
        [np.stack(arrays) for arrays in zip(*layers, strict=True)]
        for layers in zip(*models, strict=True)
    ]


def _times(training: EncoderTrainer, seed: int) -> np.ndarray:
    """How often the resample of `seed` has each example, i64[examples]."""
    train = training.source.train
    times = np.zeros(len(training.examples.labels), np.int64)
    (times[train],) = resample(np.array([len(train)]), seed)
    return times
