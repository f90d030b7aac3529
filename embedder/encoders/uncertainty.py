"""How far to trust the predictions of several networks.

Axis letters: K replicas, n examples, C classes. Entropies are in nats.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_BINS = 15  # of a calibration error


class EntropySplit(NamedTuple):
    """The predictions of replicas, and the parts of their entropy, f64[n].

    H(p) = -sum_c p_c log p_c, and p is the mean over replicas of their probabilities
    p_k:

        total = H(p), data = mean_k H(p_k), model = total - data

    `data` remains if all replicas agree; `model` is the mutual information of class and
    replica, 0 if they agree and at most log K. Depeweg et al. 2018, arXiv:1710.07283;
    the mean over networks: Lakshminarayanan et al. 2017, arXiv:1612.01474.
    """

    probabilities: np.ndarray  # [n, C], p, in the dtype of p_k
    total: np.ndarray
    data: np.ndarray
    model: np.ndarray


def split_entropy(probabilities: Iterable[np.ndarray]) -> EntropySplit:
    """The mean and the entropies of the probabilities of each replica, [n, C].

    Args:
      probabilities: [K, n, C], or an iterator over replicas; rows have the sum 1.

    Raises:
      ValueError: there are none.
    """
    num, sums, entropies, dtype = 0, np.zeros(()), np.zeros(()), np.dtype(float)
    for each in probabilities:
        num, dtype = num + 1, each.dtype
        sums = sums + each.astype(np.float64)
        entropies = entropies + entropy(each)
    if not num:
        raise ValueError("`probabilities` must be of one replica or more, got none.")
    mean, data = sums / num, entropies / num
    total = entropy(mean)
    model = np.maximum(total - data, 0)  # below 0 by rounding only
    return EntropySplit(mean.astype(dtype), total, data, model)


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """-sum_c p_c log p_c of each row of [n, C], f64[n]; 0 log 0 is 0."""
    p = probabilities.astype(np.float64)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.maximum(-(p * logs).sum(axis=1), 0)  # not -0


def calibration_error(
    probabilities: np.ndarray, labels: np.ndarray, bins: int = _BINS
) -> float:
    """Expected calibration error of predictions [n, C], in [0, 1].

    Examples are put in equal bins by the probability of their predicted class, the
    confidence: ECE = sum_b |b| / n |accuracy of b - mean confidence of b|. Guo et al.
    2017, arXiv:1706.04599, eq. 3.

    Args:
      labels: i[n], the classes.
    """
    confidence = probabilities.max(axis=1).astype(np.float64)
    gap = _is_correct(probabilities, labels) - confidence
    numbers = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(numbers, gap, bins)
    return float(np.abs(gaps).sum() / len(labels))


class Rejection(NamedTuple):
    """Accuracy of the examples that remain when the least certain are rejected."""

    rejected: np.ndarray  # f64[n], fraction of the examples, 0 to (n - 1) / n
    accuracy: np.ndarray  # f64[n]


def accuracy_by_rejection(
    probabilities: np.ndarray, labels: np.ndarray, uncertainty: np.ndarray
) -> Rejection:
    """The accuracy after each number of rejections, the most uncertain first.

    Args:
      probabilities: [n, C].
      labels: i[n], the classes.
      uncertainty: [n], such as the total entropy. Of equal ones the last is rejected
        first.
    """
    order = np.argsort(uncertainty, kind="stable")
    remaining = np.arange(1, len(order) + 1)
    accuracy = np.cumsum(_is_correct(probabilities, labels)[order]) / remaining
    return Rejection(1 - remaining[::-1] / len(order), accuracy[::-1])


def _is_correct(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """1 where the most probable class is the label, else 0; f64[n]."""
    return (probabilities.argmax(axis=1) == labels).astype(np.float64)
