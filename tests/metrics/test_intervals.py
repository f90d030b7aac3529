"""Bootstrap intervals and correlations: by hand, as in scipy, and how often they hold
the truth."""

import numpy as np
import pytest
from scipy import stats

from embedder.metrics import words
from embedder.metrics.intervals import mean_estimates, ratio_estimate, resamples
from embedder.metrics.words import correlations


def test_two_cases_by_hand():
    """The resamples 0 0, 0 1 and 1 1 of 0 1 have a quarter, half, quarter."""
    (found,) = mean_estimates(np.array([[0.0], [1.0]]))
    assert found == (0.5, 0.0, 1.0)
    draws = np.concatenate([*resamples(2)])
    assert draws.shape == (1000, 2) and (draws.sum(axis=1) == 2).all()
    assert (draws[:, 0] == 1).mean() == pytest.approx(0.5, abs=0.05)


def test_chunks_change_nothing_and_the_seed_does(monkeypatch):
    cases = np.random.default_rng(0).normal(size=(50, 3))
    whole = mean_estimates(cases)
    monkeypatch.setattr("embedder.metrics.intervals._CHUNK_VALUES", 120)
    np.testing.assert_allclose(mean_estimates(cases), whole, rtol=1e-12)
    assert mean_estimates(cases, seed=1) != whole


def test_the_interval_of_a_mean_is_that_of_scipy():
    cases = np.random.default_rng(0).exponential(size=(200, 1))
    (found,) = mean_estimates(cases, 10_000)
    expected = stats.bootstrap(
        (cases[:, 0],), np.mean, method="percentile", n_resamples=10_000, rng=0
    ).confidence_interval
    assert found.value == pytest.approx(cases.mean())
    np.testing.assert_allclose(found[1:], expected, rtol=0.01)


def test_groups_are_resampled_whole():
    """Two groups: 3 terms of sum 0, 1 term of sum 4."""
    found = ratio_estimate(np.array([0.0, 4.0]), np.array([3, 1]))
    assert found == (1.0, 0.0, 4.0)


@pytest.mark.parametrize("num", [0, 10])
def test_no_cases_have_no_score_and_no_resamples_no_interval(num):
    assert np.isnan(mean_estimates(np.empty((0, 2)), num)).all()
    assert np.isnan(ratio_estimate(np.empty(0), np.empty(0), num)).all()
    (found,) = mean_estimates(np.ones((3, 1)), num)
    assert found.value == 1 and np.isnan(found[1:]).all() == (num == 0)


@pytest.mark.parametrize("digits", [1, 9], ids=["ties", "no ties"])
def test_correlations_are_those_of_scipy_of_each_resample(monkeypatch, digits):
    rng = np.random.default_rng(0)
    first = rng.normal(size=60).round(digits)
    second = (first + rng.normal(size=60)).round(digits)
    kept = []
    monkeypatch.setattr(words, "estimate", lambda v, x: kept.append(x) or v)
    found = correlations(first, second, 30)
    (counts,) = resamples(60, 30)
    for number, own in enumerate([np.ones(60), *counts]):
        drawn = [np.repeat(x, own.astype(int)) for x in (first, second)]
        expected = stats.spearmanr(*drawn).statistic, stats.pearsonr(*drawn).statistic
        actual = [samples[number - 1] for samples in kept] if number else found
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_a_constant_score_has_correlation_0():
    found = correlations(np.full(5, 0.1), np.arange(5.0))
    assert found.spearman == found.pearson == (0, 0, 0)
