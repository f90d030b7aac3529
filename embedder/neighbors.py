"""The verbs `neighbors` and `analogy`: keys near others, with their names."""

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from embedder.arguments import Analogy, Neighbors
from embedder.errors import InputError
from embedder.results import (
    ensemble_of,
    finished_run,
    is_encoder_run,
    key_type_of,
    labels_of,
    needs_replicas,
    opened_run,
    vectors_of,
)
from embedder.terminal import say, say_done, shown

if TYPE_CHECKING:
    from embedder.tables.names import Names
    from embedder.vectors.ensemble import Ensemble, Neighbor
    from embedder.vectors.vectors import KeyType, Vectors


class _Near(NamedTuple):
    """A key near a query."""

    key: str
    numbers: dict[str, float]
    text: str  # the numbers in a line


class _Result(NamedTuple):
    """A query and the keys near it."""

    keys: Sequence[str]  # of the query
    query: dict[str, Any]  # for JSON, besides the keys
    title: str
    found: list[_Near]


def neighbors(args: Neighbors) -> None:
    """Prints the neighbours of each word, or the items that come next in a session.

    Raises:
      InputError: the arguments do not fit, or a key or name is unknown.
    """
    _check(args)
    needs_model = bool(args.session) or any(map(_is_image, args.words))
    with opened_run(args.run, with_model=needs_model) as run:
        lookup = _Lookup(args, run)
        if args.to is not None and not lookup.is_encoder:
            raise InputError(f"`to` applies only to a run of an encoder, got {run}.")
        if args.stable and lookup.ensemble is None:
            raise needs_replicas("`stable`", run)
        with lookup.among() as among:
            if args.session:
                results = [_next_items(lookup, args, among)]
            elif lookup.ensemble is not None:
                results = _of_ensemble(lookup, lookup.ensemble, args, among)
            else:
                results = _of_vectors(lookup, args, among)
        if args.to is None:
            lookup.show(results, as_json=args.json)
        else:
            _write_sheet(lookup, results, args.to)


def analogy(args: Analogy) -> None:
    """Prints the answers to "A is to B as C is to ?".

    Raises:
      InputError: the arguments do not fit, or a key is unknown.
    """
    from embedder.vectors.spelling import check_known

    _check_where(args)
    given = args.a, args.b, args.c
    with opened_run(args.run) as run:
        lookup = _Lookup(args, run)
        check_known(given, lookup.vectors.keys)
        with lookup.among() as among:
            found = lookup.vectors.analogy(*given, topn=args.topn, among=among)
        a, b, c = map(lookup.named, given)
        result = _Result(given, {}, f"{a} : {b} = {c} : ?", _ranked(found))
        lookup.show([result], as_json=args.json)


def print_ranking(
    title: str, ranking: list[tuple[str, float]], labels: dict[str, str]
) -> None:
    """Prints keys with their similarities, and with their labels or names."""
    _print(_Result((), {}, title, _ranked(ranking)), labels)


def warn_without_names(names: "Names", keys: Iterable[str]) -> None:
    """Prints a warning if the table of names has none of `keys`."""
    if names.of_key.keys().isdisjoint(keys):
        say(
            f"`names` {names.path} has no name of these keys: its first column, "
            f"{names.key!r}, must have the keys, and its second the names.",
            sys.stderr,
        )


class _Lookup:
    """Where a verb looks up: vectors or replicas, and the names of keys."""

    def __init__(self, args: Neighbors | Analogy, run: Path):
        self.run, self._where = run, args.where
        self._path = args.names

    @cached_property
    def vectors(self) -> "Vectors":
        return vectors_of(self.run)

    @cached_property
    def ensemble(self) -> "Ensemble | None":
        return ensemble_of(self.run)

    @cached_property
    def is_encoder(self) -> bool:
        return finished_run(self.run) is not None and is_encoder_run(self.run)

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
    def among(self) -> Iterator[set[str] | None]:
        """The keys that --where leaves; errors of the body name it."""
        names = self.names if self._where else None
        try:
            yield None if names is None else names.keys_where(self._where)
        except InputError as error:
            if "`among`" not in str(error):
                raise
            raise InputError(
                f"`where` {' '.join(map(repr, self._where))} leaves no key of the "
                "vocabulary."
            ) from error

    def show(self, results: list[_Result], *, as_json: bool) -> None:
        """Prints results as text or as lines of JSON."""
        if self.names is not None:
            warn_without_names(self.names, [x for each in results for x in _keys(each)])
        if not as_json:
            for each in results:
                _print(each, self.labels)
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
        typed = typed_keys(texts, self._key_type())
        return {
            text: {"key": key} | row
            for text, key, row in zip(texts, typed, rows, strict=True)
        }

    def _key_type(self) -> "KeyType":
        if finished_run(self.run) is None:
            return self.vectors.key_type
        return key_type_of(self.run)


def _check_where(args: Neighbors | Analogy) -> None:
    if args.where and args.names is None:
        raise InputError("`where` needs `names`, the table of keys and names.")


def _check(args: Neighbors) -> None:
    _check_where(args)
    if not (args.words or args.session or args.name):
        raise InputError("WORD: give at least one token to look up.")
    if args.session and (args.words or args.name or args.stable):
        raise InputError("`session` goes with neither WORD, --name nor --stable.")
    if args.to is not None:
        _check_sheet(args, args.to)
    if args.decay is not None and not args.session:
        raise InputError("`decay` applies only with --session.")
    if args.name is not None and args.names is None:
        raise InputError("`name` needs `names`, the table of keys and names.")


