"""Where verbs look keys up, what they find, and how it is printed."""

import contextlib
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from embedder.arguments import Analogy, Neighbors
from embedder.errors import InputError
from embedder.results import (
    ensemble_of,
    finished_run,
    indexed_vectors_of,
    is_encoder_run,
    key_type_of,
    labels_of,
    vectors_of,
)
from embedder.terminal import say, shown

if TYPE_CHECKING:
    from embedder.tables.names import Names
    from embedder.vectors.ensemble import Ensemble
    from embedder.vectors.vectors import KeyType, Vectors

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
    found: list[Near]


class Lookup:
    """Where a verb looks up: vectors or replicas, and the names of keys."""

    def __init__(self, args: Neighbors | Analogy, run: Path):
        self.run, self._args = run, args
        self._where, self._path = args.where, args.names

    @cached_property
    def vectors(self) -> "Vectors":
        """The vectors; of `neighbors` without --exact they use the index."""
        is_exact = isinstance(self._args, Analogy) or self._args.exact
        is_mean = self.ensemble is not None  # whose search is exact
        return (vectors_of if is_exact or is_mean else indexed_vectors_of)(self.run)

    @cached_property
    def ensemble(self) -> "Ensemble | None":
        return ensemble_of(self.run)

    @cached_property
    def is_encoder(self) -> bool:
        return finished_run(self.run) is not None and is_encoder_run(self.run)

    def check_known(self, keys: Iterable[str]) -> None:
        """Raises InputKeyError for the first of `keys` that the run does not have."""
        from embedder.vectors.spelling import check_known

        check_known(keys, self.keys, of_examples=self.is_encoder)

    @cached_property
    def names(self) -> "Names | None":
        if self._path is None:
            return None
        from embedder.tables.names import read_names

        return read_names(self._path)

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
        found = self._keys_where()
        filters = [f"`where` {' '.join(map(repr, self._where))}"] if self._where else []
        if (counted := self._keys_by_count()) is not None:
            found = counted if found is None else found & counted
            bounds = _count_bounds(self._args)
            filters += [f"`{name}` {x}" for name, x in bounds.items() if x is not None]
        try:
            if found is not None and not found:
                raise InputError("`among` is empty.")
            yield found
        except InputError as error:
            if "`among`" not in str(error):
                raise
            leaves = "leaves" if len(filters) == 1 else "leave"
            raise InputError(
                f"{' and '.join(filters)} {leaves} no key of the vocabulary."
            ) from error

    def _keys_where(self) -> set[str] | None:
        """The keys that --where leaves."""
        names = self.names if self._where else None
        return None if names is None else names.keys_where(self._where)

    def _keys_by_count(self) -> set[str] | None:
        """The keys that --min-count and --max-count leave."""
        bounds = _count_bounds(self._args)
        given = [name for name, x in bounds.items() if x is not None]
        if not given:
            return None
        source = self.ensemble if self.ensemble is not None else self.vectors
        if source.counts is None:
            raise InputError(f"`{given[0]}` needs counts, which {self.run} lacks.")
        least, most = bounds["min_count"] or 0, bounds["max_count"]
        kept = source.counts >= least
        if most is not None:
            kept &= source.counts <= most
        keys = self.keys
        return {keys[row] for row in kept.nonzero()[0]}

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
        if self.names is not None:
            warn_without_names(self.names, [x for each in results for x in _keys(each)])
        if not as_json:
            for each in results:
                print_result(each, self.labels)
            return
        about = self._about({x for each in results for x in _keys(each)})
        for each in results:
            found = [about[near.key] | near.numbers for near in each.found]
            query = [about[key] for key in each.keys]
            say(json.dumps(_plain({"query": query, **each.query, "found": found})))

    def _about(self, keys: set[str]) -> dict[str, dict[str, Any]]:
        """What JSON has of each key: it, its label, and the columns of --names."""
        from embedder.vectors.vectors import typed_keys

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

    def key_type(self) -> "KeyType":
        """The type that keys have in JSON and in tables."""
        if finished_run(self.run) is None:
            return self.vectors.key_type
        return key_type_of(self.run)


def print_ranking(
    title: str, ranking: list[tuple[str, float]], labels: dict[str, str]
) -> None:
    """Prints keys with their similarities, and with their labels or names."""
    print_result(Result((), {}, title, ranked(ranking)), labels)


def warn_without_names(names: "Names", keys: Iterable[str]) -> None:
    """Prints a warning if the table of names has none of `keys`."""
    if names.of_key.keys().isdisjoint(keys):
        say(
            f"`names` {names.path} has no name of these keys: its first column, "
            f"{names.key!r}, must have the keys, and its second the names.",
            sys.stderr,
        )


def ranked(ranking: list[tuple[str, float]], name: str = "similarity") -> list[Near]:
    return [Near(key, {name: x}, f"{x:6.3f}") for key, x in ranking]


def check_filters(args: Neighbors | Analogy) -> None:
    """Raises InputError for counts below 0, and for --where without --names."""
    if args.where and args.names is None:
        raise InputError("`where` needs `names`, the table of keys and names.")
    for name, value in _count_bounds(args).items():
        if value is not None and value < 0:
            raise InputError(f"`{name}` must be an integer >= 0, got {value}.")


def _count_bounds(args: Neighbors | Analogy) -> dict[str, int | None]:
    return {"min_count": args.min_count, "max_count": args.max_count}


def _keys(result: Result) -> list[str]:
    return [*result.keys, *(near.key for near in result.found)]


def print_result(result: Result, labels: dict[str, str]) -> None:
    say(shown(result.title))
    for near in result.found:
        say(f"  {near.text}  {shown(_named(near.key, labels))}")


def _named(key: str, labels: dict[str, str]) -> str:
    return f"{key} ({labels[key]})" if key in labels else key


def _plain(value: Any) -> Any:
    """A value as JSON can have it: null for NaN and infinities, dates as text."""
    match value:
        case dict():
            return {str(key): _plain(x) for key, x in value.items()}
        case list():
            return [_plain(x) for x in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
