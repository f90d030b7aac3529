"""Exact search: as plain NumPy over all rows, with ties by row, in bounded memory."""

import tracemalloc

import numpy as np
import pytest

from embedder.vectors import search as module
from embedder.vectors.search import nearest_rows, table_of, unit_rows
from embedder.vectors.vectors import Vectors


def oracle(matrix, queries, num, metric, excluded, among):
    """Ids and scores of each query by sorting all rows, one query at a time."""
    ids, scores = [], []
    for query, hidden in zip(queries, excluded, strict=True):
        rows = [row for row in among if row not in hidden]
        found = []
        for row in rows:
            vector = matrix[row].astype(np.float64)
            if metric == "cosine":
                ends = unit_rows(vector[None])[0], unit_rows(query[None])[0]
                score = min(1.0, max(-1.0, (ends[0] * ends[1]).sum()))
            else:
                score = (vector * query).sum()
            found.append((-score, row))
        best = sorted(found)[:num]
        ids.append([row for _, row in best] + [-1] * (num - len(best)))
        scores.append([-s for s, _ in best] + [np.nan] * (num - len(best)))
    return np.array(ids), np.array(scores)


@pytest.mark.spread(3)
@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("num_scores", "num_candidates"), [(2**21, 2**20), (40, 2**20), (200, 30)]
)
def test_results_are_those_of_sorting_all_rows(
    monkeypatch, metric, dtype, num_scores, num_candidates
):
    """Whatever the blocks; with 30 candidates also where they must be ranked early.

    Some rows are equal, some zero, and some equal but for their length.
    """
    monkeypatch.setattr(module, "_SCORES", num_scores)
    monkeypatch.setattr(module, "_CANDIDATES", num_candidates)
    monkeypatch.setattr(module, "_VALUES", 50)
    rng = np.random.default_rng(5)
    matrix = rng.standard_normal((150, 7)).astype(dtype)
    twins = rng.permutation(150)[:37]
    matrix[twins] = matrix[twins[0]]
    matrix[twins[::2]] *= 2.0
    matrix[rng.permutation(150)[:3]] = 0
    rows = rng.permutation(150)[:12]
    queries = np.vstack([matrix[rows].astype(np.float64), np.zeros((1, 7))])
    excluded = [[int(row), int(rng.integers(150))] for row in rows] + [[]]
    vectors = Vectors([str(i) for i in range(150)], matrix)
    unit = vectors.unit if metric == "cosine" else None
    for num in (1, 3, 60, 149, 500):
        for among in (None, np.sort(rng.permutation(150)[:40])):
            rows_of = np.arange(150) if among is None else among
            ids, scores = nearest_rows(
                *(table_of(matrix, unit), queries, num), excluded=excluded, among=among
            )
            expected = oracle(
                matrix, queries, min(num, len(rows_of)), metric, excluded, rows_of
            )
            np.testing.assert_array_equal(ids, expected[0])
            # Sums of 7 products in another order.
            np.testing.assert_allclose(scores, expected[1], rtol=1e-13, atol=1e-15)


@pytest.mark.spread(1)
@pytest.mark.parametrize("twins", [0, 60_000])
def test_memory_is_bounded_whatever_the_number_of_queries(twins):
    """Beside the table and the result; also where all rows are as near as others."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60_000, 16)).astype(np.float32)
    matrix[:twins] = matrix[0]
    vectors = Vectors([str(i) for i in range(60_000)], matrix)
    table = vectors.table()
    num = 64 if twins else 3000
    queries = matrix[:num].astype(np.float64)
    tracemalloc.start()
    try:
        nearest_rows(table, queries, 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (300e6 if twins else 30e6)  # of 720e6 of all scores


def test_near_ties_of_long_rows_are_ranked_exactly():
    """They differ by the last bit of float32, whose products are rounded by more."""
    rng = np.random.default_rng(1)
    matrix = np.repeat(1e4 * rng.standard_normal((1, 16), np.float32), 400, axis=0)
    ends = rng.choice(np.float32([-np.inf, np.inf]), matrix.shape)
    matrix = np.nextafter(matrix, ends)
    queries = rng.standard_normal((4, 16))
    table, none = table_of(matrix, None), [[]] * 4
    found = nearest_rows(table, queries, 5, excluded=none)
    expected = oracle(matrix, queries, 5, "dot", none, range(400))
    np.testing.assert_array_equal(found[0], expected[0])
