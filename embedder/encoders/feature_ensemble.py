"""FeatureEnsemble: the K networks of `FeatureEncoder.fit_ensemble` as one classifier.

Axis letters: K members, n examples, E values of an embedding, C classes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from embedder.encoders.evaluation import Evaluation, evaluate_labelled
from embedder.encoders.outputs import load_model
from embedder.encoders.predictor import Predictor
from embedder.encoders.uncertainty import EntropySplit
from embedder.encoders.validation import features_for
from embedder.engine.replicas import stack_states
from embedder.errors import InputError

if TYPE_CHECKING:
    from embedder.encoders.estimator import FeatureEncoder


@dataclass(frozen=True, eq=False, repr=False)
class FeatureEnsemble:
    """K networks that were trained side by side, and their mean predictions.

    Raises, in all methods of X: ValueError: X does not fit the networks.
    """

    members: list["FeatureEncoder"]
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
        return evaluate_labelled(self._predictor, features, labels, "examples")

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
        found, indices = np.unique(column_or_1d(y), return_inverse=True)
        known = self.classes_.tolist()
        if others := [each for each in found.tolist() if each not in known]:
            raise InputError(
                f"`y` must have classes of the ensemble, got {others[0]!r}."
            )
        return np.array([known.index(each) for each in found.tolist()])[indices]
