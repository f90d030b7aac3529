"""Node classification: by hand, and as in scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from embedder.evaluation.labels import by_frequency, by_regression, f1_scores

HAS_LABEL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]], bool)


def test_scores_by_hand():
    """Each node gets as many labels as it has, 0 before 1 before 2. Predicted: 0; 0 1;
    0; 0 1. Right: 0 three times of 3 + 4, 1 once of 2 + 2, 2 never of 1."""

    def predict(known, rest):
        assert len(known) == 0
        return np.tile([3.0, 2.0, 1.0], (len(rest), 1))

    found = f1_scores(predict, HAS_LABEL, 0.0, 1)
    assert found.micro.value == pytest.approx(2 * 4 / 12)
    assert found.macro.value == pytest.approx((6 / 7 + 2 / 4 + 0) / 3)
    assert found.micro.lower < found.micro.value < found.micro.upper


def planted(num_labels_each: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(120, 5))
    noise = rng.normal(size=(120, 4))
    scores = features @ rng.normal(size=(5, 4)) + 0.5 * noise
    ranks = (-scores).argsort(axis=1).argsort(axis=1)
    num = 1 if num_labels_each == 1 else rng.integers(1, 3, size=(120, 1))
    return features, ranks < num


@pytest.mark.parametrize("num_labels_each", [1, 2])
def test_scores_are_those_of_scikit_learn(num_labels_each):
    features, has_label = planted(num_labels_each)
    found = f1_scores(by_regression(features, has_label), has_label, 0.5, 2, seed=7)
    expected = []
    for seed in (7, 8):
        known, rest = np.split(np.random.default_rng(seed).permutation(120), 2)
        model = OneVsRestClassifier(LogisticRegression(solver="liblinear"))
        scores = model.fit(features[known], has_label[known].astype(int))
        scores = scores.decision_function(features[rest])
        predicted = np.zeros_like(has_label[rest])
        for row, own, truth in zip(predicted, scores, has_label[rest], strict=True):
            row[(-own).argsort()[: truth.sum()]] = True
        expected.append(
            [
                metrics.f1_score(has_label[rest], predicted, average=average)
                for average in ("micro", "macro")
            ]
        )
    values = [score.value for score in found]
    np.testing.assert_allclose(values, np.mean(expected, axis=0), rtol=1e-12)
    for score in found:
        assert score.lower < score.value < score.upper
        assert score.upper - score.lower < 0.25
    other = f1_scores(by_regression(features, has_label), has_label, 0.5, 2, seed=8)
    assert other != found


def test_resamples_score_nodes_as_often_as_drawn():
    """Each node is right, or wrong, in all splits: micro F1 is a mean over nodes."""
    is_right = np.arange(40) < 10
    has_label = np.stack([is_right, ~is_right], axis=1)

    def first_label(known, rest):
        return np.tile([1.0, 0.0], (len(rest), 1))

    found = f1_scores(first_label, has_label, 0.0, 1).micro
    error = (0.25 * 0.75 / 40) ** 0.5
    assert found.value == 0.25
    assert found.lower == pytest.approx(0.25 - 1.96 * error, abs=0.03)
    assert found.upper == pytest.approx(0.25 + 1.96 * error, abs=0.03)


def test_the_most_frequent_labels_are_those_of_the_known_nodes():
    scores = by_frequency(HAS_LABEL)(np.array([1, 2]), np.array([0, 3]))
    assert scores.tolist() == [[1, 2, 0], [1, 2, 0]]


def test_a_label_of_no_known_node_is_last():
    features = np.array([[0.0], [1.0], [2.0], [3.0]])
    scores = by_regression(features, HAS_LABEL)(np.array([0, 2]), np.array([1, 3]))
    assert (scores[:, 2] == -np.inf).all() and np.isfinite(scores[:, :2]).all()
