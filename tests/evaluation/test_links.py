"""Link prediction: by hand, as in scikit-learn and networkx."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics

from embedder.errors import InputError
from embedder.evaluation.links import (
    common_neighbors,
    cosine_similarities,
    degree_products,
    dot_products,
    held_out_edges,
    link_scores,
    sample_non_edges,
)

PATH = np.array([[0, 1], [1, 2], [2, 3]])


def test_scores_by_hand():
    """Of the pairs of an edge and another 4 are right, 1 is tied, of 6. The edges are
    at the ranks 1 and 3 (with the tie: 2 of 4)."""
    found = link_scores(np.array([9.0, 5.0]), np.array([7.0, 5.0, 1.0]))
    assert found.auc.value == pytest.approx((3 + 1 + 0.5) / 6)
    assert found.average_precision.value == pytest.approx((1 + 2 / 4) / 2)


@pytest.mark.parametrize("ties", [False, True])
def test_scores_are_those_of_scikit_learn_on_resamples_too(ties):
    rng = np.random.default_rng(0)
    edges, others = rng.normal(0.5, size=60), rng.normal(size=90)
    if ties:
        edges, others = edges.round(), others.round()
    found = link_scores(edges, others)
    labels, scores = np.repeat([1, 0], [60, 90]), np.concatenate([edges, others])
    assert found.auc.value == pytest.approx(metrics.roc_auc_score(labels, scores))
    precision = metrics.average_precision_score(labels, scores)
    assert found.average_precision.value == pytest.approx(precision)
    samples = []
    for _ in range(300):
        drawn = rng.choice(edges, 60), rng.choice(others, 90)
        samples.append(metrics.roc_auc_score(labels, np.concatenate(drawn)))
    expected = np.percentile(samples, [2.5, 97.5])
    np.testing.assert_allclose(found.auc[1:], expected, atol=0.02)


def test_each_resample_is_scored_as_by_scikit_learn(monkeypatch):
    """With the counts of resamples as weights; chunks change nothing."""
    from embedder.evaluation import intervals, links

    rng = np.random.default_rng(0)
    edges, others = rng.normal(0.5, size=20).round(1), rng.normal(size=30).round(1)
    kept = []
    monkeypatch.setattr(links, "estimate", lambda value, x: kept.append(x) or x)
    link_scores(edges, others, 40)
    monkeypatch.setattr(intervals, "_CHUNK_VALUES", 70)  # 3 and 2 resamples a chunk
    link_scores(edges, others, 40)
    np.testing.assert_allclose(kept[2:], kept[:2], rtol=1e-12)
    weights = [
        np.concatenate([*intervals.resamples(num, 40, seed)])
        for num, seed in ((20, 0), (30, 1))
    ]
    labels, scores = np.repeat([1, 0], [20, 30]), np.concatenate([edges, others])
    for i in range(40):
        own = np.concatenate([weights[0][i], weights[1][i]])
        expected = [
            metrics.roc_auc_score(labels, scores, sample_weight=own),
            metrics.average_precision_score(labels, scores, sample_weight=own),
        ]
        np.testing.assert_allclose([kept[0][i], kept[1][i]], expected, rtol=1e-9)


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
    monkeypatch.setattr("embedder.evaluation.links._FEW_PAIRS", few)
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
    with pytest.raises(InputError, match="`non_edges` must be at most 3.* got 4"):
        sample_non_edges(4, 4, PATH, directed=False)
    assert len(sample_non_edges(9, 4, PATH, directed=True)) == 9


def test_held_out_edges_are_different_and_new():
    given = np.array([[2, 1], [3, 0], [0, 3], [3, 3], [0, 2]])
    found, num_known = held_out_edges(given, PATH, 4, directed=False)
    assert (found.tolist(), num_known) == ([[0, 2], [0, 3]], 1)
    found, num_known = held_out_edges(given, PATH, 4, directed=True)
    assert found.tolist() == [[0, 2], [0, 3], [2, 1], [3, 0]] and num_known == 0


def test_vectors_score_pairs():
    matrix = np.array([[3.0, 4.0], [0, 2], [-1, 0]])
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    np.testing.assert_allclose(dot_products(matrix, pairs), [8, -3, 0])
    np.testing.assert_allclose(cosine_similarities(matrix, pairs), [0.8, -0.6, 0])


@pytest.mark.parametrize("directed", [False, True])
def test_counts_of_a_graph_are_those_of_networkx(monkeypatch, directed):
    monkeypatch.setattr("embedder.evaluation.links._CHUNK_ROWS", 7)
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
    np.testing.assert_array_equal(common_neighbors(adjacency, pairs), expected)
    np.testing.assert_array_equal(degree_products(adjacency, pairs), products)
