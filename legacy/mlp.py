"""The encoder: a classifier of features whose last hidden layer is the embedding.

A new item has a vector from its features on the day it comes. The file is one
uncompressed `.npz`: format, settings (JSON), classes, history (JSON), and weights_0,
biases_0, weights_1 ... of the layers.
"""

import json
import math
import numbers
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from legacy.mlp_train import AT_ONCE, train
from legacy.network import OPTIMIZERS, Layer, activations, log_softmax, scaled, split

_FORMAT = b"embedder-encoder-model 1"


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
        if not len(split(len(x), self.validation_fraction)[0]):
            raise ValueError(
                f"`validation_fraction` {self.validation_fraction} of {len(x)} rows "
                "leaves none to train on."
            )
        widths = _widths(self.layers, x.shape[1], len(classes))
        layers, history = train(settings, widths, x, y)
        self.classes_, self.n_features_in_ = classes, x.shape[1]
        self.layers_, self.history_ = layers, history
        return self

    def predict(self, X) -> np.ndarray:
        """The label of each row, [n]."""
        best = self._outputs(X, -1).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, [n, classes]."""
        return np.exp(log_softmax(self._outputs(X, -1)))

    def transform(self, X) -> np.ndarray:
        """The embedding of each row: the last hidden layer, [n, layers[-2]]."""
        return self._outputs(X, -2)

    def score(self, X, y) -> float:
        """The share of the rows whose label is right."""
        found, y = self.predict(X), np.asarray(y)
        if y.shape != found.shape:
            raise ValueError(f"`y` must be {list(found.shape)}, got {list(y.shape)}.")
        return float(np.mean(found == y))

    def save(self, path: str | os.PathLike) -> None:
        """Writes all that is known, in one `.npz` file."""
        self._check_fitted()
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
        if settings["layers"] is not None:
            settings["layers"] = tuple(settings["layers"])
        _check(settings)
        encoder = cls(**settings)
        count = sum(name.startswith("weights_") for name in members)
        encoder.layers_ = [
            Layer(members[f"weights_{i}"], members[f"biases_{i}"]) for i in range(count)
        ]
        _check_layers(encoder, members["classes"])
        encoder.classes_ = members["classes"]
        encoder.n_features_in_ = len(encoder.layers_[0].weights)
        encoder.history_ = json.loads(members["history"].tobytes())
        return encoder

    def _settings(self) -> dict[str, Any]:
        names = (
            *("layers", "optimizer", "optimizer_args", "learning_rate", "batch_size"),
            *("epochs", "validation_fraction", "seed", "workers", "dtype"),
        )
        given = {name: getattr(self, name) for name in names}
        return {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in given.items()
        }

    def _check_fitted(self) -> None:
        if not hasattr(self, "layers_"):
            raise RuntimeError("The encoder is not trained yet: call `fit` first.")

    def _outputs(self, X, which: int) -> np.ndarray:
        self._check_fitted()
        x = _features(X)
        if x.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {x.shape[1]} features, but the encoder was trained on "
                f"{self.n_features_in_}."
            )
        parts = (x[i : i + AT_ONCE] for i in range(0, max(1, len(x)), AT_ONCE))
        found = (activations(self.layers_, scaled(part, self.dtype)) for part in parts)
        return np.concatenate([each[which] for each in found])


def _check_layers(encoder: FeatureEncoder, classes: np.ndarray) -> None:
    """Refuses layers that do not fit each other, the classes or the settings."""
    layers = encoder.layers_
    widths = [len(layers[0].weights), *(len(layer.biases) for layer in layers)]
    if encoder.layers not in (None, tuple(widths)) or widths[-1] != len(classes):
        raise ValueError(f"its layers have widths {widths}")
    for number, (weights, biases) in enumerate(layers):
        shape = widths[number], widths[number + 1]
        if weights.shape != shape or biases.shape != shape[1:] or len(layers) < 2:
            raise ValueError(f"layer {number} is {weights.shape} and {biases.shape}")
        for array in (weights, biases):
            if array.dtype != encoder.dtype or not np.isfinite(array).all():
                raise ValueError(f"layer {number} is not finite {encoder.dtype}")


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
    _check_optimizer_args(settings)
    layers = settings["layers"]
    message = f"`layers` must be three widths or more, got {layers!r}."
    if layers is not None:
        if not isinstance(layers, tuple | list) or not all(map(_is_integer, layers)):
            raise TypeError(message)
        if len(layers) < 3 or min(layers) < 1:
            raise ValueError(message)


def _check_optimizer_args(settings: dict[str, Any]) -> None:
    arguments = settings["optimizer_args"]
    known = OPTIMIZERS[settings["optimizer"]]
    if arguments is None:
        return
    if not isinstance(arguments, dict):
        raise TypeError(f"`optimizer_args` must be a dict, got {arguments!r}.")
    for name, value in arguments.items():
        if name not in known:
            message = f"`optimizer_args` must be of {list(known)}, got {name!r}."
            raise ValueError(message)
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise (ValueError if is_number else TypeError)(
                f"`optimizer_args` must be finite numbers, got {value!r} for {name!r}."
            )


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _positive(value: float) -> bool:
    return 0 < value < math.inf
