"""A graph in compressed sparse rows (CSR), and how often walks visit its nodes."""

import logging
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from embedder.base.limits import check_room
from embedder.base.stages import report_stage
from embedder.disk.compiled import compiled
from embedder.errors import InputError

# Bytes of memory for each edge while a graph is read and built; measured: 92, 152.
_BUILDING_BYTES, _BUILDING_BYTES_WEIGHTED = 110, 170
_SETTLED = 1e-9  # relative change of the visits of a step that counts as none
_log = logging.getLogger(__name__)


@compiled
def sum_rows(offsets, weights):
    """Replaces the weights of each row by their cumulative sums."""
    for v in range(len(offsets) - 1):
        total = 0.0
        for k in range(offsets[v], offsets[v + 1]):
            total += weights[k]
            weights[k] = total


@compiled
def spread(offsets, neighbors, cumulative, mass, after):
    """One step of first-order walks: moves `mass` f64[V] to `after` f64[V]."""
    after[:] = 0
    for v in range(len(offsets) - 1):
        first, last = offsets[v], offsets[v + 1]
        if len(cumulative) == 0:
            for k in range(first, last):
                after[neighbors[k]] += mass[v] / (last - first)
        else:
            before = 0.0
            for k in range(first, last):
                share = (cumulative[k] - before) / cumulative[last - 1]
                after[neighbors[k]] += mass[v] * share
                before = cumulative[k]


class Edges(NamedTuple):
    """Edges as they were given; nodes are numbered from 0."""

    nodes: list[str]  # [V], all different
    source: np.ndarray  # i32[m]
    target: np.ndarray  # i32[m]
    weight: np.ndarray | None = None  # f64[m], finite and > 0; None: all 1


class Graph(NamedTuple):
    """The neighbours of each node; an undirected edge is in the rows of both ends.

    Row v is from offsets[v] to offsets[v + 1].
    """

    offsets: np.ndarray  # i64[V + 1]
    neighbors: np.ndarray  # i32[E], ascending in each row
    cumulative: np.ndarray  # f64[E], summed weights in each row; f64[0]: all equal

    @property
    def num_nodes(self) -> int:
        """V."""
        return len(self.offsets) - 1

    @property
    def degrees(self) -> np.ndarray:
        """Number of neighbours of each node, i64[V]."""
        return np.diff(self.offsets)

    @property
    def num_bytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self)

    def adjacency(self) -> csr_array:
        """1 for each edge, both ways where it is undirected, f64[V, V]."""
        ones, shape = np.ones(len(self.neighbors)), (self.num_nodes, self.num_nodes)
        return csr_array((ones, self.neighbors, self.offsets), shape=shape)


def building_bytes(num_edges: int, has_weights: bool) -> int:
    """Bytes of memory that it takes at most to read and build this many edges."""
    return num_edges * (_BUILDING_BYTES_WEIGHTED if has_weights else _BUILDING_BYTES)


def check_building_room(num_edges: int, has_weights: bool) -> None:
    """Raises NoRoomError if a graph of this many edges does not fit in memory."""
    needed = building_bytes(num_edges, has_weights)
    what = f"A graph of {num_edges} edges takes"
    check_room(needed, what, "give a smaller graph")


def build_graph(edges: Edges, *, directed: bool) -> Graph:
    """The graph of `edges`.

    Self loops are left out. The weights of repeated edges add up; of an undirected
    graph (a, b) and (b, a) are the same edge. What was found is logged.

    Raises:
      InputError: no edge is left, or summed weights are not finite.
      NoRoomError: it does not fit in memory.
    """
    check_building_room(len(edges.source), edges.weight is not None)
    report_stage(f"joining {len(edges.source):,} edges")
    num_nodes = len(edges.nodes)
    keys, weights, num_loops = _entries(edges, directed)
    if not len(keys):
        raise InputError(
            f"A graph must have an edge between two nodes, got {len(edges.source)} "
            f"edges, of which {num_loops} are self loops."
        )
    num_entries = len(keys)
    keys, weights = _merged(keys, weights)
    offsets = np.searchsorted(keys, np.arange(num_nodes + 1) * num_nodes)
    keys %= num_nodes
    graph = Graph(offsets, keys.astype(np.int32), _cumulative(offsets, weights))
    sides = 1 if directed else 2
    _log.info(
        "graph: %s nodes, %s edges; self loops, left out: %s; repeated edges, whose "
        "weights are added up: %s; nodes without an edge to follow: %s.",
        *(f"{num_nodes:,}", f"{len(keys) // sides:,}", f"{num_loops:,}"),
        f"{(num_entries - len(keys)) // sides:,}",
        f"{np.count_nonzero(graph.degrees == 0):,}",
    )
    return graph


