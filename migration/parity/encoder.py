"""The parity ladder of an encoder: batches, loss, gradients, updates, epoch, files."""

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import embedder
import legacy
from embedder.config import Config, with_options
from embedder.data.examples.examples import Examples
from embedder.encoders import train_step as classify
from embedder.encoders.networks.mlp import layers_of, params_of
from embedder.encoders.networks.network import Model
from embedder.encoders.task import model_settings
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from legacy import network
from legacy.mlp import FeatureEncoder
from migration.parity.data import loaders
from migration.parity.difference import Difference, difference, worst
from migration.parity.encoder_networks import STAGE, networks_stage
from migration.parity.encoder_objectives import objectives_stage
from migration.parity.encoder_subject import (
    EncoderSubject,
    dtypes_of,
    has_network,
    layer_lines,
    numbers_of,
)
from migration.parity.encoder_updates import (
    bootstrap_stage,
    replicas_stage,
    updates_stage,
)
from migration.parity.tolerances import TOLERANCE

_STEP = 1e-6  # of the finite differences
_DIRECTIONS = 3  # for each layer


def encoder_ladder(
    subject: EncoderSubject, stages: Iterable[str] | None = None
) -> Iterator[Difference]:
    """Yields the differences of `stages` as they are computed; None: of all that there
    are for the network.

    Raises:
      InputError: a stage is of an mlp alone, and the network is another.
    """
    network = subject.config.encoder.network
    given = [STAGE] if has_network(subject.config) else [*ENCODER_STAGES]
    for stage in given if stages is None else stages:
        if stage not in given:
            raise InputError(
                f"`network` must be mlp for the stage `{stage}`, got {network!r}, of "
                f"which there is only the stage `{STAGE}`."
            )
        yield from ENCODER_STAGES[stage](subject)


def batches_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """Examples of every batch of two epochs, by both loaders; initial weights."""
    for loader in loaders():
        training = subject.training(loader=loader, mode="jit", devices=0)
        for epoch in (0, 1):
            yield from _batches(training, epoch, f"{loader}, epoch {epoch + 1}")
    for dtype in dtypes_of(subject):
        training = subject.training(dtype=dtype)
        ours = layers_of(training.initial_state().params)
        seed = subject.config.run.seed
        theirs = network.initial_layers(training.config.encoder.layers, dtype, seed)
        yield from layer_lines("batches", "first", dtype, ours, theirs, tolerance=0.0)


def _batches(training: EncoderTrainer, epoch: int, title: str):
    x, y = numbers_of(training.examples)
    config = training.config
    options = config.run.seed, epoch
    theirs = network.batches(training.source.train, config.encoder.batch_size, *options)
    features, labels = [], []
    for _, num, batches in training.host_batches(epoch):
        for number in range(num):
            found = jax.device_get(classify.batch_at(batches, number))
            real = found[2] > 0
            features.append(found[0][real].reshape(int(real.sum()), -1))
            labels.append(found[1][real])
    pairs = list(itertools.zip_longest(zip(features, labels, strict=True), theirs))
    yield worst(
        difference("batches", f"features, {title}", _or_none(a, 0), _rows(x, ids))
        for a, ids in pairs
    )
    yield worst(
        difference("batches", f"labels, {title}", _or_none(a, 1), _rows(y, ids))
        for a, ids in pairs
    )


def _or_none(pair, which: int) -> np.ndarray:
    return np.empty(0) if pair is None else pair[which]


def _rows(x: np.ndarray, ids) -> np.ndarray:
    return np.empty(0) if ids is None else x[ids]


def loss_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """Loss and number of correct predictions of a batch."""
    for dtype in dtypes_of(subject):
        case = _case(subject, dtype)
        with jax.enable_x64(dtype == "float64"):
            ours = _sums(case, case.params)
        scores = network.activations(case.layers, case.x)[-1]
        theirs = network.loss_sums(scores, case.y)
        tolerance = TOLERANCE["encoder loss", dtype]
        yield difference(
            *("loss", "sum", float(ours.loss), theirs.loss),
            **{"dtype": dtype, "tolerance": tolerance * len(case.y)},
        )
        yield difference(
            *("loss", "right answers", float(ours.num_correct), float(theirs.correct)),
            dtype=dtype,
        )


def gradients_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """Gradients of every layer: by autodiff, by hand, by finite differences."""
    for dtype in dtypes_of(subject):
        case = _case(subject, dtype)
        with jax.enable_x64(dtype == "float64"):
            slope = jax.grad(lambda params, case: _sums(case, params).loss)
            ours = layers_of(jax.device_get(slope(case.params, case)))
        theirs = [network.Layer(*map(np.empty_like, layer)) for layer in case.layers]
        network.gradients(case.layers, case.x, case.y, 1, into=theirs)
        tolerance = TOLERANCE["encoder gradients", dtype]
        yield from layer_lines(
            "gradients", "", dtype, ours, theirs, tolerance=tolerance
        )
        if dtype == "float64":
            yield from _finite_differences(case, theirs)


