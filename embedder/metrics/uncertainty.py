"""How far to trust the predictions of several networks.

Axis letters: K replicas, n examples, C classes, B bins. Entropies are in nats.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from embedder.metrics.intervals import RESAMPLES, Estimate, estimate, resamples

PERCENTS = (0, 10, 20, 50)
"""Percentages of the examples that are rejected."""

NUM_BINS = 15
"""Bins of a calibration error, as in Guo et al. 2017."""


class EntropySplit(NamedTuple):
    """The predictions of replicas, and the parts of their entropy, f64[n].

    H(p) = -sum_c p_c log p_c, and p is the mean over replicas of their probabilities
    p_k:

        total = H(p), data = mean_k H(p_k), model = total - data

    `data` remains if all replicas agree; `model` is the mutual information of class and
    replica, 0 if they agree and at most log K. Houlsby et al. 2011, arXiv:1112.5745,
    eq. 2; Depeweg et al. 2018, arXiv:1710.07283; the mean over networks:
    Lakshminarayanan et al. 2017, arXiv:1612.01474.
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


def join_splits(splits: Iterable[EntropySplit]) -> EntropySplit:
    """The split of all examples from those of one group after the other."""
    fields = zip(*splits, strict=True)
    return EntropySplit(*(np.concatenate(each) for each in fields))


class Reliability(NamedTuple):
    """How often predictions are right, by how certain they are.

    Bin b of B equal ones has the examples whose confidence, the probability of the
    predicted class, is in (b / B, (b + 1) / B]; 0 is in the first. Means of empty
    bins are NaN. The bins of Guo et al. 2017, arXiv:1706.04599, section 2.
    """

    num_examples: np.ndarray  # i64[B]
    confidence: np.ndarray  # f64[B], mean of the examples of the bin
    accuracy: np.ndarray  # f64[B], share of them that is predicted right

    @property
    def calibration_error(self) -> float:
        """ECE = sum_b |b| / n |accuracy of b - mean confidence of b|, in [0, 1].

        Guo et al. 2017, arXiv:1706.04599, eq. 3.
        """
        gaps = np.abs(self.accuracy - self.confidence) * self.num_examples
        return float(np.nansum(gaps) / self.num_examples.sum())


def reliability(
    confidence: np.ndarray, is_correct: np.ndarray, bins: int = NUM_BINS
) -> Reliability:
    """The bins of predictions with `confidence` [n] that are right or not, bool[n]."""
    confidence = confidence.astype(np.float64)
    numbers = bin_numbers(confidence, bins)
    num_examples = np.bincount(numbers, minlength=bins)
    sums = (np.bincount(numbers, x, bins) for x in (confidence, is_correct))
    with np.errstate(invalid="ignore"):  # 0 / 0 of empty bins
        return Reliability(num_examples, *(each / num_examples for each in sums))


def bin_numbers(confidence: np.ndarray, bins: int) -> np.ndarray:
    """The number of the bin of each confidence, i64[n], see `Reliability`."""
    numbers = np.ceil(confidence.astype(np.float64) * bins).astype(int) - 1
    return np.clip(numbers, 0, bins - 1)


