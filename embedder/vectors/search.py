"""Exact search: the rows of a matrix that are nearest to queries, by blocked products.

A product of some queries and some rows is small enough for the cache of the processor.
Of its scores only those above a bound are kept, the best that the query already has;
so nothing is sorted but a few candidates. These are ranked again in float64.

Axis letters: V rows, D dimensions, Q queries, N results of a query.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

Metric = Literal["cosine", "dot"]
ROUNDING = 1e-5  # above the error of a float32 product of two unit vectors
_QUERIES = 256  # of a product, at most
_SCORES = 2**21  # of a product: 8 MB in float32
_CANDIDATES = 2**20  # pairs of a query and a row that are kept at once: 20 MB
_GROUPS = 64  # of columns, for each of the largest ones
_VALUES = 2**20  # of rows that are ranked at once: 8 MB in float64


class Table(NamedTuple):
    """A matrix to search in."""

    matrix: np.ndarray  # f32 or f64[V, D]
    factors: np.ndarray  # what queries are multiplied by: of cosines unit rows
    metric: Metric
    longest: float  # length of the longest row of `factors`


class _Pairs(NamedTuple):
    """Pairs of a query and a row, sorted by query; of equal length P."""

    queries: np.ndarray  # i64[P]
    rows: np.ndarray  # i64[P]
    scores: np.ndarray  # f[P]

    def where(self, which: np.ndarray) -> "_Pairs":
        return _Pairs(self.queries[which], self.rows[which], self.scores[which])


_NO_PAIRS = _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def table_of(matrix: np.ndarray, unit: np.ndarray | None) -> Table:
    """A table of cosines by the `unit` rows of `matrix`; None: of products."""
    if unit is not None:
        return Table(matrix, unit, "cosine", 1.0)
    lengths = (
        np.linalg.norm(rows, axis=1).max() for rows in row_chunks(matrix, _VALUES)
    )
    return Table(matrix, matrix, "dot", float(max(lengths)))


def nearest_rows(
    table: Table,
    queries: np.ndarray,
    num: int,
    *,
    excluded: Sequence[Sequence[int]] | None = None,
    among: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids i64[Q, N] and scores f64[Q, N] of the rows with the highest scores.

    The score is the cosine of a row and a query, or their product; highest first, ties
    by id. N is the least of `num` and the number of rows; a query with fewer rows ends
    with id -1 and score NaN. Beside the table and the result it takes some 30 MB,
    whatever Q and V are, and where all rows are as near as the best up to 300 MB.

    Args:
      queries: f64[Q, D].
      excluded: ids that are not results, of each query.
      among: ids of the rows to search, ascending, i64[n]; None: all.
    """
    num = min(num, len(table.matrix) if among is None else len(among))
    ids = np.full((len(queries), num), -1, np.int64)
    scores = np.full(ids.shape, np.nan)
    if num == 0:
        return ids, scores
    queries = prepared(table, queries)
    size = min(_QUERIES, max(1, _CANDIDATES // (4 * num)))
    for start in range(0, len(queries), size):
        chunk = slice(start, start + size)
        hidden = _pairs_of(excluded[chunk] if excluded is not None else (), among)
        pairs = _candidates(table, queries[chunk], num, hidden, among)
        fill(ids[chunk], scores[chunk], _best(table, queries[chunk], pairs, num))
    return ids, scores


def nearest_of(
    table: Table,
    queries: np.ndarray,
    candidates: np.ndarray,
    num: int,
    excluded: Sequence[Sequence[int]] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The best `num` rows for each query as `nearest_rows`, of the `candidates` alone.

    Args:
      queries: f64[Q, D].
      candidates: ids i64[Q, n], each once in a row; -1: none.
    """
    num = min(num, len(table.matrix))
    ids = np.full((len(queries), num), -1, np.int64)
    scores = np.full(ids.shape, np.nan)
    is_candidate = candidates >= 0
    # The first excluded id of each query, then the second; -1: it has none.
    for ids_of_queries in itertools.zip_longest(*(excluded or ()), fillvalue=-1):
        is_candidate &= candidates != np.array(ids_of_queries)[:, None]
    places = np.nonzero(is_candidate)
    pairs = _Pairs(places[0], candidates[places], np.zeros(len(places[0])))
    fill(ids, scores, _best(table, prepared(table, queries), pairs, num))
    return ids, scores


def prepared(table: Table, queries: np.ndarray) -> np.ndarray:
    """Queries whose products with `table.factors` are the scores, f64[Q, D]."""
    queries = np.asarray(queries, np.float64)
    return unit_rows(queries) if table.metric == "cosine" else queries


def fill(ids: np.ndarray, scores: np.ndarray, pairs: _Pairs) -> None:
    """Writes sorted pairs into the rows of their queries."""
    places = _places(pairs.queries)
    ids[pairs.queries, places] = pairs.rows
    scores[pairs.queries, places] = pairs.scores


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """The rows of f[N, D] scaled to length one; zero rows stay zero.

    Divides by the largest value first, so that no square overflows or underflows.
    """
    largest = np.maximum(matrix.max(axis=1), -matrix.min(axis=1))[:, None]
    scaled = matrix / np.where(largest > 0, largest, 1)
    norms = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    scaled /= np.where(norms > 0, norms, 1)
    return scaled


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine similarities of pairs of unit rows, in [-1, 1].

    Equal rows have equal cosines at any position, which a matrix product does not give.
    """
    return np.clip((first * second).sum(axis=-1), -1.0, 1.0)


def _candidates(
    table: Table,
    queries: np.ndarray,
    num: int,
    hidden: tuple[np.ndarray, np.ndarray],
    among: np.ndarray | None,
) -> _Pairs:
    """Pairs with all that can be among the best `num` of a query, and a few more.

    Args:
      hidden: queries and positions in `among` of what is excluded, i64[n] both.
    """
    factors = queries.astype(table.factors.dtype)
    margins = ROUNDING * table.longest * np.linalg.norm(queries, axis=1)
    bounds = np.full(len(queries), -np.inf)
    num_rows = len(table.factors) if among is None else len(among)
    width = max(1, _SCORES // len(queries))
    buffer = np.empty(len(queries) * min(width, num_rows), factors.dtype)
    pairs = _NO_PAIRS
    for start in range(0, num_rows, width):
        rows = slice(start, min(start + width, num_rows))
        block = table.factors[rows if among is None else among[rows]]
        scores = buffer[: len(factors) * len(block)].reshape(len(factors), -1)
        np.matmul(factors, block.T, out=scores)
        is_here = (hidden[1] >= start) & (hidden[1] < rows.stop)
        scores[hidden[0][is_here], hidden[1][is_here] - start] = -np.inf
        if start == 0:
            bounds = _first_bounds(scores, num)
        query, place = _at_least(scores, bounds - margins)
        if not len(query):
            continue
        ids = place + start if among is None else among[place + start]
        pairs = _merged(pairs, _Pairs(query, ids, scores[query, place]))
        bounds = np.maximum(bounds, _bounds(pairs, len(queries), num))
        pairs = pairs.where(pairs.scores >= (bounds - margins)[pairs.queries])
        if len(pairs.rows) > _CANDIDATES:  # many rows that are all but equal
            pairs = _best(table, queries, pairs, num)
    return pairs


def _first_bounds(scores: np.ndarray, num: int) -> np.ndarray:
    """A lower bound of the `num`-th best of each row of f[Q, n], from its start."""
    width = min(scores.shape[1], max(1024, 4 * num))
    if num > width:
        return np.full(len(scores), -np.inf)
    return np.partition(scores[:, :width], width - num, axis=1)[:, width - num]


def _at_least(scores: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the values of f[Q, n] that reach a bound for each row, f[Q];
    -inf reaches none."""
    bounds = np.maximum(bounds, np.finfo(scores.dtype).min).astype(scores.dtype)
    places = np.flatnonzero(scores >= bounds[:, None])
    return np.divmod(places, scores.shape[1])


def _merged(first: _Pairs, second: _Pairs) -> _Pairs:
    """The pairs of both, by query and score."""
    both = _Pairs(*map(np.concatenate, zip(first, second, strict=True)))
    return both.where(np.lexsort((-both.scores, both.queries)))


def _bounds(pairs: _Pairs, num_queries: int, num: int) -> np.ndarray:
    """The `num`-th best score of each query, f[Q]; -inf: it has fewer pairs."""
    is_last = _places(pairs.queries) == num - 1
    bounds = np.full(num_queries, -np.inf)
    bounds[pairs.queries[is_last]] = pairs.scores[is_last]
    return bounds


def _best(table: Table, queries: np.ndarray, pairs: _Pairs, num: int) -> _Pairs:
    """The best `num` pairs of each query by scores in float64, ties by id.

    A matrix product rounds equal rows differently, by their position and the size of
    the block. Here they tie.
    """
    exact = np.empty(len(pairs.rows))
    size = max(1, _VALUES // queries.shape[1])
    for start in range(0, len(exact), size):
        chunk = slice(start, start + size)
        exact[chunk] = _exact(table, queries[pairs.queries[chunk]], pairs.rows[chunk])
    order = np.lexsort((pairs.rows, -exact, pairs.queries))
    best = pairs._replace(scores=exact).where(order)
    return best.where(_places(best.queries) < num)


def _exact(table: Table, queries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The scores of pairs of a query and a row, f64[n]."""
    rows = table.matrix[ids].astype(np.float64)
    if table.metric == "cosine":
        return cosines(unit_rows(rows), queries)
    return (rows * queries).sum(axis=-1)


def _places(queries: np.ndarray) -> np.ndarray:
    """The place of each pair among those of its query, from 0, i64[P]."""
    is_first = np.ones(len(queries), bool)
    is_first[1:] = queries[1:] != queries[:-1]
    starts = np.flatnonzero(is_first)
    counts = np.diff(starts, append=len(queries))
    return np.arange(len(queries)) - np.repeat(starts, counts)


def _pairs_of(
    excluded: Sequence[Sequence[int]], among: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Queries and positions in `among` of excluded ids, i64[n] both."""
    lengths = [len(ids) for ids in excluded]
    queries = np.repeat(np.arange(len(lengths)), lengths)
    ids = np.array([i for each in excluded for i in each], np.int64)
    if among is None:
        return queries, ids
    places = np.searchsorted(among, ids)
    is_known = among[np.minimum(places, len(among) - 1)] == ids
    return queries[is_known], places[is_known]


def largest_columns(values: np.ndarray, num: int) -> np.ndarray:
    """The columns of the `num` largest of each row of f[m, n], the largest first,
    i64[m, num]; of equal ones the first.

    No more than `num` groups of columns have a larger maximum than the one that is the
    limit, so only few groups are looked at.
    """
    size, num_columns = values.shape
    width = max(1, num_columns // (_GROUPS * num))
    groups = num_columns // width  # column c is in group c % groups
    whole = groups * width
    maxima = values[:, :whole].reshape(size, width, groups).max(axis=1)
    limit = np.partition(maxima, groups - num, axis=1)[:, groups - num]
    row, group = np.nonzero(maxima >= limit[:, np.newaxis])
    rest = np.arange(size).repeat(num_columns - whole)  # columns after the groups
    row = np.concatenate([row.repeat(width), rest])
    column = (group[:, np.newaxis] + groups * np.arange(width)).ravel()
    column = np.concatenate([column, np.tile(np.arange(whole, num_columns), size)])
    is_high = values[row, column] >= limit[row]
    row, column = row[is_high], column[is_high]
    order = np.lexsort((column, -values[row, column], row))
    row, column = row[order], column[order]
    return column[_places(row) < num].reshape(size, num)


def row_chunks(matrix: np.ndarray, num_values: int) -> Iterator[np.ndarray]:
    """The rows of a matrix, at most `num_values` values, but a row, at a time."""
    size = max(1, num_values // matrix.shape[1])
    return (matrix[i : i + size] for i in range(0, len(matrix), size))
