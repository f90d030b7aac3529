"""Examples in tables: a row is an example.

Its features are columns of numbers, or one column of encoded images: of bytes, or of
structs with the field `bytes`, as Hugging Face's datasets have them.
"""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from embedder.base.limits import NoRoomError, gib, memory_limit
from embedder.data.examples.examples import (
    Decode,
    Examples,
    ExampleSet,
    Source,
    file_set,
    make_examples,
    name_difference,
)
from embedder.data.examples.images import StoredImage
from embedder.data.tables.reader import Table, named_faults, number, open_table
from embedder.data.tables.table_formats import PARQUET, parquet_facts, table_endings
from embedder.data.tables.text_form import BLANKS, Roles
from embedder.disk.files import check_utf8_path
from embedder.errors import InputError

TABLES = tuple(each + packed for each in table_endings() for packed in ("", ".gz"))
"""Endings of the names of tables."""

_WIDE = (pl.Int128, pl.UInt128)  # integers that NumPy does not have
_log = logging.getLogger(__name__)


def open_table_of_examples(source: Source) -> ExampleSet | None:
    """The examples in tables: one file, those of a glob, or the Parquet files in a
    folder."""
    endings = PARQUET.endings if source.path.is_dir() else TABLES
    paths, options = source.files(endings), source.options
    if not paths:
        return None
    return file_set(
        *(source, paths),
        lambda decode: read_examples(
            *(paths, options.label, options.key, decode),
            *(source.needs_labels, source.columns),
        ),
    )


def read_examples(
    paths: Sequence[Path],
    label: str = "label",
    key: str = "",
    decode: Decode | None = None,
    needs_labels: bool = True,
    columns: tuple[str, ...] = (),
) -> Examples:
    """Examples from rows: columns of numbers, of lists or of images, and labels.

    Args:
      label: column of the labels.
      key: column of unique names of the rows; empty: their numbers.
      decode: reads a column of images; None: there must be none.
      needs_labels: False: rows without a label will do.
      columns: names of the features, as `Examples` has them: others are left out, and
        the log says so; (): all columns are features.

    Raises:
      InputError: a column is missing or does not hold numbers, lists differ in length,
        keys are missing or not unique, or files have other columns than the first or
        lack some of `columns`.
    """
    path = paths[0]
    frame = _read(paths, tuple(filter(None, (label, key))), columns)
    if not needs_labels and (label not in frame.columns or label in columns):
        label = ""
    for option, column in (("label", label), ("key", key)):
        if column and column not in frame.columns:
            known = ", ".join(frame.columns[:20])
            raise InputError(
                f"`{option}` must be a column of {path} ({known}), got {column!r}."
            )
    if frame.is_empty():
        raise InputError(f"{path} has no rows.")
    others = [name for name in frame.columns if name not in (label, key)]
    images = [name for name in others if _is_encoded(frame[name].dtype)]
    names: list[str] = []
    if columns:
        features, names = _known(path, frame, others, columns)
    elif len(images) == 1 and decode is not None:
        if rest := [name for name in others if name not in images]:
            text = "%s: columns beside the images, left out: %s."
            _log.warning(text, path, ", ".join(rest[:20]))
        features = decode(_images(path, frame[images[0]]))
    else:
        features, names = _numbers(path, frame, others)
    keys = _keys(path, frame[key]) if key else None
    labels = _labels(path, frame[label]) if label else None
    examples = make_examples(features, labels, str(path), keys)
    return examples._replace(columns=tuple(names))


def _read(
    paths: Sequence[Path], others: tuple[str, ...], features: tuple[str, ...]
) -> pl.DataFrame:
    """The rows of all files: the columns that are asked for, and all that are no index
    and no partition; numbers of text as f64.

    Args:
      others: columns that are no features.
      features: those that are; (): all but `others`.
    """
    named = others + features
    for path in paths:
        check_utf8_path(path, "A file of a table")
    limit = memory_limit()
    with named_faults(paths[0]):
        table = open_table(paths, Roles(asked=named, least=1))
        names = [n for n in table.names if n in named or n not in table.partitions]
        size = table.check_rows(names)
        if size > limit.size / 2:  # the features are a copy of it
            raise NoRoomError(
                f"{paths[0]}: its rows take {gib(size)}, more than half the "
                f"{gib(limit.size)} of {limit.source}: give a part of it."
            )
        frame = table.read(names)
    if table.form is None:
        return frame.with_columns(pl.col(pl.Decimal).cast(pl.Float64))
    own = {*features} or {*names} - {*others}
    return frame.with_columns(_text_column(table, frame[x], x in own) for x in names)


