"""Intervals of the scores of predictions, by hand and beside scikit-learn."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, log_loss

from embedder.encoders.evaluation import PERCENTS, as_json, make_evaluation, report
from embedder.encoders.uncertainty import entropy, kept_examples, rejection
from embedder.evaluation.intervals import mean_estimates, ratio_estimate


def evaluation(probabilities: np.ndarray, labels: np.ndarray, seed: int = 0):
    n = len(labels)
    return make_evaluation(
        "examples",
        1,
        labels=labels,
        confidence=probabilities.max(axis=1),
        is_correct=probabilities.argmax(axis=1) == labels,
        log_likelihood=np.log(probabilities[np.arange(n), labels]),
        entropy=entropy(probabilities),
        seed=seed,
    )


def random_predictions(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    scores = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[labels]
    found = np.exp(scores)
    return found / found.sum(axis=1, keepdims=True), labels


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


def test_scores_are_those_of_scikit_learn():
    probabilities, labels = random_predictions()
    found = evaluation(probabilities, labels).intervals
    predicted = probabilities.argmax(axis=1)
    assert found.accuracy.value == pytest.approx(accuracy_score(labels, predicted))
    loss = log_loss(labels, probabilities)
    assert found.negative_log_likelihood.value == pytest.approx(loss)
    constant = DummyClassifier(strategy="prior").fit(labels, labels)
    assert found.most_frequent.value == pytest.approx(constant.score(labels, labels))
    loss = log_loss(labels, constant.predict_proba(labels))
    assert found.frequencies.value == pytest.approx(loss)


def test_intervals_are_those_of_means_and_ratios():
    """Of the same resamples; others by another seed."""
    probabilities, labels = random_predictions()
    made = evaluation(probabilities, labels, seed=3)
    found = made.intervals
    is_right = probabilities.argmax(axis=1) == labels
    (expected,) = mean_estimates(is_right[:, np.newaxis].astype(float), seed=3)
    np.testing.assert_allclose(found.accuracy, expected)
    kept = kept_examples(entropy(probabilities), 20).astype(float)
    expected = ratio_estimate(is_right * kept, kept, seed=3)
    np.testing.assert_allclose(found.rejection[20], expected)
    assert evaluation(probabilities, labels, seed=4).intervals != found
    for percent in PERCENTS:
        assert found.rejection[percent].value == made.rejection.at(percent)


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
    assert report(bad)[-2:] == lines
    assert not {*lines} & {*report(good)}
    found = as_json(good)
    assert found["intervals"]["accuracy"] == {"lower": 1, "upper": 1}
    prior = found["baselines"]["frequencies of the classes"]
    assert prior["negative_log_likelihood"]["value"] == pytest.approx(0.5623, abs=1e-4)