def _finite_differences(case: "_Case", gradients) -> Iterator[Difference]:
    """Derivatives along random directions; ReLU's kink is rarely between two points."""
    rng = np.random.default_rng(0)

    def loss(layers) -> float:
        return network.loss_sums(network.activations(layers, case.x)[-1], case.y).loss

    for number, gradient in enumerate(gradients):
        found, expected = [], []
        for _ in range(_DIRECTIONS):
            along = [rng.standard_normal(array.shape) for array in gradient]
            size = np.sqrt(sum((each**2).sum() for each in along))
            moved = []
            for sign in (1, -1):
                layers = list(case.layers)
                layers[number] = network.Layer(
                    *(
                        array + sign * _STEP * each / size
                        for array, each in zip(layers[number], along, strict=True)
                    )
                )
                moved.append(loss(layers))
            found.append((moved[0] - moved[1]) / (2 * _STEP))
            parts = zip(gradient, along, strict=True)
            expected.append(sum((g * a).sum() for g, a in parts) / size)
        yield difference(
            "gradients",
            f"layer {number + 1}, finite differences",
            np.array(found),
            np.array(expected),
            dtype="float64",
            tolerance=TOLERANCE["finite differences", "float64"],
        )


def epoch_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """Layers and metrics after an epoch, by `embedder train` and the oracle's `fit`."""
    for dtype in dtypes_of(subject):
        training = subject.training(dtype=dtype, epochs=1)
        end = run_epochs(training, training.initial_state())
        oracle = _oracle(training.config).fit(*_with_classes(subject.examples))
        ours = layers_of(end.state.params)
        tolerance = TOLERANCE["encoder epoch", dtype]
        yield from layer_lines(
            "whole epoch", "", dtype, ours, oracle.layers_, tolerance=tolerance
        )
        (metrics,) = end.position.history
        for name, value in zip(training.metrics, metrics, strict=True):
            desired = oracle.history_[0][name]
            is_exact = name.endswith("accuracy") and dtype == "float64"
            yield difference(
                *("whole epoch", name, float(value or 0), float(desired or 0)),
                dtype=dtype,
                tolerance=0.0 if is_exact else tolerance,
            )


def files_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """A file of each program, read by the other and written again."""
    x, y = _with_classes(subject.examples)
    settings = model_settings(with_options(subject.config, epochs=1))
    for kind, other in (
        (legacy.FeatureEncoder, embedder.FeatureEncoder),
        (embedder.FeatureEncoder, legacy.FeatureEncoder),
    ):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, f"{number}.npz") for number in range(2)]
            trained = kind(**settings).fit(x, y)
            trained.save(paths[0])
            other.load(paths[0]).save(paths[1])
            again = kind.load(paths[1])
            near = other.load(paths[0])
        title = f"of {kind.__module__.partition('.')[0]}"
        yield from layer_lines(
            *("files", title, "", again.layers_, trained.layers_), tolerance=0.0
        )
        dtype = subject.config.run.dtype
        yield difference(
            *("files", f"embedding, {title}", near.transform(x), trained.transform(x)),
            dtype=dtype,
            tolerance=TOLERANCE["encoder loss", dtype],
        )


class _Case(NamedTuple):
    """A batch, and layers whose biases are not 0."""

    training: EncoderTrainer
    layers: list[network.Layer]
    params: dict
    raw: np.ndarray  # [B, ...], as read
    x: np.ndarray  # [B, F], scaled
    y: np.ndarray


def _case(subject: EncoderSubject, dtype: str) -> _Case:
    training = subject.training(dtype=dtype, mode="jit", devices=0)
    rng = np.random.default_rng(0)
    layers = [
        network.Layer(w, rng.normal(scale=0.1, size=b.shape).astype(dtype))
        for w, b in network.initial_layers(training.config.encoder.layers, dtype, 1)
    ]
    size = training.config.encoder.batch_size
    raw, y = training.examples.features[:size], training.examples.labels[:size]
    x = network.scaled(raw.reshape(len(raw), -1), dtype)
    return _Case(training, layers, params_of(layers), raw, x, y)


def _sums(case: _Case, params) -> classify.Sums:
    weights = np.ones(len(case.y), case.training.config.run.dtype)
    network_of_port = case.training.program.encoder
    model = Model(params)
    return classify.loss_sums(network_of_port, model, case.raw, case.y, weights)


def _with_classes(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    return numbers_of(examples)[0], np.array(examples.classes)[examples.labels]


def _oracle(config: Config) -> FeatureEncoder:
    return FeatureEncoder(**model_settings(config))


def _of(num: int) -> Callable[[EncoderSubject], Iterator[Difference]]:
    return lambda subject: updates_stage(num, subject)


ENCODER_STAGES: dict[str, Callable[[EncoderSubject], Iterator[Difference]]] = {
    "batches": batches_stage,
    "loss": loss_stage,
    "gradients": gradients_stage,
    "one update": _of(1),
    "100 updates": _of(100),
    "whole epoch": epoch_stage,
    "replicas": replicas_stage,
    "bootstrap": bootstrap_stage,
    "objectives": objectives_stage,
    STAGE: networks_stage,
    "files": files_stage,
}
