"""Where verbs look keys up, what they find, and how it is printed."""

import contextlib
import json
import math
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from embedder.api.results import (
    ensemble_of,
    finished_run,
    indexed_vectors_of,
    is_encoder_run,
    key_type_of,
    labels_of,
    vectors_of,
)
from embedder.base.terminal import say, shown
from embedder.cli.arguments import Analogy, Neighbors, Next
from embedder.cli.lookup.prompt import Expression
from embedder.data.kept_names import names_of
from embedder.data.names import Names, without_names
from embedder.errors import InputError, InputKeyError
from embedder.vectors.ensemble import Ensemble, Neighbor, has_little_data
from embedder.vectors.vectors import KeyType, Vectors, check_known, typed_keys

LooksUp = Neighbors | Next | Analogy
"""Verbs with the names and the filters of `Lookup`."""

Keys = Collection[str] | None
"""Keys that filters leave; None: there are no filters."""


class Near(NamedTuple):
    """A key near a query."""

    key: str
    numbers: dict[str, float]
    text: str  # the numbers in a line


class Result(NamedTuple):
    """A query and the keys near it."""

    keys: Sequence[str]  # of the query
    query: dict[str, Any]  # for JSON, besides the keys
    title: str
    nearest: list[Near]


class Lookup:
    """Where a verb looks up: vectors or replicas, and the names of keys."""

    def __init__(self, args: LooksUp, run: Path):
        self.run, self._args = run, args
        name = getattr(args, "name", None)
        for argument, value in (("where", args.where), ("name", name)):
            if value and self.names is None:
                raise InputError(
                    f"`{argument}` needs `names`, the table of keys and names."
                )

    @cached_property
    def vectors(self) -> Vectors:
        """The vectors; of `neighbors` without --exact they use the index."""
        is_exact = getattr(self._args, "exact", True)
        is_mean = self.ensemble is not None  # whose search is exact
        read = vectors_of if is_exact or is_mean else indexed_vectors_of
        return read(self.run, getattr(self._args, "key_errors", "strict"))

    @cached_property
    def ensemble(self) -> Ensemble | None:
        return ensemble_of(self.run)

    @cached_property
    def is_encoder(self) -> bool:
        return finished_run(self.run) is not None and is_encoder_run(self.run)

    def check_known(self, keys: Iterable[str]) -> None:
        """Raises InputKeyError for the first of `keys` that the run does not have."""
        keys = [*keys]
        try:
            check_known(keys, self.keys, of_examples=self.is_encoder)
        except InputKeyError as error:
            names = {} if self.names is None else self.names.of_key
            folded = {name.casefold() for name in names.values()}
            for key in {*keys} - {*self.keys}:
                if key.casefold() in folded:
                    raise InputKeyError(
                        f"{key!r} is not in the vocabulary, but a name: give "
                        f"--name {shlex.quote(key)}."
                    ) from error
            raise

    @cached_property
    def names(self) -> Names | None:
        return names_of(self.run, self._args.names)

    @cached_property
    def labels(self) -> dict[str, str]:
        """Key -> name, or the label of an example."""
        return labels_of(self.run) | (self.names.of_key if self.names else {})

    def named(self, key: str) -> str:
        """A key with its name, if it has one."""
        return _named(key, self.labels)

    @contextlib.contextmanager
    def among(self) -> Iterator[Keys]:
        """The keys that the filters leave; errors of the body name these."""
        names = self.names if self._args.where else None
        keys = None if names is None else names.keys_where(self._args.where)
        where, bounds = self._args.where, _count_bounds(self._args)
        filters = [f"`where` {' '.join(map(repr, where))}"] if where else []
        filters += [f"`{name}` {count}" for name, count in bounds.items()]
        if (counted := self._keys_by_count()) is not None:
            keys = counted if keys is None else keys & counted
        try:
            if keys is not None and not keys:
                raise InputError("`among` is empty.")
            yield keys
        except InputError as error:
            if "`among`" not in str(error):
                raise
            leaves = "leaves" if len(filters) == 1 else "leave"
            raise InputError(
                f"{' and '.join(filters)} {leaves} no key of the vocabulary."
            ) from error

    def _keys_by_count(self) -> set[str] | None:
        """The keys that --min-count and --max-count leave."""
        bounds = _count_bounds(self._args)
        if not bounds:
            return None
        source = self.ensemble if self.ensemble is not None else self.vectors
        if source.counts is None:
            raise InputError(f"`{[*bounds][0]}` needs counts, which {self.run} lacks.")
        is_within = source.counts >= bounds.get("min_count", 0)
        if (most := bounds.get("max_count")) is not None:
            is_within &= source.counts <= most
        return {self.keys[row] for row in is_within.nonzero()[0]}

    @property
    def keys(self) -> list[str]:
        """The keys of the vocabulary."""
        if self.ensemble is not None:
            return self.ensemble.texts
        return self.vectors.keys

    def known(self, among: Keys) -> set[str]:
        """The keys of the vocabulary; InputError: none of them is `among`."""
        known = {*self.keys}
        if among is not None and known.isdisjoint(among):
            raise InputError("`among` must have a key of the vocabulary.")
        return known

    def show(self, results: list[Result], *, as_json: bool) -> None:
        """Prints results as text or as lines of JSON."""
        if self.names is not None and self._args.names is not None:
            warn_without_names(self.names, [x for each in results for x in _keys(each)])
        if not as_json:
            for each in results:
                print_result(each, self.labels)
            return
        about = self._about({x for each in results for x in _keys(each)})
        for each in results:
            nearest = [about[near.key] | near.numbers for near in each.nearest]
            query = [about[key] for key in each.keys]
            say(json.dumps(plain({"query": query, **each.query, "found": nearest})))

    def _about(self, keys: set[str]) -> dict[str, dict[str, Any]]:
        """What JSON has of each key: it, its label, and the columns of --names."""
        texts = sorted(keys)
        rows: list[dict[str, Any]] = [{} for _ in texts]
        if self.names is not None:
            rows = [{"names": row} for row in self.names.rows(texts).to_dicts()]
        elif self.labels:
            rows = [{"label": self.labels.get(key)} for key in texts]
        typed = typed_keys(texts, self.key_type())
        return {
            text: {"key": key} | row
            for text, key, row in zip(texts, typed, rows, strict=True)
        }

    def key_type(self) -> KeyType:
        """The type that keys have in JSON and in tables."""
        if finished_run(self.run) is None:
            return self.vectors.key_type
        return key_type_of(self.run)


