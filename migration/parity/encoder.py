"""The parity ladder of an encoder: batches, loss, gradients, updates, epoch, files."""

import functools
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
from embedder.encoders import update as classify
from embedder.encoders.examples import Examples
from embedder.encoders.formats import open_examples
from embedder.encoders.networks import layers_of, params_of
from embedder.encoders.options import parse_arguments
from embedder.encoders.problem import model_settings
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import run_epochs
from embedder.engine.replicas import unstack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from legacy import network
from legacy.mlp import FeatureEncoder
from migration.parity.difference import Difference, difference, worst
from migration.parity.equations import resample
from migration.parity.replicas import REPLICAS, oracle_configs
from migration.parity.tolerances import TOLERANCE

OPTIMIZERS = (("sgd", ()), ("sgd", ("momentum=0.9",)), ("adam", ()))
_EVERY = 10**9
_UPDATES = 100
_STEP = 1e-6  # of the finite differences
_DIRECTIONS = 3  # for each layer


class EncoderSubject(NamedTuple):
    """The settings and the examples that the ladder compares on."""

    config: Config
    examples: Examples
    source: str

    def training(self, **options) -> EncoderTraining:
        """A training of one epoch, with `options` changed."""
        config = with_options(self.config, **options)
        return EncoderTraining(config, self.examples, range(1))


def encoder_subject(config: Config, source: str | None, num: int) -> EncoderSubject:
    """The first `num` examples at `source`; 0: all.

    Raises:
      InputError: there are none, or they do not agree with `config`.
      OSError: they cannot be read.
    """
    if source is None:
        raise InputError("`corpus` must be given for an encoder, got none.")
    if config.run.optimizer not in network.OPTIMIZERS:
        raise InputError(
            f"`optimizer` must be one of the NumPy trainer's, "
            f"{' or '.join(network.OPTIMIZERS)}, got {config.run.optimizer!r}."
        )
    read = open_examples(source, config.encoder, config.run.workers).read(None)
    num = min(num or _EVERY, len(read.labels))
    first = read._replace(
        features=read.features[:num], labels=read.labels[:num], keys=read.keys[:num]
    )
    return EncoderSubject(config, first, source)


def encoder_ladder(
    subject: EncoderSubject, rungs: Iterable[str] | None = None
) -> Iterator[Difference]:
    """Yields the differences of `rungs` as they are computed; None: of all."""
    for rung in ENCODER_RUNGS if rungs is None else rungs:
        yield from ENCODER_RUNGS[rung](subject)


def batches_rung(subject: EncoderSubject) -> Iterator[Difference]:
    """Examples of every batch of two epochs, by both loaders; initial weights."""
    for loader in ("tfdata", "memory"):
        training = subject.training(loader=loader, mode="jit", devices=0)
        for epoch in (0, 1):
            yield from _batches(training, epoch, f"{loader}, epoch {epoch + 1}")
    for dtype in _dtypes(subject):
        training = subject.training(dtype=dtype)
        ours = layers_of(training.initial_state().params)
        seed = subject.config.run.seed
        theirs = network.initial_layers(training.config.encoder.layers, dtype, seed)
        yield from _layers("batches", "first", dtype, ours, theirs, tolerance=0.0)


def _batches(training: EncoderTraining, epoch: int, title: str):
    x, y = _numbers(training.examples)
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


def loss_rung(subject: EncoderSubject) -> Iterator[Difference]:
    """Loss and number of correct predictions of a batch."""
    for dtype in _dtypes(subject):
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


def gradients_rung(subject: EncoderSubject) -> Iterator[Difference]:
    """Gradients of every layer: by autodiff, by hand, by finite differences."""
    for dtype in _dtypes(subject):
        case = _case(subject, dtype)
        with jax.enable_x64(dtype == "float64"):
            slope = jax.grad(lambda params, case: _sums(case, params).loss)
            ours = layers_of(jax.device_get(slope(case.params, case)))
        theirs = [network.Layer(*map(np.empty_like, layer)) for layer in case.layers]
        network.gradients(case.layers, case.x, case.y, 1, into=theirs)
        tolerance = TOLERANCE["encoder gradients", dtype]
        yield from _layers("gradients", "", dtype, ours, theirs, tolerance=tolerance)
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


def updates_rung(num: int, subject: EncoderSubject) -> Iterator[Difference]:
    """All layers after `num` updates, by every optimizer of the oracle."""
    rung = "one update" if num == 1 else f"{num} updates"
    for optimizer, arguments in OPTIMIZERS:
        for dtype in _dtypes(subject):
            training = subject.training(
                optimizer=optimizer,
                optimizer_args=arguments,
                dtype=dtype,
                save_every=1,  # one update a call, to stop after any
            )
            name = " ".join((optimizer, *arguments))
            state = _after(training, num)
            oracle = _oracle_after(training, num, subject.config.run.seed)
            tolerance = TOLERANCE[f"encoder {rung}", dtype]
            if (optimizer, dtype) == ("adam", "float32"):
                yield from _adam_in_float32(rung, training, state, oracle, tolerance)
                continue
            ours = layers_of(state.params)
            yield from _layers(
                rung, name, dtype, ours, oracle.layers, tolerance=tolerance
            )


