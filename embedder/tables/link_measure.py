"""How well vectors tell the held-out edges of a graph from other pairs of nodes."""

import functools
from collections.abc import Callable

import numpy as np
from scipy import sparse

from embedder.evaluation.links import (
    Pairs,
    common_neighbors,
    cosine_similarities,
    degree_products,
    link_scores,
    sample_non_edges,
)
from embedder.tables.encoded import TokenSource
from embedder.tables.graph import Walks
from embedder.tables.measured import Baseline, Measure, Measured, Tables
from embedder.tables.options import TablesOptions

AUC, AP = "link_auc", "link_ap"
"""Names of scores: area under the curve, average precision."""
_MOST_PAIRS = 100_000  # held-out edges that are scored, the first by their hashes
_COUNTED = {"common neighbours": common_neighbors, "degree product": degree_products}


def link_measure(options: TablesOptions, encoded: TokenSource) -> Measure:
    """AUC and average precision of held-out edges by the cosines of their ends, (73).

    They are compared with as many pairs without an edge, the same in each evaluation.
    """
    assert isinstance(encoded, Walks), "walks are over a graph"
    edges, directed = encoded.held_out[:_MOST_PAIRS], options.directed

    @functools.cache
    def adjacency() -> sparse.csr_array:
        return adjacency_of(encoded)

    @functools.cache
    def others() -> Pairs:
        known = np.stack(adjacency().nonzero(), axis=1).astype(np.int64)
        known = np.concatenate([encoded.held_out, known])
        num_nodes = len(encoded.vocabulary)
        return sample_non_edges(len(edges), num_nodes, known, directed=directed)

    @functools.cache
    def baselines() -> tuple[Baseline, ...]:
        found = []
        for model, of in _COUNTED.items():
            auc, ap = _scores(functools.partial(of, adjacency()), edges, others())
            found += [Baseline(AUC, auc, model), Baseline(AP, ap, model)]
        return tuple(found)

    def measure(tables: Tables) -> Measured:
        matrix = np.asarray(tables["input"])
        cosines = functools.partial(cosine_similarities, matrix)
        return Measured(_scores(cosines, edges, others()), baselines())

    return Measure((AUC, AP), measure)


def _scores(
    of: Callable[[Pairs], np.ndarray], edges: Pairs, others: Pairs
) -> tuple[float, float]:
    found = link_scores(of(edges), of(others), num=0)
    return found.auc.value, found.average_precision.value


def adjacency_of(walks: Walks) -> sparse.csr_array:
    """1 for each edge of the graph, both ways where it is undirected, [V, V]."""
    graph = walks.graph
    ones = np.ones(len(graph.neighbors))
    shape = graph.num_nodes, graph.num_nodes
    return sparse.csr_array((ones, graph.neighbors, graph.offsets), shape=shape)
