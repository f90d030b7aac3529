"""Neighbours of a few tokens, from the most frequent to the rarest."""

from typing import NamedTuple

import numpy as np

from embedder.vectors.ensemble import Ensemble
from embedder.vectors.vectors import Vectors

NUM_NEIGHBORS = 8
_PER_BAND = 4
_FIRST_BAND = 100  # tokens of the most frequent; each next band has ten times as many


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


def samples(vectors: Vectors, ensemble: Ensemble | None = None) -> list[Band]:
    """Neighbours, among all tokens, of some tokens of each band of frequencies.

    Tokens are evenly spaced in their band. Without counts the order of rows counts.
    """
    if len(vectors) < 2:
        return []
    counts = vectors.counts
    by_rank = np.arange(len(vectors))
    if counts is not None:
        by_rank = np.argsort(-counts, kind="stable")
    found = []
    for start, stop in _bands(len(vectors)):
        num = min(_PER_BAND, stop - start)
        ranks = np.linspace(start, stop - 1, num + 2).round().astype(int)[1:-1]
        ids = by_rank[sorted({*ranks.tolist()})].tolist()
        keys = [vectors.keys[i] for i in ids]
        numbers = [None if counts is None else int(counts[i]) for i in ids]
        near = _near(vectors, ensemble, keys)
        found.append(
            Band(
                (start + 1, stop),
                [
                    Sample(key, count, n)
                    for key, count, n in zip(keys, numbers, near, strict=True)
                ],
            )
        )
    return found


def _bands(num: int) -> list[tuple[int, int]]:
    """Ranges of ranks from 0, each ten times as long as the one before."""
    found, start, stop = [], 0, _FIRST_BAND
    while start < num:
        found.append((start, min(stop, num)))
        start, stop = stop, 10 * stop
    return found


def _near(
    vectors: Vectors, ensemble: Ensemble | None, tokens: list[str]
) -> list[list[Near]]:
    if ensemble is not None:
        rows = [ensemble.tokens[vectors.index(token)] for token in tokens]
        return [
            [Near(str(x.token), x.similarity, (x.lower, x.upper)) for x in each]
            for each in ensemble.neighbors(rows, NUM_NEIGHBORS)
        ]
    ids, cosines = vectors.neighbors(tokens, NUM_NEIGHBORS)
    return [
        [Near(vectors.keys[i], float(x)) for i, x in zip(*each, strict=True)]
        for each in zip(ids.tolist(), cosines, strict=True)
    ]
