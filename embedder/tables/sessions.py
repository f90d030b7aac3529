"""Sessions: the corpus of a table with a row for each item, or with lists of items.

Rows may come in any order. Sessions are sorted by their names as text, so the format of
the file, and the order of the rows where a column has it, change nothing.
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

from embedder.disk.files import short_reason
from embedder.disk.fingerprints import check_unchanged, file_fingerprint
from embedder.disk.untrusted import UnreadableError
from embedder.engine.prefetch import prefetch
from embedder.errors import InputError
from embedder.tables.chunks import Chunk
from embedder.tables.columns import NO_ORDER, NOT_GIVEN, Columns, choose_columns
from embedder.tables.corpus import Corpus
from embedder.tables.row_sort import sorted_groups
from embedder.tables.session_weights import (
    check_weights,
    weight_columns,
    weights_of_sessions,
)
from embedder.tables.table_files import FirstReading, scan_tables, table_name
from embedder.threads import use_threads
from embedder.vectors.word2vec import MAX_TOKEN_BYTES

_BATCH_ROWS = 2**16
_HEAD_ROWS = 100
_EXACT = 2**53  # floats from here on stand for several integers
_TIMES = (
    *("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S%.f"),
    *("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%.f"),
    *("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"),
)
_FAULTS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    UnreadableError,
)
_log = logging.getLogger(__name__)


def table_corpus(paths: list[Path], columns: Columns, source: str) -> Corpus:
    """The corpus of sessions in files of tables.

    Raises:
      InputError: the columns are not clear, or a file is damaged, or changes while it
        is read; `chunks` raises it, too.
      OSError: a file cannot be read.
    """
    fingerprints = {path: file_fingerprint(path) for path in paths}

    def check() -> None:
        for path, fingerprint in fingerprints.items():
            check_unchanged(path, fingerprint)

    with _one_line_errors(source):
        frame = scan_tables(paths)
    found = frame_corpus(frame, columns, source, check, FirstReading(paths))
    manifest = [*fingerprints.values(), *found.manifest]
    return found._replace(name=table_name(source), manifest=manifest)


def frame_corpus(
    frame: pl.LazyFrame,
    columns: Columns = NOT_GIVEN,
    source: str = "the table",
    check: Callable[[], None] = lambda: None,
    first: FirstReading | None = None,
) -> Corpus:
    """The corpus of sessions in a table.

    Args:
      check: called when all rows are read; it may raise an error.
      first: reads rows before they are used, if files are untrusted.

    Raises:
      InputError: the columns are not clear; `chunks` raises it for wrong values.
    """
    use_threads()
    with _one_line_errors(source):
        if first is not None:
            first.head(frame, _HEAD_ROWS)
        head = frame.head(_HEAD_ROWS).collect()
        schema = head.schema
    if head.is_empty():
        raise InputError(f"Corpus {source} has no rows.")
    chosen = choose_columns(schema, head, columns, source)
    _log.info("Corpus %s is read as sessions: %s.", source, chosen)
    rows = _Rows(frame, head, chosen, source)

    def chunks(folder: Path | None = None) -> Iterator[Chunk]:
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
            stack.enter_context(_one_line_errors(source))
            if first is not None:
                first.rows(rows.frame)
            yield from rows.chunks(Path(temporary))
            check()

    return Corpus(
        name="corpus",
        source=source,
        manifest=[{"columns": chosen.facts, "keys": rows.key_type}],
        chunks=lambda: prefetch(chunks()),
        chunks_in=lambda folder: prefetch(chunks(folder)),
        key_type=rows.key_type,
        noun="items",
    )


@contextlib.contextmanager
def _one_line_errors(source: str) -> Iterator[None]:
    """Turns the errors of polars into one InputError."""
    try:
        yield
    except _FAULTS as error:
        reason = short_reason(error)
        raise InputError(f"Corpus {source} cannot be read: {reason}.") from error


class _Rows:
    """The rows of a table, and what was left out of them so far."""

    def __init__(
        self, frame: pl.LazyFrame, head: pl.DataFrame, columns: Columns, source: str
    ):
        self._columns, self._source = columns, source
        self._has_order = columns.order not in ("", NO_ORDER)
        self._num_rows = self._num_missing = self._num_long = self._num_weightless = 0
        item = head.schema[columns.items or columns.item]
        if isinstance(item, pl.List | pl.Array):
            item = item.inner  # type: ignore[assignment]  # an instance, by its check
        is_text = item == pl.String or isinstance(item, pl.Categorical | pl.Enum)
        self.key_type: Literal["text", "integer"] = "text" if is_text else "integer"
        self._item = item
        self._session = head.schema.get(columns.session)
        wanted = {"items": columns.items} if columns.items else {}
        if not columns.items:
            wanted = {"session": columns.session, "item": columns.item}
        exprs = [pl.col(name).alias(kind) for kind, name in wanted.items()]
        if self._has_order:
            exprs.append(self._order(head[columns.order]))
            exprs.append(pl.col(columns.order).alias("given"))
        if columns.weights:
            exprs += weight_columns(columns.weights, head.schema[columns.weights])
        self.frame = frame.select(exprs)

    def chunks(self, folder: Path) -> Iterator[Chunk]:
        self._num_rows = self._num_missing = self._num_long = self._num_weightless = 0
        batches = self.frame.collect_batches(
            chunk_size=_BATCH_ROWS, maintain_order=True
        )
        if self._columns.items:
            yield from map(self._of_lists, batches)
        else:
            order = ["order"] if self._has_order else []
            rows = map(self._cleaned, batches)
            frames = sorted_groups(rows, "session", order, folder)
            yield from map(self._of_rows, frames)  # which keeps none
        self._log_left_out()

    def _of_rows(self, frame: pl.DataFrame) -> Chunk:
        """The sessions of sorted rows, without those with weight 0."""
        lengths = frame["session"].rle().struct.field("len").to_numpy().astype(np.int64)
        if not self._columns.weights:
            return Chunk(frame["item"], lengths, is_open=False)
        weights = weights_of_sessions(
            *(frame["session"], frame["weight"], lengths),
            *(self._columns.weights, self._source),
        )
        whole = weights > 0
        self._num_weightless += int(np.count_nonzero(~whole))
        items = frame["item"].filter(pl.Series(np.repeat(whole, lengths)))
        return Chunk(items, lengths[whole], False, weights[whole].astype(np.float32))

    def _of_lists(self, batch: pl.DataFrame) -> Chunk:
        """The sessions of lists, without missing items; a missing list is empty."""
        weights = None
        if self._columns.weights:
            check_weights(batch, self._columns.weights, self._source)
            kept = batch.filter(pl.col("weight") > 0)
            self._num_weightless += len(batch) - len(kept)
            batch, weights = kept, kept["weight"].to_numpy().astype(np.float32)
        lists = batch["items"].cast(pl.List(self._item)).fill_null([])
        lengths = lists.list.len().to_numpy().astype(np.int64)
        numbers = np.repeat(np.arange(len(lengths)), lengths)
        items = pl.DataFrame(
            {"item": lists.filter(pl.Series(lengths > 0)).explode(), "session": numbers}
        )
        self._check_integral(items, "item", self._columns.items, self._item)
        items = items.with_columns(_text("item", self._item))
        kept = self._without_missing(items)
        counts = np.bincount(kept["session"].to_numpy(), minlength=len(lengths))
        return Chunk(kept["item"], counts.astype(np.int64), False, weights)

    def _cleaned(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Session and item as text, and the order, without rows that lack one."""
        assert self._session is not None, "`choose_columns` has checked it"
        self._check_integral(batch, "item", self._columns.item, self._item)
        self._check_integral(batch, "session", self._columns.session, self._session)
        if self._has_order:
            self._check_order(batch)
        texts = _text("session", self._session), _text("item", self._item)
        others = ["order"] if self._has_order else []
        if self._columns.weights:
            check_weights(batch, self._columns.weights, self._source)
            others.append("weight")
        return self._without_missing(batch.select(*texts, *others))

    def _without_missing(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` without nulls, empty text and items that are too long; counts them."""
        keys = [name for name in ("session", "item") if rows[name].dtype == pl.String]
        whole = rows.drop_nulls().filter(pl.col(name) != "" for name in keys)
        kept = whole.filter(pl.col("item").str.len_bytes() <= MAX_TOKEN_BYTES)
        self._num_rows += len(rows)
        self._num_missing += len(rows) - len(whole)
        self._num_long += len(whole) - len(kept)
        return kept

    def _log_left_out(self) -> None:
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

    def _check_integral(
        self, rows: pl.DataFrame, kind: str, column: str, dtype: pl.DataType
    ) -> None:
        """Refuses floats that are not exact integers."""
        if not dtype.is_float():
            return
        values = rows[kind].fill_nan(None).drop_nulls().cast(pl.Float64)
        wrong = values.filter((values != values.floor()) | (values.abs() >= _EXACT))
        if len(wrong):
            option = "items" if self._columns.items else kind
            raise InputError(
                f"`{option}` must be a column of integers or text: `{column}` of "
                f"{self._source} has {wrong[0]!r}."
            )

    def _order(self, head: pl.Series) -> pl.Expr:
        """The order as a number or a time."""
        column = pl.col(head.name).alias("order")
        if head.dtype.is_float():
            return column.fill_nan(None)
        if head.dtype != pl.String:
            return column
        given = pl.when(column != "").then(column)  # `replace` would read all rows
        return _parsed(given.alias("order"), head.replace("", None).drop_nulls())

    def _check_order(self, batch: pl.DataFrame) -> None:
        """Refuses text that is neither a number nor a time as the first rows have."""
        if batch["given"].dtype != pl.String:
            return
        wrong = batch.filter(pl.col("order").is_null() & (pl.col("given") != ""))
        if len(wrong):
            raise InputError(
                f"`order` must be a column of numbers, or of times as 2024-12-31 or "
                f"2024-12-31 23:59:00, of one kind: `{self._columns.order}` of "
                f"{self._source} has {wrong['given'][0]!r}. --order none takes the "
                "order of the rows."
            )


def _parsed(column: pl.Expr, head: pl.Series) -> pl.Expr:
    """Text as numbers or times, by what all the first values are; else null."""
    numbers = [column.cast(dtype, strict=False) for dtype in (pl.Int64, pl.Float64)]
    times = [
        column.str.to_datetime(form, time_unit="us", strict=False) for form in _TIMES
    ]
    frame = head.to_frame()
    for each in itertools.chain(numbers, times):
        if not frame.select(each).to_series().null_count():
            return each
    return numbers[0]


def _text(kind: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(kind)
    if dtype.is_float():
        column = column.fill_nan(None).cast(pl.Int64)
    return column.cast(pl.String)
