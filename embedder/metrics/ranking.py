"""Scores of ranked items: what comes next in a session, ALGORITHM.md (72).

A case has a query, the items that are known, and targets, the items to be found. All V
items are ranked for each case. Sequences are pairs of arrays: the ids of all, one
sequence after the other, and the length of each.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from embedder.base.threads import map_on_cores
from embedder.errors import InputError
from embedder.metrics.words import CHUNK_VALUES
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors, check_known, check_positive_integer

if TYPE_CHECKING:
    from scipy import sparse

Sequences = tuple[np.ndarray, np.ndarray]
"""ids i[n], lengths i64[m]."""

Seen = Literal["excluded", "included"]
"""Whether items of the query are candidates."""

Scorer = Callable[[Sequences], "np.ndarray | sparse.csr_array"]
"""Queries, none empty -> the score of each item for each of them, f[m, V]; sparse ones
are >= 0."""


DECAY = 0.5
"""Weight of an item of a query relative to the next, newer one."""
STEPS = 10
"""Distance of the pairs of items that rules count, at most."""
MOST_THREADS = 4
"""Threads that rank, at most: each has the scores of a chunk."""
_log = logging.getLogger(__name__)


class Cases(NamedTuple):
    """Queries and their targets, N of each; none is empty."""

    queries: Sequences
    targets: Sequences  # ascending in each case, none twice
    seen: Seen

    @property
    def num(self) -> int:
        """N."""
        return len(self.queries[1])


class RankedItems(NamedTuple):
    """Cases whose next items are ranked among `num_items`, and the values to measure:
    the first of `ranking.case_scores` and of the MRR of targets within `topn`."""

    cases: Cases
    num_items: int
    topn: int
    num_values: int


class Ranking(NamedTuple):
    """Means over cases of scores of the ranks of their targets, which are from 1."""

    hit_rate: float  # share of cases with a target among the first `topn`
    ndcg: float  # of the first `topn`
    mrr: float  # 1 / rank of the first target
    recall: float  # share of the targets that are among the first `topn`


class NextItem(NamedTuple):
    """How well the last item of a session is found; see `Ranking`."""

    hit_rate: float
    ndcg: float
    mrr: float
    baseline: Ranking  # by popularity: items in the order of their counts
    num_cases: int  # 0: none, and the others are nan


def next_item(
    input: np.ndarray,
    counts: np.ndarray,
    sequences: Sequences,
    topn: int = 10,
    *,
    output: np.ndarray | None = None,
    seen: Seen = "excluded",
    decay: float = DECAY,
) -> NextItem:
    """How well the items of a session predict its last one, over sessions of two items
    or more. All V items are ranked. Ties count as ranked before the right item, so a
    model of equal scores finds nothing.

    Args:
      input: input table, [V, D].
      counts: of the corpus, i64[V].
      output: as of `by_vectors`.
      seen: whether items of the session are candidates. If "excluded", sessions whose
        last item occurs before are left out.
      decay: as of `recency_weights`.

    Raises:
      InputError: `topn` is not an integer >= 1, or `decay` is not in (0, 1].
    """
    check_positive_integer("topn", topn)
    check_decay(decay)
    cases = last_items(sequences, seen)
    found, popular = (
        ranking(target_ranks(scorer, cases, len(input)), topn)
        for scorer in (by_vectors(input, output, decay), by_popularity(counts))
    )
    return NextItem(*found[:3], popular, cases.num)


def check_decay(decay: float) -> None:
    """Raises InputError if `decay` is not in (0, 1]."""
    if not 0 < decay <= 1:
        raise InputError(f"`decay` must be a number in (0, 1], got {decay!r}.")


def recency_weights(lengths: np.ndarray, decay: float) -> np.ndarray:
    """Weights of the items of queries, f64[n]: the last item of a query has the
    largest, each before it `decay` times that of the next, and they add up to 1.

    Args:
      decay: in (0, 1]; 1: all items alike.
    """
    ends = np.cumsum(lengths)
    age = np.repeat(ends, lengths) - 1 - np.arange(ends[-1] if len(ends) else 0)
    weights = np.power(float(decay), age)
    totals = np.add.reduceat(weights, ends - lengths) if len(ends) else weights
    return weights / np.repeat(totals, lengths)


def by_vectors(
    input: np.ndarray,
    output: np.ndarray | None = None,
    decay: float = DECAY,
) -> Scorer:
    """Scores sum w_i v_i.u_c over the items i of the query, with `recency_weights` w.

    Args:
      input: input table, [V, D].
      output: output table, [V, D]; None: the cosine of c with the same sum of unit
        vectors.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rows = unit_rows(input) if output is None else input
    items = rows if output is None else output

    def scores(queries: Sequences) -> np.ndarray:
        query = query_vectors(rows, queries, decay)
        with np.errstate(over="ignore", invalid="ignore"):
            return (unit_rows(query) if output is None else query) @ items.T

    return scores