def _adam_in_float32(
    rung: str,
    training: EncoderTraining,
    state: TrainState,
    oracle: "_Trained",
    tolerance: float,
) -> Iterator[Difference]:
    """Adam normalises gradients, also those that are all rounding error.

    So in float32 a weight may move by a full learning rate in either direction. After
    one update, the moments of the gradients are compared; after more, the loss.
    """
    if rung == "one update":
        moments = state.opt_state[0].mu, state.opt_state[0].nu
        for name, ours, slot in zip(
            ("mean", "square"), moments, oracle.slots, strict=True
        ):
            theirs = network.layers_of(slot, training.config.encoder.layers)
            title = f"adam, {name} of gradients"
            yield from _layers(
                rung, title, "float32", layers_of(ours), theirs, tolerance=tolerance
            )
        return
    x, y = _numbers(training.examples)
    inputs = network.scaled(x, "float32")
    losses = [
        np.float64(network.loss_sums(network.activations(each, inputs)[-1], y).loss)
        for each in (
            [network.Layer(*a) for a in layers_of(state.params)],
            oracle.layers,
        )
    ]
    yield difference(
        *(rung, "adam, loss after them", losses[0] / len(y), losses[1] / len(y)),
        dtype="float32",
        tolerance=TOLERANCE["adam's loss", "float32"],
    )


def _after(training: EncoderTraining, num: int) -> TrainState:
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
    training: EncoderTraining, num: int, seed: int, times: np.ndarray | None = None
) -> _Trained:
    """Of the run with `seed`.

    Args:
      times: how often each example is in its batch, i64[examples]; None: once.
    """
    options, config = training.config.encoder, training.config
    dtype, optimizer = config.run.dtype, config.run.optimizer
    x, y = _numbers(training.examples)
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
            optimizer,
            given,
            options.learning_rate,
            step,
            flat,
            slots,
            gradient,
        )
    return _Trained(layers, slots)


def replicas_rung(
    rung: str, subject: EncoderSubject, *, bootstrap: bool
) -> Iterator[Difference]:
    """All layers of replicas after 100 updates side by side.

    Replica k is compared with the oracle of the seed + k; with `bootstrap` the oracle
    has each example of a batch as often as the resample of that seed.
    """
    for optimizer, arguments in OPTIMIZERS:
        for dtype in _dtypes(subject):
            if (optimizer, dtype) == ("adam", "float32"):  # see `_adam_in_float32`
                continue
            training = subject.training(
                **{"optimizer": optimizer, "optimizer_args": arguments, "dtype": dtype},
                **{"replicas": REPLICAS, "bootstrap": bootstrap, "save_every": 1},
            )
            states = unstack_states(_after(training, _UPDATES))
            ours = [layers_of(state.params) for state in states]
            theirs = [
                _oracle_after(
                    training, _UPDATES, seed, _times(training, seed, bootstrap)
                ).layers
                for seed in (x.run.seed for x in oracle_configs(training.config))
            ]
            title = ", ".join(
                (" ".join((optimizer, *arguments)), f"{len(ours)} replicas")
            )
            for number in range(len(theirs[0])):
                yield worst(
                    difference(
                        rung,
                        f"layer {number + 1}, {title}",
                        *pair,
                        dtype=dtype,
                        tolerance=TOLERANCE["encoder 100 updates", dtype],
                    )
                    for k in range(len(ours))
                    for pair in zip(ours[k][number], theirs[k][number], strict=True)
                )


def _times(training: EncoderTraining, seed: int, bootstrap: bool) -> np.ndarray | None:
    """How often the resample of `seed` has each example; None: there is none."""
    if not bootstrap:
        return None
    train = training.source.train
    times = np.zeros(len(training.examples.labels), np.int64)
    (times[train],) = resample(np.array([len(train)]), seed)
    return times


def epoch_rung(subject: EncoderSubject) -> Iterator[Difference]:
    """Layers and metrics after an epoch, by `embedder train` and the oracle's `fit`."""
    for dtype in _dtypes(subject):
        training = subject.training(dtype=dtype, epochs=1)
        end = run_epochs(training, training.initial_state())
        oracle = _oracle(training.config).fit(*_with_classes(subject.examples))
        ours = layers_of(end.state.params)
        tolerance = TOLERANCE["encoder epoch", dtype]
        yield from _layers(
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


def files_rung(subject: EncoderSubject) -> Iterator[Difference]:
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
        yield from _layers(
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

    training: EncoderTraining
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
    return classify.loss_sums(network_of_port, params, case.raw, case.y, weights)


def _layers(
    rung: str, title: str, dtype: str, ours, theirs, *, tolerance: float
) -> Iterator[Difference]:
    pairs = zip(ours, theirs, strict=True)
    for number, (mine, other) in enumerate(pairs, start=1):
        named = ", ".join(filter(None, (f"layer {number}", title)))
        yield worst(
            difference(rung, named, a, b, dtype=dtype, tolerance=tolerance)
            for a, b in zip(mine, other, strict=True)
        )


def _numbers(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, F] and labels, as the oracle takes them."""
    return examples.features.reshape(len(examples.labels), -1), examples.labels


def _with_classes(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    return _numbers(examples)[0], np.array(examples.classes)[examples.labels]


def _oracle(config: Config) -> FeatureEncoder:
    return FeatureEncoder(**model_settings(config))


def _dtypes(subject: EncoderSubject) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("float64", subject.config.run.dtype)))


def _of(num: int) -> Callable[[EncoderSubject], Iterator[Difference]]:
    return lambda subject: updates_rung(num, subject)


ENCODER_RUNGS: dict[str, Callable[[EncoderSubject], Iterator[Difference]]] = {
    "batches": batches_rung,
    "loss": loss_rung,
    "gradients": gradients_rung,
    "one update": _of(1),
    "100 updates": _of(100),
    "whole epoch": epoch_rung,
    "replicas": functools.partial(replicas_rung, "replicas", bootstrap=False),
    "bootstrap": functools.partial(replicas_rung, "bootstrap", bootstrap=True),
    "files": files_rung,
}
