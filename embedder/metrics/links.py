"""Scores of link prediction: edges against pairs of nodes without an edge, (73)."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from embedder.errors import InputError
from embedder.metrics.intervals import RESAMPLES, Estimate, estimate, resamples
from embedder.vectors.search import cosines, unit_rows

_FEW_PAIRS = 2**22  # of all nodes: they are listed rather than drawn
_CHUNK_ROWS = 2**12

Pairs = np.ndarray
"""Nodes from and to, i64[n, 2]."""


class LinkCases(NamedTuple):
    """Edges, and other pairs of nodes, which are drawn when they are needed."""

    edges: Pairs
    others: Callable[[], Pairs]


class LinkScores(NamedTuple):
    """How well scores tell edges from other pairs, ALGORITHM.md (73)."""

    auc: Estimate  # area under the curve of the true by the false positive rate
    average_precision: Estimate


def link_scores(
    edges: np.ndarray, others: np.ndarray, num: int = RESAMPLES, seed: int = 0
) -> LinkScores:
    """AUC and average precision of the scores of edges f[P] and of other pairs f[N].

    Resamples draw among the edges and among the others; `num` is 0: no intervals.
    """
    ranked = _ranked(edges, others)
    values = ranked.scores(np.ones((1, len(edges))), np.ones((1, len(others))))[0]
    drawn = (
        itertools.chain.from_iterable(resamples(len(x), num, seed + k))
        for k, x in enumerate((edges, others))
    )
    found = [
        ranked.scores(right[np.newaxis], wrong[np.newaxis])
        for right, wrong in zip(*drawn, strict=True)
    ]
    samples = np.concatenate([np.empty((0, 2)), *found]).T
    return LinkScores(*map(estimate, values.tolist(), samples))


class _Ranked(NamedTuple):
    """Edges and other pairs by descending score."""

    edges: np.ndarray  # i64[P], their order
    others: np.ndarray  # i64[N], their order
    as_high: np.ndarray  # i64[P], of each ordered edge: edges that are at least as high
    higher: np.ndarray  # i64[P], other pairs that are higher
    not_lower: np.ndarray  # i64[P], other pairs that are at least as high

    def scores(self, edges: np.ndarray, others: np.ndarray) -> np.ndarray:
        """AUC and average precision, f64[r, 2], where pairs count as often as
        f64[r, P] and f64[r, N] say."""
        edges = edges.take(self.edges, axis=1)
        right = _sums(edges).take(self.as_high, axis=1)
        wrong = _sums(others.take(self.others, axis=1))
        higher, not_lower = (wrong.take(x, axis=1) for x in self[3:])
        num_right, num_wrong = edges.sum(axis=1), wrong[:, -1]
        above = (edges * (higher + not_lower)).sum(axis=1) / 2
        precision = right / np.maximum(right + not_lower, 1)
        auc = 1 - above / (num_right * num_wrong)
        return np.stack([auc, (edges * precision).sum(axis=1) / num_right], axis=1)


def _ranked(edges: np.ndarray, others: np.ndarray) -> _Ranked:
    first, second = (np.argsort(-scores, kind="stable") for scores in (edges, others))
    edges, others = -edges[first], -others[second]  # ascending
    return _Ranked(
        *(first, second),
        np.searchsorted(edges, edges, side="right"),
        np.searchsorted(others, edges, side="left"),
        np.searchsorted(others, edges, side="right"),
    )


def _sums(counts: np.ndarray) -> np.ndarray:
    """The sums of the first 0, 1 ... n columns, f64[r, n + 1]."""
    return np.pad(counts.cumsum(axis=1), ((0, 0), (1, 0)))


def sample_non_edges(
    num: int, num_nodes: int, edges: Pairs, *, directed: bool, seed: int = 0
) -> Pairs:
    """Different pairs of different nodes that are not in `edges`, uniform, i64[num, 2].

    Undirected pairs have the smaller node first.

    Raises:
      InputError: there are fewer than `num` such pairs.
    """
    known = np.unique(_keys(edges, num_nodes, directed))
    total = num_nodes * (num_nodes - 1) // (1 if directed else 2)
    if num > total - len(known):
        raise InputError(
            f"`non_edges` must be at most {total - len(known)}, the pairs of nodes "
            f"without an edge, got {num}."
        )
    rng = np.random.default_rng(seed)
    if num_nodes**2 <= _FEW_PAIRS:
        found = rng.permutation(_others(num_nodes, known, directed))
    else:
        found = np.empty(0, np.int64)
        while len(found) < num:
            drawn = rng.integers(num_nodes, size=(2 * num, 2))
            drawn = drawn[drawn[:, 0] != drawn[:, 1]]
            keys = _keys(drawn, num_nodes, directed)
            found = np.concatenate([found, keys[~np.isin(keys, known)]])
            found = found[np.sort(np.unique(found, return_index=True)[1])]
    return np.stack(np.divmod(found[:num], num_nodes), axis=1)


def _others(num_nodes: int, known: np.ndarray, directed: bool) -> np.ndarray:
    """The keys of all pairs that are not known."""
    first, second = np.divmod(np.arange(num_nodes**2), num_nodes)
    is_pair = first != second if directed else first < second
    return np.setdiff1d(np.flatnonzero(is_pair), known, assume_unique=True)


def _keys(pairs: Pairs, num_nodes: int, directed: bool) -> np.ndarray:
    pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
    first, second = (pairs if directed else np.sort(pairs, axis=1)).T
    return first * num_nodes + second


def held_out_edges(
    given: Pairs, training: Pairs, num_nodes: int, *, directed: bool
) -> tuple[Pairs, int]:
    """`given` without self loops, repeated edges and those in `training`, and the
    number of different ones that are in `training`. Undirected pairs have the smaller
    node first."""
    given = given[given[:, 0] != given[:, 1]]
    keys = np.unique(_keys(given, num_nodes, directed))
    is_new = ~np.isin(keys, _keys(training, num_nodes, directed))
    found = np.stack(np.divmod(keys[is_new], num_nodes), axis=1)
    return found, int(np.count_nonzero(~is_new))


def dot_products(matrix: np.ndarray, pairs: Pairs) -> np.ndarray:
    """The product of the rows of each pair, f[n]."""
    return np.einsum("nd,nd->n", matrix[pairs[:, 0]], matrix[pairs[:, 1]])


def cosine_similarities(matrix: np.ndarray, pairs: Pairs) -> np.ndarray:
    """The cosine of the rows of each pair, f[n]."""
    unit = unit_rows(matrix)
    return cosines(unit[pairs[:, 0]], unit[pairs[:, 1]])


def degree_products(adjacency: sparse.csr_array, pairs: Pairs) -> np.ndarray:
    """Edges that leave the first node times edges that reach the second, f64[n]:
    preferential attachment."""
    leaving, reaching = adjacency.sum(axis=1), adjacency.sum(axis=0)
    return leaving[pairs[:, 0]] * reaching[pairs[:, 1]]


def common_neighbors(adjacency: sparse.csr_array, pairs: Pairs) -> np.ndarray:
    """The number of paths of two edges from the first node to the second, f64[n]: of an
    undirected graph their common neighbours.

    Args:
      adjacency: 1 for each edge, [V, V]; undirected edges are there both ways.
    """
    backward = adjacency.T.tocsr()
    found = [np.empty(0)]
    for start in range(0, len(pairs), _CHUNK_ROWS):
        first, second = pairs[start : start + _CHUNK_ROWS].T
        found.append((adjacency[first] * backward[second]).sum(axis=1))
    return np.concatenate(found)


COUNTED: dict[str, Callable[[sparse.csr_array, Pairs], np.ndarray]] = {
    "common neighbours": common_neighbors,
    "degree product": degree_products,
}
"""Baselines of links by their names."""
