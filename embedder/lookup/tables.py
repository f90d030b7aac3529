"""Neighbours as rows of a table: query, key, rank, and numbers."""

from collections.abc import Callable, Collection
from typing import Literal

import numpy as np
import polars as pl

from embedder.vectors.array_formats import key_column
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.search import Metric
from embedder.vectors.vectors import KeyType, Vectors


def of_vectors(
    vectors: Vectors,
    key_type: KeyType,
    topn: int,
    among: np.ndarray | None,
    metric: Metric,
) -> Callable[[list[str]], pl.DataFrame]:
    """A function that gives the neighbours of keys as a table.

    Args:
      among: ids that can be neighbours, ascending; None: all.
    """
    column = key_column(vectors.keys, key_type)
    name = "similarity" if metric == "cosine" else "product"

    def find(keys: list[str]) -> pl.DataFrame:
        rows = np.array([vectors.index(key) for key in keys])
        ids, scores = vectors.neighbors_of_rows(rows, topn, among, metric)
        query, place = np.nonzero(ids >= 0)
        return pl.DataFrame(
            {
                "query": column.gather(rows[query]),
                "key": column.gather(ids[query, place]),
                "rank": (place + 1).astype(np.int32),
                name: scores[query, place].astype(np.float32),
            }
        )

    return find


def of_ensemble(
    ensemble: Ensemble,
    topn: int,
    order: Literal["mean", "lower"],
    among: Collection[str] | None,
) -> Callable[[list[str]], pl.DataFrame]:
    """As `of_vectors`, with the interval of the similarity and the replicas."""
    column = key_column(ensemble.texts, ensemble.key_type)

    def find(keys: list[str]) -> pl.DataFrame:
        found = ensemble.neighbors(keys, topn, order=order, among=among)
        query = np.repeat([ensemble.index(key) for key in keys], [*map(len, found)])
        near = [each for row in found for each in row]
        ids = np.array([ensemble.index(each.token) for each in near], np.int64)
        ranks = [rank for row in found for rank in range(1, len(row) + 1)]
        numbers = {
            name: np.array([getattr(each, name) for each in near], np.float32)
            for name in ("similarity", "lower", "upper")
        }
        return pl.DataFrame(
            {
                "query": column.gather(query.astype(np.int64)),
                "key": column.gather(ids),
                "rank": np.array(ranks, np.int32),
                **numbers,
                "replicas": np.array([each.frequency for each in near], np.int32),
            }
        )

    return find
