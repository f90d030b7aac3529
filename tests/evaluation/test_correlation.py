"""Correlations of pairs and of resampled pairs: as in scipy."""

import numpy as np
import pytest
from scipy import stats

from embedder.evaluation import correlation, intervals
from embedder.evaluation.correlation import correlations


@pytest.mark.parametrize("digits", [1, 9], ids=["ties", "no ties"])
def test_correlations_are_those_of_scipy_of_each_resample(monkeypatch, digits):
    rng = np.random.default_rng(0)
    first = rng.normal(size=60).round(digits)
    second = (first + rng.normal(size=60)).round(digits)
    kept = []
    monkeypatch.setattr(correlation, "estimate", lambda v, x: kept.append(x) or v)
    found = correlations(first, second, 30)
    expected = [
        stats.spearmanr(first, second).statistic,
        stats.pearsonr(first, second).statistic,
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    (counts,) = intervals.resamples(60, 30)
    for number, own in enumerate(counts.astype(int)):
        drawn = np.repeat(first, own), np.repeat(second, own)
        expected = stats.spearmanr(*drawn).statistic, stats.pearsonr(*drawn).statistic
        actual = [samples[number] for samples in kept]
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_intervals_are_those_of_scipy():
    rng = np.random.default_rng(1)
    first = rng.normal(size=200)
    second = first + rng.normal(size=200)
    found = correlations(first, second).pearson
    expected = stats.bootstrap(
        *((first, second), lambda x, y: stats.pearsonr(x, y).statistic),
        **{"paired": True, "vectorized": False, "method": "percentile"},
        **{"n_resamples": 1000, "rng": 0},
    ).confidence_interval
    np.testing.assert_allclose(found[1:], expected, atol=0.015)


def test_a_constant_score_has_correlation_0():
    found = correlations(np.full(5, 0.1), np.arange(5.0))
    assert found.spearman.value == found.pearson.value == 0
    assert found.spearman[1:] == found.pearson[1:] == (0, 0)
