"""Nearest tokens by one model or by replicas: of every token of a map, and of samples
from the most frequent token to the rarest.

Axis letters: K replicas (1: one model), P tokens, D dimensions, n neighbours.
"""

import itertools
from typing import NamedTuple

import numpy as np

from embedder.vectors.ensemble import CHUNK_VALUES, Ensemble, interval
from embedder.vectors.search import cosines, nearest_rows, table_of, unit_rows
from embedder.vectors.vectors import Vectors

_PERCENT = 90.0  # of an interval over replicas, as of `embedder neighbors`
_OVERLAP = 10  # nearest tokens that stability compares
_NUM_OF_SAMPLE = 8  # neighbours
_PER_BAND = 4  # samples
_FIRST_BAND = 100  # tokens of the most frequent; each next band has ten times as many


class Neighbors(NamedTuple):
    """The nearest tokens of each token, the best first."""

    ids: np.ndarray  # i64[P, n]
    similarity: np.ndarray  # f64[P, n], cosine; of replicas its mean
    lower: np.ndarray | None  # f64[P, n], ends of the interval; None: one model
    upper: np.ndarray | None
    stability: np.ndarray | None  # f64[P], see `Ensemble.stability`

    def first(self, num: int) -> "Neighbors":
        """The first `num` of each token."""
        lower, upper = (x if x is None else x[:, :num] for x in self[2:4])
        first = self.ids[:, :num], self.similarity[:, :num]
        return Neighbors(*first, lower, upper, self.stability)


def all_neighbors(vectors: np.ndarray, topn: int) -> Neighbors:
    """The `topn` nearest of P tokens to each of them, by mean cosine similarity.

    They are chosen in the dtype of `vectors`, and ranked in float64, ties by id.

    Args:
      vectors: f[K, P, D].
    """
    units = np.stack([unit_rows(each) for each in vectors])
    num_replicas, num_tokens, size = units.shape
    topn = min(topn, num_tokens - 1)
    joined = units.transpose(1, 0, 2).reshape(num_tokens, num_replicas * size)
    ids = nearest_ids(joined, topn)
    similarity = np.empty((num_replicas, num_tokens, topn))
    step = max(1, CHUNK_VALUES // max(1, topn * size))
    for k, start in itertools.product(range(num_replicas), range(0, num_tokens, step)):
        rows = slice(start, start + step)
        own = unit_rows(vectors[k][rows].astype(np.float64))
        others = unit_rows(vectors[k][ids[rows].ravel()].astype(np.float64))
        others = others.reshape(*ids[rows].shape, size)
        similarity[k, rows] = cosines(own[:, np.newaxis], others)
    order = np.lexsort((ids, -similarity.mean(axis=0)), axis=1)
    ids = np.take_along_axis(ids, order, axis=1)
    similarity = np.take_along_axis(similarity, order[np.newaxis], axis=2)
    if num_replicas == 1:
        return Neighbors(ids, similarity[0], None, None, None)
    lower, upper = interval(similarity.reshape(num_replicas, -1), _PERCENT)
    shape = num_tokens, topn
    return Neighbors(
        *(ids, similarity.mean(axis=0), lower.reshape(shape), upper.reshape(shape)),
        _stability(units),
    )


def nearest_ids(rows: np.ndarray, topn: int) -> np.ndarray:
    """Ids i64[P, topn] of the other rows of f[P, D] with the largest products, the best
    first."""
    excluded = [[row] for row in range(len(rows))]
    return nearest_rows(table_of(rows, None), rows, topn, excluded=excluded)[0]


def _stability(units: np.ndarray) -> np.ndarray:
    """How far replicas agree on the nearest tokens, f64[P], as of `Ensemble`."""
    topn = min(_OVERLAP, units.shape[1] - 1)
    if not topn:
        return np.zeros(units.shape[1])
    nearest = [np.sort(nearest_ids(each, topn), axis=1) for each in units]
    shares = [_shared(*pair) / topn for pair in itertools.combinations(nearest, 2)]
    return np.mean(shares, axis=0)


def _shared(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How many ids two rows share, i64[P]; each row of i64[P, n] has distinct ids."""
    both = np.sort(np.concatenate([first, second], axis=1), axis=1)
    return (both[:, 1:] == both[:, :-1]).sum(axis=1)


class Near(NamedTuple):
    """A neighbour."""

    token: str
    similarity: float
    interval: tuple[float, float] | None = None  # over replicas


class Sample(NamedTuple):
    """A token and its neighbours."""

    token: str
    occurrences: int | None
    near: list[Near]


class Band(NamedTuple):
    """Tokens of similar frequency."""

    ranks: tuple[int, int]  # first and last rank by frequency, from 1
    samples: list[Sample]


def by_frequency(vectors: Vectors) -> np.ndarray:
    """Rows i64[V], the most frequent token first; in their order without counts."""
    if vectors.counts is None:
        return np.arange(len(vectors))
    return np.argsort(-vectors.counts, kind="stable")


def samples(vectors: Vectors, ensemble: Ensemble | None = None) -> list[Band]:
    """Neighbours, among all tokens, of some tokens of each band of frequencies.

    Tokens are evenly spaced in their band. Without counts the order of rows counts.
    """
    num, counts, order = len(vectors), vectors.counts, by_frequency(vectors)
    bands, start, stop = [], 0, _FIRST_BAND
    while start < num > 1:
        end = min(stop, num)
        spaced = np.linspace(start, end - 1, min(_PER_BAND, end - start) + 2)
        ids = order[sorted({*spaced.round().astype(int)[1:-1].tolist()})].tolist()
        near = _near(vectors, ensemble, [vectors.keys[i] for i in ids])
        of_band = [
            Sample(vectors.keys[i], None if counts is None else int(counts[i]), each)
            for i, each in zip(ids, near, strict=True)
        ]
        bands.append(Band((start + 1, end), of_band))
        start, stop = stop, 10 * stop
    return bands


def _near(
    vectors: Vectors, ensemble: Ensemble | None, tokens: list[str]
) -> list[list[Near]]:
    if ensemble is not None:
        rows = [ensemble.tokens[vectors.index(token)] for token in tokens]
        return [
            [Near(str(x.token), x.similarity, (x.lower, x.upper)) for x in each]
            for each in ensemble.neighbors(rows, _NUM_OF_SAMPLE)
        ]
    ids, cosines = vectors.neighbors(tokens, _NUM_OF_SAMPLE)
    return [
        [Near(vectors.keys[i], float(x)) for i, x in zip(*each, strict=True)]
        for each in zip(ids.tolist(), cosines, strict=True)
    ]
