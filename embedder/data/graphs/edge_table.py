"""The columns of a table of edges: ends as text, and weights."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from embedder.data.tables.reader import (
    Table,
    check_integers,
    named_faults,
    number,
    open_table,
)
from embedder.data.tables.text_form import (
    BLANKS,
    Roles,
    is_integer,
    is_missing,
    is_number,
    plain_name,
)
from embedder.errors import InputError

_ROLES = Roles(
    {
        "source": (
            *("source", "src", "from", "fromnode", "node1", "nodea", "u", "head"),
            *("sourcenode", "user", "follower", "sender", "citing", "author1"),
        ),
        "target": (
            *("target", "dst", "to", "tonode", "node2", "nodeb", "v", "tail"),
            *("targetnode", "item", "followee", "receiver", "cited", "author2"),
        ),
        "weight": (
            *("weight", "w", "value", "count", "n", "num", "number", "times"),
            *("strength", "score", "amount", "freq", "frequency", "rating"),
        ),
    },
    needed=("source", "target"),
    is_header=lambda rows: _is_header(rows),
    blanks=True,
)
_NO_WEIGHTS = {
    *("time", "timestamp", "ts", "date", "datetime", "year", "month", "day", "id"),
    *("type", "relation", "kind", "label", "name"),
}
_ATTRIBUTE = r"""['"]weight['"]\s*:\s*([^,}\s]+)"""
_ID_NAME = re.compile(r"[A-Za-z]\w*([_ -][Ii][Dd]|[a-z](Id|ID))")  # of a column
_HEAD_ROWS = 1000
_BATCH_ROWS = 2**19
_log = logging.getLogger(__name__)


class EdgeColumns(NamedTuple):
    """Names of the columns of an edge list; "": by usual names, or by their order."""

    source: str = ""
    target: str = ""
    weight: str = ""


class EdgeTable:
    """The edges in a file of rows and columns.

    Raises:
      InputError: it is open which columns are the ends, or the file is damaged.
      OSError: it cannot be read.
    """

    def __init__(self, path: Path, columns: EdgeColumns):
        roles = _ROLES._replace(asked=tuple(filter(None, columns)))
        self._path = path
        with named_faults(path):
            self._table = open_table([path], roles)
            head = self._table.head(_HEAD_ROWS)
        self._is_of_attributes = bool((form := self._table.form) and form.attributes)
        self._columns = _used_columns(self._table, head, columns, path)
        if self._is_of_attributes:
            third = self._table.names[2]
            has_weight = head[third].str.contains(_ATTRIBUTE).any()
            self._columns = self._columns._replace(weight=third if has_weight else "")
        names = _konect_columns(self._table, path) or self._table.names
        used = {*self._columns, *self._table.partitions}
        is_found = not (any(columns) or self._is_of_attributes)
        self._left_out = [x for x in names if is_found and x not in used]

    @property
    def columns(self) -> EdgeColumns | None:
        """The columns of the edges; None: they have no names."""
        return self._columns if self._table.has_names else None

    def frames(self) -> Iterator[pl.DataFrame]:
        """Columns source and target as text, and weight as f64 if there is one, of some
        edges at a time.

        Raises:
          InputError: an end is missing, or a weight is not finite and > 0; the message
            has the line.
        """
        table, ends = self._table, [*self._columns[:2]]
        wanted = [*filter(None, self._columns)]
        self._log_form()
        with named_faults(self._path):
            table.check_rows(wanted)
            for batch in table.batches(wanted, keys=ends, size=_BATCH_ROWS):
                batch = batch.filter(~pl.all_horizontal(pl.all().is_null()))
                columns = {
                    end: self._ends(batch[name], end)
                    for end, name in zip(("source", "target"), ends, strict=True)
                }
                if self._columns.weight:
                    columns["weight"] = self._weights(batch[self._columns.weight])
                yield pl.DataFrame(columns)

    def _log_form(self) -> None:
        form, weight = self._table.form, self._columns.weight
        if form is not None and form.has_header:
            _log.info("%s: line %d is the header.", self._path, form.header)
        if weight:
            comma = ", with decimal commas" if self._table.decimal_comma else ""
            _log.info("%s: %s is the weight%s.", self._path, weight, comma)
        if self._left_out:
            text = "%s: columns left out: %s; --weight takes one."
            _log.info(text, self._path, ", ".join(self._left_out))

    def _ends(self, values: pl.Series, end: str) -> pl.Series:
        texts = values.str.strip_chars(BLANKS)
        if self._table.has_fractions(values.name):
            check_integers(texts, end, values.name, str(self._path))
        if (texts.is_null() | (texts == "")).any():
            where = self._table.place(
                values.name, lambda x: x.is_null() | (x.cast(pl.String) == "")
            )
            raise InputError(f"{where} has no {end}.")
        return texts

    def _weights(self, values: pl.Series) -> pl.Series:
        if self._is_of_attributes:  # 1 where it is missing, as for networkx
            texts = values.str.extract(_ATTRIBUTE)
            values = texts.fill_null("1").alias(values.name)
        dtype, comma = values.dtype, self._table.decimal_comma
        cells = number(pl.col(values.name), dtype, comma).alias("weight")
        weights = values.to_frame().select(cells).to_series()
        is_right = (weights.is_finite() & (weights > 0)).fill_null(False)
        if not is_right.all():
            value = values.filter(~is_right)[0]
            where = self._table.place(
                values.name, lambda x: x.is_null() if value is None else x == value
            )
            shown = "none" if value is None else repr(value)
            raise InputError(
                f"{where}: a weight must be a finite number > 0, got {shown} in "
                f"`{values.name}`."
            )
        return weights


def _is_header(rows: list[list[str]]) -> bool:
    """Whether the first row is a header: its ends are names of ids, as author_id, and
    no later ones are; its third cell is a name above numbers; or its ends are no
    integers, while all later ones are."""
    first, later = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    if len(first) < 2:
        return False
    names = [bool(_ID_NAME.fullmatch(cell)) for cell in first[:2]]
    below = (_ID_NAME.fullmatch(cell) for row in later for cell in row[:2])
    if later and all(names) and not any(below):
        return True
    if len(first) == 3 and not is_number(first[2]) and not is_missing(first[2]):
        return all(is_number(row[2]) or is_missing(row[2]) for row in later)
    ends = [cell for row in later for cell in row[:2]]
    are_integers = bool(ends) and all(map(is_integer, ends))
    return are_integers and not any(map(is_integer, first[:2]))


def _used_columns(
    table: Table, head: pl.DataFrame, columns: EdgeColumns, path: Path
) -> EdgeColumns:
    """`columns` with those that are not named, found by usual names or their order,
    not among partitions; weight is "" without weights."""
    names = _konect_columns(table, path) or table.names
    for option, name in columns._asdict().items():
        if name and name not in names:
            raise InputError(
                f"`{option}` must be a column of {path}, got {name!r}; it has "
                f"{', '.join(names)}."
            )
    used = columns
    if not (columns.source and columns.target):
        of_rows = [name for name in names if name not in table.partitions]
        names = of_rows if len(of_rows) >= 2 else names
        ends = [_ROLES.columns(kind, names) for kind in ("source", "target")]
        if any(columns) or not all(len(usual) == 1 for usual in ends):
            if any(columns) or len(names) not in (2, 3):
                raise InputError(
                    f"{path} has the columns {', '.join(names)}: an edge list has two "
                    "or three, or name them by --source, --target and --weight."
                )
            ends = [[names[0]], [names[1]]]
        (source,), (target,) = ends
        weight = _weight(names, head, {source, target}, path, table.has_names)
        used = EdgeColumns(source, target, weight)
    for name in used[:2]:
        dtype = table.schema[name]
        is_text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
        if not (is_text or table.is_integers(name)):
            raise InputError(
                f"{path}: column {name} must be text or integers, got {dtype}."
            )
    return used


def _konect_columns(table: Table, path: Path) -> list[str]:
    """The columns of ends and weights in a file of KONECT, by its first comment, as
    "% sym weighted" (Kunegis 2013, doi:10.1145/2487788.2488173); []: it is none.
    """
    form = table.form
    first = form.comments[0].split() if form and form.comments else []
    if first[:1] != ["%"] or len(first) < 3 or first[1] not in ("sym", "asym", "bip"):
        return []
    if first[1] == "bip":
        raise InputError(
            f"{path} is bipartite: nodes of both columns have the same numbers. Write "
            "them with different names, as u1 and v1."
        )
    return table.names[: 2 if first[2] == "unweighted" else 3]


def _is_range(values: pl.Series) -> bool:
    """Whether values are the numbers of the rows, from 0 or 1."""
    numbers = values.cast(pl.Float64, strict=False)
    start = numbers[0] if len(numbers) > 2 else None
    rows = np.arange(len(numbers))
    return start in (0, 1) and (numbers.to_numpy() == start + rows).all().item()


def _weight(
    names: list[str], head: pl.DataFrame, ends: set[str], path: Path, has_names: bool
) -> str:
    """The column of weights: the one with a usual name, or the only other one, unless
    its name is of something else, or it is empty or an index; "": there is none."""
    others = [name for name in names if name not in ends]
    usual = _ROLES.columns("weight", others)
    candidates = usual if len(usual) == 1 else others
    name = candidates[0] if len(candidates) == 1 else ""
    is_empty = bool(name) and not (head[name].cast(pl.String) != "").any()
    is_index = bool(name) and not usual and has_names and _is_range(head[name])
    if name and (plain_name(name) in _NO_WEIGHTS or is_empty or is_index):
        name = ""
    return name