def query_vectors(
    rows: np.ndarray, queries: Sequences, decay: float = DECAY, scale: float = 1.0
) -> np.ndarray:
    """`scale` sum w_i rows_i over the items i of each query, with `recency_weights` w,
    f[m, D]."""
    ids, lengths = queries
    weights = scale * recency_weights(lengths, decay)
    with np.errstate(over="ignore", invalid="ignore"):
        weighted = weights.astype(rows.dtype)[:, np.newaxis] * rows[ids]
        return np.add.reduceat(weighted, np.cumsum(lengths) - lengths)


def by_popularity(counts: np.ndarray) -> Scorer:
    """Scores that are the counts of the items, i64[V], whatever the query is."""

    def scores(queries: Sequences) -> np.ndarray:
        return np.tile(counts.astype(np.float64), (len(queries[1]), 1))

    return scores


def last_items(sequences: Sequences, seen: Seen) -> Cases:
    """The last item of each sequence is the target, those before it are the query.

    Sequences of one item are left out; so are those whose last item occurs before, if
    `seen` is "excluded".
    """
    ids, lengths = select(sequences, np.asarray(sequences[1]) >= 2)
    is_target = np.zeros(len(ids), bool)
    is_target[np.cumsum(lengths) - 1] = True
    return split_cases((ids, lengths), is_target, seen)


def every_item(sequences: Sequences, seen: Seen) -> Cases:
    """Each item of a sequence but the first is a target, all before it are its query.

    Items that occur before are left out as targets, if `seen` is "excluded".
    """
    ids, lengths = (np.asarray(x) for x in sequences)
    case, place = case_numbers((ids, lengths)), np.arange(len(ids))
    num_before = place - (np.cumsum(lengths) - lengths)[case]
    kept = num_before > 0
    if seen == "excluded":
        _, first = np.unique(case * (int(ids.max(initial=0)) + 1) + ids, True)
        kept &= np.isin(place, first)
    place, num = place[kept], num_before[kept]
    of = np.repeat(np.arange(len(num)), num)
    before = np.arange(len(of)) + (place - np.cumsum(num))[of]
    return Cases((ids[before], num), (ids[place], np.ones_like(num)), seen)


