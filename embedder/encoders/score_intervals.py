"""Bootstrap intervals of the scores of predictions, and what a constant one would have.

All scores are of the same resamples, ALGORITHM.md (75), so one pass over them is
enough. The baselines know how often each class is among the examples, and nothing
else: no other constant prediction is more accurate, or more likely.
"""

from typing import NamedTuple

import numpy as np

from embedder.encoders.uncertainty import NUM_BINS, bin_numbers
from embedder.evaluation.intervals import Estimate, estimate, resamples


class Intervals(NamedTuple):
    """Scores of predictions with 95 % intervals."""

    accuracy: Estimate
    negative_log_likelihood: Estimate
    calibration_error: Estimate
    rejection: dict[int, Estimate]  # accuracy of the others, by the percent rejected
    most_frequent: Estimate  # accuracy of the most frequent class
    frequencies: Estimate  # negative log likelihood of the frequencies of the classes


def score_intervals(
    labels: np.ndarray,
    *,
    confidence: np.ndarray,
    is_correct: np.ndarray,
    log_likelihood: np.ndarray,
    kept: dict[int, np.ndarray],
    seed: int = 0,
) -> Intervals:
    """The scores of n predictions, with intervals.

    Args:
      labels: the classes, of any type, [n].
      confidence, is_correct, log_likelihood: as of `make_evaluation`, [n].
      kept: percent rejected -> which examples remain, bool[n].
      seed: of the resamples.
    """
    means = _means(labels, is_correct, log_likelihood)
    gaps = _gaps(confidence, is_correct)
    masks = np.stack([*kept.values()], axis=1).astype(np.float64)
    right = masks * np.asarray(is_correct)[:, np.newaxis]
    num, sizes = len(labels), [4, NUM_BINS, len(kept), len(kept)]
    columns, ends = np.hstack([means, gaps, masks, right]), np.cumsum(sizes)[:-1]

    def scores(sums: np.ndarray) -> np.ndarray:
        """Of the sums over examples, f64[R, columns]."""
        of_means, of_gaps, of_masks, of_right = np.split(sums, ends, axis=1)
        with np.errstate(invalid="ignore"):  # a resample may have none that remain
            others = of_right / of_masks
        errors = np.abs(of_gaps).sum(axis=1, keepdims=True)
        return np.hstack([of_means / num, errors / num, others])

    values = scores(columns.sum(axis=0, keepdims=True))[0].tolist()
    samples = scores(np.vstack([x @ columns for x in resamples(num, seed=seed)]))
    found = [estimate(*each) for each in zip(values, samples.T, strict=True)]
    accuracy, likelihood, frequent, prior, error, *others = found
    rejection = dict(zip(kept, others, strict=True))
    return Intervals(accuracy, likelihood, error, rejection, frequent, prior)


def _means(
    labels: np.ndarray, is_correct: np.ndarray, log_likelihood: np.ndarray
) -> np.ndarray:
    """Whether each prediction is right and -log of its probability of the label; the
    same of the most frequent class and of the frequencies, f64[n, 4]."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    is_frequent = classes == counts.argmax()
    prior = -np.log(counts / counts.sum())[classes]
    each = is_correct, -log_likelihood, is_frequent, prior
    return np.stack(each, axis=1).astype(np.float64)


def _gaps(confidence: np.ndarray, is_correct: np.ndarray) -> np.ndarray:
    """Accuracy less confidence of each prediction, in the column of its bin, [n, B]."""
    found = np.zeros((len(confidence), NUM_BINS))
    gaps = is_correct - confidence.astype(np.float64)
    found[np.arange(len(confidence)), bin_numbers(confidence, NUM_BINS)] = gaps
    return found