def _text_column(table: Table, cells: pl.Series, is_feature: bool) -> pl.Series:
    """A column of text as numbers, where it has them; one of labels or keys only as
    integers.
    """
    cells = cells.set(cells.str.strip_chars(BLANKS) == "", None)
    if not is_feature:
        are_integers = cells.str.contains(r"^(-?[1-9]\d*|0)$").all()
        return cells.cast(pl.Int64, strict=False) if are_integers else cells
    comma = table.decimal_comma
    values = cells.to_frame().select(number(pl.all(), pl.String(), comma)).to_series()
    wrong = cells.filter(values.is_null() & cells.is_not_null())
    if len(wrong) == len(cells.drop_nulls()):
        return cells  # no column of numbers
    if len(wrong):
        where = table.place(cells.name, lambda x: x == wrong[0])
        raise InputError(
            f"{where}: `{cells.name}` must be a number, got {wrong[0]!r}; name the "
            "column of the labels by --label and that of names by --key."
        )
    return values


def _known(
    path: Path, frame: pl.DataFrame, present: list[str], columns: tuple[str, ...]
) -> tuple[np.ndarray, list[str]]:
    """`columns`, in this order, of those that are `present`."""
    known = {*columns}
    own = [name for name in present if not known.isdisjoint((name, f"{name}[0]"))]
    others = [name for name in present if name not in own]
    features, names = _numbers(path, frame, own) if own else (np.empty((0, 0)), [])
    if {*names} != known:
        raise InputError(
            f"{path} must have the columns that the encoder was trained on: these "
            f"{name_difference(columns, [*names, *others])}."
        )
    if others:
        _log.warning(
            "%s: the encoder was not trained on these columns, which are left out: %s.",
            *(path, ", ".join(others[:20])),
        )
    return features[:, [names.index(name) for name in columns]], [*columns]


def _numbers(
    path: Path, frame: pl.DataFrame, columns: list[str]
) -> tuple[np.ndarray, list[str]]:
    """The features in columns of numbers, [n, F], and the name of each.

    That of a list's number k is NAME[k].
    """
    others = [name for name in columns if not _is_numeric(frame[name].dtype)]
    if others or not columns:
        raise InputError(
            f"{path}: columns must be numbers, or one of bytes, got "
            f"{', '.join(others) or 'none'}; name that of the labels by --label and "
            "that of names by --key."
        )
    arrays = {name: _column(path, frame[name]) for name in columns}
    names = [
        f"{name}[{k}]" if frame[name].dtype.is_nested() else name
        for name, array in arrays.items()
        for k in range(array.shape[1])
    ]
    return np.concatenate([*arrays.values()], axis=1), names


def _is_encoded(dtype: pl.DataType) -> bool:
    """Whether a column has encoded images: bytes, or structs with the field `bytes`."""
    if isinstance(dtype, pl.Struct):
        return {x.name: x.dtype for x in dtype.fields}.get("bytes") == pl.Binary
    return dtype == pl.Binary


def _images(path: Path, column: pl.Series) -> list[StoredImage]:
    data = column.struct.field("bytes") if column.dtype == pl.Struct else column
    if data.null_count():
        row = int(data.is_null().arg_true()[0])
        raise InputError(f"{path}: row {row} of `{column.name}` has no bytes.")
    return [
        StoredImage(
            f"{path}: row {row} of `{column.name}`", functools.partial(data.item, row)
        )
        for row in range(len(data))
    ]


def _labels(path: Path, column: pl.Series) -> np.ndarray:
    """The labels of the rows; integers become names, if the metadata have them."""
    kind = column.dtype
    if kind in (*_WIDE, pl.Binary) or isinstance(kind, pl.List | pl.Array | pl.Struct):
        raise InputError(
            f"{path}: column `{column.name}` must be numbers or text, got {kind}."
        )
    if column.null_count():
        raise InputError(f"{path}: column `{column.name}` has rows without a value.")
    labels = column.to_numpy()
    names = _class_names(path, column.name) if kind.is_integer() else []
    if not names or labels.min() < 0 or labels.max() >= len(names):
        return labels
    return np.array(names)[labels]


def _class_names(path: Path, label: str) -> list[str]:
    """The names of the classes in the metadata of Hugging Face; []: there are none."""
    names = parquet_facts(path, "huggingface", "info", "features", label, "names")
    is_names = all(isinstance(x, str) for x in names)
    return names if is_names and len({*names}) == len(names) else []


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
