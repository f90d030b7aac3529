"""Entropies, calibration and rejection, on cases with a known answer."""

import math

import numpy as np
import pytest

from embedder.encoders.uncertainty import (
    accuracy_by_rejection,
    calibration_error,
    entropy,
    join_splits,
    log_likelihood,
    rejection,
    reliability,
    split_entropy,
)

RNG = np.random.default_rng(0)


def random_probabilities(*shape: int) -> np.ndarray:
    return RNG.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def predictions(confidence: np.ndarray, accuracy: np.ndarray):
    """Of two classes: probabilities [n, 2] of class 0 first, and simulated labels."""
    labels = (RNG.random(len(confidence)) >= accuracy).astype(np.int32)
    return np.stack([confidence, 1 - confidence], axis=1), labels


# --- entropies


def test_entropy_of_known_distributions():
    rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    np.testing.assert_allclose(entropy(rows), [0, math.log(2), math.log(4)], rtol=1e-15)


def test_identical_replicas_have_no_model_part():
    one = random_probabilities(20, 5)
    found = split_entropy([one, one, one])
    np.testing.assert_allclose(found.model, 0, atol=1e-15)
    np.testing.assert_allclose(found.data, entropy(one), rtol=1e-14)
    np.testing.assert_allclose(found.probabilities, one, rtol=1e-15)


def test_certain_replicas_that_disagree_have_no_data_part():
    """Each of three is certain of another class."""
    found = split_entropy(np.eye(3)[:, np.newaxis])
    assert found.data.tolist() == [0]
    np.testing.assert_allclose(found.model, math.log(3), rtol=1e-15)
    np.testing.assert_allclose(found.probabilities, 1 / 3, rtol=1e-15)


def test_parts_are_those_of_the_formula():
    """Worked by hand: p_1 = (0.9, 0.1), p_2 = (0.3, 0.7), mean (0.6, 0.4)."""
    found = split_entropy(np.array([[[0.9, 0.1]], [[0.3, 0.7]]]))
    total = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4))
    first = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    second = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    np.testing.assert_allclose(found.total, total, rtol=1e-14)
    np.testing.assert_allclose(found.data, (first + second) / 2, rtol=1e-14)
    np.testing.assert_allclose(found.model, total - (first + second) / 2, rtol=1e-13)


def test_parts_are_not_negative_and_give_the_total():
    found = split_entropy(random_probabilities(7, 200, 4))
    np.testing.assert_allclose(found.data + found.model, found.total, rtol=1e-14)
    assert (found.model > 0).all() and (found.model < math.log(7)).all()


def test_an_iterator_of_float32_gives_float32_probabilities():
    each = random_probabilities(3, 10, 4).astype(np.float32)
    found = split_entropy(iter(each))
    assert found.probabilities.dtype == np.float32
    assert found.total.dtype == np.float64
    np.testing.assert_array_equal(found.total, split_entropy(each).total)


def test_no_replicas_are_refused():
    with pytest.raises(ValueError, match="one replica or more, got none"):
        split_entropy([])


def test_splits_of_groups_are_joined():
    each = random_probabilities(3, 20, 4)
    groups = join_splits(split_entropy(each[:, i : i + 6]) for i in range(0, 20, 6))
    for found, desired in zip(groups, split_entropy(each), strict=True):
        np.testing.assert_array_equal(found, desired)


# --- likelihood


def test_likelihood_is_of_the_mean_probability():
    """Worked by hand: p_1 = (0.9, 0.1), p_2 = (0.3, 0.7), mean (0.6, 0.4)."""
    scores = np.log([[[0.9, 0.1]] * 2, [[0.3, 0.7]] * 2]) + 5
    found = log_likelihood(scores, np.array([0, 1]))
    np.testing.assert_allclose(found, np.log([0.6, 0.4]), rtol=1e-14)


def test_likelihood_is_finite_where_the_probability_rounds_to_0():
    scores = np.array([[[1000, 0]]], np.float32)
    assert log_likelihood(scores, np.array([1])).tolist() == [-1000]
    assert log_likelihood(scores, np.array([0])).tolist() == [0]


# --- calibration