class Rejection(NamedTuple):
    """Accuracy of the examples that remain when the least certain are rejected."""

    rejected: np.ndarray  # f64[n], fraction of the examples, 0 to (n - 1) / n
    accuracy: np.ndarray  # f64[n]

    def at(self, percent: int) -> float:
        """Accuracy when `percent` % are rejected, rounded down to whole examples."""
        return float(self.accuracy[len(self.accuracy) * percent // 100])


def kept_examples(uncertainty: np.ndarray, percent: int) -> np.ndarray:
    """Which examples remain when `percent` % are rejected, bool[n], as `Rejection`."""
    num = len(uncertainty)
    kept = np.zeros(num, bool)
    order = np.argsort(uncertainty, kind="stable")
    kept[order[: num - num * percent // 100]] = True
    return kept


def rejection(is_correct: np.ndarray, uncertainty: np.ndarray) -> Rejection:
    """The accuracy after each number of rejections, the most uncertain first.

    Args:
      is_correct: bool[n], whether predictions are right.
      uncertainty: [n], such as the total entropy. Of equal ones the last is rejected
        first.
    """
    order = np.argsort(uncertainty, kind="stable")
    remaining = np.arange(1, len(order) + 1)
    accuracy = np.cumsum(is_correct[order]) / remaining
    return Rejection(1 - remaining[::-1] / len(order), accuracy[::-1])


def log_likelihood(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log of the mean over replicas of the probability of each label, f64[n].

    log(1 / K sum_k p_k), where p_k is the softmax of the scores of replica k. Computed
    from scores, it is finite where p_k rounds to 0.

    Args:
      scores: [K, n, C].
      labels: i[n], the classes.
    """
    scores = scores.astype(np.float64)
    own = np.take_along_axis(scores, labels[np.newaxis, :, np.newaxis], axis=2)[..., 0]
    from scipy.special import logsumexp  # costs memory: only here

    logs = own - logsumexp(scores, axis=2)
    return np.minimum(logsumexp(logs, axis=0) - np.log(len(scores)), 0)


@dataclass(frozen=True, eq=False)
class Predicted:
    """The predictions of n labelled examples."""

    labels: np.ndarray  # [n], the classes, of any type
    confidence: np.ndarray  # f[n], probability of the predicted class
    is_correct: np.ndarray  # bool[n], whether that is the label
    log_likelihood: np.ndarray  # f[n], log of the probability of the label
    entropy: np.ndarray | None = None  # [n], of the probabilities, in nats


class Intervals(NamedTuple):
    """Scores of predictions with 95 % intervals."""

    accuracy: Estimate
    negative_log_likelihood: Estimate
    calibration_error: Estimate
    rejection: dict[int, Estimate]  # accuracy of the others, by the percent rejected;
    # {} without entropies
    most_frequent: Estimate  # accuracy of the most frequent class
    frequencies: Estimate  # negative log likelihood of the frequencies of the classes


@functools.lru_cache(maxsize=1)  # for all scores of the predictions
def score_intervals(
    predicted: Predicted, num: int = RESAMPLES, seed: int = 0
) -> Intervals:
    """The scores of predictions, with intervals by `num` resamples; 0: without.

    All scores are of the same resamples, ALGORITHM.md (75), so one pass over them is
    enough. The baselines know how often each class is among the examples, and nothing
    else: no other constant prediction is more accurate, or more likely.
    """
    means, entropy = _means(predicted), predicted.entropy
    gaps = np.zeros((len(means), NUM_BINS))  # accuracy less confidence, in its bin
    numbers = bin_numbers(predicted.confidence, NUM_BINS)
    each = predicted.is_correct - predicted.confidence.astype(np.float64)
    gaps[np.arange(len(means)), numbers] = each
    percents = () if entropy is None else PERCENTS
    masks = np.zeros((len(means), len(percents)))
    if entropy is not None:
        kept = [kept_examples(entropy, percent) for percent in percents]
        masks = np.stack(kept, axis=1).astype(np.float64)
    right = masks * np.asarray(predicted.is_correct)[:, np.newaxis]
    sizes = [4, NUM_BINS, len(percents), len(percents)]
    columns, ends = np.hstack([means, gaps, masks, right]), np.cumsum(sizes)[:-1]

    def scores(sums: np.ndarray) -> np.ndarray:
        """Of the sums over examples, f64[R, columns]."""
        of_means, of_gaps, of_masks, of_right = np.split(sums, ends, axis=1)
        with np.errstate(invalid="ignore"):  # a resample may have none that remain
            others = of_right / of_masks
        errors = np.abs(of_gaps).sum(axis=1, keepdims=True)
        return np.hstack([of_means / len(means), errors / len(means), others])

    values = scores(columns.sum(axis=0, keepdims=True))[0].tolist()
    sums = [counts @ columns for counts in resamples(len(means), num, seed)]
    samples = scores(np.vstack([np.empty((0, columns.shape[1])), *sums]))
    found = [estimate(*each) for each in zip(values, samples.T, strict=True)]
    accuracy, likelihood, frequent, prior, error, *others = found
    rejection = dict(zip(percents, others, strict=True))
    return Intervals(accuracy, likelihood, error, rejection, frequent, prior)


def _means(predicted: Predicted) -> np.ndarray:
    """Whether each prediction is right and -log of its probability of the label; the
    same of the most frequent class and of the frequencies, f64[n, 4]."""
    _, classes, counts = np.unique(
        predicted.labels, return_inverse=True, return_counts=True
    )
    is_frequent = classes == counts.argmax()
    prior = -np.log(counts / counts.sum())[classes]
    each = predicted.is_correct, -predicted.log_likelihood, is_frequent, prior
    return np.stack(each, axis=1).astype(np.float64) + 0.0  # not -0
