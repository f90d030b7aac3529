"""Examples in parquet files: a row is an example.

Its features are columns of numbers, or one column of encoded images: of bytes, or of
structs with the field `bytes`, as Hugging Face's datasets have them.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from embedder.disk.files import check_utf8_path
from embedder.disk.untrusted import TooLargeError, read_table
from embedder.encoders.examples import (
    Decode,
    Examples,
    ExampleSet,
    Source,
    file_set,
    make_examples,
)
from embedder.encoders.images import StoredImage
from embedder.errors import InputError
from embedder.limits import gib, memory_limit

_WIDE = (pl.Int128, pl.UInt128)  # integers that NumPy does not have


def open_parquet(source: Source) -> ExampleSet | None:
    """The examples in .parquet files: one, those in a folder, or those of a glob."""
    paths, options = source.files(".parquet"), source.options
    if not paths:
        return None
    return file_set(
        *(source.stem, source, paths),
        lambda decode: read_parquet(
            *(paths, options.label, options.key, decode, source.needs_labels)
        ),
    )


def read_parquet(
    paths: Sequence[Path],
    label: str = "label",
    key: str = "",
    decode: Decode | None = None,
    needs_labels: bool = True,
) -> Examples:
    """Examples from rows: columns of numbers, of lists or of images, and labels.

    Args:
      label: column of the labels.
      key: column of unique names of the rows; empty: their numbers.
      decode: reads a column of images; None: there must be none.
      needs_labels: False: rows without a label will do.

    Raises:
      InputError: a column is missing or does not hold numbers, lists differ in length,
        keys are missing or not unique, or files have other columns than the first.
    """
    path = paths[0]
    frame = _read(paths)
    if label not in frame.columns and not needs_labels:
        label = ""
    for option, column in (("label", label), ("key", key)):
        if column and column not in frame.columns:
            known = ", ".join(frame.columns[:20])
            raise InputError(
                f"`{option}` must be a column of {path} ({known}), got {column!r}."
            )
    if frame.is_empty():
        raise InputError(f"{path} has no rows.")
    columns = [name for name in frame.columns if name not in (label, key)]
    images = [name for name in columns if _is_encoded(frame[name].dtype)]
    if len(images) == 1 and decode is not None:
        features = decode(_images(path, frame[images[0]]))
    else:
        features = _numbers(path, frame, columns)
    keys = _keys(path, frame[key]) if key else None
    labels = _labels(path, frame[label]) if label else None
    return make_examples(features, labels, str(path), keys)


def _read(paths: Sequence[Path]) -> pl.DataFrame:
    """The rows of all files, one file after the other."""
    limit, frames, size = memory_limit(), [], 0
    for path in paths:
        check_utf8_path(path, "A parquet file")
        try:
            # The features are a copy of it.
            frames.append(read_table(path, limit.size / 2 - size))
        except TooLargeError as error:
            more = " with those before" if size else ""
            raise InputError(
                f"{path}: {error}{more}, more than half the {gib(limit.size)} of "
                f"{limit.source}: give a part of it."
            ) from error
        except ValueError as error:
            raise InputError(f"{path} is not a parquet file: {error}.") from error
        size += int(frames[-1].estimated_size())
        if frames[-1].schema != frames[0].schema:
            raise InputError(f"{path} must have the columns of {paths[0]}.")
    return pl.concat(frames) if len(frames) > 1 else frames[0]


def _numbers(path: Path, frame: pl.DataFrame, columns: list[str]) -> np.ndarray:
    """The features in columns of numbers, [n, F]."""
    others = [name for name in columns if not _is_numeric(frame[name].dtype)]
    if others or not columns:
        raise InputError(
            f"{path}: columns must be numbers, or one of bytes, got "
            f"{', '.join(others) or 'none'}; name that of the labels by --label and "
            "that of names by --key."
        )
    return np.concatenate([_column(path, frame[name]) for name in columns], axis=1)


def _is_encoded(dtype: pl.DataType) -> bool:
    """Whether a column has encoded images: bytes, or structs with the field `bytes`."""
    if isinstance(dtype, pl.Struct):
        return {field.name: field.dtype for field in dtype.fields}.get(
            "bytes"
        ) == pl.Binary
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
    try:
        facts = json.loads(pl.read_parquet_metadata(path)["huggingface"])
        names = facts["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError, pl.exceptions.PolarsError):
        return []
    is_names = isinstance(names, list) and all(isinstance(x, str) for x in names)
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
