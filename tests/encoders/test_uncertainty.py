"""Entropies, calibration, rejection, intervals of scores, and means of vectors that
differ by a rotation: by hand."""

import math

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from embedder.cli.evaluate.encoder import evaluation_json, evaluation_lines
from embedder.encoders.evaluation import make_evaluation
from embedder.encoders.predictor import rotated_mean, rotations_to_first
from embedder.metrics.uncertainty import (
    Predicted,
    entropy,
    kept_examples,
    log_likelihood,
    rejection,
    reliability,
)

RNG = np.random.default_rng(0)


def test_entropy_of_known_distributions():
    rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    np.testing.assert_allclose(entropy(rows), [0, math.log(2), math.log(4)], rtol=1e-15)


def test_likelihood_is_finite_where_the_probability_rounds_to_0():
    scores = np.array([[[1000, 0]]], np.float32)
    assert log_likelihood(scores, np.array([1])).tolist() == [-1000]
    assert log_likelihood(scores, np.array([0])).tolist() == [0]


def test_bins_include_their_upper_bound():
    """Of three bins, 1/3 to 2/3 has 2/3: its error is 1/3 with 1 right, 2/3 with 0."""
    gap = (1 - 2 / 3) + (0 - 0.6)
    found = reliability(np.array([2 / 3, 0.6]), np.array([True, False]), bins=3)
    np.testing.assert_allclose(found.calibration_error, abs(gap) / 2, rtol=1e-14)


def test_bins_have_sizes_and_means():
    """Of four bins: two in (0.25, 0.5], none in (0.5, 0.75], one in (0.75, 1]."""
    found = reliability(np.array([0.3, 0.5, 0.9]), np.array([True, False, True]), 4)
    assert found.num_examples.tolist() == [0, 2, 0, 1]
    np.testing.assert_allclose(found.confidence, [np.nan, 0.4, np.nan, 0.9])
    np.testing.assert_allclose(found.accuracy, [np.nan, 0.5, np.nan, 1])
    desired = (2 * abs(0.5 - 0.4) + 1 * abs(1 - 0.9)) / 3
    np.testing.assert_allclose(found.calibration_error, desired, rtol=1e-14)


# --- intervals of scores


def evaluation(probabilities: np.ndarray, labels: np.ndarray, seed: int = 0):
    n = len(labels)
    predicted = Predicted(
        labels,
        confidence=probabilities.max(axis=1),
        is_correct=probabilities.argmax(axis=1) == labels,
        log_likelihood=np.log(probabilities[np.arange(n), labels]),
        entropy=entropy(probabilities),
    )
    return make_evaluation("examples", 1, predicted, seed)


def test_scores_and_constant_predictions_by_hand():
    """Labels 0 0 0 1 with the probabilities .9, .6, .3 and .8 for them: one is wrong.
    Classes have 3/4 and 1/4. In 15 bins each prediction is alone in its own."""
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    found = evaluation(probabilities, np.array([0, 0, 0, 1])).intervals
    assert found.accuracy.value == found.most_frequent.value == 0.75
    likelihood = -np.log([0.9, 0.6, 0.3, 0.8]).mean()
    assert found.negative_log_likelihood.value == pytest.approx(likelihood)
    prior = -(3 * np.log(0.75) + np.log(0.25)) / 4
    assert found.frequencies.value == pytest.approx(prior)
    error = (0.1 + 0.4 + 0.7 + 0.2) / 4
    assert found.calibration_error.value == pytest.approx(error)
    assert [x.value for x in found.rejection.values()] == [0.75, 0.75, 0.75, 1]
    assert found.rejection[50][1:] == (1, 1)
    assert 0 <= found.accuracy.lower < 0.75 < found.accuracy.upper <= 1


def test_equally_uncertain_examples_are_rejected_from_the_last():
    uncertainty = np.array([0.5, 0.1, 0.5, 0.5])
    kept = [kept_examples(uncertainty, x).tolist() for x in (0, 25, 74, 75)]
    of_last = [True, True, True, False]
    assert kept == [
        [True] * 4,
        of_last,
        [True, True, False, False],
        [False, True, False, False],
    ]
    curve = rejection(np.array([False, True, True, True]), uncertainty)
    assert [curve.at(x) for x in (0, 25, 74, 75)] == [3 / 4, 2 / 3, 1 / 2, 1]


def test_predictions_that_are_no_better_than_a_constant_one_are_told():
    labels = np.array([0, 0, 0, 1])
    bad = evaluation(np.array([[0.1, 0.9]] * 4), labels)
    good = evaluation(np.eye(2)[labels] * 0.98 + 0.01, labels)
    lines = ["the most frequent class is as accurate"]
    lines.append("the frequencies of the classes are as likely")
    assert evaluation_lines(bad, 0)[-2:] == lines
    assert not {*lines} & {*evaluation_lines(good, 0)}
    found = evaluation_json(good, 0)
    assert found["intervals"]["accuracy"] == {"lower": 1, "upper": 1}
    prior = found["baselines"]["frequencies of the classes"]
    assert prior["negative_log_likelihood"]["value"] == pytest.approx(0.5623, abs=1e-4)


# --- means of vectors

VECTORS = RNG.normal(size=(50, 4))


def random_rotation() -> np.ndarray:
    return np.linalg.qr(RNG.normal(size=(4, 4)))[0]


def test_the_mean_of_copies_is_turned_to_the_first_and_not_scaled():
    turned = (k * VECTORS @ random_rotation() for k in range(2, 7))
    copies, expected = np.stack([VECTORS, *turned]), 21 / 6 * VECTORS
    assert np.abs(np.mean(copies, axis=0) - expected).max() > 0.1
    rotations = rotations_to_first([copies])
    mean = rotated_mean(copies, rotations)
    np.testing.assert_allclose(mean, expected, rtol=1e-13, atol=1e-13)
    assert rotations.shape == (6, 4, 4)


def test_rotations_are_those_of_scipy():
    noisy = VECTORS @ random_rotation() + 0.1 * RNG.normal(size=VECTORS.shape)
    _, found = rotations_to_first([np.stack([VECTORS, noisy])])
    expected, _ = orthogonal_procrustes(noisy, VECTORS)
    np.testing.assert_allclose(found, expected, atol=1e-12)
