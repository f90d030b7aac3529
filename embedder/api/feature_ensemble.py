"""FeatureEnsemble: the K networks of `FeatureEncoder.fit_ensemble` as one classifier.

Axis letters: K members, n examples, E values of an embedding, C classes.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from embedder.config import Config
from embedder.data.examples.examples import without_channel
from embedder.encoders.evaluation import Evaluation, evaluate_labelled
from embedder.encoders.networks.network import Model, Network
from embedder.encoders.outputs import load_model
from embedder.encoders.predictor import Predictor
from embedder.engine.replicas import stack_states
from embedder.errors import InputError
from embedder.metrics.uncertainty import EntropySplit

DTYPES: Any = [np.float64, np.float32, np.uint8]
"""Dtypes of features; others are cast to the first."""


class Member(Protocol):
    """A fitted `FeatureEncoder`, as far as ensembles and reports use it."""

    classes_: np.ndarray
    history_: list[dict[str, Any]]

    @property
    def _trained(self) -> tuple[Network, Model]: ...

    def _config(self) -> Config: ...

    def _outputs(self, function: Any, X: Any) -> np.ndarray: ...

    def transform(self, X: Any) -> np.ndarray: ...

    def predict_proba(self, X: Any) -> np.ndarray: ...


@dataclass(frozen=True, eq=False, repr=False)
class FeatureEnsemble:
    """K networks that were trained side by side, and their mean predictions.

    Raises, in all methods of X: ValueError: X does not fit the networks.
    """

    members: list[Member]
    """The networks; `history_` of each has the means of all."""
    rotations: np.ndarray
    """What aligns the embeddings of each member to the first's, [K, E, E]."""

    def __len__(self) -> int:
        """The number of networks, K."""
        return len(self.members)

    def __repr__(self) -> str:
        return f"FeatureEnsemble({len(self)} of {self.members[0]!r})"

    @property
    def classes_(self) -> np.ndarray:
        """The classes, sorted, [C]."""
        return self.members[0].classes_

    def predict(self, X) -> np.ndarray:
        """The class of the highest mean probability for each row of X, [n]."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X) -> np.ndarray:
        """The mean over members of the probability of each class, [n, C]."""
        return self.entropies(X).probabilities

    def entropies(self, X) -> EntropySplit:
        """Mean probabilities, and their entropy by what it comes from, in nats."""
        return self._predictor.predict(self._features(X))

    def transform(self, X) -> np.ndarray:
        """The mean embedding of each row after alignment to the first member, [n, E]"""
        return self._predictor.vectors(self._features(X), self.rotations)

    def member_probabilities(self, X) -> np.ndarray:
        """The probability of each class by each member, [K, n, C]."""
        return self._predictor.each_probabilities(self._features(X))

    def member_embeddings(self, X) -> np.ndarray:
        """The embedding of each row by each member, aligned to the first, [K, n, E]."""
        return self._predictor.each_vectors(self._features(X), self.rotations)

    def score(self, X, y) -> float:
        """Share of the rows of X whose label y [n] is the predicted class."""
        return float(np.mean(self.predict(X) == column_or_1d(y)))

    def evaluate(self, X, y) -> Evaluation:
        """Accuracy, likelihood, calibration and rejection on X with labels y, [n].

        Raises:
          InputError: y has a class that the networks do not know.
        """
        features, labels = self._features(X), self._labels(y)
        check_consistent_length(features, labels)
        return evaluate_labelled(self._predictor, features, labels)

    @property
    def _predictor(self) -> Predictor:
        each = [member._trained for member in self.members]
        encoder, _ = load_model(*each[0])
        models = stack_states([model for _, model in each])
        return Predictor(encoder, models, has_replicas=True)

    def _features(self, X) -> np.ndarray:
        return features_for(self.members[0], X)

    def _labels(self, y) -> np.ndarray:
        """Indices of labels in `classes_`, i64[n]."""
        labels, indices = np.unique(column_or_1d(y), return_inverse=True)
        known = self.classes_.tolist()
        if others := [each for each in labels.tolist() if each not in known]:
            raise InputError(
                f"`y` must have classes of the ensemble, got {others[0]!r}."
            )
        return np.array([known.index(each) for each in labels.tolist()])[indices]


def flat(X) -> Any:
    """X [n, ...] as [n, F], if it has more axes."""
    is_deep = isinstance(X, np.ndarray) and X.ndim > 2
    return X.reshape(len(X), math.prod(X.shape[1:])) if is_deep else X


def features_for(estimator: Any, X) -> np.ndarray:
    """X as features [n, F] for a fitted estimator.

    Integers are pixels, if it was trained on uint8; numbers of 0 to 1 are what pixels
    are scaled to.

    Raises:
      NotFittedError, ValueError: the estimator is not fitted, or X does not fit it.
    """
    check_is_fitted(estimator)
    shape, kind = estimator._shape, estimator._kind
    if isinstance(X, np.ndarray) and len(shape) > 1:
        _check_shape(X, shape)
    x = validate_data(estimator, flat(X), reset=False, dtype=DTYPES)
    if kind != "uint8" or x.dtype == np.uint8:
        return x
    dtype = np.asarray(X).dtype
    is_whole = dtype.kind in "iu"
    low, high = x.min(), x.max()
    if low < 0 or high > (255 if is_whole else 1):
        hint = ": give X.astype(np.uint8)" if 0 <= low and 1 < high <= 255 else ""
        raise InputError(
            "`X` must be of uint8, 0 to 255, as in `fit`, or scaled to 0 to 1, got "
            f"{dtype} of {low:g} to {high:g}{hint}."
        )
    return x.astype(np.uint8) if is_whole else x


def _check_shape(X: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises InputError unless X is [n, *shape], or such examples as rows."""
    num = math.prod(shape)
    is_flat = X.ndim < 2 or (X.ndim == 2 and X.shape[1] == num)
    if is_flat or without_channel(X.shape[1:]) == without_channel(shape):
        return
    axes = ", ".join(map(str, shape))
    is_one = without_channel(X.shape) == without_channel(shape)
    one = " One example is X[np.newaxis]." if is_one else ""
    raise InputError(
        f"`X` must be [n, {axes}], as in `fit`, or rows of {num} numbers, got "
        f"{list(X.shape)}.{one}"
    )