def print_ranking(
    title: str, ranking: list[tuple[str, float]], labels: dict[str, str]
) -> None:
    """Prints keys with their similarities, and with their labels or names."""
    print_result(Result((), {}, title, ranked(ranking)), labels)


def warn_without_names(names: Names, keys: Iterable[str]) -> None:
    """Prints a warning if the table of names has none of `keys`."""
    if names.of_key.keys().isdisjoint(keys):
        say(without_names(names), sys.stderr)


def ranked(ranking: list[tuple[str, float]], name: str = "similarity") -> list[Near]:
    return [Near(key, {name: x}, f"{x:6.3f}") for key, x in ranking]


def check_filters(args: LooksUp) -> None:
    """Raises InputError for counts below 0."""
    for name, value in _count_bounds(args).items():
        if value < 0:
            raise InputError(f"`{name}` must be an integer >= 0, got {value}.")


def _count_bounds(args: LooksUp) -> dict[str, int]:
    """The bounds of counts that are given."""
    bounds = {"min_count": args.min_count, "max_count": args.max_count}
    return {name: count for name, count in bounds.items() if count is not None}


def _keys(result: Result) -> list[str]:
    return [*result.keys, *(near.key for near in result.nearest)]


def print_result(result: Result, labels: dict[str, str]) -> None:
    say(shown(result.title))
    for near in result.nearest:
        say(f"  {near.text}  {shown(_named(near.key, labels))}")


def _named(key: str, labels: dict[str, str]) -> str:
    return f"{key} ({labels[key]})" if key in labels else key


def plain(value: Any) -> Any:
    """A value as JSON can have it: null for NaN and infinities, dates as text, objects
    for tuples with names."""
    match value:
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case dict():
            return {str(key): plain(x) for key, x in value.items()}
        case list() | tuple():
            return [plain(x) for x in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def of_sum(lookup: Lookup, query: Expression, args: Neighbors, among: Keys) -> Result:
    """The neighbours of a sum of known keys, by the vectors."""
    neighbors = lookup.vectors.most_similar(
        query.positive, query.negative, args.topn, among=among, metric=args.metric
    )
    name = "similarity" if args.metric == "cosine" else "product"
    if query.is_key:
        (key,) = query.positive
        return Result((key,), {}, lookup.named(key), ranked(neighbors, name))
    plus, minus = ([*map(lookup.named, keys)] for keys in query)
    title = " - ".join([" + ".join(plus), *minus]).strip()
    about = {"positive": [*query.positive], "negative": [*query.negative]}
    keys = *query.positive, *query.negative
    return Result(keys, about, title, ranked(neighbors, name))


def of_replicas(
    lookup: Lookup,
    ensemble: Ensemble,
    words: Sequence[str],
    args: Neighbors,
    among: Keys,
) -> list[Result]:
    """The neighbours of known keys by replicas, with intervals."""
    rows = ensemble.neighbors(words, args.topn, order=order_of(args), among=among)
    results = []
    for word, share, near in zip(words, ensemble.stability(words), rows, strict=True):
        count, stability = int(ensemble.counts[ensemble.index(word)]), float(share)
        is_rare = has_little_data(count, stability)
        about = {"stability": stability, "count": count, "too_little_data": is_rare}
        title = f"{lookup.named(word)}: stability {stability:.2f}, count {count}"
        title += ", too little data" if is_rare else ""
        results.append(Result((word,), about, title, _with_intervals(near, ensemble)))
    return results


def order_of(args: Neighbors) -> Literal["mean", "lower"]:
    """What the neighbours of replicas are sorted by."""
    return "lower" if args.stable else "mean"


def _with_intervals(near: list[Neighbor], ensemble: Ensemble) -> list[Near]:
    width = len(str(len(ensemble)))
    nearest = []
    for token, similarity, lower, upper, frequency in near:
        interval = f"[{lower:5.2f}, {upper:5.2f}]"
        text = f"{similarity:6.3f}  {interval}  {frequency:{width}}/{len(ensemble)}"
        numbers = {"similarity": similarity, "lower": lower, "upper": upper}
        nearest.append(Near(str(token), numbers | {"replicas": frequency}, text))
    return nearest