def _check_sheet(args: Neighbors, to: Path) -> None:
    from embedder.encoders.sheet import check_sheet
    from embedder.run.workdir import check_target
    from embedder.vectors.vectors import check_positive_integer

    if args.session or args.stable or args.json:
        raise InputError("`to` goes with neither --session, --stable nor --json.")
    check_target(to, "`to`")
    check_positive_integer("topn", args.topn)
    check_sheet(to, len(args.words), 1)


def _is_image(word: str) -> bool:
    """Whether `word` may be an image file."""
    from embedder.disk.kinds import IMAGES

    return word.lower().endswith(IMAGES)


def _words(args: Neighbors, known: Sequence[str], names: "Names | None") -> list[str]:
    """The tokens to look up, with those of --name; all are in the vocabulary."""
    from embedder.vectors.spelling import check_known

    check_known(args.words, known)
    if args.name is None or names is None:
        return [*args.words]
    return [*args.words, *names.keys_named(args.name, known)]


def _next_items(lookup: _Lookup, args: Neighbors, among: set[str] | None) -> _Result:
    from embedder.evaluation.ranking import DECAY
    from embedder.tables.next_items import next_items, ranked_items

    run = finished_run(lookup.run)
    session, topn = args.session, args.topn
    decay = DECAY if args.decay is None else args.decay
    if run is not None and run.model.exists():
        scores = next_items(run.model, session, topn, among=among, decay=decay)
        found = _ranked(scores, "score")
    else:
        scores = ranked_items(lookup.vectors, session, topn, among=among, decay=decay)
        found = _ranked(scores)
    title = f"after {', '.join(map(lookup.named, args.session))}"
    return _Result(args.session, {}, title, found)


def _of_vectors(
    lookup: _Lookup, args: Neighbors, among: set[str] | None
) -> list[_Result]:
    vectors, topn = lookup.vectors, args.topn
    of_files = _of_files(lookup, args, among) if lookup.is_encoder else {}

    def result(word: str) -> _Result:
        if word in of_files:
            return of_files[word]
        found = vectors.most_similar(word, topn=topn, among=among)
        return _Result((word,), {}, lookup.named(word), _ranked(found))

    known = [*vectors.keys, *of_files]
    return [result(word) for word in _words(args, known, lookup.names)]


def _of_files(
    lookup: _Lookup, args: Neighbors, among: set[str] | None
) -> dict[str, _Result]:
    """The result of each image file, with the class that the encoder predicts."""
    from embedder.encoders.embedding import embed_files
    from embedder.encoders.nearest import image_files

    vectors = lookup.vectors
    files = image_files(args.words, vectors)
    if not files:
        return {}
    embedded = embed_files(lookup.run, files)
    near = vectors.nearest_to(embedded.vectors.matrix, args.topn, among=among)
    results = {}
    for (key, label, share), found in zip(embedded.predictions, near, strict=True):
        about = {"predicted": label, "probability": share}
        title = f"{key}: {label} ({share:.3f})"
        results[key] = _Result((key,), about, title, _ranked(found))
    return results


def _write_sheet(lookup: _Lookup, results: list[_Result], to: Path) -> None:
    from embedder.encoders.nearest import Nearest, write_nearest

    nearest = [
        Nearest(
            *(each.keys[0], each.query.get("predicted")),
            [(near.key, near.numbers["similarity"]) for near in each.found],
        )
        for each in results
    ]
    num = write_nearest(lookup.run, nearest, lookup.labels, to)
    say_done(f"{num} images in {shown(str(to))}")


def _of_ensemble(
    lookup: _Lookup, ensemble: "Ensemble", args: Neighbors, among: set[str] | None
) -> list[_Result]:
    from embedder.vectors.ensemble import has_little_data

    words = _words(args, ensemble.texts, lookup.names)
    order: Literal["mean", "lower"] = "lower" if args.stable else "mean"
    found = ensemble.neighbors(words, args.topn, order=order, among=among)
    results = []
    for word, share, near in zip(words, ensemble.stability(words), found, strict=True):
        count, stability = int(ensemble.counts[ensemble.index(word)]), float(share)
        is_rare = has_little_data(count, stability)
        about = {"stability": stability, "count": count, "too_little_data": is_rare}
        title = f"{lookup.named(word)}: stability {stability:.2f}, count {count}"
        title += ", too little data" if is_rare else ""
        results.append(_Result((word,), about, title, _with_intervals(near, ensemble)))
    return results


def _with_intervals(near: list["Neighbor"], ensemble: "Ensemble") -> list[_Near]:
    width = len(str(len(ensemble)))
    found = []
    for token, similarity, lower, upper, frequency in near:
        interval = f"[{lower:5.2f}, {upper:5.2f}]"
        text = f"{similarity:6.3f}  {interval}  {frequency:{width}}/{len(ensemble)}"
        numbers = {"similarity": similarity, "lower": lower, "upper": upper}
        found.append(_Near(str(token), numbers | {"replicas": frequency}, text))
    return found


def _ranked(ranking: list[tuple[str, float]], name: str = "similarity") -> list[_Near]:
    return [_Near(key, {name: x}, f"{x:6.3f}") for key, x in ranking]


def _keys(result: _Result) -> list[str]:
    return [*result.keys, *(near.key for near in result.found)]


def _print(result: _Result, labels: dict[str, str]) -> None:
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
