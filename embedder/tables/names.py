"""Names of keys, in a table with the columns key, name and others."""

import contextlib
import math
import operator
import os
import re
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import polars as pl

from embedder.disk.copies import local_copy
from embedder.disk.files import short_reason
from embedder.disk.untrusted import UnreadableError
from embedder.errors import InputError
from embedder.limits import check_room
from embedder.tables.table_files import read_first, scan_tables
from embedder.threads import use_threads
from embedder.vectors.spelling import near_keys

_FAULTS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    UnreadableError,
)
_SHARE = 6  # of memory for Python's text to that of polars
_COMPARISONS = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_OPERATOR = re.compile("<=|>=|<|>|=|~")
_MAX_SHOWN = 10  # values of a column in a message


def read_names(path: str | Path) -> "Names":
    """The names of keys in a table, in any format of a corpus, or at a URL of one.

    Raises:
      OSError: the file cannot be read.
      InputError: it is not a table of two columns or more, or does not fit.
    """
    use_threads()
    path = Path(local_copy(os.fspath(path)))
    try:
        frame = scan_tables([path])
        size = _SHARE * read_first(frame, [path])
        check_room(size, f"`names` {path} takes", "give fewer names")
        columns = frame.collect_schema().names()
    except _FAULTS as error:
        raise _unreadable(path, error) from error
    if len(columns) < 2:
        raise InputError(
            f"`names` must be a table with the columns key and name, got {path} "
            f"with {columns}."
        )
    names = Names(frame, path)
    _ = names.of_key  # reads them, so that a damaged file is refused here
    return names


class Names:
    """Names of keys: a table whose first two columns are keys and names.

    A key may have several rows, as a product in several categories.

    Args:
      frame: the table; keys and names are read as text.
      path: what messages call it.
    """

    def __init__(self, frame: pl.LazyFrame, path: Path):
        self._path = path
        self._schema = frame.collect_schema()
        self.key, self.name, *_ = self._schema.names()
        texts = _keys(self.key, self._schema), _text(self.name).str.strip_chars()
        self._frame = frame.with_columns(texts).filter(pl.col(self.key).is_not_null())

    @property
    def path(self) -> Path:
        """The file of the table."""
        return self._path

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return self._schema.names()

    @cached_property
    def of_key(self) -> dict[str, str]:
        """Key -> name; of several names of a key the first."""
        frame = self._collect(self._frame.select(self.key, self.name).drop_nulls())
        names: dict[str, str] = {}
        for key, name in frame.iter_rows():
            names.setdefault(key, name)
        return names

    def keys_named(self, name: str, known: Collection[str]) -> list[str]:
        """The `known` keys with a name, whatever its case.

        Raises:
          InputError: there is none; the message has near names.
        """
        folded, names = name.strip().casefold(), self.of_key
        known = {*known}
        found = [k for k, x in names.items() if x.casefold() == folded and k in known]
        if found:
            return found
        all_known = [names[key] for key in names if key in known]
        near = near_keys(name.upper(), all_known) or near_keys(name, all_known)
        raise InputError(
            f"`name` {name!r} is the name of no key in the vocabulary{_hint(near)}"
        )

    def keys_where(self, conditions: Sequence[str]) -> set[str]:
        """The keys with a row that meets all conditions.

        Args:
          conditions: as "category=Kitchen", "title~mug" (the value contains the text,
            whatever its case) or "price<5", also with `<=`, `>` and `>=`. Of several
            values of a column by `=` one is enough. Each element of a list is a value.

        Raises:
          InputError: a column is unknown, or no row meets a condition; the message has
            the columns, or near values.
        """
        asked = [self._condition(text) for text in conditions]
        frame = self._values({each.column for each in asked})
        for each in asked:
            self._check_met(each, frame)
        met = [each.met for each in asked if each.operator != "="]
        choices: dict[str, list[pl.Expr]] = {}
        for each in asked:
            if each.operator == "=":
                choices.setdefault(each.column, []).append(each.met)
        met += map(pl.any_horizontal, choices.values())
        return {*frame.filter(pl.lit(True), *met)[self.key]}

    def rows(self, keys: Sequence[str]) -> pl.DataFrame:
        """The name and the other columns, a row for each of `keys`; null: not known.

        Of several rows of a key, the first value of each column.
        """
        values = pl.all().drop_nulls().first()
        first = self._frame.group_by(self.key, maintain_order=True).agg(values)
        wanted = pl.DataFrame({self.key: pl.Series(keys, dtype=pl.String)}).lazy()
        joined = wanted.join(first, on=self.key, how="left", maintain_order="left")
        return self._collect(joined.drop(self.key))

    def _collect(self, frame: pl.LazyFrame) -> pl.DataFrame:
        try:
            return frame.collect()
        except pl.exceptions.PolarsError as error:
            raise _unreadable(self._path, error) from error

    def _values(self, columns: set[str]) -> pl.DataFrame:
        """Keys and `columns`, with a row for each element of a list."""
        frame = self._frame.select({self.key} | columns)
        for name in columns:
            if isinstance(self._schema[name], pl.List | pl.Array):
                frame = frame.explode(name)
        return self._collect(frame)

    def _condition(self, text: str) -> "_Condition":
        """The condition that `text` is, at the first operator after a column."""
        found = [*_OPERATOR.finditer(text)]
        if not found:
            raise InputError(
                "`where` must be COLUMN=VALUE, or have one of ~ < <= > >= for =, got "
                f"{text!r}."
            )
        for each in found:
            column = text[: each.start()].strip()
            if column in self._schema:
                break
        else:
            column = text[: found[0].start()].strip()
            raise InputError(
                f"`where` {text!r}: {self._path} has no column {column!r}; it has "
                f"{', '.join(map(repr, self.columns))}."
            )
        dtype = self._schema[column]
        if isinstance(dtype, pl.List | pl.Array):
            dtype = dtype.inner  # type: ignore[assignment]  # an instance
        value = text[each.end() :].strip()
        return _Condition(text, column, each.group(), value, dtype)

    def _check_met(self, condition: "_Condition", frame: pl.DataFrame) -> None:
        """Refuses a condition that no row of `frame` meets, with near values."""
        start = f"`where` {condition.text!r}"
        if condition.is_comparison and not condition.has_numbers(frame):
            raise InputError(
                f"{start}: {condition.column!r} of {self._path} has no numbers."
            )
        if frame.select(condition.met.any()).item():
            return
        near: list[str] = []
        if not condition.is_comparison:
            values = frame.select(_text(condition.column).unique(maintain_order=True))
            known = values.to_series().drop_nulls().to_list()
            near = near_keys(condition.value, known)
            if not near and len(known) <= _MAX_SHOWN:
                near = known
        raise InputError(f"{start}: no row of {self._path} has it{_hint(near)}")


