"""Rank and linear correlation of scores of pairs, with bootstrap intervals."""

from typing import NamedTuple

import numpy as np

from embedder.evaluation.intervals import RESAMPLES, Estimate, estimate, resamples


class Correlations(NamedTuple):
    """Correlations of two scores; 0.0 where one is constant."""

    spearman: Estimate  # of ranks, the mean rank for ties
    pearson: Estimate


def correlations(
    first: np.ndarray, second: np.ndarray, num: int = RESAMPLES, seed: int = 0
) -> Correlations:
    """Correlations of f[n] and f[n] over pairs, with intervals by resampled pairs."""
    values = _correlations(first, second, np.ones((1, len(first))))[0]
    chunks = resamples(len(first), num, seed)
    found = [_correlations(first, second, counts) for counts in chunks]
    samples = np.concatenate([np.empty((0, 2)), *found])
    return Correlations(*map(estimate, values.tolist(), samples.T))


def _correlations(
    first: np.ndarray, second: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Spearman's and Pearson's, f64[r, 2], of pairs that count f64[r, n] times."""
    spearman = _pearson(_ranks(first, counts), _ranks(second, counts), counts)
    pearson = _pearson(first[np.newaxis], second[np.newaxis], counts)
    return np.stack([spearman, pearson], axis=1)


def _ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean ranks f64[r, n] of values that are there f64[r, n] times."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(group[order]) > 0))
    sizes = np.add.reduceat(counts[:, order], starts, axis=1)
    return (sizes.cumsum(axis=1) - sizes / 2)[:, group]


def _pearson(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=1, keepdims=True)
    first = first - (counts * first).sum(axis=1, keepdims=True) / total
    second = second - (counts * second).sum(axis=1, keepdims=True) / total
    sums = [
        (counts * x * y).sum(axis=1)
        for x, y in ((first, second), (first, first), (second, second))
    ]
    scale = np.sqrt(sums[1] * sums[2])
    is_constant = scale <= 1e-12 * np.abs(scale).max(initial=0)
    return np.where(is_constant, 0.0, sums[0] / np.where(is_constant, 1, scale))
