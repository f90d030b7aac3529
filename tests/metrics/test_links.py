"""Scores of links and of labels of nodes: as in scikit-learn and networkx."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from embedder.metrics import intervals, links
from embedder.metrics.label_scores import by_frequency, by_regression, f1_scores
from embedder.metrics.links import held_out_edges, sample_non_edges

HAS_LABEL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]], bool)
PATH = np.array([[0, 1], [1, 2], [2, 3]])


@pytest.mark.parametrize("digits", [0, 1, 9])
def test_links_and_each_resample_are_scored_as_by_scikit_learn(monkeypatch, digits):
    """With the counts of resamples as weights; chunks change nothing."""
    rng = np.random.default_rng(0)
    parts = rng.normal(0.5, size=20).round(digits), rng.normal(size=30).round(digits)
    kept = []
    monkeypatch.setattr(links, "estimate", lambda *given: kept.append(given))
    links.link_scores(*parts, 40)
    monkeypatch.setattr(intervals, "_CHUNK_VALUES", 70)  # 3 and 2 resamples a chunk
    links.link_scores(*parts, 40)
    found, again = (np.array([np.append(*x) for x in kept[i : i + 2]]) for i in (0, 2))
    np.testing.assert_allclose(again, found, rtol=1e-12)
    drawn = [
        np.concatenate([np.ones((1, num)), *intervals.resamples(num, 40, seed)])
        for num, seed in ((20, 0), (30, 1))
    ]
    labels, scores = np.repeat([1, 0], [20, 30]), np.concatenate(parts)
    for number, weights in enumerate(np.concatenate(drawn, axis=1)):
        expected = [
            of(labels, scores, sample_weight=weights)
            for of in (metrics.roc_auc_score, metrics.average_precision_score)
        ]
        np.testing.assert_allclose(found[:, number], expected, rtol=1e-9)


@pytest.mark.parametrize("num_nodes", [40, 3000], ids=["listed", "drawn"])
@pytest.mark.parametrize("directed", [False, True])
def test_non_edges_are_different_pairs_without_an_edge(num_nodes, directed):
    edges = np.random.default_rng(0).integers(num_nodes, size=(200, 2))
    found = sample_non_edges(100, num_nodes, edges, directed=directed, seed=3)
    pairs = {*map(tuple, found.tolist())}
    known = {*map(tuple, edges.tolist())}
    if not directed:
        known |= {(b, a) for a, b in known}
        assert all(a < b for a, b in pairs)
    assert len(pairs) == 100 and not pairs & known
    assert all(a != b for a, b in pairs)
    again = sample_non_edges(100, num_nodes, edges, directed=directed, seed=3)
    other = sample_non_edges(100, num_nodes, edges, directed=directed, seed=4)
    np.testing.assert_array_equal(found, again)
    assert (found != other).any()


@pytest.mark.parametrize("few", [2**22, 0], ids=["listed", "drawn"])
def test_non_edges_are_uniform(monkeypatch, few):
    monkeypatch.setattr(links, "_FEW_PAIRS", few)
    counts = np.zeros((5, 5))
    for seed in range(600):
        a, b = sample_non_edges(2, 5, PATH, directed=False, seed=seed).T
        counts[a, b] += 1
    drawn = counts[counts > 0]
    assert len(drawn) == 7 and drawn.sum() == 1200
    assert np.abs(drawn - 1200 / 7).max() < 4 * (1200 / 7) ** 0.5


def test_all_non_edges_and_one_too_many():
    found = sample_non_edges(3, 4, PATH, directed=False)
    assert sorted(map(tuple, found.tolist())) == [(0, 2), (0, 3), (1, 3)]
    assert len(sample_non_edges(9, 4, PATH, directed=True)) == 9


def test_held_out_edges_are_different_and_new():
    given = np.array([[2, 1], [3, 0], [0, 3], [3, 3], [0, 2]])
    found, num_known = held_out_edges(given, PATH, 4, directed=False)
    assert (found.tolist(), num_known) == ([[0, 2], [0, 3]], 1)
    found, num_known = held_out_edges(given, PATH, 4, directed=True)
    assert found.tolist() == [[0, 2], [0, 3], [2, 1], [3, 0]] and num_known == 0


@pytest.mark.parametrize("directed", [False, True])
def test_counts_of_a_graph_are_those_of_networkx(monkeypatch, directed):
    monkeypatch.setattr(links, "_CHUNK_ROWS", 7)
    graph = nx.gnp_random_graph(15, 0.3, seed=1, directed=directed)
    adjacency = sparse.csr_array(nx.to_scipy_sparse_array(graph, weight=None))
    pairs = np.array([(a, b) for a in range(15) for b in range(15) if a != b])
    if directed:
        expected = [
            len({*graph.successors(a)} & {*graph.predecessors(b)}) for a, b in pairs
        ]
        products = [graph.out_degree(a) * graph.in_degree(b) for a, b in pairs]
    else:
        expected = [len([*nx.common_neighbors(graph, a, b)]) for a, b in pairs]
        products = [x for *_, x in nx.preferential_attachment(graph, pairs.tolist())]
    np.testing.assert_array_equal(links.common_neighbors(adjacency, pairs), expected)
    np.testing.assert_array_equal(links.degree_products(adjacency, pairs), products)


@pytest.mark.parametrize("num_labels_each", [1, 2])
def test_scores_of_labels_are_those_of_scikit_learn(num_labels_each):
    rng = np.random.default_rng(0)
    features, noise = rng.normal(size=(120, 5)), rng.normal(size=(120, 4))
    scores = features @ rng.normal(size=(5, 4)) + 0.5 * noise
    ranks = (-scores).argsort(axis=1).argsort(axis=1)
    has_label = ranks < rng.integers(1, num_labels_each + 1, size=(120, 1))
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
        given = has_label[rest], predicted
        kinds = "micro", "macro"
        expected.append([metrics.f1_score(*given, average=kind) for kind in kinds])
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