def split_cases(sequences: Sequences, is_target: np.ndarray, seen: Seen) -> Cases:
    """Of each sequence the items that are targets, bool[n]; the others are the query.

    If `seen` is "excluded", targets that occur in the query are left out. Sequences
    without a query or a target are left out, too.
    """
    ids, lengths = (np.asarray(x) for x in sequences)
    case = case_numbers((ids, lengths))
    width = int(ids.max(initial=0)) + 1
    keys = np.unique(case[is_target] * width + ids[is_target])
    if seen == "excluded":
        keys = np.setdiff1d(keys, case[~is_target] * width + ids[~is_target])
    num_targets = np.bincount(keys // width, minlength=len(lengths))
    num_known = np.bincount(case[~is_target], minlength=len(lengths))
    kept = (num_targets > 0) & (num_known > 0)
    return Cases(
        select((ids[~is_target], num_known), kept),
        select(((keys % width).astype(ids.dtype), num_targets), kept),
        seen,
    )


def select(sequences: Sequences, kept: np.ndarray) -> Sequences:
    """The sequences that are kept, bool[m]."""
    ids, lengths = sequences
    return ids[np.repeat(kept, lengths)], lengths[kept]


def has_new_target(cases: Cases) -> np.ndarray:
    """Of cases with one target each: whether it is not in the query, bool[N]."""
    of = case_numbers(cases.queries)
    is_in = cases.queries[0] == cases.targets[0][of]
    return np.bincount(of, is_in, minlength=cases.num) == 0


def target_ranks(scorer: Scorer, cases: Cases, num_items: int) -> Sequences:
    """The ranks of the targets of each case, ascending, i64[t], and their number.

    The rank of a target is 1 + the number of candidates with the same or a higher score
    that are no targets + that of targets before it. A score that is not finite has the
    last rank.
    """

    def of_chunk(part: tuple[slice, Sequences]) -> np.ndarray:
        rows, queries = part
        targets = _slice(cases.targets, rows)
        return _ranks(scorer(queries), queries, targets, cases.seen)

    most = min(CHUNK_VALUES // 2, math.ceil(cases.num / MOST_THREADS) * num_items)
    parts = [*chunks(cases.queries, num_items, most)]
    found = map_on_cores(of_chunk, parts, MOST_THREADS)
    return np.concatenate([np.empty(0, np.int64), *found]), cases.targets[1]


def chunks(
    queries: Sequences, num_values: int, most: int = CHUNK_VALUES
) -> Iterator[tuple[slice, Sequences]]:
    """Some of the queries after the other, and which, for `num_values` of each, `most`
    at once."""
    size = max(1, most // num_values)
    for start in range(0, len(queries[1]), size):
        rows = slice(start, min(start + size, len(queries[1])))
        yield rows, _slice(queries, rows)


def _slice(sequences: Sequences, chunk: slice) -> Sequences:
    ids, lengths = sequences
    ends = np.cumsum(lengths)
    first = int(ends[chunk.start] - lengths[chunk.start])
    return ids[first : int(ends[chunk.stop - 1])], lengths[chunk]


def _ranks(
    scores: "np.ndarray | sparse.csr_array",
    queries: Sequences,
    targets: Sequences,
    seen: Seen,
) -> np.ndarray:
    """The ranks of targets by scores f[m, V], ascending in each case, i64[t]."""
    if not isinstance(scores, np.ndarray):
        if len(targets[0]) == scores.shape[0]:
            return _sparse_ranks(scores, queries, targets[0], seen)
        scores = scores.toarray()
    if seen == "excluded":
        scores[case_numbers(queries), queries[0]] = -np.inf
    case, num_items = case_numbers(targets), scores.shape[1]
    own = scores[case, targets[0]]
    lower = [
        np.count_nonzero(scores[row] < x) for row, x in zip(case, own, strict=True)
    ]
    ranks = num_items - np.array(lower, np.int64)  # of tied ones all have the last
    order = np.lexsort((ranks, case))
    ranks = ranks[order]
    is_tied = (case[1:] == case[:-1]) & (ranks[1:] == ranks[:-1])
    for position in np.flatnonzero(is_tied)[::-1]:  # targets do not outrank each other
        ranks[position] = ranks[position + 1] - 1
    return ranks


def _sparse_ranks(
    scores: "sparse.csr_array", queries: Sequences, targets: np.ndarray, seen: Seen
) -> np.ndarray:
    """`_ranks` of a target each, i[m]: where its score is 0, all candidates are as
    high."""
    num, num_items = scores.shape
    own = np.asarray(scores[np.arange(num), targets])
    row = np.repeat(np.arange(num), np.diff(scores.indptr))
    higher = np.bincount(row[scores.data >= own[row]], minlength=num)
    num_seen = np.zeros(num, np.int64)
    if seen == "excluded":
        keys = np.unique(case_numbers(queries) * num_items + queries[0])
        row, item = np.divmod(keys, num_items)
        num_seen = np.bincount(row, minlength=num)
        is_higher = np.asarray(scores[row, item]) >= own[row]
        higher -= np.bincount(row[is_higher], minlength=num)
    return np.where(own > 0, higher, num_items - num_seen)


def case_numbers(sequences: Sequences) -> np.ndarray:
    """The number of the case of each id, i64[n]."""
    return np.repeat(np.arange(len(sequences[1])), sequences[1])


def ranking(ranks: Sequences, topn: int) -> Ranking:
    """The means over cases of `case_scores`; nan if there are none."""
    cases = case_scores(ranks, topn)
    if not len(cases):
        return Ranking(*[np.nan] * 4)
    return Ranking(*(float(x.mean()) for x in cases.T))


def case_scores(ranks: Sequences, topn: int) -> np.ndarray:
    """Hit rate, NDCG, MRR and recall of each case, f64[N, 4], ALGORITHM.md (72).

    Args:
      ranks: of the targets, from `target_ranks`.
    """
    values, num_targets = (np.asarray(x) for x in ranks)
    if not len(num_targets):
        return np.empty((0, 4))
    starts = np.cumsum(num_targets) - num_targets
    is_hit = (values <= topn).astype(np.float64)
    hits = np.add.reduceat(is_hit, starts)
    gains = np.add.reduceat(is_hit / np.log2(1 + values), starts)
    ideal = np.cumsum(1 / np.log2(1 + np.arange(1, topn + 1)))
    ndcg = gains / ideal[np.minimum(num_targets, topn) - 1]
    return np.stack([hits > 0, ndcg, 1 / values[starts], hits / num_targets], axis=1)


def known_items(
    session: Sequence[Any], known: Collection[Any]
) -> tuple[list[Any], list[Any]]:
    """The items of a session that are known, and the others; warns if it has both."""
    items = [item for item in session if item in known]
    others = [item for item in session if item not in known]
    if items and others:
        shown = ", ".join(map(repr, others[:3])) + ", ..." * (len(others) > 3)
        _log.warning("Not in the vocabulary, left out of the session: %s.", shown)
    return items, others


def ranked_items(
    vectors: Vectors,
    session: tuple[str, ...],
    topn: int = 10,
    *,
    output: np.ndarray | None = None,
    among: Collection[str] | None = None,
    decay: float = DECAY,
) -> list[tuple[str, float]]:
    """The `topn` items that are ranked first after those of a session, without these,
    and their scores; see `by_vectors`.

    Args:
      session: the items, the newest last.
      output: output table, [V, D]; None: scores are cosines.
      among: only these items can be next; unknown ones are ignored.
      decay: as of `recency_weights`.

    Raises:
      InputKeyError: an item is unknown.
      InputError: `topn` is not an integer >= 1, `decay` not in (0, 1], or none of
        `among` is known.
    """
    check_positive_integer("topn", topn)
    check_decay(decay)
    check_known(session, vectors.keys)
    rows = [vectors.index(item) for item in session]
    query = np.array(rows), np.array([len(rows)])
    scores = by_vectors(vectors.matrix, output, decay)(query)[0]
    scores[rows] = -np.inf
    hidden = vectors.outside(among)
    if hidden is not None:
        scores[hidden] = -np.inf
    num = min(topn, int((scores > -np.inf).sum()))
    best = np.argsort(-scores, kind="stable")[:num]
    return [(vectors.keys[row], float(scores[row])) for row in best]
