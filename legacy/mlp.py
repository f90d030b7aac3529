"""The encoder: a classifier of features whose last hidden layer is the embedding.

A new item has a vector from its features on the day it comes. The file is one
uncompressed `.npz`: format, settings (JSON), classes, history (JSON), and weights_0,
biases_0, weights_1 ... of the layers.
"""

import json
import math
import multiprocessing
import numbers
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from legacy.hogwild import run_workers
from legacy.network import (
    OPTIMIZERS,
    Layer,
    Sums,
    activations,
    apply_update,
    batches,
    gradients,
    initial_layers,
    layers_of,
    log_softmax,
    loss_sums,
    num_parameters,
    num_slots,
    scaled,
    split,
)

_FORMAT = b"embedder-encoder-model 1"
_AT_ONCE = 1024  # examples that are looked at together where nothing is trained


class FeatureEncoder:
    """Trains a ReLU network to tell classes; `transform` is its last hidden layer.

    Args:
        layers: widths of all layers, from features to classes, as (784, 512, 10); None:
            one hidden layer of 128.
        optimizer, optimizer_args: "sgd" (momentum) or "adam" (b1, b2, eps).
        learning_rate: of every update.
        batch_size: examples of an update; the last of an epoch may have fewer.
        epochs: passes over the examples.
        validation_fraction: share of the examples that is held out, the last ones.
        seed: of the first weights and of the order.
        workers: processes that share each batch; their gradients are averaged.
        dtype: "float32" or "float64", of all arithmetic.

    Attributes:
        classes_: the labels, in order. n_features_in_: how many features.
        history_: train_loss, train_accuracy, val_loss, val_accuracy of each epoch;
            those of training before each update, None where nothing validates.
    """

    def __init__(
        self,
        layers: tuple[int, ...] | None = None,
        *,
        optimizer: str = "sgd",
        optimizer_args: dict[str, float] | None = None,
        learning_rate: float = 0.01,
        batch_size: int = 32,
        epochs: int = 5,
        validation_fraction: float = 0.0,
        seed: int = 1,
        workers: int = 1,
        dtype: str = "float32",
    ):
        arguments = {name: value for name, value in locals().items() if name != "self"}
        vars(self).update(arguments)

    def fit(self, X, y) -> "FeatureEncoder":
        """Trains from the first weights; X [n, ...] of numbers, y [n] of labels.

        Raises:
            TypeError, ValueError: an argument breaks its rule, or X and y do not fit.
            FloatingPointError: training diverged.
        """
        settings = self._settings()
        _check(settings)
        x, y = _features(X), np.asarray(y)
        if y.shape != (len(x),):
            raise ValueError(f"`y` must be [{len(x)}], as X has rows, got {y.shape}.")
        classes, y = np.unique(y, return_inverse=True)
        widths = _widths(self.layers, x.shape[1], len(classes))
        layers, history = _train(settings, widths, x, y)
        self.classes_, self.n_features_in_ = classes, x.shape[1]
        self.layers_, self.history_ = layers, history
        return self

    def predict(self, X) -> np.ndarray:
        """The label of each row, [n]."""
        return self.classes_[self._outputs(X, -1).argmax(axis=1)]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, [n, classes]."""
        return np.exp(log_softmax(self._outputs(X, -1)))

    def transform(self, X) -> np.ndarray:
        """The embedding of each row: the last hidden layer, [n, layers[-2]]."""
        return self._outputs(X, -2)

    def score(self, X, y) -> float:
        """The share of the rows whose label is right."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def save(self, path: str | os.PathLike) -> None:
        """Writes all that is known, in one `.npz` file."""
        members = {"format": _bytes(_FORMAT), "classes": self.classes_}
        members["settings"] = _bytes(json.dumps(self._settings()).encode())
        members["history"] = _bytes(json.dumps(self.history_).encode())
        for number, layer in enumerate(self.layers_):
            members[f"weights_{number}"] = layer.weights
            members[f"biases_{number}"] = layer.biases
        if members["classes"].dtype.hasobject:
            members["classes"] = members["classes"].astype(str)
        path = Path(path)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with open(unfinished, "wb") as file:
                np.savez(file, **members)
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FeatureEncoder":
        """The encoder in a file of `save`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a whole one.
        """
        if not os.path.exists(path):
            raise FileNotFoundError(f"Model file {os.fspath(path)} does not exist.")
        try:
            with zipfile.ZipFile(path) as archive:
                names = {name.removesuffix(".npy") for name in archive.namelist()}
            with np.load(path, allow_pickle=False) as members:
                return cls._of({name: members[name] for name in names})
        except Exception as error:  # a damaged zip raises nearly anything
            raise ValueError(
                f"{os.fspath(path)} is not a whole encoder file: {error}."
            ) from error

    @classmethod
    def _of(cls, members: dict[str, np.ndarray]) -> "FeatureEncoder":
        if members["format"].tobytes() != _FORMAT:
            raise ValueError("it has another format")
        settings = json.loads(members["settings"].tobytes())
        _check(settings)
        encoder = cls(**settings)
        count = sum(name.startswith("weights_") for name in members)
        encoder.layers_ = [
            Layer(members[f"weights_{i}"], members[f"biases_{i}"]) for i in range(count)
        ]
        encoder.classes_ = members["classes"]
        encoder.n_features_in_ = len(encoder.layers_[0].weights)
        encoder.history_ = json.loads(members["history"].tobytes())
        return encoder

    def _settings(self) -> dict[str, Any]:
        names = (
            *("layers", "optimizer", "optimizer_args", "learning_rate", "batch_size"),
            *("epochs", "validation_fraction", "seed", "workers", "dtype"),
        )
        return {name: getattr(self, name) for name in names}

    def _outputs(self, X, which: int) -> np.ndarray:
        if not hasattr(self, "layers_"):
            raise RuntimeError("The encoder is not trained yet: call `fit` first.")
        x = _features(X)
        if x.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {x.shape[1]} features, but the encoder was trained on "
                f"{self.n_features_in_}."
            )
        parts = (x[i : i + _AT_ONCE] for i in range(0, max(1, len(x)), _AT_ONCE))
        found = (activations(self.layers_, scaled(part, self.dtype)) for part in parts)
        return np.concatenate([each[which] for each in found])


