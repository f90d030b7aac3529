"""Bootstrap intervals of the scores of predictions, ALGORITHM.md (75)."""

from typing import NamedTuple

import numpy as np

from embedder.evaluation.intervals import Estimate, affordable, estimate, resamples

_DRAWS = 5e7  # of examples in all resamples: about a second


class Scores(NamedTuple):
    """Scores of labelled examples, each with its interval."""

    accuracy: Estimate
    negative_log_likelihood: Estimate  # in nats
    calibration_error: Estimate


def scores_of(
    is_correct: np.ndarray,
    log_likelihood: np.ndarray,
    confidence: np.ndarray,
    calibration_error: float,
    num_bins: int,
) -> Scores:
    """The scores of n predictions; of many examples by fewer resamples.

    Args:
      is_correct: bool[n], whether the predicted class is the label.
      log_likelihood: f[n], of the label.
      confidence: f[n], probability of the predicted class.
      calibration_error: of all examples, over `num_bins` equal bins of confidence.
    """
    num = len(is_correct)
    numbers = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    cases = np.zeros((num, num_bins + 2))
    cases[:, 0], cases[:, 1] = is_correct, -log_likelihood
    cases[np.arange(num), 2 + numbers] = is_correct - confidence  # its bin's gap
    chunks = resamples(num, affordable(num, _DRAWS))
    sums = np.concatenate([counts @ cases for counts in chunks]) / num
    return Scores(
        estimate(float(is_correct.mean()), sums[:, 0]),
        estimate(max(0.0, -float(log_likelihood.mean())), sums[:, 1]),
        estimate(calibration_error, np.abs(sums[:, 2:]).sum(axis=1)),
    )
