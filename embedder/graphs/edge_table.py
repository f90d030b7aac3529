"""The columns of a table of edges: ends as text, and weights."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from embedder.errors import InputError

_SOURCES = ("source", "src", "from", "node1", "u", "head")
_TARGETS = ("target", "dst", "to", "node2", "v", "tail")


class EdgeColumns(NamedTuple):
    """Names of the columns of an edge list; "": by their order."""

    source: str = ""
    target: str = ""
    weight: str = ""


def are_names_of_ends(names: list[str]) -> bool:
    """Whether the first two names are usual ones of a source and a target."""
    low = [name.strip().lower() for name in names[:2]]
    return low[0] in _SOURCES and low[1] in _TARGETS


def pick_columns(names: list[str], columns: EdgeColumns, path: Path) -> EdgeColumns:
    """The columns of source, target and weight, "" without weights.

    Raises:
      InputError: there is no such column, or it is open which they are.
    """
    found = ", ".join(names)
    if not (columns.source and columns.target):
        if any(columns) or len(names) not in (2, 3):
            raise InputError(
                f"{path} has the columns {found}: an edge list has two or three, or "
                "name them by --source, --target and --weight."
            )
        return EdgeColumns(*names)
    for option, name in columns._asdict().items():
        if name and name not in names:
            raise InputError(
                f"`{option}` must be a column of {path}, got {name!r}; it has {found}."
            )
    return columns


def ends_and_weights(
    table: pl.DataFrame,
    columns: EdgeColumns,
    path: Path,
    unit: str = "row",
    numbers: pl.Series | None = None,
) -> pl.DataFrame:
    """Columns source and target as text, and weight as f64 if there is one.

    Args:
      numbers: of the rows in the file, for messages; None: from 1.

    Raises:
      InputError: a column is missing or of another type; an end is missing; a weight
        is not finite and > 0.
    """
    picked = pick_columns(table.columns, columns, path)
    found = {}
    for end, name in (("source", picked.source), ("target", picked.target)):
        values = table[name]
        if not (values.dtype.is_integer() or values.dtype in _TEXT):
            raise InputError(
                f"{path}: column {name} must be text or integers, got {values.dtype}."
            )
        found[end] = values.cast(pl.String)
        is_missing = found[end].is_null() | (found[end] == "")
        where = _first(is_missing, numbers)
        if where is not None:
            raise InputError(f"{path} has no {end} in {unit} {where}.")
    if picked.weight:
        found["weight"] = _weights(table[picked.weight], path, unit, numbers)
    return pl.DataFrame(found)


_TEXT = (pl.String, pl.Categorical, pl.Enum)


def _weights(
    given: pl.Series, path: Path, unit: str, numbers: pl.Series | None
) -> pl.Series:
    weights = given.cast(pl.Float64, strict=False).rename("weight")
    is_right = weights.is_not_null() & weights.is_finite() & (weights > 0)
    is_wrong = ~is_right.fill_null(False)
    where = _first(is_wrong, numbers)
    if where is not None:
        value = given.filter(is_wrong)[0]
        raise InputError(
            f"{path}: a weight must be a finite number > 0, got {value!r} in {unit} "
            f"{where}."
        )
    return weights


def _first(mask: pl.Series, numbers: pl.Series | None) -> int | None:
    """The number of the first row of `mask`; None: there is none."""
    index = mask.arg_max() if mask.any() else None
    if index is None:
        return None
    return index + 1 if numbers is None else int(numbers[index])
