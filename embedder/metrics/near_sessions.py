"""Baselines of the next item by the sessions that are nearest to a query.

Sparse scores as of `next_item_baselines`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy  # its parts are loaded at use: trainings import this

from embedder.metrics.ranking import Sequences

NEWEST_SESSIONS = 500_000
"""Sessions that neighbours are searched in, at most."""


class Queries(NamedTuple):
    """The distinct items of m sequences; those of one are from ends[n] to ends[n + 1].

    Args:
      ends: i64[m + 1].
      items: ascending in each, i64[N].
      ages: how many items of the sequence follow the last occurrence, i64[N].
    """

    ends: np.ndarray
    items: np.ndarray
    ages: np.ndarray

    @classmethod
    def fit(cls, sequences: Sequences, num_items: int) -> Self:
        """Of sequences of `num_items` items."""
        ids, lengths = (np.asarray(x) for x in sequences)
        after = np.repeat(np.cumsum(lengths), lengths)
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        keys, last = np.unique((sequence * num_items + ids)[::-1], return_index=True)
        ages = (after - 1 - np.arange(len(ids)))[::-1][last]
        of, items = np.divmod(keys, num_items)
        return cls(_ends(of, len(lengths)), items, ages)


class Sessions(NamedTuple):
    """S sessions to search in, the newest last, and where each of V items is in them.

    Args:
      ends, items: of each session, as `Queries`, with the position of the last
        occurrence, from 1; i64[S + 1], i32[N, 2].
      ends_having, having: the sessions of each item, ascending, and the same positions;
        i64[V + 1], i32[N, 2].
      counts: occurrences of each item, i64[V].
    """

    ends: np.ndarray
    items: np.ndarray
    ends_having: np.ndarray
    having: np.ndarray
    counts: np.ndarray

    @property
    def num(self) -> int:
        """S."""
        return len(self.ends) - 1

    @classmethod
    def fit(cls, training: Sequences, num_items: int) -> Self:
        """The newest `NEWEST_SESSIONS` of `training`."""
        ids, lengths = (np.asarray(x) for x in training)
        lengths = lengths[-NEWEST_SESSIONS:]
        ids = ids[len(ids) - int(lengths.sum()) :]
        ends, items, ages = Queries.fit((ids, lengths), num_items)
        of = np.repeat(np.arange(len(lengths), dtype=np.int32), np.diff(ends))
        positions = (lengths[of] - ages).astype(np.int32)
        by_item = np.argsort(items, kind="stable")
        return cls(
            *(ends, np.stack([items.astype(np.int32), positions], axis=1)),
            _ends(items, num_items),
            np.stack([of, positions], axis=1)[by_item],
            np.bincount(ids, minlength=num_items),
        )


def _ends(numbers: np.ndarray, num: int) -> np.ndarray:
    """Where those of each number below `num` end, and 0 before them, i64[num + 1]."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=num))])


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
        from embedder.metrics.next_item_kernels import scores_of_nearest

        num_items, lengths = len(self.sessions.counts), np.asarray(queries[1])
        found = Queries.fit(queries, num_items)
        of = np.repeat(np.arange(len(lengths)), np.diff(found.ends))
        weights = np.maximum(self._weights(found.ages, lengths[of]), 1e-300)
        ends, items, scores = scores_of_nearest(
            *(self.sessions, found, weights, self._norms(of, weights)),
            *(self._factors, self._by_distance, self._of_items, self.k, self.sample),
        )
        shape = len(lengths), num_items
        return scipy.sparse.csr_array((scores, items, ends), shape=shape)

    def _weights(self, ages: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The weights of items of queries of `lengths`, f64[N]."""
        raise NotImplementedError

    def _norms(self, of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What similarities of each query are divided by, from the weights of its
        distinct items, f64[m]."""
        raise NotImplementedError

    @functools.cached_property
    def _factors(self) -> np.ndarray:
        """Factors of the similarities of the sessions, f64[S]."""
        return np.ones(self.sessions.num)

    @functools.cached_property
    def _by_distance(self) -> np.ndarray:
        """See `next_item_kernels.scores_of_nearest`."""
        return np.empty(0)

    @functools.cached_property
    def _of_items(self) -> np.ndarray:
        """1 + `idf` log(S / n_c) of items c with n_c occurrences in S sessions, at
        least 0, f64[V]."""
        num, counts = self.sessions.num, self.sessions.counts
        idf = np.log(max(num, 1) / np.maximum(counts, 1))
        return np.maximum(1 + self.idf * idf, 0)


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

    def _weights(self, ages: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return (lengths - ages) / lengths

    def _norms(self, of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.bincount(of).astype(np.float64)


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
        longest = int(self.sessions.items[:, 1].max(initial=0))
        return np.exp(-np.arange(longest + 1) / self.item_scale)

    @classmethod
    def of_mixture(cls, sessions: Sessions, *, with_ages: bool = True) -> Self:
        """The part of a mixture: with idf 1.

        Args:
          with_ages: older sessions count less, the oldest a seventh of the newest; not
            right for queries that are as old as the sessions.
        """
        scale = sessions.num / 2 if with_ages else 0.0
        return cls(sessions, session_scale=scale, idf=1.0)

    def _weights(self, ages: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return np.exp(-ages / self.query_scale)

    def _norms(self, of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.sqrt(np.bincount(of, weights**2))

    @functools.cached_property
    def _factors(self) -> np.ndarray:
        sizes = np.diff(self.sessions.ends)
        factors = 1 / np.sqrt(np.maximum(sizes, 1))
        if self.session_scale:
            newer = np.arange(len(sizes))[::-1]
            factors *= np.exp(-newer / self.session_scale)
        return factors