def test_calibrated_predictions_have_no_error():
    confidence = RNG.uniform(0.5, 1, size=200_000)
    assert calibration_error(*predictions(confidence, confidence)) < 0.01


@pytest.mark.parametrize("gap", [0.1, 0.3, -0.2])
def test_error_is_the_planted_gap(gap):
    """Predictions are right less often than they say; more often if it is negative."""
    confidence = RNG.uniform(0.7, 0.8, size=200_000)
    found = calibration_error(*predictions(confidence, confidence - gap))
    assert abs(found - abs(gap)) < 0.005


def test_gaps_of_bins_do_not_cancel():
    """One bin is right 0.2 more often than it says, another 0.2 less often."""
    confidence = np.repeat([0.6, 0.8], 100_000)
    accuracy = np.repeat([0.8, 0.6], 100_000)
    found = predictions(confidence, accuracy)
    assert abs(calibration_error(*found) - 0.2) < 0.005
    assert calibration_error(*found, bins=1) < 0.005


def test_bins_include_their_upper_bound():
    """Of three bins, 1/3 to 2/3 has 2/3: its error is 1/3 with 1 right, 2/3 with 0."""
    p = np.array([[2 / 3, 1 / 3], [0.6, 0.4]])
    gap = (1 - 2 / 3) + (0 - 0.6)
    found = calibration_error(p, np.array([0, 1]), bins=3)
    np.testing.assert_allclose(found, abs(gap) / 2, rtol=1e-14)


def test_certain_predictions_are_in_the_last_bin():
    assert calibration_error(np.eye(3), np.array([0, 1, 0])) == pytest.approx(1 / 3)


def test_bins_have_sizes_and_means():
    """Of four bins: two in (0.25, 0.5], none in (0.5, 0.75], one in (0.75, 1]."""
    found = reliability(np.array([0.3, 0.5, 0.9]), np.array([True, False, True]), 4)
    assert found.num_examples.tolist() == [0, 2, 0, 1]
    np.testing.assert_allclose(found.confidence, [np.nan, 0.4, np.nan, 0.9])
    np.testing.assert_allclose(found.accuracy, [np.nan, 0.5, np.nan, 1])
    desired = (2 * abs(0.5 - 0.4) + 1 * abs(1 - 0.9)) / 3
    np.testing.assert_allclose(found.calibration_error, desired, rtol=1e-14)


# --- rejection


def test_rejection_of_known_examples():
    """Right, wrong, right, wrong with growing uncertainty in the order 2, 0, 3, 1."""
    p = np.tile([0.9, 0.1], (4, 1))
    found = accuracy_by_rejection(p, np.array([0, 1, 0, 1]), np.array([2, 4, 1, 3.0]))
    np.testing.assert_allclose(found.rejected, [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(found.accuracy, [0.5, 2 / 3, 1, 1])


def test_an_uncertainty_without_meaning_rejects_at_random():
    n = 100_000
    p, labels = predictions(np.full(n, 0.8), np.full(n, 0.7))
    found = accuracy_by_rejection(p, labels, RNG.random(n))
    np.testing.assert_allclose(found.accuracy[: n // 2], 0.7, atol=0.01)


def test_total_entropy_of_calibrated_predictions_rejects_the_wrong_ones():
    """The accuracy of those that remain is the mean of their confidence."""
    confidence = RNG.uniform(0.5, 1, size=100_000)
    p, labels = predictions(confidence, confidence)
    found = accuracy_by_rejection(p, labels, entropy(p))
    np.testing.assert_allclose(found.accuracy[[0, 50_000]], [0.75, 0.875], atol=0.01)


@pytest.mark.parametrize(
    ("percent", "accuracy"), [(0, 2 / 5), (10, 2 / 5), (20, 2 / 4), (50, 2 / 3)]
)
def test_a_percentage_is_of_whole_examples(percent, accuracy):
    """Five examples: 50 % are two. The two most certain are right."""
    is_correct = np.array([False, True, True, False, False])
    found = rejection(is_correct, np.array([5, 1, 2, 3, 4]))
    np.testing.assert_allclose(found.at(percent), accuracy)
