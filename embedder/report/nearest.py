"""The nearest tokens of every token of a map, of one model or of replicas.

Axis letters: K replicas (1: one model), P tokens, D dimensions, n neighbours.
"""

import itertools
from typing import NamedTuple

import numpy as np

from embedder.vectors.ensemble import CHUNK_VALUES, interval
from embedder.vectors.search import cosines, nearest_rows, table_of, unit_rows

_PERCENT = 90.0  # of an interval over replicas, as of `embedder neighbors`
_OVERLAP = 10  # nearest tokens that stability compares


class Neighbors(NamedTuple):
    """The nearest tokens of each token, the best first."""

    ids: np.ndarray  # i64[P, n]
    similarity: np.ndarray  # f64[P, n], cosine; of replicas its mean
    lower: np.ndarray | None  # f64[P, n], ends of the interval; None: one model
    upper: np.ndarray | None
    stability: np.ndarray | None  # f64[P], see `Ensemble.stability`

    def first(self, num: int) -> "Neighbors":
        """The first `num` of each token."""
        return Neighbors(
            self.ids[:, :num],
            self.similarity[:, :num],
            None if self.lower is None else self.lower[:, :num],
            None if self.upper is None else self.upper[:, :num],
            self.stability,
        )


def all_neighbors(vectors: np.ndarray, topn: int) -> Neighbors:
    """The `topn` nearest of P tokens to each of them, by mean cosine similarity.

    Neighbours of nearly equal similarity are chosen in the dtype of `vectors`; those
    that are chosen are ranked in float64, ties by id.

    Args:
      vectors: f[K, P, D].
    """
    units = np.stack([unit_rows(each) for each in vectors])
    num_replicas, num_tokens, size = units.shape
    topn = min(topn, num_tokens - 1)
    joined = units.transpose(1, 0, 2).reshape(num_tokens, num_replicas * size)
    ids = nearest_ids(joined, topn)
    found = np.empty((num_replicas, num_tokens, topn))
    step = max(1, CHUNK_VALUES // max(1, topn * size))
    for k, start in itertools.product(range(num_replicas), range(0, num_tokens, step)):
        rows = slice(start, start + step)
        own = unit_rows(vectors[k][rows].astype(np.float64))
        others = unit_rows(vectors[k][ids[rows].ravel()].astype(np.float64))
        others = others.reshape(*ids[rows].shape, size)
        found[k, rows] = cosines(own[:, np.newaxis], others)
    order = np.lexsort((ids, -found.mean(axis=0)), axis=1)
    ids = np.take_along_axis(ids, order, axis=1)
    found = np.take_along_axis(found, order[np.newaxis], axis=2)
    if num_replicas == 1:
        return Neighbors(ids, found[0], None, None, None)
    lower, upper = interval(found.reshape(num_replicas, -1), _PERCENT)
    shape = num_tokens, topn
    return Neighbors(
        *(ids, found.mean(axis=0), lower.reshape(shape), upper.reshape(shape)),
        _stability(units),
    )


def nearest_ids(rows: np.ndarray, topn: int) -> np.ndarray:
    """Ids of the `topn` other rows of f[P, D] with the largest products, the best
    first, i64[P, topn]."""
    own = [[row] for row in range(len(rows))]
    return nearest_rows(table_of(rows, None), rows, topn, excluded=own)[0]


def _stability(units: np.ndarray) -> np.ndarray:
    """How far replicas agree on the nearest tokens, f64[P], as of `Ensemble`."""
    topn = min(_OVERLAP, units.shape[1] - 1)
    if not topn:
        return np.zeros(units.shape[1])
    nearest = [np.sort(nearest_ids(each, topn), axis=1) for each in units]
    shares = [_shared(*pair) / topn for pair in itertools.combinations(nearest, 2)]
    return np.mean(shares, axis=0)


def _shared(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Number of ids that rows of i64[P, n], each without repetition, share, i64[P]."""
    both = np.sort(np.concatenate([first, second], axis=1), axis=1)
    return (both[:, 1:] == both[:, :-1]).sum(axis=1)
