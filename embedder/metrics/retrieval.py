"""Scores of retrieval: whether the nearest examples have the same class, ALGORITHM.md
(80), (81).

Each example is a query, and all others are ranked by the cosine of their vectors with
its own. Axis letters: n examples, N queries, D numbers of a vector.
"""

from typing import NamedTuple

import numpy as np

from embedder.vectors.search import unit_rows

CUTOFFS = (1, 5, 10)
"""The k of recall@k."""

NEIGHBORS = 10
"""Examples that vote for the class of a query."""

MAX_QUERIES = 10_000
_CHUNK_VALUES = 2**22  # cosines that are computed at once: 32 MB
_STEPS = 2**29  # of cosines from 0 to 1; closer ones are equal


class Queries(NamedTuple):
    """The examples that are queries."""

    ids: np.ndarray  # i64[N], ascending
    num_alone: int  # examples that are none: no other has their class


def choose_queries(
    labels: np.ndarray, num: int = MAX_QUERIES, seed: int = 0
) -> Queries:
    """The examples whose class has another example; `num` of them, drawn, if more.

    Args:
      labels: classes, i[n] from 0.
    """
    labels = np.asarray(labels)
    has_other = np.bincount(labels)[labels] > 1
    ids = np.flatnonzero(has_other)
    num_alone = len(labels) - len(ids)
    if len(ids) > num:
        ids = np.sort(np.random.default_rng(seed).choice(ids, num, replace=False))
    return Queries(ids, num_alone)


def retrieval_scores(
    vectors: np.ndarray, labels: np.ndarray, queries: Queries
) -> np.ndarray:
    """recall@k of `CUTOFFS` and mAP@R of each query, f64[N, 5]: ALGORITHM.md (80) and
    (81), and whether more of the `NEIGHBORS` nearest have its class than any other.

    All n - 1 others are ranked. Of equal cosines those of other classes come first, and
    an equal number of votes is no majority: equal vectors find nothing. The cosines are
    computed in float64, as many at once as memory is given for.

    Args:
      vectors: f[n, D]; the cosine with a row of zeros, or that is not finite, is 0.
      labels: classes, i[n] from 0.
    """
    labels = np.asarray(labels)
    unit, sizes = _unit(vectors), np.bincount(labels)[labels] - 1
    order = np.argsort(sizes[queries.ids], kind="stable")  # similar ranks at once
    found = np.empty((len(order), len(CUTOFFS) + 2))
    size = max(1, _CHUNK_VALUES // max(len(labels), 1))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        ids = queries.ids[rows]
        found[rows] = _scores(_keys(unit, labels, ids), labels, ids, sizes[ids])
    return found


def chance(labels: np.ndarray, queries: Queries) -> np.ndarray:
    """The scores of each query that a random order of the others is expected to have,
    f64[N, 5]; of the vote those of the most frequent class, whatever the query is.

    recall@k is 1 - prod_{i<k} (m - R - i) / (m - i), with m = n - 1 others and R of the
    class; mAP@R is (H + (R - H) (R - 1) / (m - 1)) / m, with H = sum_{i<=R} 1 / i.
    """
    labels = np.asarray(labels)
    counts = np.bincount(labels)
    own, others = counts[labels[queries.ids]] - 1, len(labels) - 1
    drawn = np.arange(max(CUTOFFS))
    left = np.maximum(others - drawn, 1)  # no more are drawn than there are
    missed = np.cumprod(np.maximum(left - own[:, np.newaxis], 0) / left, axis=1)
    recall = 1 - missed[:, np.array(CUTOFFS) - 1]
    harmonic = np.cumsum(1 / np.arange(1, own.max(initial=0) + 1))
    h = harmonic[own - 1] if len(own) else np.empty(0)
    both = (own - 1) / max(others - 1, 1)
    is_frequent = labels[queries.ids] == counts.argmax()
    columns = [*recall.T, (h + (own - h) * both) / max(others, 1), is_frequent]
    return np.stack(columns, axis=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Unit rows, f64[n, D]; zeros for rows that are not finite."""
    flat = np.asarray(vectors).reshape(len(vectors), -1).astype(np.float64)
    flat[~np.isfinite(flat).all(axis=1)] = 0
    return unit_rows(flat)


def _keys(unit: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Sort keys of all examples for each query, i32[N, n]: twice the cosine in steps,
    and 1 more for other classes. The query itself is the lowest."""
    cosines = unit[ids] @ unit.T
    cosines *= _STEPS
    keys = np.rint(cosines, out=cosines).astype(np.int32)
    keys *= 2
    keys += labels[ids][:, np.newaxis] != labels
    keys[np.arange(len(ids)), ids] = np.iinfo(np.int32).min + 1
    return keys


def _scores(
    keys: np.ndarray, labels: np.ndarray, ids: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """The scores of queries by their sort keys; `sizes` i64[N]: others of the class."""
    others = len(labels) - 1
    np.negative(keys, out=keys)  # the nearest is the lowest
    depth = min(max(int(sizes.max()), *CUTOFFS), others)
    nearest = np.partition(keys, depth - 1, axis=1)[:, :depth]
    nearest.sort(axis=1)
    is_target = nearest % 2 == 0
    recall = [is_target[:, :k].any(axis=1) for k in CUTOFFS]
    rank = np.arange(1, depth + 1)
    precision = np.cumsum(is_target, axis=1) / rank
    counted = is_target & (rank <= sizes[:, np.newaxis])
    average = (precision * counted).sum(axis=1) / sizes
    is_voted = _is_voted(keys, nearest[:, :NEIGHBORS], labels, ids)
    return np.stack([*recall, average, is_voted], axis=1)


def _is_voted(
    keys: np.ndarray, nearest: np.ndarray, labels: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    """Whether most of the nearest have the class of the query, bool[N]. Of other
    classes all that are as near as the last voter vote.

    Args:
      nearest: the lowest of the negative `keys`, ascending, i32[N, NEIGHBORS] or fewer.
    """
    own = (nearest % 2 == 0).sum(axis=1)
    query, voter = np.nonzero(keys <= nearest[:, -1:])
    is_other = labels[voter] != labels[ids[query]]
    num_classes = int(labels.max()) + 1
    pairs = query[is_other] * num_classes + labels[voter[is_other]]
    pairs, votes = np.unique(pairs, return_counts=True)
    most = np.zeros(len(ids), np.int64)
    np.maximum.at(most, pairs // num_classes, votes)
    return own > most