class _Plan(NamedTuple):
    """What every worker has to know."""

    settings: dict[str, Any]
    options: dict[str, float]  # of the optimizer
    widths: tuple[int, ...]
    barrier: Any  # None: there is one worker


def _train(settings, widths, x, y) -> tuple[list[Layer], list[dict[str, float]]]:
    """The layers after all epochs, and what each epoch came to."""
    workers, optimizer = settings["workers"], settings["optimizer"]
    dtype, size = settings["dtype"], num_parameters(widths)
    # Parameters, what the optimizer keeps, and the gradients of each worker.
    rows = np.zeros((1 + num_slots(optimizer) + workers, size), dtype)
    first = initial_layers(widths, dtype, settings["seed"])
    for own, layer in zip(layers_of(rows[0], widths), first, strict=True):
        own.weights[:], own.biases[:] = layer
    options = OPTIMIZERS[optimizer] | (settings["optimizer_args"] or {})
    if workers == 1:
        plan = _Plan(settings, options, widths, None)
        sums = [_work(rows, [x, y], plan, 0, 1)]
    else:
        barrier = multiprocessing.get_context("spawn").Barrier(workers)
        plan = _Plan(settings, options, widths, barrier)
        sums = run_workers(_work, rows, [x, y], plan, workers)
    history = [_summary(parts) for parts in zip(*sums, strict=True)]
    return layers_of(rows[0].copy(), widths), history


def _work(rows, arrays, plan: _Plan, worker: int, num_workers: int):
    """Trains all epochs with the others; the sums of this worker's own examples."""
    (x, y), settings = arrays, plan.settings
    train, held = split(len(x), settings["validation_fraction"])
    layers = layers_of(rows[0], plan.widths)
    slots, every = rows[1:-num_workers], rows[-num_workers:]
    own = layers_of(every[worker], plan.widths)
    part = _part(rows.shape[1], worker, num_workers)
    step, epochs = 0, []
    for epoch in range(settings["epochs"]):
        trained = Sums(0.0, 0, 0)
        for batch in batches(train, settings["batch_size"], settings["seed"], epoch):
            step += 1
            mine = batch[_part(len(batch), worker, num_workers)]
            inputs = scaled(x[mine], settings["dtype"])
            found = gradients(layers, inputs, y[mine], len(batch), own)
            trained = _added(trained, found)
            _meet(plan)
            apply_update(
                *(settings["optimizer"], plan.options, settings["learning_rate"], step),
                *(rows[0, part], slots[:, part], every[:, part].sum(axis=0)),
            )
            _meet(plan)
        _check_finite(trained, rows[0], epoch)
        mine = held[_part(len(held), worker, num_workers)]
        epochs.append((trained, _evaluated(layers, x, y, mine, settings["dtype"])))
        _meet(plan)
    return epochs


