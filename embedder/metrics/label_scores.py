"""Labels of nodes, predicted from vectors, ALGORITHM.md (74).

Labels are predicted by logistic regression, one label against the rest, from a share of
the nodes. Of the other nodes as many labels are predicted as each has: the protocol of
Perozzi et al. 2014 (DeepWalk), arXiv:1403.6652.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embedder.metrics.intervals import RESAMPLES, Estimate, estimate, resamples

if TYPE_CHECKING:
    from scipy import sparse

Predictor = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Nodes with known labels, other nodes -> scores of each label of the others [n, C]."""


class LabelCases(NamedTuple):
    """Nodes whose labels are predicted; see `f1_scores`."""

    has_label: np.ndarray  # bool[N, C]
    train_share: float
    splits: int


class F1Scores(NamedTuple):
    """F1 of labels, ALGORITHM.md (74)."""

    micro: Estimate
    macro: Estimate


class _Split(NamedTuple):
    """A random choice of the nodes with known labels."""

    rest: np.ndarray  # i64[n], the other nodes
    right: np.ndarray  # bool[n, C], labels that are predicted and true
    total: np.ndarray  # i64[n, C], predicted + true

    def f1(self, weights: np.ndarray) -> np.ndarray:
        """Micro and macro F1, f64[r, 2], where node i counts weights[:, i] times."""
        own = weights[:, self.rest]
        right, total = 2 * (own @ self.right), own @ self.total
        micro = right.sum(axis=1) / np.maximum(total.sum(axis=1), 1)
        return np.stack([micro, (right / np.maximum(total, 1)).mean(axis=1)], axis=1)


def f1_scores(
    predictor: Predictor,
    has_label: np.ndarray,
    train_share: float,
    splits: int,
    num: int = RESAMPLES,
    seed: int = 0,
) -> F1Scores:
    """Means over random splits of micro and macro F1 of the nodes of unknown labels.

    Args:
      has_label: bool[N, C].
      train_share: share of the nodes whose labels are known.
      splits: the seeds of the splits are `seed`, `seed` + 1 ...
      num: resamples of the nodes; 0: no intervals.
    """
    each = [
        _predicted(predictor, has_label, train_share, seed + split)
        for split in range(splits)
    ]

    def mean(weights: np.ndarray) -> np.ndarray:
        return np.mean([split.f1(weights) for split in each], axis=0)

    values = mean(np.ones((1, len(has_label))))[0]
    chunks = resamples(len(has_label), num, seed)
    samples = np.concatenate([np.empty((0, 2)), *map(mean, chunks)])
    return F1Scores(*map(estimate, values.tolist(), samples.T))


def _predicted(
    predictor: Predictor, has_label: np.ndarray, share: float, seed: int
) -> _Split:
    order = np.random.default_rng(seed).permutation(len(has_label))
    known, rest = np.split(order, [round(len(order) * share)])
    scores = predictor(known, rest)
    ranks = (-scores).argsort(axis=1, kind="stable").argsort(axis=1)
    predicted = ranks < has_label[rest].sum(axis=1, keepdims=True)
    total = predicted.astype(np.int64) + has_label[rest]
    return _Split(rest, predicted & has_label[rest], total)


def by_regression(features: np.ndarray, has_label: np.ndarray) -> Predictor:
    """Logistic regression of each label against the rest on features f[N, D].

    A label of none or of all of the known nodes has the lowest score.
    """
    from sklearn.linear_model import LogisticRegression

    def predict(known: np.ndarray, rest: np.ndarray) -> np.ndarray:
        scores = np.full((len(rest), has_label.shape[1]), -np.inf)
        for label, is_right in enumerate(has_label[known].T):
            if is_right.any() and not is_right.all():
                model = LogisticRegression(solver="liblinear")
                model.fit(features[known], is_right)
                scores[:, label] = model.decision_function(features[rest])
        return scores

    return predict


def by_frequency(has_label: np.ndarray) -> Predictor:
    """The labels that most of the known nodes have."""

    def predict(known: np.ndarray, rest: np.ndarray) -> np.ndarray:
        return np.tile(has_label[known].sum(axis=0).astype(float), (len(rest), 1))

    return predict


def by_degree(
    adjacency: "sparse.csr_array", rows: np.ndarray, has_label: np.ndarray
) -> Predictor:
    """Regression on log(1 + degree) of the nodes `rows`, i64[N], of a graph [V, V]."""
    degrees = adjacency.sum(axis=0) + adjacency.sum(axis=1)
    return by_regression(np.log(degrees[rows, np.newaxis] + 1.0), has_label)
