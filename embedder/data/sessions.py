"""Sessions: the corpus of a table with a row for each item, or with lists of items.

Rows may come in any order. Sessions are sorted by their names, short ones first, so the
format of the file, and the order of the rows where a column has it, change nothing.
"""

import contextlib
import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from embedder.base.prefetch import prefetch
from embedder.base.threads import use_threads
from embedder.data.columns import NO_ORDER, NOT_GIVEN, Columns, choose_columns, roles_of
from embedder.data.corpus import Corpus
from embedder.data.plain_text import Chunk
from embedder.data.row_sort import sorted_groups
from embedder.data.table_files import table_name
from embedder.data.tables.reader import (
    Table,
    check_integers,
    key_text,
    named_faults,
    number,
    open_table,
    table_of_frame,
)
from embedder.data.tables.text_form import MISSING_WORDS
from embedder.disk.files import watched_files
from embedder.errors import InputError
from embedder.vectors.word2vec import MAX_TOKEN_BYTES

_MANY_ROWS, _SHARE = 10_000, 0.01  # of rows, from which on a session is strange
_TIMES = (
    *("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f"),
    *("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S%.f"),
    *("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"),
)
"""Forms of times; `%.f` is a fraction of a second, or none."""

_log = logging.getLogger(__name__)


def table_corpus(paths: list[Path], columns: Columns, source: str) -> Corpus:
    """The corpus of sessions in files of tables.

    Raises:
      InputError: the columns are not clear, or a file is damaged, or changes while it
        is read; `chunks` raises it, too.
      OSError: a file cannot be read.
    """
    fingerprints, check = watched_files(paths)
    with one_line_errors(source):
        table = open_table(paths, roles_of(columns), source)
    corpus = _corpus(table, columns, check)
    manifest = [*fingerprints, *corpus.manifest]
    return corpus._replace(name=table_name(source), manifest=manifest)


def frame_corpus(
    frame: pl.LazyFrame, columns: Columns = NOT_GIVEN, source: str = "the table"
) -> Corpus:
    """The corpus of sessions in a frame.

    Raises:
      InputError: the columns are not clear; `chunks` raises it for wrong values.
    """
    with one_line_errors(source):
        table = table_of_frame(frame, source)
    return _corpus(table, columns, lambda: None)


def _corpus(table: Table, columns: Columns, check: Callable[[], None]) -> Corpus:
    """The corpus of sessions in a table; `check` is called when all rows are read."""
    use_threads()
    source = table.source
    with one_line_errors(source):
        head = table.head()
    if head.is_empty():
        raise InputError(f"Corpus {source} has no rows.")
    chosen = choose_columns(table.schema, head, columns, source)
    _log.info("Corpus %s is read as sessions: %s.", source, chosen)
    rows = _Rows(table, head, chosen)

    def chunks(folder: Path | None = None) -> Iterator[Chunk]:
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
            stack.enter_context(one_line_errors(source))
            table.check_rows(rows.wanted)
            yield from rows.chunks(Path(temporary))
            check()

    return Corpus(
        name="corpus",
        source=source,
        manifest=[{"columns": chosen.facts, "keys": rows.key_type}],
        chunks=lambda: prefetch(chunks()),
        chunks_in=lambda folder: prefetch(chunks(folder)),
        key_type=rows.key_type,
        item_name="items",
    )


def one_line_errors(source: str) -> contextlib.AbstractContextManager[None]:
    """Turns the errors of polars into one InputError."""
    return named_faults(f"Corpus {source}")