class _Condition(NamedTuple):
    """A comparison of a column with a value."""

    text: str
    column: str
    operator: str
    value: str
    dtype: pl.DataType  # of the column, or of the elements of its lists

    @property
    def is_comparison(self) -> bool:
        """Whether it compares numbers by their order."""
        return self.operator in _COMPARISONS

    @property
    def met(self) -> pl.Expr:
        """Whether a row meets it; a missing value does not."""
        if self.is_comparison:
            return _COMPARISONS[self.operator](self._numbers, self._number)
        text = _text(self.column).str.strip_chars()
        if self.operator == "~":
            lower = text.str.to_lowercase()
            met = lower.str.contains(self.value.lower(), literal=True)
        elif self.dtype.is_float():
            met = self._numbers == self._number
        else:
            met = text == self.value
        return met.fill_null(False)

    def has_numbers(self, frame: pl.DataFrame) -> bool:
        """Whether the column has a number."""
        return not frame.select(self._numbers.is_null().all()).item()

    @property
    def _numbers(self) -> pl.Expr:
        column = pl.col(self.column)
        if self.dtype == pl.String:
            column = column.str.strip_chars()
        return column.cast(pl.Float64, strict=False).fill_nan(None)

    @property
    def _number(self) -> float:
        with contextlib.suppress(ValueError):
            if not math.isnan(number := float(self.value)):
                return number
        raise InputError(
            f"`where` {self.text!r}: the value must be a number, got {self.value!r}."
        )


def _keys(column: str, schema: pl.Schema) -> pl.Expr:
    """Keys as text; floats, as of integers with missing values, as integers."""
    keys = pl.col(column)
    if not schema[column].is_float():
        return keys.cast(pl.String)
    keys = keys.fill_nan(None)
    integers = keys.cast(pl.Int64, strict=False)
    is_integer = integers.cast(schema[column]) == keys
    texts = integers.cast(pl.String), keys.cast(pl.String)
    return pl.when(is_integer).then(texts[0]).otherwise(texts[1])


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)


def _hint(near: Sequence[str]) -> str:
    return f": did you mean {' or '.join(map(repr, near))}?" if near else "."


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"`names` {path} cannot be read: {short_reason(error)}.")