def _part(size: int, worker: int, num_workers: int) -> slice:
    return slice(size * worker // num_workers, size * (worker + 1) // num_workers)


def _meet(plan: _Plan) -> None:
    if plan.barrier is not None:
        plan.barrier.wait()


def _added(first: Sums, second: Sums) -> Sums:
    return Sums(*(a + b for a, b in zip(first, second, strict=True)))


def _evaluated(layers, x, y, which: np.ndarray, dtype: str) -> Sums:
    total = Sums(0.0, 0, 0)
    for start in range(0, len(which), _AT_ONCE):
        part = which[start : start + _AT_ONCE]
        scores = activations(layers, scaled(x[part], dtype))[-1]
        total = _added(total, loss_sums(scores, y[part]))
    return total


def _summary(parts: tuple[tuple[Sums, Sums], ...]) -> dict[str, float | None]:
    """What the workers' sums of an epoch come to."""
    summary = {}
    for name, sums in zip(("train", "val"), zip(*parts, strict=True), strict=True):
        total = Sums(*(sum(values) for values in zip(*sums, strict=True)))
        has_any = total.examples > 0
        loss, accuracy = total.loss, float(total.correct)
        summary[f"{name}_loss"] = loss / total.examples if has_any else None
        summary[f"{name}_accuracy"] = accuracy / total.examples if has_any else None
    return summary


def _check_finite(trained: Sums, parameters: np.ndarray, epoch: int) -> None:
    if not (math.isfinite(trained.loss) and np.isfinite(parameters).all()):
        raise FloatingPointError(
            f"Training diverged in epoch {epoch + 1}: give a smaller `learning_rate`."
        )


def _bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def _features(X) -> np.ndarray:
    """X as [n, features]."""
    x = np.asarray(X)
    if x.ndim < 2 or not len(x) or x.dtype.kind not in "fiub":
        raise ValueError(f"`X` must be numbers [n, ...], got {x.dtype}{list(x.shape)}.")
    return np.ascontiguousarray(x.reshape(len(x), -1))


def _widths(layers, num_features: int, num_classes: int) -> tuple[int, ...]:
    if layers is None:
        return num_features, 128, num_classes
    if (layers[0], layers[-1]) != (num_features, num_classes):
        raise ValueError(
            f"`layers` must go from {num_features} features to {num_classes} classes, "
            f"got {layers!r}."
        )
    return tuple(layers)


def _check(settings: dict[str, Any]) -> None:
    """Refuses settings that break their rules."""
    rules = {
        "learning_rate": (numbers.Real, "a finite number > 0", _positive),
        "batch_size": (numbers.Integral, "an integer >= 1", lambda v: v >= 1),
        "epochs": (numbers.Integral, "an integer >= 0", lambda v: v >= 0),
        "validation_fraction": (
            numbers.Real,
            "a number in [0, 1)",
            lambda v: 0 <= v < 1,
        ),
        "seed": (numbers.Integral, "from 0 to 2**64 - 1", lambda v: 0 <= v < 2**64),
        "workers": (numbers.Integral, "an integer >= 1", lambda v: v >= 1),
        "dtype": (str, "float32 or float64", lambda v: v in ("float32", "float64")),
        "optimizer": (str, "sgd or adam", lambda v: v in OPTIMIZERS),
    }
    for name, (kind, rule, holds) in rules.items():
        value = settings[name]
        message = f"`{name}` must be {rule}, got {value!r}."
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(message)
        if not holds(value):
            raise ValueError(message)
    known = OPTIMIZERS[settings["optimizer"]]
    for name in settings["optimizer_args"] or {}:
        if name not in known:
            raise ValueError(
                f"`optimizer_args` must be of {list(known)}, got {name!r}."
            )
    layers = settings["layers"]
    if layers is not None and (len(layers) < 3 or min(layers) < 1):
        raise ValueError(f"`layers` must be three widths or more, got {layers!r}.")


def _positive(value: float) -> bool:
    return 0 < value < math.inf
