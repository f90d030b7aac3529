"""How well vectors tell the held-out edges of a graph from other pairs of nodes."""

import functools
from collections.abc import Callable

import numpy as np
from scipy import sparse

from embedder.evaluation.intervals import affordable
from embedder.evaluation.links import (
    LinkScores,
    Pairs,
    common_neighbors,
    cosine_similarities,
    degree_products,
    link_scores,
    sample_non_edges,
)
from embedder.evaluation.score_table import VECTORS
from embedder.tables.encoded import TokenSource
from embedder.tables.graph import Walks
from embedder.tables.measured import Measure, Scores, Tables
from embedder.tables.options import TablesOptions

AUC, AP = "link_auc", "link_ap"
"""Names of scores: area under the curve, average precision."""
_MOST_PAIRS = 100_000  # held-out edges that are scored, the first by their hashes
_DRAWS = 1e7  # of edges in all resamples: about a second for each model
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

    def scores(of: Callable[[Pairs], np.ndarray], num: int) -> LinkScores:
        num = num and affordable(len(edges), _DRAWS)
        return link_scores(of(edges), of(others()), num)

    @functools.cache
    def baselines(num: int) -> Scores:
        counted = (
            (n, functools.partial(of, adjacency())) for n, of in _COUNTED.items()
        )
        return {name: scores(of, num) for name, of in counted}

    def measure(tables: Tables, num: int) -> Scores:
        matrix = np.asarray(tables["input"])
        cosines = functools.partial(cosine_similarities, matrix)
        return {VECTORS: scores(cosines, num), **baselines(num)}

    return Measure((AUC, AP), measure)


def adjacency_of(walks: Walks) -> sparse.csr_array:
    """1 for each edge of the graph, both ways where it is undirected, [V, V]."""
    graph = walks.graph
    ones = np.ones(len(graph.neighbors))
    shape = graph.num_nodes, graph.num_nodes
    return sparse.csr_array((ones, graph.neighbors, graph.offsets), shape=shape)
