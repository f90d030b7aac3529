"""Edges become rows of neighbours; expected visits are those of the exact chain."""

import logging

import networkx
import numpy as np
import pytest

from embedder.errors import InputError
from embedder.graphs import csr
from embedder.graphs.csr import Edges, build_graph, expected_visits, relabelled
from embedder.limits import NoRoomError
from tests.graphs.graph_cases import edges, graph, rows


def few(pairs, weight=None, num_nodes=4, directed=False):
    source, target = np.array(pairs, np.int32).T
    weights = None if weight is None else np.array(weight, float)
    nodes = [str(v) for v in range(num_nodes)]
    return rows(build_graph(Edges(nodes, source, target, weights), directed=directed))


def test_rows_of_an_undirected_graph_have_both_ends():
    assert few([(2, 0), (0, 1)]) == {0: {1: 1, 2: 1}, 1: {0: 1}, 2: {0: 1}, 3: {}}


def test_rows_of_a_directed_graph_have_targets():
    assert few([(2, 0), (0, 1)], directed=True) == {0: {1: 1}, 1: {}, 2: {0: 1}, 3: {}}


def test_self_loops_are_left_out_and_repeated_edges_add_up(caplog):
    caplog.set_level(logging.INFO)
    found = few([(0, 1), (1, 0), (1, 1), (1, 2)])
    assert found == {0: {1: 2}, 1: {0: 2, 2: 1}, 2: {1: 1}, 3: {}}
    assert caplog.messages == [
        "graph: 4 nodes, 2 edges; self loops, left out: 1; repeated edges, whose "
        "weights are added up: 1; nodes without an edge to follow: 1."
    ]


def test_weights_of_repeated_edges_add_up():
    found = few([(0, 1), (0, 1), (2, 0)], [0.5, 0.25, 3], num_nodes=3, directed=True)
    assert found == {0: {1: 0.75}, 1: {}, 2: {0: 3}}


def test_equal_weights_are_none():
    same = few([(0, 1), (1, 2)], [7, 7], num_nodes=3)
    assert same == few([(0, 1), (1, 2)], num_nodes=3)


@pytest.mark.row("B27")
def test_a_graph_without_edges_is_refused():
    message = "must have an edge between two nodes, got 1 edges, of which 1 are self"
    with pytest.raises(InputError, match=message):
        few([(1, 1)])


@pytest.mark.row("B27")
def test_weights_that_add_up_to_infinity_are_refused():
    with pytest.raises(InputError, match="add up to infinity"):
        few([(0, 1), (0, 2)], [1.5e308, 1e308])


@pytest.mark.row("F19")
def test_a_graph_larger_than_memory_is_refused(monkeypatch):
    monkeypatch.setattr(csr, "building_bytes", lambda num, has_weights: num * 2**60)
    with pytest.raises(NoRoomError, match="A graph of 1 edges takes .*smaller graph"):
        few([(0, 1)])


def transition(of) -> np.ndarray:
    """Probabilities of a first-order step, [V, V]; rows of ends are 0."""
    weights = networkx.to_numpy_array(of)
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total, total, 1)


DIRECTED = networkx.DiGraph([(0, 1), (1, 2), (0, 2), (3, 0)])
GRAPHS = {
    "karate": networkx.karate_club_graph(),
    "directed": DIRECTED,
    "star": networkx.star_graph(4),  # two sides: it never settles
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("length", [1, 2, 7, 200])
def test_expected_visits_are_those_of_the_exact_chain(name, length):
    of = GRAPHS[name]
    mass = np.ones(len(of))
    expected = np.zeros(len(of))
    for _ in range(length):
        expected += mass
        mass = mass @ transition(of)
    found = expected_visits(graph(of, weighted=True), length)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_relabelled_is_the_graph_of_relabelled_edges(weighted):
    given = edges(weighted=weighted)
    order = np.random.default_rng(0).permutation(len(given.nodes))
    rank = np.argsort(order).astype(np.int32)
    moved = given._replace(source=rank[given.source], target=rank[given.target])
    found = relabelled(build_graph(given, directed=False), order)
    for one, other in zip(found, build_graph(moved, directed=False), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
