"""Graphs in memory: of networkx, of igraph, and sparse matrices of scipy."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from embedder.errors import InputError, InputTypeError
from embedder.graphs.csr import Edges
from embedder.graphs.matrices import matrix_edges


class GivenGraph(NamedTuple):
    """The edges of an object."""

    edges: Edges
    directed: bool | None  # None: the object does not say


def edges_of(graph: Any) -> GivenGraph:
    """The edges of a graph of networkx or igraph, or of a sparse matrix of scipy.

    The attribute `weight` of edges is their weight, 1 where it is missing. Nodes of
    igraph have the names of the attribute `name`, or their numbers.

    Raises:
      InputTypeError: it is none of these.
      InputError: a weight is not finite and > 0, or two nodes have the same name.
    """
    package = type(graph).__module__.split(".")[0]
    if scipy.sparse.issparse(graph):
        matrix = graph.tocoo()
        edges = matrix_edges(matrix.row, matrix.col, matrix.data, matrix.shape)
        return GivenGraph(edges, None)
    if package == "networkx" and hasattr(graph, "adj"):
        rows = list(graph.edges(data="weight", default=1))
        return _given([*graph.nodes], rows, graph.is_directed())
    if package == "igraph" and hasattr(graph, "es"):
        nodes = range(graph.vcount())
        weights = [1] * graph.ecount()
        if "weight" in graph.es.attributes():
            weights = graph.es["weight"]
        ends = graph.get_edgelist()
        rows = [(*ends[k], weights[k]) for k in range(len(ends))]
        has_names = "name" in graph.vs.attributes()
        names = graph.vs["name"] if has_names else [*nodes]
        return _given([*nodes], rows, graph.is_directed(), names)
    raise InputTypeError(
        "`graph` must be a path, a graph of networkx or igraph, or a sparse matrix of "
        f"scipy, got {type(graph).__name__}."
    )


def _given(
    nodes: Sequence[Hashable],
    rows: Sequence[tuple[Hashable, Hashable, Any]],
    directed: bool,
    names: Sequence[Any] | None = None,
) -> GivenGraph:
    texts = [str(name) for name in (nodes if names is None else names)]
    if len({*texts}) < len(texts) or "" in texts:
        raise InputError("The nodes of a graph must have different names, none empty.")
    number = {node: k for k, node in enumerate(nodes)}
    ends = [(number[a], number[b]) for a, b, _ in rows]
    weight = np.array([_weight(a, b, value) for a, b, value in rows], np.float64)
    source, target = np.array(ends, np.int32).reshape(-1, 2).T
    return GivenGraph(Edges(texts, source, target, weight), directed)


def _weight(a: Hashable, b: Hashable, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = np.nan
    if not 0 < found < np.inf:
        raise InputError(
            f"A weight must be a finite number > 0, got {value!r} of the edge from "
            f"{a!r} to {b!r}."
        )
    return found
