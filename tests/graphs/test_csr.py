"""Edges become rows of neighbours; expected visits are those of the exact chain."""

import logging

import networkx
import numpy as np
import pytest

from embedder.base.limits import NoRoomError
from embedder.data.graphs import csr
from embedder.data.graphs.csr import Edges, build_graph, expected_visits
from tests.graphs.graph_cases import KARATE, graph, rows


def few(pairs, weight=None, num_nodes=4, directed=False):
    source, target = np.array(pairs, np.int32).T
    weights = None if weight is None else np.array(weight, float)
    nodes = [str(v) for v in range(num_nodes)]
    return rows(build_graph(Edges(nodes, source, target, weights), directed=directed))


def test_rows_of_few_edges_by_hand(caplog):
    caplog.set_level(logging.INFO)
    assert few([(2, 0), (0, 1)]) == {0: {1: 1, 2: 1}, 1: {0: 1}, 2: {0: 1}, 3: {}}
    caplog.clear()
    found = few([(0, 1), (1, 0), (1, 1), (1, 2)])
    assert found == {0: {1: 2}, 1: {0: 2, 2: 1}, 2: {1: 1}, 3: {}}
    assert caplog.messages == [
        "graph: 4 nodes, 2 edges; self loops, left out: 1; repeated edges, whose "
        "weights are added up: 1; nodes without an edge to follow: 1."
    ]
    found = few([(2, 0), (0, 1)], directed=True)
    assert found == {0: {1: 1}, 1: {}, 2: {0: 1}, 3: {}}
    found = few([(0, 1), (0, 1), (2, 0)], [0.5, 0.25, 3], 3, directed=True)
    assert found == {0: {1: 0.75}, 1: {}, 2: {0: 3}}
    same = few([(0, 1), (1, 2)], [7, 7], num_nodes=3)
    assert same == few([(0, 1), (1, 2)], num_nodes=3)


@pytest.mark.row("F19")
def test_a_graph_larger_than_memory_is_refused(monkeypatch):
    monkeypatch.setattr(csr, "building_bytes", lambda num, has_weights: num * 2**60)
    with pytest.raises(NoRoomError, match="A graph of 1 edges takes .*smaller graph"):
        few([(0, 1)])


GRAPHS = {
    "karate": KARATE,
    "directed": networkx.DiGraph([(0, 1), (1, 2), (0, 2), (3, 0)]),
    "star": networkx.star_graph(4),  # two sides: it never settles
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("length", [1, 2, 7, 200])
def test_expected_visits_are_those_of_the_exact_chain(name, length):
    weights = networkx.to_numpy_array(GRAPHS[name])
    total = weights.sum(axis=1, keepdims=True)
    transition = weights / np.where(total, total, 1)
    mass, expected = np.ones(len(weights)), np.zeros(len(weights))
    for _ in range(length):
        expected += mass
        mass = mass @ transition
    found = expected_visits(graph(GRAPHS[name], weighted=True), length)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
