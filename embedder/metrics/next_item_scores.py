"""What comes next in a session: vectors, counts and near sessions in one score.

    score(c | q) = w_0 h_q.u_c + sum over k of w_k log(1 + s_k(c | q) / floor) (101)

with h_q.u_c of `ranking.by_vectors`, and s_k the share that part k gives an item, its
scores divided by their sum: of `sequential_rules`, of `association_rules`, of what two
steps of these lead to (`SecondOrder`), of followers of the last item, of `STAN` with
idf, and of the items of the session itself, where they are candidates. But for a
constant of each session this is a log-linear mixture of probabilities (Hinton 2002,
Training Products of Experts). The weights are those of a conditional logit model
(McFadden 1974) of held-out sessions: the likelihood of the target among the candidates
that a part ranks high.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import threading
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import scipy  # its parts are loaded at use: trainings import this

from embedder.base.threads import available_cores, map_on_cores
from embedder.disk.arrays import read_stored_array
from embedder.disk.files import atomic_file, name_file_in_errors, short_reason
from embedder.disk.workdir import write_text
from embedder.errors import InputError, InputKeyError
from embedder.metrics.near_sessions import NEWEST_SESSIONS, STAN, Sessions
from embedder.metrics.next_item_baselines import PairRules, SecondOrder, count_pairs
from embedder.metrics.ranking import (
    DECAY,
    MOST_THREADS,
    STEPS,
    Cases,
    Scorer,
    Seen,
    Sequences,
    by_vectors,
    case_numbers,
    chunks,
    has_new_target,
    known_items,
    query_vectors,
    recency_weights,
    select,
)
from embedder.vectors.search import largest_columns
from embedder.vectors.vectors import check_known, check_positive_integer

FEWEST_CASES = 100
"""Held-out sessions from which weights are fitted, at least."""
_MOST_CASES = 2000  # that weights are fitted to: some seconds
_CANDIDATES = 50  # of a part
_FLOORS = 1e-5, 1e-4, 1e-3, 1e-2
_OWN_DECAY = 0.8
_RIDGE = 1e-4
_TOP_VALUES = 2**24  # scores that a thread has at once, at most: 64 MB in float32
_ALL_TOP_VALUES = 2**26  # of all threads
_TOPN = 10  # of the NDCG that the floor is chosen by
_ARRAYS = "indptr", "indices", "data"


class Weights(NamedTuple):
    """The weights of the parts, and the floor of their shares, all >= 0."""

    vectors: float = 0.35
    rules: float = 0.2  # SR
    associations: float = 0.0  # AR
    second_order: float = 0.0  # two steps of AR
    followers: float = 0.15  # a Markov chain
    neighbors: float = 0.2  # STAN with idf
    own: float = 0.0  # items of the session
    floor: float = 1e-3


NEW_ITEMS = 2.0
"""How often sessions count for items that updates added, at most, where nothing else is
said; measured in `bench/README.md`, Days and New items."""

PARTS = Weights._fields[:-1]
"""The parts of a score."""

BySeen = Mapping[Seen, Weights]
DEFAULT_WEIGHTS: BySeen = MappingProxyType(
    dict.fromkeys(("excluded", "included"), Weights())
)
"""Weights where too few sessions are held out; measured in
`docs/how-to/recommend-next-items.md`."""


@dataclass(frozen=True)
class SessionCounts:
    """What is counted in training sessions of V items.

    Args:
      rules: 1 / distance of the items up to `STEPS` after each item, f32[V, V].
      followers: direct followers of each item, f32[V, V].
      sessions: the newest `NEWEST_SESSIONS`, the newest last.
      num_old: items of the first training; the others are those that updates added.
    """

    rules: scipy.sparse.csr_array
    followers: scipy.sparse.csr_array
    sessions: Sequences
    num_old: int

    @property
    def new_items(self) -> float:
        """How often sessions count for items that updates added, at most, by default: 1
        where there are none, though there may be items without sessions."""
        return NEW_ITEMS if self.num_old < self.rules.shape[0] else 1.0

    @functools.cached_property
    def _chances(self) -> np.ndarray:
        """S / n of each of V items, of which n of S sessions are not older; inf: it has
        no session, f64[V]."""
        ids, lengths = self.sessions
        place = np.flatnonzero(ids >= self.num_old)
        session = np.searchsorted(np.cumsum(lengths), place, side="right")
        num_since = np.zeros(self.rules.shape[0], np.int64)
        np.maximum.at(num_since, ids[place], len(lengths) - session)
        with np.errstate(divide="ignore"):
            return len(lengths) / num_since

    def factors(self, new_items: float, num_items: int) -> np.ndarray:
        """What shares are multiplied by, (102), f32[num_items]: of old items by 1,
        of new ones and of those after the V by `new_items` at most."""
        found = np.full(num_items, new_items, np.float32)
        found[: len(self._chances)] = np.minimum(new_items, self._chances)
        found[: self.num_old] = 1
        return found

    @property
    def associations(self) -> scipy.sparse.csr_array:
        """The rules of both directions, f32[V, V]."""
        return scipy.sparse.csr_array(self.rules + self.rules.T)

    @classmethod
    def fit(cls, parts: Iterable[Sequences], num_items: int) -> Self:
        """The counts of sessions in `parts`, the oldest first."""
        empty = scipy.sparse.csr_array((num_items, num_items), dtype=np.float32)
        none = np.empty(0, np.int32), np.empty(0, np.int64)
        found = cls(empty, empty, none, num_items)
        for part in parts:
            rules, followers = (count_pairs(part, num_items, x) for x in (STEPS, 1))
            found = found.plus(cls(rules, followers, part, num_items))
        return found

    def plus(self, newer: Self) -> Self:
        """The sums of counts, with those of newer sessions, of V items or more."""
        ids, lengths = map(
            np.concatenate, zip(self.sessions, newer.sessions, strict=True)
        )
        lengths = lengths[-NEWEST_SESSIONS:]
        sessions = ids[len(ids) - int(lengths.sum()) :], lengths
        rules = _grown(self.rules, newer.rules.shape) + newer.rules
        followers = _grown(self.followers, newer.followers.shape) + newer.followers
        return type(self)(rules, followers, sessions, self.num_old)

    def without(self, parts: Iterable[tuple[Sequences, np.ndarray]]) -> Self:
        """The counts without some of the sessions that were counted last.

        Args:
          parts: of the last sessions, in their order: those to leave out, and which
            they are, bool[n].
        """
        rules, followers = self.rules, self.followers
        is_left_out = [np.zeros(0, bool)]
        for part, which in parts:
            rules = rules - count_pairs(part, rules.shape[0], STEPS)
            followers = followers - count_pairs(part, rules.shape[0], 1)
            is_left_out.append(which)
        ids, lengths = self.sessions
        last = np.concatenate(is_left_out)[-len(lengths) or None :]
        is_kept = np.concatenate([np.ones(len(lengths) - len(last), bool), ~last])
        sessions = ids[np.repeat(is_kept, lengths)], lengths[is_kept]
        tables = {"rules": _without_rounding(rules)}
        tables["followers"] = _without_rounding(followers)
        return dataclasses.replace(self, sessions=sessions, **tables)

    def with_items(self, num_items: int) -> Self:
        """The same counts of `num_items` items, of which the last have none."""
        shape = num_items, num_items
        rules, followers = _grown(self.rules, shape), _grown(self.followers, shape)
        return dataclasses.replace(self, rules=rules, followers=followers)

    def write(self, path: Path, vocabulary: str) -> None:
        """Writes an .npz file, whole or not at all.

        Args:
          vocabulary: digest of the items.
        """
        arrays = {
            f"{name}_{array}": getattr(getattr(self, name), array)
            for name in ("rules", "followers")
            for array in _ARRAYS
        }
        for name in "rules_indices", "followers_indices":
            arrays[name] = arrays[name].astype(np.int32)
        ids, lengths = self.sessions
        arrays |= {
            "items": ids,
            "lengths": lengths,
            "num_old": np.array([self.num_old]),
        }
        arrays["vocabulary"] = np.frombuffer(vocabulary.encode(), np.uint8)
        with atomic_file(path) as part, open(part, "wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def read(
        cls, path: Path, num_items: int | None = None, vocabulary: str = ""
    ) -> Self:
        """What `write` wrote of `num_items` items; None: of any number.

        Args:
          vocabulary: digest of the items; "": of any.

        Raises:
          OSError, InputError: it cannot be read, is damaged, or is of other items.
        """
        try:
            with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
                found = {
                    name: read_stored_array(archive, name)
                    for name in ("vocabulary", "items", "lengths", "num_old")
                }
                rules, followers = (
                    _checked(*(read_stored_array(archive, f"{x}_{y}") for y in _ARRAYS))
                    for x in ("rules", "followers")
                )
            sessions = found["items"], found["lengths"]
            _check_sessions(*sessions)
            written = found["vocabulary"].tobytes().decode()
            (num_old,) = map(operator.index, found["num_old"].tolist())
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} is damaged: {short_reason(error)}.") from error
        num = rules.shape[0]
        if num != (num_items or num) or vocabulary not in ("", written):
            raise InputError(f"{path} has the counts of another vocabulary.")
        last = max(int(sessions[0].max(initial=-1)), num_old - 1)
        if followers.shape[0] != num or last >= num or num_old < 0:
            raise InputError(f"{path} is damaged: it has items beyond its vocabulary.")
        return cls(rules, followers, sessions, num_old)


def _without_rounding(table: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """The table without what rounding leaves where the sums of a pair were equal."""
    table = scipy.sparse.csr_array(table)
    table.data[table.data < 0.5 / STEPS] = 0
    table.eliminate_zeros()
    return table


def _grown(
    table: scipy.sparse.csr_array, shape: tuple[int, int]
) -> scipy.sparse.csr_array:
    """The table with empty rows and columns after its own."""
    ends = np.pad(table.indptr, (0, shape[0] - table.shape[0]), mode="edge")
    return scipy.sparse.csr_array((table.data, table.indices, ends), shape=shape)


def _checked(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray
) -> scipy.sparse.csr_array:
    """The square table of these arrays; ValueError if they are not of one."""
    num = len(indptr) - 1
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i" or data.dtype != "f4":
        raise ValueError("the dtypes of its arrays are wrong")
    found = scipy.sparse.csr_array((data, indices, indptr), shape=(num, num))
    found.check_format(full_check=True)
    if not (np.isfinite(data).all() and (data >= 0).all()):
        raise ValueError("a count is below 0, or not finite")
    return found


def _check_sessions(items: np.ndarray, lengths: np.ndarray) -> None:
    """ValueError for arrays that are no sessions."""
    is_right = items.dtype.kind == lengths.dtype.kind == "i"
    is_right = is_right and items.ndim == lengths.ndim == 1
    low = min(int(items.min(initial=0)), int(lengths.min(initial=0)))
    if not is_right or low < 0 or int(lengths.sum()) != len(items):
        raise ValueError("its sessions do not fit their lengths")


@dataclass(frozen=True)
class Mixture:
    """The score of what comes next, (101): a `ranking.Scorer`.

    Args:
      input: input table, [V + U, D].
      output: output table of items, [V + U, D].
      new_items: what the shares of items that updates added are multiplied by, > 0, at
        most (102).
      with_ages: queries come after all sessions, so newer ones count more.
      means: where the tables have U items more than the V that are counted,
        f32[V + U, V]: the counts of an item, and the scores of near sessions, are the
        means of those of others.
    """

    input: np.ndarray
    output: np.ndarray
    counts: SessionCounts
    weights: Weights = Weights()
    new_items: float = 1.0
    with_ages: bool = True
    means: scipy.sparse.csr_array | None = None

    @functools.cached_property
    def _factors(self) -> np.ndarray:
        return self.counts.factors(self.new_items, len(self.input))

    @functools.cached_property
    def parts(self) -> dict[str, Scorer]:
        """The scorers of `PARTS`; all but the first give shares, which are sparse."""
        num_items = len(self.input)
        sessions = Sessions.fit(self.counts.sessions, self.counts.rules.shape[0])
        associations = self.counts.associations
        known = self.counts.rules if self.means is None else self.means
        assert known.shape[0] == num_items, "compiled loops check no index"
        near: Scorer = STAN.of_mixture(sessions, with_ages=self.with_ages)
        if self.means is not None:
            near = functools.partial(_of_means, near, self.means)
        sparse_parts: dict[str, Scorer] = {
            "rules": PairRules(self.counts.rules, DECAY, self.means),
            "associations": PairRules(associations, DECAY, self.means),
            "second_order": SecondOrder(associations, DECAY, self.means),
            "followers": PairRules(self.counts.followers, 0.0, self.means),
            "neighbors": near,
            "own": functools.partial(_own_items, num_items=num_items),
        }
        shares = {
            name: functools.partial(_shares, scorer)
            for name, scorer in sparse_parts.items()
        }
        return {"vectors": by_vectors(self.input, self.output)} | shares

    def with_weights(
        self, weights: Weights | None = None, new_items: float = 1.0
    ) -> Self:
        """The same parts with other weights, None: the same."""
        weights = self.weights if weights is None else weights
        found = dataclasses.replace(self, weights=weights, new_items=new_items)
        vars(found)["parts"] = self.parts
        return found

    def __call__(self, queries: Sequences, out: np.ndarray | None = None) -> np.ndarray:
        """Scores f32[m, V + U] of m queries, none empty.

        Args:
          out: where they are written, None: in new memory.
        """
        from embedder.metrics.next_item_kernels import add_to_rows

        weights, num_items = self.weights, len(self.input)
        scores = out
        if scores is None:
            scores = np.empty((len(queries[1]), num_items), self.input.dtype)
        if weights.vectors:
            query = query_vectors(self.input, queries, scale=weights.vectors)
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(query, self.output.T, out=scores)
        else:
            scores.fill(0)
        for name in PARTS[1:]:
            if weight := getattr(weights, name):
                share: Any = self.parts[name](queries)
                ratio = share.data * self._factors[share.indices] / weights.floor
                ends, values = share.indptr.astype(np.int64), weight * np.log1p(ratio)
                add_to_rows(scores, ends, share.indices, values)
        return scores

    def top(
        self,
        queries: Sequences,
        topn: int,
        seen: Seen = "excluded",
        hidden: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The items that are ranked first after each query, and their scores.

        Args:
          queries: m, none empty.
          hidden: items that are no candidates, bool[V].

        Returns:
          i64[m, n] and f32[m, n], with n <= `topn`; a score of -inf is of no candidate.
        """
        num_items = len(self.input)
        num = min(topn, num_items)
        most = min(_TOP_VALUES, _ALL_TOP_VALUES // available_cores())
        parts = [*chunks(queries, num_items, most)]
        own = threading.local()  # new memory for each chunk takes a tenth longer

        def best(part: tuple[slice, Sequences]) -> tuple[np.ndarray, np.ndarray]:
            if not hasattr(own, "scores"):
                shape = len(parts[0][1][1]), num_items
                own.scores = np.empty(shape, self.input.dtype)
            scores = self(part[1], own.scores[: len(part[1][1])])
            if seen == "excluded":
                scores[case_numbers(part[1]), part[1][0]] = -np.inf
            if hidden is not None:
                scores[:, hidden] = -np.inf
            items = largest_columns(scores, num)
            return items, np.take_along_axis(scores, items, 1).astype(np.float32)

        _ = self.parts  # threads share them
        found = map_on_cores(best, parts, len(parts))
        none = np.empty((0, num), np.int64), np.empty((0, num), np.float32)
        items, scores = zip(none, *found, strict=True)
        return np.concatenate(items), np.concatenate(scores)


class NextItems:
    """What comes next in a session, by a trained run or trainer.

    Args:
      keys: the items, [V], in the order of the rows of the mixture.
      weights: of the mixture, where items of the session are candidates, and where
        they are not.
    """

    def __init__(self, keys: Sequence[Any], mixture: Mixture, weights: BySeen):
        self.keys, self.weights = keys, weights
        self.ids: Mapping[Any, int] = {key: row for row, key in enumerate(keys)}
        self.mixtures: dict[Seen, Mixture] = {
            seen: mixture.with_weights(each, mixture.counts.new_items)
            for seen, each in weights.items()
        }

    @property
    def num_old(self) -> int:
        """The first of the items are of the first training, the others of updates."""
        return self.mixtures["excluded"].counts.num_old

    def next_items(
        self,
        session: Sequence[Any],
        topn: int = 10,
        *,
        seen: Seen = "excluded",
        among: Collection[Any] | None = None,
        new_items: float | None = None,
    ) -> list[tuple[Any, float]]:
        """The `topn` items that are ranked first after those of `session`, the newest
        last, and their scores, (101). Unknown items are left out, with a warning.

        Args:
          seen: whether items of the session can be the next.
          among: only these can be the next; unknown ones are ignored.
          new_items: how often sessions count for items that updates added, at most,
            (102); None: `NEW_ITEMS` times.

        Raises:
          InputKeyError: all items are unknown.
          InputError: the session is empty, `topn` is not an integer >= 1, `new_items`
            not a number > 0, or none of `among` is known.
        """
        check_positive_integer("topn", topn)
        if isinstance(session, str) or not len(session):
            raise InputError(f"`session` must be a list of items, got {session!r}.")
        session, unknown = known_items(session, self.ids)
        if unknown and not session:
            check_known(map(str, unknown), [*map(str, self.keys)], "Item")
            raise InputKeyError(
                f"Item {unknown[0]!r} is not in the vocabulary: keys are "
                f"{type(self.keys[0]).__name__}."
            )
        hidden = None
        if among is not None:
            hidden = np.ones(len(self.keys), bool)
            hidden[[self.ids[key] for key in among if key in self.ids]] = False
            if hidden.all():
                raise InputError("`among` must have a key of the vocabulary.")
        ids = np.array([self.ids[key] for key in session])
        queries = ids, np.array([len(ids)])
        mixture = self.mixture(seen, new_items)
        items, scores = mixture.top(queries, topn, seen, hidden)
        return [
            (self.keys[item], float(score))
            for item, score in zip(items[0], scores[0], strict=True)
            if score > -np.inf
        ]

    def mixture(self, seen: Seen, new_items: float | None = None) -> Mixture:
        """The mixture with the weights for `seen`.

        Raises:
          InputError: `new_items` is not a number > 0, or no item is new.
        """
        if new_items is None:
            return self.mixtures[seen]
        is_number = isinstance(new_items, int | float)
        if not is_number or not 0 < new_items < math.inf:
            raise InputError(f"`new_items` must be a number > 0, got {new_items!r}.")
        if new_items != 1 and self.num_old == len(self.keys):
            raise InputError(
                f"`new_items` needs items that an update added, got {new_items}, and "
                "the model has none."
            )
        return self.mixtures[seen].with_weights(new_items=new_items)


def _shares(scorer: Scorer, queries: Sequences) -> scipy.sparse.csr_array:
    """Scores f32[m, V] that are divided by their sums."""
    scores: Any = scorer(queries)
    totals = np.maximum(scores.sum(axis=1), 1e-30)
    data = scores.data / np.repeat(totals, np.diff(scores.indptr)).astype(np.float32)
    return scipy.sparse.csr_array((data, scores.indices, scores.indptr), scores.shape)


def _of_means(
    scorer: Scorer, means: scipy.sparse.csr_array, queries: Sequences
) -> scipy.sparse.csr_array:
    """Scores f32[m, V + U] by a scorer of V items: those of an item without sessions
    are the means of others'; in a query the item with the largest weight replaces it.

    Args:
      means: of each of the V + U items, f32[V + U, V].
    """
    ids, lengths = queries
    asked, each = np.unique(ids, return_inverse=True)
    nearest = np.asarray(means[asked].argmax(axis=1)).ravel()
    scores: Any = scorer((nearest[each], lengths))
    return scipy.sparse.csr_array(scores @ means.T)


def _own_items(queries: Sequences, num_items: int) -> scipy.sparse.csr_array:
    """The items of the query itself, the newest with the largest score."""
    ids, lengths = queries
    weights = recency_weights(lengths, _OWN_DECAY).astype(np.float32)
    shape = len(lengths), num_items
    return scipy.sparse.csr_array((weights, (case_numbers(queries), ids)), shape=shape)


class _Choices(NamedTuple):
    """N candidates of n cases, with what the K parts say of them."""

    values: np.ndarray  # f32[N, K]: the first scores, the others shares
    case: np.ndarray  # i64[N], ascending
    is_own: np.ndarray  # bool[N]: it is an item of the query
    target: np.ndarray  # i64[n]: which candidate it is; all cases have one
    number: np.ndarray  # i64[n], ascending: which of the cases given

    def features(self, floor: float) -> np.ndarray:
        """What (101) has the weighted sum of, f64[N, K]."""
        shares = np.log1p(self.values[:, 1:] / floor)
        return np.column_stack([self.values[:, 0], shares]).astype(np.float64)

    def of(self, is_used: np.ndarray, seen: Seen = "included") -> _Choices:
        """Those of some cases, bool[n], whose targets are candidates by `seen`."""
        is_candidate = is_used[self.case]
        if seen == "excluded":
            is_candidate &= ~self.is_own
        target = (np.cumsum(is_candidate) - 1)[self.target[is_used]]
        case = (np.cumsum(is_used) - 1)[self.case[is_candidate]]
        values, is_own = self.values[is_candidate], self.is_own[is_candidate]
        return _Choices(values, case, is_own, target, self.number[is_used])


class Fitted(NamedTuple):
    """Weights that are fitted to cases.

    Args:
      weights: by whether items of the query are candidates; where there are
        `FEWEST_CASES`.
      folds: two halves of the cases whose target is not in the query, bool[n], each
        with the weights that are fitted to the other half; [] as above.
    """

    weights: dict[Seen, Weights]
    folds: list[tuple[np.ndarray, Weights]]


def fit_weights(mixture: Mixture, cases: Cases) -> Fitted:
    """The weights of the conditional logit model of cases with one target each.

    The floor is the one of `_FLOORS` with the best NDCG@10 of these cases.

    Args:
      cases: items of the query are candidates. The first ones are used, up to
        `_MOST_CASES`; of those whose target is not in the query, as many.
    """
    is_new = has_new_target(cases)
    if cases.num < FEWEST_CASES:
        return Fitted({}, [])
    number_of_new = np.cumsum(is_new) - 1
    within = min(cases.num, _MOST_CASES)
    within = max(within, int(np.searchsorted(number_of_new, _MOST_CASES)))
    choices = _choices(mixture, cases, within)
    parts = [choices.of(choices.number < _MOST_CASES)]
    if is_new.sum() >= FEWEST_CASES:
        number = number_of_new[choices.number]
        is_used = is_new[choices.number] & (number < _MOST_CASES)
        folds = is_used, is_used & (number % 2 == 1), is_used & (number % 2 == 0)
        parts += [choices.of(each, "excluded") for each in folds]
    every, *of_new = map_on_cores(_fitted, parts, MOST_THREADS)
    if not of_new:
        return Fitted({"included": every}, [])
    is_first = np.arange(is_new.sum()) % 2 == 0
    halves = zip((is_first, ~is_first), of_new[1:], strict=True)
    return Fitted({"included": every, "excluded": of_new[0]}, [*halves])


def _fitted(choices: _Choices) -> Weights:
    """Each floor's weights are searched from those of the one before it."""
    best, found, weights = -1.0, Weights(), np.full(len(PARTS), 0.3)
    for floor in _FLOORS if len(choices.target) else ():
        features = choices.features(floor)
        weights = _conditional_logit(features, choices, weights)
        ndcg = _ndcg(features @ weights, choices)
        if ndcg > best:
            by_name = dict(zip(PARTS, weights.tolist(), strict=True))
            best, found = ndcg, Weights(**by_name, floor=floor)
    return found


def _choices(mixture: Mixture, cases: Cases, num_cases: int) -> _Choices:
    """The candidates that a part ranks high, of the first cases, where the target is
    one."""
    first = np.arange(cases.num) < num_cases
    queries, num_items = select(cases.queries, first), len(mixture.input)
    num = min(_CANDIDATES, num_items)

    def of_chunk(part: tuple[slice, Sequences]) -> tuple[np.ndarray, ...]:
        rows, chunk = part
        found_of: list[Any] = [mixture.parts[name](chunk) for name in PARTS]
        scores, *shares = found_of
        best = np.argpartition(-scores, num - 1, axis=1)[:, :num]
        size = len(chunk[1])
        of_case = np.arange(size) * num_items  # (case, item) is a number
        keys = np.unique(
            np.concatenate(
                [
                    (of_case[:, np.newaxis] + best).ravel(),
                    *(_high(share, num) for share in shares),
                ]
            )
        )
        is_target = np.isin(keys, of_case + cases.targets[0][rows])
        is_found = np.bincount(keys[is_target] // num_items, minlength=size)
        is_used = is_found[keys // num_items] > 0
        keys, is_target = keys[is_used], is_target[is_used]
        is_own = np.isin(keys, of_case[case_numbers(chunk)] + chunk[0])
        case, item = np.divmod(keys, num_items)
        each = [scores[case, item], *(x.toarray()[case, item] for x in shares)]
        return np.stack(each, axis=1), case + rows.start, is_own, is_target

    _ = mixture.parts  # threads share them
    parts = [*chunks(queries, num_items * len(PARTS))]
    found = map_on_cores(of_chunk, parts, MOST_THREADS)
    values, case, is_own, is_target = map(np.concatenate, zip(*found, strict=True))
    number, case = np.unique(case, return_inverse=True)
    return _Choices(values, case, is_own, is_target.nonzero()[0], number)


def _high(share: scipy.sparse.csr_array, num: int) -> np.ndarray:
    """The `num` largest of each row, of equal ones those with the lowest columns, fewer
    where fewer are above 0, as row * V + column."""
    from embedder.metrics.next_item_kernels import largest_of_rows

    ends, columns = share.indptr.astype(np.int64), share.indices.astype(np.int32)
    kept = largest_of_rows(ends, columns, share.data, num)
    rows = np.repeat(np.arange(share.shape[0]), np.diff(ends))[kept]
    return rows * share.shape[1] + columns[kept]


def _conditional_logit(
    features: np.ndarray, choices: _Choices, start: np.ndarray
) -> np.ndarray:
    """The weights >= 0 of the largest likelihood of the targets, f64[K], searched from
    `start`."""
    case, target, num = choices.case, choices.target, features.shape[1]
    starts = np.searchsorted(case, np.arange(len(target)))
    of_targets = features[target].mean(axis=0)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        scores = features @ weights
        scores -= np.maximum.reduceat(scores, starts)[case]
        odds = np.exp(scores)
        totals = np.add.reduceat(odds, starts)
        value = (np.log(totals) - scores[target]).mean()
        expected = (odds / totals[case]) @ features / len(target)
        ridge = _RIDGE * weights
        return value + ridge @ weights, expected - of_targets + 2 * ridge

    bounds = [(0, None)] * num
    found = scipy.optimize.minimize(
        loss, start, jac=True, bounds=bounds, method="L-BFGS-B"
    ).x
    return np.where(features.any(axis=0), found, 0)


def _ndcg(scores: np.ndarray, choices: _Choices) -> float:
    """NDCG@10 of the targets."""
    is_higher = scores >= scores[choices.target][choices.case]
    ranks = np.bincount(choices.case, is_higher)
    return float(np.where(ranks <= _TOPN, 1 / np.log2(1 + ranks), 0).mean())


def write_weights(path: Path, weights: BySeen) -> None:
    """Writes the weights as JSON, whole or not at all."""
    found = {seen: each._asdict() for seen, each in weights.items()}
    write_text(path, json.dumps(found, indent=1) + "\n")


def weights_text(weights: Weights) -> str:
    """The weights in a line, as a report has them."""
    names = (
        "vectors",
        "SR",
        "AR",
        "AR of second order",
        "followers",
        "STAN with idf",
        "the session's own items",
        "floor",
    )
    found = zip(names, weights, strict=True)
    return ", ".join(f"{name} {value:.3g}" for name, value in found if value)


def read_weights(path: Path) -> BySeen:
    """What `write_weights` wrote.

    Raises:
      OSError, InputError: it cannot be read, or is damaged.
    """
    with name_file_in_errors(path):
        text = path.read_bytes()
    try:
        values: Any = json.loads(text)
        found = {seen: Weights(**values[seen]) for seen in DEFAULT_WEIGHTS}
        for each in found.values():
            if not all(math.isfinite(x) and x >= 0 for x in each) or not each.floor:
                raise ValueError(f"a weight is wrong: {each}")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {short_reason(error)}.") from error
    return found
