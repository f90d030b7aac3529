"""Names of keys, in a table with the columns key, name and others."""

import contextlib
import io
import math
import operator
import os
import re
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import polars as pl

from embedder.base.limits import check_room
from embedder.base.threads import use_threads
from embedder.data.tables.reader import Table, key_text, named_faults, open_table
from embedder.data.tables.text_form import Roles
from embedder.disk.copies import local_copy
from embedder.errors import InputError, InputNotFoundError
from embedder.vectors.spelling import near_keys

KEY_COLUMNS = (
    *("key", "id", "node", "item", "token", "word", "product", "sku", "asin"),
    *("stockcode", "article", "movie", "track", "song", "book", "isbn", "page"),
)
"""Usual names of the column of keys."""

_ROLES = Roles(
    usual={
        "key": KEY_COLUMNS,
        "name": ("name", "title", "label", "itemname", "productname", "producttitle"),
    },
    needed=("key", "name"),
)
_SHARE, _TEXT_BYTES = 6, 16  # memory of Python's text to that of polars; of each
_ORDERS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_OPERATOR = re.compile("<=|>=|<|>|=|~")
_MAX_SHOWN = 10  # values of a column in a message


def read_names(path: str | Path) -> "Names":
    """The names of keys in a table, in any format of a corpus, or at a URL of one.

    Columns with usual names, as key and name, item and title, are the keys and names;
    else the first two are.

    Raises:
      OSError: the file does not exist, or cannot be read.
      InputError: it is not a table of two columns or more, or does not fit.
    """
    use_threads()
    path = Path(local_copy(os.fspath(path)))
    if not path.exists():
        raise InputNotFoundError(f"`names` {path} does not exist.")
    with named_faults(f"`names` {path}"):
        table = open_table([path], _ROLES)
        if len(table.names) < 2:
            raise InputError(
                f"`names` must be a table with the columns key and name, got {path} "
                f"with {table.names}."
            )
        size = table.check_rows(table.names)
        key, name = _columns(table)
        others = [each for each in table.names if each not in (key, name)]
        frame = table.read([key, name, *others], keys=[key])
        size = _SHARE * (size + 2 * _TEXT_BYTES * len(frame))
        check_room(size, f"`names` {path} takes", "give fewer names")
    names = Names(frame.lazy(), path)
    _ = names.of_key  # reads them, so that a damaged file is refused here
    return names


def _columns(table: Table) -> tuple[str, str]:
    """The columns of keys and of names: those with usual names for both, if one is for
    each, else the first two."""
    keys, names = (_ROLES.columns(role, table.names) for role in ("key", "name"))
    if len(keys) == len(names) == 1 and keys != names:
        return keys[0], names[0]
    first, second, *_ = table.names
    return first, second


class Names:
    """Names of keys: a table whose first two columns are keys and names.

    A key may have several rows, as a product in several categories.

    Args:
      frame: the table; keys and names are read as text.
      path: what messages call it.
    """

    def __init__(self, frame: pl.LazyFrame, path: Path):
        self._path, self._table = path, frame
        self._schema = frame.collect_schema()
        self.key, self.name, *_ = self._schema.names()
        texts = (
            key_text(self.key, self._schema[self.key]),
            _text(self.name).str.strip_chars(),
        )
        self._frame = frame.with_columns(texts).filter(pl.col(self.key).is_not_null())

    @property
    def path(self) -> Path:
        """The file of the table."""
        return self._path

    @property
    def content(self) -> bytes:
        """The table as a parquet file."""
        data = io.BytesIO()
        with named_faults(f"`names` {self.path}"):
            self._table.collect().write_parquet(data)
        return data.getvalue()

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return self._schema.names()

    @cached_property
    def of_key(self) -> dict[str, str]:
        """Key -> name; of several names of a key the first."""
        frame = self._frame.select(self.key, self.name).drop_nulls()
        first = frame.unique(self.key, keep="first", maintain_order=True)
        return dict(self._collect(first).iter_rows())

    def keys_named(self, name: str, known: Collection[str]) -> list[str]:
        """The `known` keys with a name, whatever its case.

        Raises:
          InputError: there is none; the message has near names.
        """
        folded, names = name.strip().casefold(), self.of_key
        known = {*known}
        keys = [k for k, x in names.items() if x.casefold() == folded and k in known]
        if keys:
            return keys
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
        criteria = [self._condition(text) for text in conditions]
        frame = self._values({each.column for each in criteria})
        for each in criteria:
            self._check_met(each, frame)
        met = [each.met for each in criteria if each.operator != "="]
        choices: dict[str, list[pl.Expr]] = {}
        for each in criteria:
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
        with named_faults(f"`names` {self.path}"):
            return frame.collect()

    def _values(self, columns: set[str]) -> pl.DataFrame:
        """Keys and `columns`, with a row for each element of a list."""
        frame = self._frame.select({self.key} | columns)
        for name in columns:
            if isinstance(self._schema[name], pl.List | pl.Array):
                frame = frame.explode(name)
        return self._collect(frame)

    def _condition(self, text: str) -> "_Condition":
        """The condition that `text` is, at the first operator after a column."""
        operators = [*_OPERATOR.finditer(text)]
        if not operators:
            raise InputError(
                "`where` must be COLUMN=VALUE, or have one of ~ < <= > >= for =, got "
                f"{text!r}."
            )
        for each in operators:
            column = text[: each.start()].strip()
            if column in self._schema:
                break
        else:
            column = text[: operators[0].start()].strip()
            raise InputError(
                f"`where` {text!r}: {self.path} has no column {column!r}; it has "
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
                f"{start}: {condition.column!r} of {self.path} has no numbers."
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
        raise InputError(f"{start}: no row of {self.path} has it{_hint(near)}")


def without_names(names: Names) -> str:
    """The warning about a table that has no name of the keys in question."""
    return (
        f"`names` {names.path} has no name of these keys: its first column, "
        f"{names.key!r}, must have the keys, and its second the names."
    )


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
        return self.operator in _ORDERS

    @property
    def met(self) -> pl.Expr:
        """Whether a row meets it; a missing value does not."""
        if self.is_comparison:
            return _ORDERS[self.operator](self._numbers, self._number)
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


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)


def _hint(near: Sequence[str]) -> str:
    return f": did you mean {' or '.join(map(repr, near))}?" if near else "."
