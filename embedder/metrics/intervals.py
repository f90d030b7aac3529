"""Bootstrap intervals of scores, ALGORITHM.md (75).

A resample draws as many cases as there are, with replacement. The interval of a score
is from the 2.5th to the 97.5th percentile of its values on the resamples (Efron 1979).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

RESAMPLES = 1000
_FEWEST = 100  # of many cases
_CHUNK_VALUES = 2**19  # counts of a chunk of resamples: 4 MB in float64


class Estimate(NamedTuple):
    """A score, and its 95 % interval; nan: there is none."""

    value: float
    lower: float
    upper: float


NOT_MEASURED = Estimate(np.nan, np.nan, np.nan)


def shown(found: Estimate) -> str:
    """A score with its interval, as 0.8712 [0.8644, 0.8779]; without one 0.8712."""
    if not math.isfinite(found.lower):
        return f"{found.value:.4f}"
    return f"{found.value:.4f} [{found.lower:.4f}, {found.upper:.4f}]"


def estimate(value: float, samples: np.ndarray) -> Estimate:
    """A score with the interval of its values on resamples, f64[R]; nan without any."""
    if not len(samples) or np.isnan(samples).all():
        return Estimate(value, np.nan, np.nan)
    lower, upper = np.nanpercentile(samples, [2.5, 97.5])
    return Estimate(value, float(lower), float(upper))


def affordable(num_cases: int, draws: float) -> int:
    """How many resamples of `num_cases` cases draw `draws` cases in all, between
    `_FEWEST` and `RESAMPLES`."""
    return int(np.clip(draws / max(num_cases, 1), _FEWEST, RESAMPLES))


def resamples(num_cases: int, num: int = RESAMPLES, seed: int = 0) -> Iterator:
    """How often each of `num` resamples has each case: chunks f64[r, num_cases].

    They depend only on `num_cases` and `seed`, so scores of the same cases have the
    same resamples.
    """
    rng = np.random.default_rng(seed)
    size = max(1, _CHUNK_VALUES // max(num_cases, 1))
    for start in range(0, num, size):
        counts = np.empty((min(size, num - start), num_cases))
        for row in counts:
            drawn = rng.integers(num_cases, size=num_cases)
            row[:] = np.bincount(drawn, minlength=num_cases)
        yield counts


def mean_estimates(
    cases: np.ndarray, num: int = RESAMPLES, seed: int = 0
) -> list[Estimate]:
    """The mean over the cases of each column of f[N, M], with its interval.

    Args:
      num: resamples; 0: no intervals.
    """
    if not len(cases):
        return [NOT_MEASURED] * cases.shape[1]
    means = [counts @ cases for counts in resamples(len(cases), num, seed)]
    samples = np.concatenate([np.empty((0, cases.shape[1])), *means]) / len(cases)
    return [
        estimate(float(value), column)
        for value, column in zip(cases.mean(axis=0), samples.T, strict=True)
    ]


def ratio_estimate(
    sums: np.ndarray, sizes: np.ndarray, num: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """The mean over the terms of all groups, by resamples of whole groups.

    Args:
      sums, sizes: of the terms of each group, f[N] both.
    """
    if not sizes.sum():
        return NOT_MEASURED
    samples = [np.empty(0)]
    for counts in resamples(len(sums), num, seed):
        with np.errstate(invalid="ignore", divide="ignore"):
            samples.append(counts @ sums / (counts @ sizes))
    return estimate(float(sums.sum() / sizes.sum()), np.concatenate(samples))


def mean_by_sequence(
    values: np.ndarray, sequence: np.ndarray, num: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """The mean of f[n]; its interval is by `num` resamples of whole sequences, whose
    number i64[n] tells: of one sequence there is none."""
    _, group = np.unique(sequence, return_inverse=True)
    sums, sizes = np.bincount(group, values), np.bincount(group)
    num = num if len(sizes) > 1 else 0
    with np.errstate(over="ignore", invalid="ignore"):
        return ratio_estimate(sums, sizes, num, seed)
