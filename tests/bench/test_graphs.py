"""The bench of node labels: nodes with one label each, and the command for Cora."""

import numpy as np
import pytest

from bench import graphs
from embedder.evaluation.labels import by_regression


def test_micro_f1_of_one_label_each_is_the_accuracy():
    from sklearn.metrics import accuracy_score

    rng = np.random.default_rng(0)
    label = rng.integers(3, size=60)
    vectors = rng.normal(size=(60, 4)) + 2 * np.eye(4)[label]
    has_label = np.eye(3, dtype=bool)[label]
    known: list[np.ndarray] = []

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        scores = by_regression(vectors, has_label)(train, test)
        known.append(accuracy_score(label[test], scores.argmax(axis=1)))
        return scores

    found = graphs.f1_scores(predict, has_label, [50], splits=2)
    assert [*found] == ["share", "accuracy", "macro F1"]
    np.testing.assert_allclose(found["accuracy"], [100 * np.array(known)], atol=1e-3)
    has_label[0] = True
    assert "micro F1" in graphs.f1_scores(predict, has_label, [50], splits=1)


@pytest.mark.slow
def test_cora_has_results_of_its_own(run_bench):
    ran = run_bench(
        "graphs",
        "--data cora --name graphs-cora --programs embedder --walks 4 --walk-length 10"
        " --vector-size 8 --shares 50 --splits 2 --seeds 1",
    )
    assert ran.results["graphs-cora"]["settings"]["data"] == "cora"
    assert [row[4] for row in ran.rows] == ["accuracy", "macro F1"] * 3


def test_an_unknown_graph_is_one_line(run_bench):
    with pytest.raises(SystemExit, match="--data must be of .'blogcatalog', 'cora'"):
        run_bench("graphs", "--data ppi")