def _entries(edges: Edges, directed: bool) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Keys source * V + target i64[E] and weights f64[E], both sides of undirected
    edges; the number of self loops, which are left out."""
    is_edge = edges.source != edges.target
    num_loops = len(is_edge) - int(np.count_nonzero(is_edge))
    source = edges.source[is_edge].astype(np.int64)
    target = edges.target[is_edge].astype(np.int64)
    weight = None if edges.weight is None else edges.weight[is_edge]
    num_nodes = len(edges.nodes)
    keys = source * num_nodes + target
    if directed:
        return keys, weight, num_loops
    keys = np.concatenate([keys, target * num_nodes + source])
    return keys, None if weight is None else np.concatenate([weight] * 2), num_loops


def _merged(
    keys: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Different keys, ascending, and their summed weights; None: all are equal."""
    if weights is None:
        keys.sort()
        first = np.append(True, keys[1:] != keys[:-1])
        if first.all():
            return keys, None
        starts = np.flatnonzero(first)
        weights = np.diff(np.append(starts, len(keys))).astype(np.float64)
    else:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        weights = np.add.reduceat(weights[order], starts)
    is_even = weights.min() == weights.max()
    return keys[starts], None if is_even else weights


def _cumulative(offsets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The cumulative weights of each row."""
    if weights is None:
        return np.empty(0)
    sum_rows(offsets, weights)
    if not np.isfinite(weights).all():
        raise InputError("The weights of the edges of a node add up to infinity.")
    return weights


def expected_visits(graph: Graph, length: int) -> np.ndarray:
    """Expected visits of each node by one first-order walk from every node, f64[V].

    ALGORITHM.md (59). The first node counts.
    """
    mass = np.ones(graph.num_nodes)
    visits, after = mass.copy(), np.empty_like(mass)
    for step in range(1, length):
        spread(graph.offsets, graph.neighbors, graph.cumulative, mass, after)
        is_settled = np.abs(after - mass).max() <= _SETTLED * after.max()
        if is_settled:
            return visits + after * (length - step)
        visits += after
        mass, after = after, mass
    return visits


def relabelled(graph: Graph, order: np.ndarray) -> Graph:
    """`graph` with node order[i] as node i.

    Args:
      order: i64[V], a permutation.
    """
    offsets, neighbors, cumulative = graph
    weights = np.ones(len(neighbors), bool)  # which are dropped below
    if len(cumulative):
        weights = np.diff(cumulative, prepend=0.0)
        starts = offsets[:-1][graph.degrees > 0]
        weights[starts] = cumulative[starts]
    if len(neighbors) < 2**31:  # else scipy makes the neighbours 64 bits wide
        offsets = offsets.astype(np.int32)
    matrix = csr_array((weights, neighbors, offsets), shape=(len(order),) * 2)[order]
    del weights
    matrix.indices = inverse(order).astype(matrix.indptr.dtype)[matrix.indices]
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    offsets = matrix.indptr.astype(np.int64)
    weights = _cumulative(offsets, matrix.data if len(cumulative) else None)
    return Graph(offsets, matrix.indices.astype(np.int32, copy=False), weights)


def inverse(order: np.ndarray) -> np.ndarray:
    """The place of each number in `order`, i32[n], a permutation."""
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank
