"""FeatureEncoder: the encoder for scikit-learn, and in place of that of `legacy`."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from embedder.config import Config, with_options
from embedder.encoders.artefact import (
    ENCODER_SETTINGS,
    EncoderFile,
    read_encoder,
    write_encoder,
)
from embedder.encoders.examples import Examples
from embedder.encoders.networks import layers_of
from embedder.encoders.outputs import embed, network_of, probabilities, scores
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError, InputTypeError
from embedder.threads import in_turn


class FeatureEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """Trains a ReLU network to tell classes; `transform` is its last hidden layer.

    Args:
      layers: widths of all layers, from features to classes, as (784, 512, 10); None:
        one hidden layer of 128.
      optimizer, optimizer_args: one of optax by name, and its arguments by name.
      learning_rate: of every update.
      batch_size: examples of an update; the last of an epoch may have fewer.
      epochs: passes over the examples.
      validation_fraction: share of the examples that is held out, the last ones.
      seed: of the first weights and of the order.
      workers: taken from programs for `legacy`, where it is processes; no other use.
      dtype: "float32" or "float64", of all arithmetic.

    Attributes:
      classes_: the labels, in order. n_features_in_: how many features.
      history_: train_loss, train_accuracy, val_loss, val_accuracy of each epoch; those
        of training before each update, None where nothing validates.
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
        self.layers = layers
        self.optimizer = optimizer
        self.optimizer_args = optimizer_args
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.workers = workers
        self.dtype = dtype

    @in_turn
    def fit(self, X, y) -> "FeatureEncoder":
        """Trains from the first weights; X [n, ...] of numbers, y [n] of labels.

        u8 features, as pixels are, stand for 0 to 1. An error leaves it as it was.

        Raises:
          TypeError, ValueError: an argument breaks its rule, or X and y do not fit.
          FloatingPointError: training diverged.
        """
        before = dict(vars(self))
        try:
            return self._fit(X, y)
        except BaseException:  # validation keeps what it finds of X
            for name in vars(self).keys() - before.keys():
                delattr(self, name)
            vars(self).update(before)
            raise

    def _fit(self, X, y) -> "FeatureEncoder":
        config = self._config()
        x, y = validate_data(self, _flat(X), y, dtype=_DTYPES)
        is_deep = isinstance(X, np.ndarray) and X.ndim > 2
        shape = X.shape[1:] if is_deep else x.shape[1:]
        check_classification_targets(y)
        if type_of_target(y) == "continuous":
            raise InputError(f"Unknown label type: {type_of_target(y)}")
        classes, places = np.unique(y, return_inverse=True)
        names = [str(each) for each in classes]
        keys = [str(i) for i in range(len(x))]
        examples = Examples(x, places.astype(np.int32), names, keys)
        training = EncoderTraining(config, examples, range(self.epochs))
        history: list[dict[str, float | None]] = []

        def keep(status) -> None:
            if status.is_epoch_end:
                history.append(status.metrics)

        end = run_epochs(training, training.initial_state(), keep)
        self.classes_, self.history_ = classes, history
        self._set(layers_of(end.state.params), shape, x.dtype.name)
        return self

    def predict(self, X) -> np.ndarray:
        """The label of each row, [n]."""
        best = self._outputs(scores, X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, [n, classes]."""
        return self._outputs(probabilities, X)

    def transform(self, X) -> np.ndarray:
        """The embedding of each row: the last hidden layer, [n, layers[-2]]."""
        return self._outputs(embed, X)

    def save(self, path: str | os.PathLike) -> None:
        """Writes all that is known, in one `.npz` file, which `legacy` reads too."""
        check_is_fitted(self)
        settings = {name: getattr(self, name) for name in ENCODER_SETTINGS}
        settings["dtype"] = self._dtype
        model = EncoderFile(
            settings,
            self.classes_,
            self.layers_,
            self.history_,
            self._shape,
            self._kind,
        )
        write_encoder(Path(path), model)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FeatureEncoder":
        """The encoder in a file of `save`, of this package or of `legacy`.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: it is not a whole one.
        """
        model = read_encoder(Path(path))
        made = cls(**model.settings)
        made.classes_, made.history_ = model.classes, model.history
        made.n_features_in_ = len(model.layers[0][0])
        made._set(model.layers, model.shape, model.kind)
        return made

    @property
    def _n_features_out(self) -> int:
        return self.layers_[-1][0].shape[0]

    @property
    def _dtype(self) -> str:
        """Of the layers; the argument may have been set since."""
        return self.layers_[0][0].dtype.name

    def _set(self, layers, shape: tuple[int, ...], kind: str) -> None:
        self.layers_, self._shape, self._kind = layers, shape, kind

    def _config(self) -> Config:
        arguments = {} if self.optimizer_args is None else self.optimizer_args
        if not isinstance(arguments, dict):
            raise InputTypeError(
                "`optimizer_args` must be a dict of values by their names, got "
                f"{arguments!r}."
            )
        return with_options(
            Config(),
            model="encoder",
            loader="memory",
            layers=() if self.layers is None else self.layers,
            optimizer=self.optimizer,
            optimizer_args=tuple(f"{k}={v}" for k, v in arguments.items()),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            validation_fraction=self.validation_fraction,
            seed=self.seed,
            workers=self.workers,
            dtype=self.dtype,
        )

    def _outputs(self, function, X) -> np.ndarray:
        check_is_fitted(self)
        x = validate_data(self, _flat(X), reset=False, dtype=_DTYPES)
        return function(*network_of(self.layers_), x)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # `dtype` says what comes out
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "layers_")


_DTYPES: Any = [np.float64, np.float32, np.uint8]  # others become the first


def _flat(X) -> Any:
    """X with features along one axis."""
    is_deep = isinstance(X, np.ndarray) and X.ndim > 2
    return X.reshape(len(X), math.prod(X.shape[1:])) if is_deep else X