class _Rows:
    """The rows of a table, and what was left out of them so far."""

    def __init__(self, table: Table, head: pl.DataFrame, columns: Columns):
        self._table, self._columns, self._source = table, columns, table.source
        self._has_order = columns.order not in ("", NO_ORDER)
        self._forget_counts()
        item = table.schema[columns.items or columns.item]
        if isinstance(item, pl.List | pl.Array):
            item = item.inner  # type: ignore[assignment]  # an instance, by its check
            is_text = item == pl.String or isinstance(item, pl.Categorical | pl.Enum)
        else:
            is_text = not table.is_integers(columns.item)
        self.key_type: Literal["text", "integer"] = "text" if is_text else "integer"
        self._item = item
        keys = [columns.items] if columns.items else [columns.session, columns.item]
        self._keys = [] if columns.items else keys
        self._exprs = [
            pl.col(name).alias("items" if columns.items else kind)
            for kind, name in zip(("session", "item"), keys, strict=False)
        ]
        others = [columns.order] if self._has_order else []
        if self._has_order:
            self._exprs.append(self._order(head[columns.order]))
            self._exprs.append(pl.col(columns.order).alias("order_cell"))
        if columns.weights:
            name = columns.weights
            dtype, has_commas = table.schema[name], table.decimal_comma
            self._exprs += _weight_columns(name, dtype, has_commas)
            others.append(name)
        self.wanted = [*keys, *others]

    def _forget_counts(self) -> None:
        self._num_rows = self._num_missing = self._num_long = self._num_weightless = 0
        self._num_words = self._longest = self._num_headers = 0

    def chunks(self, folder: Path) -> Iterator[Chunk]:
        self._forget_counts()
        read = self._table.batches(self.wanted, self._keys)
        batches = (self._without_headers(x).select(self._exprs) for x in read)
        if self._columns.items:
            yield from map(self._chunk_of_lists, batches)
        else:
            order = ["order"] if self._has_order else []
            rows = map(self._cleaned, batches)
            frames = sorted_groups(rows, "session", order, folder)
            yield from map(self._chunk_of_rows, frames)  # which keeps none
        self._log_left_out()

    def _without_headers(self, batch: pl.DataFrame) -> pl.DataFrame:
        """`batch` without rows that are headers, as of files that were joined."""
        if not self._keys:
            return batch
        is_header = pl.all_horizontal(pl.col(name) == name for name in self._keys)
        rows = batch.filter(~is_header.fill_null(False))
        self._num_headers += len(batch) - len(rows)
        return rows

    def _chunk_of_rows(self, frame: pl.DataFrame) -> Chunk:
        """The sessions of sorted rows, without those with weight 0."""
        runs = frame["session"].rle().struct
        lengths = runs.field("len").to_numpy().astype(np.int64)
        for keys in runs.field("value"), frame["item"]:
            self._num_words += int(keys.is_in(MISSING_WORDS).sum())
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        if not self._columns.weights:
            names = runs.field("value")
            return Chunk(frame["item"], lengths, is_open=False, names=names)
        weights = _weights_of_sessions(
            *(frame["session"], frame["weight"], lengths),
            *(self._columns.weights, self._source),
        )
        whole = weights > 0
        self._num_weightless += int(np.count_nonzero(~whole))
        items = frame["item"].filter(pl.Series(np.repeat(whole, lengths)))
        return Chunk(items, lengths[whole], False, weights[whole].astype(np.float32))

    def _chunk_of_lists(self, batch: pl.DataFrame) -> Chunk:
        """The sessions of lists, without missing items; a missing list is empty."""
        weights = None
        if self._columns.weights:
            _check_weights(batch, self._columns.weights, self._table)
            rows = batch.filter(pl.col("weight") > 0)
            self._num_weightless += len(batch) - len(rows)
            batch, weights = rows, rows["weight"].to_numpy().astype(np.float32)
        lists = batch["items"].cast(pl.List(self._item)).fill_null([])
        lengths = lists.list.len().to_numpy().astype(np.int64)
        numbers = np.repeat(np.arange(len(lengths)), lengths)
        items = pl.DataFrame(
            {"item": lists.filter(pl.Series(lengths > 0)).explode(), "session": numbers}
        )
        if self._item.is_float() or isinstance(self._item, pl.Decimal):
            items = items.with_columns(key_text("item", self._item))
            name = self._columns.items
            check_integers(items["item"], "items", name, self._source)
        items = items.with_columns(pl.col("item").cast(pl.String))
        rows = self._without_missing(items)
        counts = np.bincount(rows["session"].to_numpy(), minlength=len(lengths))
        return Chunk(rows["item"], counts.astype(np.int64), False, weights)

    def _cleaned(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Session and item as text, and the order, without rows that lack one."""
        for kind in ("item", "session"):
            name = getattr(self._columns, kind)
            if self._table.has_fractions(name):
                check_integers(batch[kind], kind, name, self._source)
        if self._has_order:
            self._check_order(batch)
        others = ["order"] if self._has_order else []
        if self._columns.weights:
            _check_weights(batch, self._columns.weights, self._table)
            others.append("weight")
        return self._without_missing(batch.select("session", "item", *others))

    def _without_missing(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` without nulls, empty text and items that are too long; counts them."""
        keys = [name for name in ("session", "item") if rows[name].dtype == pl.String]
        whole = rows.drop_nulls().filter(pl.col(name) != "" for name in keys)
        short = whole.filter(pl.col("item").str.len_bytes() <= MAX_TOKEN_BYTES)
        self._num_rows += len(rows)
        self._num_missing += len(rows) - len(whole)
        self._num_long += len(whole) - len(short)
        return short

    def _log_left_out(self) -> None:
        if self._num_headers:
            text = "Corpus %s: headers amid the rows, left out: %d."
            _log.warning(text, self._source, self._num_headers)
        if self._num_words:
            _log.warning(
                "Corpus %s: values as NULL, NA or nan in %s or %s, which are read as "
                "keys: %d. Leave these cells empty if values are missing.",
                *(self._source, self._columns.session, self._columns.item),
                self._num_words,
            )
        if self._num_rows > _MANY_ROWS and self._longest > _SHARE * self._num_rows:
            _log.warning(
                "Corpus %s: the longest session has %d of %d rows: see if `%s` has a "
                "value in place of missing ones.",
                *(self._source, self._longest, self._num_rows, self._columns.session),
            )
        if self._num_missing:
            columns = [name for name in self._columns if name not in ("", NO_ORDER)]
            if self._columns.items:
                columns = [self._columns.items]
            _log.warning(
                "Corpus %s: rows without a value in %s, left out: %d of %d.",
                *(self._source, " or ".join(columns)),
                *(self._num_missing, self._num_rows),
            )
        if self._num_weightless:
            missing = " or without a weight" if self._columns.items else ""
            _log.warning(
                "Corpus %s: sessions with weight 0%s in %s, left out: %d.",
                *(self._source, missing, self._columns.weights, self._num_weightless),
            )
        if self._num_long:
            _log.warning(
                "Corpus %s: items longer than %d bytes, left out: %d.",
                *(self._source, MAX_TOKEN_BYTES, self._num_long),
            )

    def _order(self, head: pl.Series) -> pl.Expr:
        """The order as a number or a time."""
        column = pl.col(head.name).alias("order")
        if head.dtype.is_float():
            return column.fill_nan(None)
        if head.dtype != pl.String:
            return column
        text = pl.when(column != "").then(column)  # `replace` would read all rows
        return _parsed(text.alias("order"), head.replace("", None).drop_nulls())

    def _check_order(self, batch: pl.DataFrame) -> None:
        """Refuses text that is neither a number nor a time as the first rows have."""
        if batch["order_cell"].dtype != pl.String:
            return
        wrong = batch.filter(pl.col("order").is_null() & (pl.col("order_cell") != ""))
        if len(wrong):
            value = wrong["order_cell"][0]
            where = self._table.place(self._columns.order, lambda x: x == value)
            raise InputError(
                f"`order` must be a column of numbers, or of times as 2024-12-31 or "
                f"2024-12-31 23:59:00, of one kind: `{self._columns.order}` of "
                f"{where} has {value!r}. --order none takes the order of the rows."
            )


def _parsed(column: pl.Expr, head: pl.Series) -> pl.Expr:
    """Text as numbers or times, by what all the first values are; else null."""
    numbers = [column.cast(dtype, strict=False) for dtype in (pl.Int64, pl.Float64)]
    times = [column.str.to_datetime(x, time_unit="us", strict=False) for x in _TIMES]
    frame = head.to_frame()
    for each in itertools.chain(numbers, times):
        if not frame.select(each).to_series().null_count():
            return each
    return numbers[0]


_SMALLEST, _LARGEST = 1e-6, 1e6  # sums of such weights are exact enough in float32
_WEIGHT_CELL = "weight_cell"


def _weight_columns(name: str, dtype: pl.DataType, has_commas: bool) -> list[pl.Expr]:
    """The column `name` as numbers, "weight", and as it is."""
    column = pl.col(name)
    if dtype == pl.String:
        column = pl.when(column != "").then(column)  # `replace` would read all rows
    numbers = number(column, dtype, has_commas)
    return [numbers.alias("weight"), column.alias(_WEIGHT_CELL)]


def _check_weights(rows: pl.DataFrame, name: str, table: Table) -> None:
    """Raises InputError for a weight in the columns of `_weight_columns` that is text,
    or neither 0 nor in the bounds; nulls are missing values."""
    weight = rows["weight"]
    is_right = (weight == 0) | weight.is_between(_SMALLEST, _LARGEST)
    wrong = rows.filter(rows[_WEIGHT_CELL].is_not_null() & ~is_right.fill_null(False))
    if len(wrong):
        value = wrong[_WEIGHT_CELL][0]
        where = table.place(name, lambda x: x == value)
        raise InputError(
            f"`weights` must be a column of numbers from {_SMALLEST} to {_LARGEST}, or "
            f"0 to leave a session out: `{name}` of {where} has {value!r}."
        )


def _weights_of_sessions(
    sessions: pl.Series, weights: pl.Series, lengths: np.ndarray, name: str, source: str
) -> np.ndarray:
    """The weight of each session, f64[number of sessions], given those of its rows,
    which are consecutive, and their number; InputError if it has two weights."""
    of_rows = weights.to_numpy()
    of_sessions = of_rows[np.cumsum(lengths) - lengths]
    expected = np.repeat(of_sessions, lengths)
    (wrong,) = np.nonzero(of_rows != expected)
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            "`weights` must be the same in all rows of a session: session "
            f"{sessions[row]!r} has {float(expected[row])} and {float(of_rows[row])} "
            f"in `{name}` of {source}. Give each session one number, as the mean or "
            "the largest of its rows."
        )
    return of_sessions
