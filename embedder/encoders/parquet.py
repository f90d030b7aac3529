"""Examples in parquet files: a row is an example."""

from pathlib import Path

import numpy as np
import polars as pl

from embedder.disk.files import check_utf8_path
from embedder.disk.untrusted import TooLargeError, read_table
from embedder.encoders.examples import (
    Examples,
    ExampleSet,
    Source,
    file_set,
    make_examples,
)
from embedder.errors import InputError
from embedder.limits import gib, memory_limit

_WIDE = (pl.Int128, pl.UInt128)  # integers that NumPy does not have


def open_parquet(source: Source) -> ExampleSet | None:
    """The examples in a .parquet file."""
    path, options = source.path, source.options
    if path.suffix != ".parquet" or path.is_dir():
        return None
    return file_set(
        source.stem,
        source,
        [path],
        lambda: read_parquet(path, options.label, options.key),
    )


def read_parquet(path: Path, label: str = "label", key: str = "") -> Examples:
    """Examples from rows: columns of numbers or of lists of them, and a label.

    Args:
      label: column of the labels.
      key: column of unique names of the rows; empty: their numbers.

    Raises:
      InputError: a column is missing or does not hold numbers, lists differ in length,
        or keys are missing or not unique.
    """
    check_utf8_path(path, "A parquet file")
    limit = memory_limit()
    try:
        frame = read_table(path, limit.size / 2)  # the features are a copy of it
    except TooLargeError as error:
        raise InputError(
            f"{path}: {error}, more than half the {gib(limit.size)} of {limit.source}: "
            "give a part of it."
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not a parquet file: {error}.") from error
    for option, column in (("label", label), ("key", key)):
        if column and column not in frame.columns:
            known = ", ".join(frame.columns[:20])
            raise InputError(
                f"`{option}` must be a column of {path} ({known}), got {column!r}."
            )
    columns = [name for name in frame.columns if name not in (label, key)]
    others = [name for name in columns if not _is_numeric(frame[name].dtype)]
    if others or not columns:
        raise InputError(
            f"{path}: columns must be numbers, got {', '.join(others) or 'none'}; name "
            "that of the labels by --label and that of names by --key."
        )
    if frame.is_empty():
        raise InputError(f"{path} has no rows.")
    parts = [_column(path, frame[name]) for name in columns]
    features = np.concatenate(parts, axis=1)
    keys = _keys(path, frame[key]) if key else None
    kind = frame[label].dtype
    if kind in _WIDE or isinstance(kind, pl.List | pl.Struct):
        raise InputError(
            f"{path}: column `{label}` must be numbers or text, got {kind}."
        )
    if frame[label].null_count():
        raise InputError(f"{path}: column `{label}` has rows without a value.")
    return make_examples(features, frame[label].to_numpy(), str(path), keys)


def _is_numeric(dtype: pl.DataType) -> bool:
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
    return (inner.is_numeric() or inner == pl.Boolean) and inner not in _WIDE


def _column(path: Path, column: pl.Series) -> np.ndarray:
    """The values of a column, [n, 1], or [n, k] where it has lists of k numbers."""
    if isinstance(column.dtype, pl.List):
        lengths = column.list.len().unique()
        if len(lengths) != 1 or column.null_count():
            raise InputError(f"{path}: lists of `{column.name}` differ in length.")
        column = column.list.to_array(int(lengths[0]))
    if column.null_count():
        raise InputError(f"{path}: column `{column.name}` has rows without a value.")
    array = column.to_numpy()
    return array.reshape(len(array), -1)


def _keys(path: Path, column: pl.Series) -> list[str]:
    """The keys of the rows, checked before training: vectors are written by key."""
    where = f"{path}: column `{column.name}`"
    try:
        names = column.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{where} must be names, got {column.dtype}.") from error
    if names.null_count() or (names == "").any():
        raise InputError(f"{where} has rows without a value.")
    if names.is_duplicated().any():
        repeated = names.filter(names.is_duplicated())[0]
        raise InputError(f"{where} must be unique, got {repeated!r} more than once.")
    return names.to_list()
