"""Baselines of the next item that count pairs: rules, and two steps of them.

A model is made of training sequences. Called with m queries, none empty, it gives the
scores of the items as rows of a sparse matrix, f32[m, V]: 0 for items without evidence,
never below. So it is a `ranking.Scorer`, and its rows can be parts of a mixture.
Training and queries are `ranking.Sequences`; the oldest sessions come first.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded at use: trainings import this

from embedder.metrics.ranking import STEPS, Sequences, recency_weights

NEAR_ITEMS, SECOND_ORDER_ITEMS = 100, 200
"""Items that one step, and two steps, of `SecondOrder` lead to."""
_COUNTED_AT_ONCE = 2**20  # positions: pairs of 10 distances take 200 MB


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
        from embedder.metrics.next_item_kernels import largest_of_rows

        counts = self.counts
        scale = np.maximum(counts.sum(axis=1), 1e-30) ** -0.5
        row = np.repeat(np.arange(len(scale)), np.diff(counts.indptr))
        data = (counts.data * scale[row] * scale[counts.indices]).astype(np.float32)
        ends = counts.indptr.astype(np.int64)
        is_kept = largest_of_rows(ends, counts.indices, data, self.num_near)
        ends = np.concatenate([[0], np.cumsum(is_kept)])[ends]
        steps = data[is_kept], counts.indices[is_kept], ends
        return scipy.sparse.csr_array(steps, shape=counts.shape)

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
        from embedder.metrics.next_item_kernels import two_steps

        steps = self._steps
        ends, columns, values = two_steps(
            *(items.astype(np.int64), steps.indptr.astype(np.int64)),
            *(steps.indices, steps.data, self.num_kept),
        )
        shape = len(items), steps.shape[1]
        return scipy.sparse.csr_array((values, columns, ends), shape=shape)
