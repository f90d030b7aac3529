"""Baselines of the next item: rules that count pairs, and nearest sessions.

A model is made of training sequences. Called with m queries, none empty, it gives the
scores of the items as rows of a sparse matrix, f32[m, V]: 0 for items without evidence,
never below. So it is a `ranking.Scorer`, and its rows can be parts of a mixture.
Training and queries are `ranking.Sequences`; the oldest sessions come first.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy  # its parts are loaded at use: trainings import this

from embedder.metrics.ranking import STEPS, Sequences, recency_weights

NEWEST_SESSIONS = 500_000
"""Sessions that neighbours are searched in, at most."""
NEAR_ITEMS, SECOND_ORDER_ITEMS = 100, 200
"""Items that one step, and two steps, of `SecondOrder` lead to."""
_ROWS_AT_ONCE = 2**11  # of `SecondOrder`: each has up to `NEAR_ITEMS`^2 items at first
_COUNTED_AT_ONCE = 2**20  # positions: pairs of 10 distances take 200 MB
_AT_ONCE = 2**19  # entries of a batch of queries: about ten arrays of 4 MB
_MOST_QUERIES = 2**12  # of a batch
_BITS = 16  # of positions and ages in keys; larger ones count as the largest


@dataclass(frozen=True)
class PairRules:
    """Scores sum w_i n_ic / n_i over the items i of a query, with `recency_weights` w:
    n_ic is the count of c after i, n_i its sum over c.

    `markov`, `sequential_rules` and `association_rules` count.

    Args:
      counts: f32[V, V]; it may be memory-mapped.
      decay: of the weights; 0: the last item alone, as published.
      means: f32[N, V], of N items whose counts are such means of those of V; None: the
        V items themselves.
    """

    counts: scipy.sparse.csr_array
    decay: float = 0.0
    means: scipy.sparse.csr_array | None = None

    @functools.cached_property
    def _totals(self) -> np.ndarray:
        if self.means is None:
            totals = self.counts.sum(axis=1)
        else:
            totals = self.means @ (self.counts @ self.means.sum(axis=0))
        return np.maximum(totals, 1e-30)

    def __call__(self, queries: Sequences) -> scipy.sparse.csr_array:
        ids, lengths = queries
        if self.decay:
            weights = recency_weights(lengths, self.decay)
        else:
            ids = ids[np.cumsum(lengths) - 1]
            lengths, weights = np.ones(len(ids), np.int64), np.ones(len(ids))
        data = (weights / self._totals[ids]).astype(np.float32)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        shape = len(lengths), len(self._totals)
        asked = scipy.sparse.csr_array((data, ids, ends), shape=shape)
        if self.means is None:
            return asked @ self.counts
        scores = asked @ self.means @ self.counts @ self.means.T
        return scipy.sparse.csr_array(scores)


def markov(training: Sequences, num_items: int, decay: float = 0.0) -> PairRules:
    """Counts of direct followers: a Markov chain of first order ("MC" of Ludewig and
    Jannach 2018)."""
    return PairRules(count_pairs(training, num_items, steps=1), decay)


def sequential_rules(
    training: Sequences, num_items: int, decay: float = 0.0
) -> PairRules:
    """Counts of the items up to `STEPS` after i, each 1 / distance: SR.

    Reference: Kamehkhosh, Jannach and Ludewig 2017, A Comparison of Frequent Pattern
    Techniques and a Deep Learning Method for Session-Based Recommendation. Rules are
    not pruned.
    """
    return PairRules(count_pairs(training, num_items), decay)


def association_rules(
    training: Sequences, num_items: int, decay: float = 0.0
) -> PairRules:
    """SR without order: counts of items up to `STEPS` after i or before it: AR.

    Kamehkhosh et al. 2017 count all pairs of a session as 1; here, too, a pair counts
    1 / distance, so that long sessions cost no more.
    """
    counts = count_pairs(training, num_items)
    return PairRules(scipy.sparse.csr_array(counts + counts.T), decay)


def count_pairs(
    training: Sequences, num_items: int, steps: int = STEPS
) -> scipy.sparse.csr_array:
    """The sums of 1 / distance of all pairs of an item and one up to `steps` after it
    in the same session, f32[V, V]; pairs of an item with itself count, too."""
    ids, lengths = training
    session = np.repeat(np.arange(len(lengths)), lengths)
    shape = num_items, num_items
    total = scipy.sparse.csr_array(shape, dtype=np.float64)
    for start in range(0, len(ids), _COUNTED_AT_ONCE):
        parts = []
        for step in range(1, steps + 1):
            first = np.arange(start, min(start + _COUNTED_AT_ONCE, len(ids) - step))
            first = first[session[first] == session[first + step]]
            pairs = ids[first].astype(np.int64) * num_items + ids[first + step]
            parts.append((pairs, np.full(len(pairs), 1 / step)))
        pairs, values = map(np.concatenate, zip(*parts, strict=True))
        coordinates = np.divmod(pairs, num_items)
        total = total + scipy.sparse.csr_array((values, coordinates), shape=shape)
    total.sort_indices()
    return total.astype(np.float32)


@dataclass
class SecondOrder:
    """Scores sum w_i r_ic over the items i of a query, with `recency_weights` w, (106):
    r_ic is the share of c among the items that two steps from i lead to, i -> j -> c.

    A step is from i to one of the items with the largest n_ij / sqrt(n_i n_j), with the
    counts n_ij and their sums n_i. So items that have never met are found by what both
    have met, as by two layers of a graph convolution without parameters (He et al.
    2020, LightGCN).

    Args:
      counts: symmetric, as those of `association_rules`, f32[V, V].
      decay, means: as in `PairRules`.
      num_near: items that a step leads to.
      num_kept: items that two steps lead to.
    """

    counts: scipy.sparse.csr_array
    decay: float
    means: scipy.sparse.csr_array | None = None
    num_near: int = NEAR_ITEMS
    num_kept: int = SECOND_ORDER_ITEMS

    def __post_init__(self):
        self._num_asked = 0

    @functools.cached_property
    def _steps(self) -> scipy.sparse.csr_array:
        counts = self.counts
        scale = np.maximum(counts.sum(axis=1), 1e-30) ** -0.5
        row = np.repeat(np.arange(len(scale)), np.diff(counts.indptr))
        data = (counts.data * scale[row] * scale[counts.indices]).astype(np.float32)
        steps = data, counts.indices, counts.indptr
        steps = scipy.sparse.csr_array(steps, shape=counts.shape)
        return _largest(steps, self.num_near)

    def __call__(self, queries: Sequences) -> scipy.sparse.csr_array:
        ids, lengths = queries
        weights = recency_weights(lengths, self.decay).astype(np.float32)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        known = self.counts if self.means is None else self.means
        shape = len(lengths), known.shape[0]
        asked: Any = scipy.sparse.csr_array((weights, ids, ends), shape=shape)
        if self.means is not None:
            asked = asked @ self.means
        found = self._found(asked)
        return found if self.means is None else found @ self.means.T

    def _found(self, asked: Any) -> Any:
        """The scores of items with weights `asked`, f32[m, V]. Once as many have been
        asked for as there are, the r of all items are kept."""
        self._num_asked += asked.nnz
        if self._num_asked >= asked.shape[1]:
            return asked @ self._all
        items, column = np.unique(asked.indices, return_inverse=True)
        shape = asked.shape[0], len(items)
        asked = scipy.sparse.csr_array((asked.data, column, asked.indptr), shape=shape)
        return asked @ self._made(items)

    @functools.cached_property
    def _all(self) -> scipy.sparse.csr_array:
        return self._made(np.arange(self.counts.shape[0]))

    def _made(self, items: np.ndarray) -> scipy.sparse.csr_array:
        parts = [self._steps[:0]]
        for start in range(0, len(items), _ROWS_AT_ONCE):
            first = self._steps[items[start : start + _ROWS_AT_ONCE]]
            parts.append(_largest(first @ self._steps, self.num_kept))
        found: Any = scipy.sparse.vstack(parts, format="csr")
        totals = np.maximum(found.sum(axis=1), 1e-30)
        found.data /= np.repeat(totals, np.diff(found.indptr)).astype(np.float32)
        return found


def _largest(table: Any, num: int) -> scipy.sparse.csr_array:
    """The `num` largest values of each row; of equal ones the first stored."""
    is_kept = np.ones(table.nnz, bool)
    for row in np.flatnonzero(np.diff(table.indptr) > num):
        part = slice(*table.indptr[row : row + 2])
        values = table.data[part]
        least = np.partition(values, -num)[-num]
        is_kept[part] = values > least
        equal = np.flatnonzero(values == least)
        is_kept[part.start + equal[: num - int(is_kept[part].sum())]] = True
    ends = np.concatenate([[0], np.cumsum(is_kept)])[table.indptr]
    kept = table.data[is_kept], table.indices[is_kept], ends
    return scipy.sparse.csr_array(kept, shape=table.shape)


@dataclass(frozen=True)
class Sessions:
    """Sessions to search in, the newest last, and where each item is in them.

    Args:
      items: the distinct items of each session, i32[S, V]: the position of the last
        occurrence, from 1.
      having: the sessions of each item, ascending, i32[V, S], the same numbers.
      counts: occurrences of each item, i64[V].
    """

    items: scipy.sparse.csr_array
    having: scipy.sparse.csr_array
    counts: np.ndarray

    @classmethod
    def fit(cls, training: Sequences, num_items: int) -> Self:
        """The newest `NEWEST_SESSIONS` of `training`."""
        ids, lengths = (np.asarray(x) for x in training)
        lengths = lengths[-NEWEST_SESSIONS:]
        ids = ids[len(ids) - int(lengths.sum()) :]
        of, item, age = _distinct_items((ids, lengths), num_items)
        position = np.minimum(lengths[of] - age, 2**_BITS - 1).astype(np.int32)
        shape = len(lengths), num_items
        items = scipy.sparse.csr_array((position, (of, item)), shape=shape)
        having = scipy.sparse.csr_array(items.T)
        having.sort_indices()
        return cls(items, having, np.bincount(ids, minlength=num_items))


@dataclass(frozen=True)
class _Candidates:
    """Sessions that share items with a query, ordered by query and session."""

    query: np.ndarray  # i64[N]
    session: np.ndarray  # i64[N]
    similarity: np.ndarray  # f32[N], > 0
    age: np.ndarray  # i64[N]: items of the query after the newest one in common
    position: np.ndarray  # i64[N], in the session, of its last item in common

    def last(self, num: int, keys: np.ndarray | None = None) -> Self:
        """The `num` of each query with the largest `keys`, u64[N], which are larger for
        later queries; None: the last `num`. Few queries have more."""
        is_large = np.bincount(self.query) > num
        if not is_large.any():
            return self
        is_of_many = is_large[self.query]
        many = np.flatnonzero(is_of_many)
        query = self.query[many]
        if keys is not None:
            many = many[np.argsort(keys[many])]
        ends = np.searchsorted(query, query, side="right")
        is_kept = ~is_of_many
        is_kept[many] = ends - np.arange(len(ends)) <= num
        return type(self)(*(value[is_kept] for value in vars(self).values()))


@dataclass(frozen=True)
class _NearestSessions:
    """The `k` nearest of the `sample` newest sessions with an item of the query; of
    equally near ones the newest are taken."""

    sessions: Sessions
    k: int
    sample: int
    idf: float  # 0: none

    @classmethod
    def fit(cls, training: Sequences, num_items: int, **settings: Any) -> Self:
        """A model of the newest `NEWEST_SESSIONS` of `training`; settings: fields."""
        return cls(Sessions.fit(training, num_items), **settings)

    def __call__(self, queries: Sequences) -> scipy.sparse.csr_array:
        num_items = self.sessions.having.shape[0]
        distinct = np.stack(_distinct_items(queries, num_items))
        num_having = np.minimum(np.diff(self.sessions.having.indptr), self.sample)
        size = self.sessions.items.nnz / max(1, self.sessions.items.shape[0])
        cost = np.bincount(distinct[0], num_having[distinct[1]], len(queries[1]))
        cost += np.minimum(cost, self.k) * size + _AT_ONCE / _MOST_QUERIES
        batch = np.cumsum(cost) // _AT_ONCE
        edges = [0, *(np.flatnonzero(np.diff(batch)) + 1), len(batch)]
        found = [scipy.sparse.csr_array((0, num_items), dtype=np.float32)]
        for first, last in zip(edges, edges[1:], strict=False):
            within = np.searchsorted(distinct[0], [first, last])
            of, item, age = distinct[:, slice(*within)]
            found.append(self._scores(of - first, item, age, queries[1][first:last]))
        return scipy.sparse.csr_array(scipy.sparse.vstack(found, format="csr"))

    def _scores(
        self, of: np.ndarray, item: np.ndarray, age: np.ndarray, lengths: np.ndarray
    ) -> scipy.sparse.csr_array:
        """Of queries with `lengths`: their distinct items i64[n], see
        `_distinct_items`."""
        nearest = self._nearest(self._candidates(of, item, age, lengths))
        found: Any = self.sessions.items[nearest.session]
        values = self._contributions(nearest, np.diff(found.indptr), found.data)
        num = len(lengths)
        ends = found.indptr[np.cumsum(np.bincount(nearest.query, minlength=num))]
        each = scipy.sparse.csr_array(
            (values, found.indices, np.insert(ends, 0, 0)), (num, found.shape[1])
        )
        return each @ self._of_items

    def _candidates(
        self, of: np.ndarray, item: np.ndarray, age: np.ndarray, lengths: np.ndarray
    ) -> _Candidates:
        """The `sample` newest of each query.

        No others than the `sample` newest of each item can be among them. A sort of
        keys brings the items in common of a query and a session together, the newest
        of the query first.
        """
        having, bits = self.sessions.having, np.uint64(_BITS)
        ends = having.indptr[item + 1]
        num = np.minimum(ends - having.indptr[item], self.sample)
        entry = np.arange(int(num.sum())) + np.repeat(ends - np.cumsum(num), num)
        num_sessions = np.uint64(having.shape[1])
        age = np.minimum(age, 2**_BITS - 1).astype(np.uint64)
        of_item = (of.astype(np.uint64) * num_sessions << bits) + age << bits
        keys = having.indices[entry].astype(np.uint64) << bits + bits
        keys += np.repeat(of_item, num)
        keys += having.data[entry].astype(np.uint64)
        keys.sort()
        mask = np.uint64(2**_BITS - 1)
        pairs, ages = keys >> bits + bits, (keys >> bits & mask).astype(np.int64)
        first = np.flatnonzero(np.diff(pairs, prepend=~pairs[:1]))
        query, session = (
            x.astype(np.int64) for x in np.divmod(pairs[first], num_sessions)
        )
        group = np.repeat(query, np.diff(np.append(first, len(pairs))))
        found = _Candidates(
            *(query, session),
            np.add.reduceat(self._weights(ages, lengths[group]), first),
            ages[first],
            np.maximum.reduceat((keys & mask).astype(np.int64), first),
        ).last(self.sample)
        norms = self._norms(of, self._weights(age.astype(np.int64), lengths[of]))
        similarity = found.similarity / norms[found.query]
        similarity = (similarity * self._factors[found.session]).astype("f4")
        return _Candidates(**vars(found) | {"similarity": similarity})

    def _nearest(self, found: _Candidates) -> _Candidates:
        """The `k` nearest of each query: positive floats are in the order of their
        bits."""
        keys = found.query.astype(np.uint64) << np.uint64(31)
        keys += found.similarity.view(np.uint32)
        num_sessions = np.uint64(self.sessions.having.shape[1])
        return found.last(self.k, keys * num_sessions + found.session.astype(np.uint64))

    def _weights(self, age: np.ndarray, length: np.ndarray) -> np.ndarray:
        """The weight of an item of a query of `length` with `age` after it, f64[n]."""
        raise NotImplementedError

    def _norms(self, of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What similarities of each query are divided by, from the weights of its
        distinct items, f64[m]."""
        raise NotImplementedError

    @functools.cached_property
    def _factors(self) -> np.ndarray:
        """Factors of the similarities of the sessions, f64[S]."""
        return np.ones(self.sessions.items.shape[0])

    @functools.cached_property
    def _of_items(self) -> scipy.sparse.csr_array:
        """1 + `idf` log(S / n_c) of items c with n_c occurrences in S sessions, at
        least 0, as a diagonal, f32[V, V]."""
        num, counts = self.sessions.items.shape[0], self.sessions.counts
        idf = np.log(max(num, 1) / np.maximum(counts, 1))
        factors = np.maximum(1 + self.idf * idf, 0).astype(np.float32)
        return scipy.sparse.csr_array(scipy.sparse.diags_array(factors, format="csr"))

    def _contributions(
        self,
        nearest: _Candidates,
        sizes: np.ndarray,
        position: np.ndarray,
    ) -> np.ndarray:
        """What near sessions add to the scores of their items, before the factors of
        these, f32[n].

        Args:
          sizes: items of each of `nearest`.
          position: of the item in the session.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class VSKNN(_NearestSessions):
    """Nearest sessions by the products of vectors. An item has the score

        sum of similarity(n) / step(n) over the near sessions n with it
        similarity(n) = sum of w_i over items i in n / number of distinct items of q

    The last of the L items of the query q has the weight 1, each before it 1 / L less.
    The step is 1 if n has the last item of q, else 2 if it has the one before ...

    Reference: Ludewig and Jannach 2018, Evaluation of Session-based Recommendation
    Algorithms, V-SKNN; defaults, and the step, as in their session-rec.

    Args:
      idf: scores are times 1 + idf log(S / n_c), with n_c occurrences of item c in S
        sessions, as in Ludewig et al. 2021, Empirical Analysis of Session-based
        Recommendation Algorithms; 0: off, as in 2018. No factor is below 0.
    """

    k: int = 100
    sample: int = 1000
    idf: float = 1.0

    def _weights(self, age: np.ndarray, length: np.ndarray) -> np.ndarray:
        return (length - age) / length

    def _norms(self, of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.bincount(of)

    def _contributions(
        self,
        nearest: _Candidates,
        sizes: np.ndarray,
        position: np.ndarray,
    ) -> np.ndarray:
        by_step = (nearest.similarity / (1 + nearest.age)).astype(np.float32)
        return np.repeat(by_step, sizes)


@dataclass(frozen=True)
class STAN(_NearestSessions):
    """Sequence and time aware neighbourhood. An item c has the score

        sum of similarity(n) exp(-|p_c - p*| / item_scale) over the near sessions n
        similarity(n) = sum of w_i over items i in n / (norm of w  sqrt(|n|))
                        exp(-(number of sessions newer than n) / session_scale)

    with w = exp(-(items of the query after i) / query_scale), p_c the last position of
    c in n, and p* that of the last item that n shares with the query.

    Reference: Garg et al. 2019, Sequence and Time Aware Neighborhood for Session-based
    Recommendations: STAN; defaults as in session-rec. There ages of sessions are times,
    with a scale of five days.

    Args:
      idf: as of `VSKNN`, from VSTAN of Ludewig et al. 2021; 0: off, as in 2019.
      session_scale: 0: all sessions alike, as where no order of them is known.
    """

    k: int = 500
    sample: int = 5000
    idf: float = 0.0
    query_scale: float = 1.02
    session_scale: float = 0.0
    item_scale: float = 2.05

    @functools.cached_property
    def _by_distance(self) -> np.ndarray:
        factors = np.exp(-np.arange(2**_BITS) / self.item_scale)
        return factors.astype(np.float32)

    @classmethod
    def of_mixture(cls, sessions: Sessions, *, with_ages: bool = True) -> Self:
        """The part of a mixture: with idf 1.

        Args:
          with_ages: older sessions count less, the oldest a seventh of the newest; not
            right for queries that are as old as the sessions.
        """
        half = sessions.items.shape[0] / 2
        return cls(sessions, session_scale=half if with_ages else 0.0, idf=1.0)

    def _weights(self, age: np.ndarray, length: np.ndarray) -> np.ndarray:
        return np.exp(-age / self.query_scale)

    def _norms(self, of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.sqrt(np.bincount(of, weights**2))

    @functools.cached_property
    def _factors(self) -> np.ndarray:
        sizes = np.diff(self.sessions.items.indptr)
        factors = 1 / np.sqrt(np.maximum(sizes, 1))
        if self.session_scale:
            newer = np.arange(len(sizes))[::-1]
            factors *= np.exp(-newer / self.session_scale)
        return factors

    def _contributions(
        self,
        nearest: _Candidates,
        sizes: np.ndarray,
        position: np.ndarray,
    ) -> np.ndarray:
        shared = np.repeat(nearest.position.astype(np.int32), sizes)
        by_distance = self._by_distance[np.abs(position - shared)]
        return by_distance * np.repeat(nearest.similarity, sizes)


def _distinct_items(
    sequences: Sequences, num_items: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each distinct item of each sequence the number of the sequence, ascending, the
    item, and how many items follow its last occurrence, i64[n] each."""
    ids, lengths = sequences
    ends = np.repeat(np.cumsum(lengths), lengths)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    keys = (sequence * num_items + ids)[::-1]
    keys, last = np.unique(keys, return_index=True)
    age = (ends - 1 - np.arange(len(ids)))[::-1][last]
    return *np.divmod(keys, num_items), age
