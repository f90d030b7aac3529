"""Graphs that tests share."""

import networkx
import numpy as np

from embedder.data.graphs.csr import Edges, Graph, build_graph

KARATE = networkx.karate_club_graph()
"""34 nodes, 78 edges; `weight` is an integer from 1 to 7."""


def edges(of=KARATE, *, weighted: bool = False) -> Edges:
    """The edges of a graph of networkx, whose nodes are 0 to V - 1."""
    ends = np.array([*of.edges()], np.int32).reshape(-1, 2)
    weight = np.array([w for *_, w in of.edges(data="weight", default=1)], float)
    nodes = [str(node) for node in of.nodes]
    return Edges(nodes, ends[:, 0], ends[:, 1], weight if weighted else None)


def graph(of=KARATE, *, weighted: bool = False) -> Graph:
    return build_graph(edges(of, weighted=weighted), directed=of.is_directed())


def rows(of: Graph) -> dict[int, dict[int, float]]:
    """Node -> neighbour -> weight."""
    found = {}
    for v in range(of.num_nodes):
        row = slice(of.offsets[v], of.offsets[v + 1])
        weights = np.ones(row.stop - row.start)
        if len(of.cumulative):
            weights = np.diff(of.cumulative[row], prepend=0)
        names = of.neighbors[row].tolist()
        found[v] = dict(zip(names, weights.tolist(), strict=True))
    return found
