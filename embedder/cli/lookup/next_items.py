"""The verb `next`: the items that come next in a session, or in each of a file."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from embedder.api.results import opened_run, read_next_items
from embedder.base.stages import report_stage
from embedder.base.terminal import say_done, shown
from embedder.cli.arguments import Next
from embedder.cli.lookup.batches import check_batch, write_frames
from embedder.cli.lookup.lookup import (
    Keys,
    Lookup,
    Result,
    check_filters,
    ranked,
)
from embedder.data.columns import Columns
from embedder.data.sources import file_corpus
from embedder.disk.files import name_file_in_errors
from embedder.errors import InputError
from embedder.metrics.ranking import Seen, Sequences, known_items, select
from embedder.run.progress import working
from embedder.vectors.array_formats import key_column
from embedder.vectors.vectors import check_positive_integer

if TYPE_CHECKING:
    from embedder.metrics.next_item_scores import NextItems

_SEEN: dict[str, Seen] = {"exclude": "excluded", "include": "included"}


def next_items(args: Next) -> None:
    """Prints what comes next in a session, or writes it for each session of a file.

    Raises:
      InputError: the arguments do not fit, an item is unknown, or the run keeps no
        counts.
    """
    _check(args)
    with opened_run(args.run, with_model=True) as run:
        model = read_next_items(run)
        lookup = Lookup(args, run)
        with lookup.among() as among:
            if args.queries is not None:
                _write(args, model, lookup, among)
                return
            typed = _typed(model, args.items)
            session = known_items(typed, model.ids)[0] or typed
            scores = model.next_items(
                *(session, args.topn),
                seen=_SEEN[args.seen],
                among=None if among is None else _typed(model, among),
                new_items=args.new_items,
            )
        texts = [(str(key), score) for key, score in scores]
        items = [*map(str, session)]
        title = f"after {', '.join(map(lookup.named, items))}"
        result = Result(items, {}, title, ranked(texts, "score"))
        lookup.show([result], as_json=args.json)


def _check(args: Next) -> None:
    check_filters(args)
    check_positive_integer("topn", args.topn)
    if args.queries is None:
        of_files = {"session": args.session, "item": args.item, "order": args.order}
        of_files |= {"items": args.lists, "to": str(args.to or "")}
        for name, value in of_files.items():
            if value:
                raise InputError(f"`{name}` applies only with --from, got {value}.")
        if not args.items:
            raise InputError("ITEM: give at least one item of the session, or --from.")
        return
    if args.items or args.json:
        raise InputError("`from` goes with neither ITEM nor --json.")
    check_batch(args.to)


def _typed(model: "NextItems", keys: Collection[str]) -> list:
    """Keys of the command line as the run has them."""
    texts = {str(key): key for key in model.keys}
    return [texts.get(key, key) for key in keys]


def _write(args: Next, model: "NextItems", lookup: Lookup, among: Keys) -> None:
    """Writes the next items of all sessions of the file `from`."""
    assert args.queries is not None and args.to is not None, "they are checked"
    keys = [*map(str, model.keys)]
    column = key_column(keys, lookup.key_type())
    hidden = None if among is None else ~np.isin(keys, [*among])
    num, num_unknown, num_items = 0, 0, 0
    seen = _SEEN[args.seen]
    mixture = model.mixture(seen, args.new_items)

    def frames() -> Iterator[pl.DataFrame]:
        nonlocal num, num_unknown, num_items
        for names, queries, size in _sessions(args, keys):
            num_items, num_unknown = (
                num_items + size,
                num_unknown + size - len(queries[0]),
            )
            num += len(names)
            items, scores = mixture.top(queries, args.topn, seen, hidden)
            row, place = np.nonzero(scores > -np.inf)
            yield pl.DataFrame(
                {
                    "session": names.gather(row),
                    "item": column.gather(items[row, place]),
                    "rank": (place + 1).astype(np.int32),
                    "score": scores[row, place],
                }
            )
            report_stage(f"next items: {num:,} sessions")
        if not num:
            raise InputError(
                f"`from` must have a session with an item of the vocabulary, got "
                f"{args.queries} with {num_items} other items."
            )

    with working(), name_file_in_errors(args.to):
        write_frames(frames(), args.to)
    others = f"; {num_unknown:,} of {num_items:,} items are unknown" * bool(num_unknown)
    sessions = "1 session" if num == 1 else f"{num:,} sessions"
    say_done(f"next items of {sessions}{others}; in {shown(str(args.to))}")


def _sessions(
    args: Next, keys: list[str]
) -> Iterator[tuple[pl.Series, Sequences, int]]:
    """Sessions of the file with a known item: their names, their known items, and how
    many items were read for them. A line of megabytes counts as several sessions."""
    assert args.queries is not None, "it is checked"
    columns = Columns(args.session, args.item, args.order, args.lists)
    first = 1
    for chunk in file_corpus(args.queries, columns=columns).chunks():
        num = len(chunk.lengths)
        ids = chunk.tokens.replace_strict(
            keys, range(len(keys)), default=-1, return_dtype=pl.Int32
        ).to_numpy()
        of = np.repeat(np.arange(num), chunk.lengths)
        lengths = np.bincount(of[ids >= 0], minlength=num)
        names = chunk.names
        if names is None:
            names = pl.Series(np.arange(first, first + num))
        has_known = lengths > 0
        queries = select((ids[ids >= 0], lengths), has_known)
        yield names.filter(pl.Series(has_known)), queries, len(ids)
        first += num
