"""Features with labels, from idx files, npz, folders of images and parquet.

All are read once, before anything random: into memory, or, decoded images, into a file
on disk that is mapped into memory.
"""

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from embedder.disk.arrays import read_npz_array
from embedder.disk.files import check_utf8_path, name_file_in_errors, short_reason
from embedder.disk.fingerprints import check_unchanged, file_fingerprint
from embedder.disk.parquet import TooLargeError, read_table
from embedder.encoders.images import IMAGES, decoded
from embedder.encoders.options import EncoderOptions
from embedder.errors import InputError, InputNotFoundError
from embedder.limits import NoRoomError, check_room, gib, memory_limit

_IDX_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_WIDE = (pl.Int128, pl.UInt128)  # integers that NumPy does not have
_PIECE = 2**24  # bytes that are unpacked at once
_ROW_BYTES = 100  # of memory for the label and the name of an example
_PACKED = 1032  # bytes of which gzip makes one, at most


class Examples(NamedTuple):
    """What an encoder is trained on."""

    features: np.ndarray  # [n, ...], u8 (0 to 255 stand for 0 to 1), f32 or f64
    labels: np.ndarray  # i32[n], places in `classes`
    classes: list[str]  # in order
    keys: list[str]  # [n], a name for each


class ExampleSet(NamedTuple):
    """Where examples are."""

    name: str
    source: str
    manifest: list[dict[str, Any]]
    read: Callable[[Path | None], Examples]  # given a folder for decoded images


def open_examples(source: str, options: EncoderOptions, workers: int = 2) -> ExampleSet:
    """The examples at `source`: an idx file or the folder of one, npz, parquet, images.

    Raises:
      FileNotFoundError, ValueError: there are none, or of no known kind.
    """
    path = Path(source)
    if not path.exists():
        raise InputNotFoundError(f"DATA {source} does not exist.")
    if path.is_dir():
        idx = sorted(p for p in path.iterdir() if _is_idx_images(p))
        train = [p for p in idx if p.name.startswith("train")] or idx
        if train:
            return _idx_set(path.resolve().name, source, train[0])
        return _image_set(path, source, options, workers)
    if not path.is_file():
        raise InputError(f"DATA {source} must be a regular file or a folder.")
    name = path.name.split(".")[0]
    if _is_idx_images(path):
        return _idx_set(name, source, path)
    if path.suffix == ".npz":
        return _file_set(name, source, [path], lambda: read_npz(path, options.label))
    if path.suffix == ".parquet":
        return _file_set(
            name,
            source,
            [path],
            lambda: read_parquet(path, options.label, options.key),
        )
    raise InputError(
        f"DATA {source} must be an idx file of images (...images-idx3-ubyte, .gz), "
        ".npz, .parquet, or a folder with such an idx file, or with a folder of images "
        "for each class."
    )


def _file_set(
    name: str, source: str, paths: list[Path], read: Callable[[], Examples]
) -> ExampleSet:
    """Examples in files that must not change while they are read."""
    manifest = [file_fingerprint(path) for path in paths]

    def read_unchanged(cache: Path | None) -> Examples:
        examples = read()
        for path, described in zip(paths, manifest, strict=True):
            check_unchanged(path, described)
        return examples

    return ExampleSet(name, source, manifest, read_unchanged)


# --- idx, the form of MNIST (Y. LeCun, yann.lecun.com/exdb/mnist)


def _is_idx_images(path: Path) -> bool:
    return path.is_file() and "images" in path.name and "idx" in path.name


def _idx_set(name: str, source: str, images: Path) -> ExampleSet:
    labels = images.with_name(
        images.name.replace("images", "labels").replace("idx3", "idx1")
    )
    if not labels.exists():
        raise InputNotFoundError(f"{images} has no labels: {labels} does not exist.")

    def read() -> Examples:
        features, classes = read_idx(images), read_idx(labels)
        return _examples(features, classes, f"{images} and {labels}")

    return _file_set(name, source, [images, labels], read)


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file, .gz or not.

    Raises:
      ValueError: it is not one, or has more or fewer bytes than its header says.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with name_file_in_errors(path), opener(path, "rb") as file:
            head = file.read(4)
            is_idx = len(head) == 4 and head[:2] == b"\0\0" and head[2] in _IDX_DTYPES
            if not is_idx or not 0 < head[3] <= 64:  # axes that NumPy can have
                raise InputError(f"{path} is not an idx file: it begins {head!r}.")
            sizes = file.read(4 * head[3])
            if len(sizes) < 4 * head[3]:
                raise InputError(f"{path} ends within its header.")
            shape = tuple(np.frombuffer(sizes, ">u4").tolist())
            dtype = np.dtype(_IDX_DTYPES[head[2]])
            expected = math.prod(shape) * dtype.itemsize
            most = os.path.getsize(path) * (_PACKED if opener is gzip.open else 1)
            _check_room(path, 2 * min(expected, most))
            data = bytearray()
            while piece := file.read(min(_PIECE, expected + 1 - len(data))):
                data += piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error
    if len(data) != expected:
        found = "more" if len(data) > expected else f"{len(data)}"
        raise InputError(
            f"{path} claims {expected} bytes, {list(shape)} of {dtype.name}, and has "
            f"{found}."
        )
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


# --- npz and parquet


def read_npz(path: Path, label: str = "label") -> Examples:
    """Arrays of features and labels: x_train and y_train, X and y, features and labels.

    Args:
      label: name of the labels, where it is another; the features are then the other
        array.

    Raises:
      ValueError: it has not two such arrays, or they hold something else than numbers.
    """
    pairs = [("x_train", "y_train"), ("X", "y"), ("x", "y"), ("features", "labels")]
    try:
        with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist()]
            others = [name for name in names if name != label]
            if label in names and len(others) == 1:
                pairs.insert(0, (others[0], label))
            elif label != "label":  # asked for: no other labels will do
                pairs = [(name, label) for name, _ in pairs]
            pair = next((p for p in pairs if {*p} <= {*names}), None)
            if pair is None:
                raise InputError(f"it has {names}, and no pair of {pairs}")
            members = [archive.getinfo(f"{name}.npy") for name in pair]
            most = [min(x.file_size, _PACKED * x.compress_size) for x in members]
            _check_room(path, 2 * sum(most))
            features, labels = (read_npz_array(archive, name) for name in pair)
    except NoRoomError:
        raise
    except (
        *(zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error),
        RuntimeError,  # encrypted
    ) as error:
        reason = short_reason(error)
        raise InputError(f"{path} has no features and labels: {reason}.") from error
    return _examples(features, labels, str(path))


def read_parquet(path: Path, label: str = "label", key: str = "") -> Examples:
    """A row an example: numbers in columns, or in one column of lists, and a label.

    Raises:
      ValueError: a column is missing, or is not of numbers, or lists differ in length;
        or names are missing, or not unique.
    """
    check_utf8_path(path, "A parquet file")
    limit = memory_limit()
    try:
        frame = read_table(path, limit.size / 2)  # there is a copy of it, too
    except TooLargeError as error:
        raise InputError(
            f"{path}: {error}, more than half the {gib(limit.size)} of {limit.source}: "
            "give a part of it."
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not a parquet file: {error}.") from error
    for option, column in (("label", label), ("key", key)):
        if column and column not in frame.columns:
            columns = ", ".join(frame.columns[:20])
            raise InputError(
                f"`{option}` must be a column of {path} ({columns}), got {column!r}."
            )
    columns = [name for name in frame.columns if name not in (label, key)]
    wrong = [name for name in columns if not _is_numeric(frame[name].dtype)]
    if wrong or not columns:
        raise InputError(
            f"{path}: columns must be numbers, got {', '.join(wrong) or 'none'}; name "
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
    return _examples(features, frame[label].to_numpy(), str(path), keys)


def _is_numeric(dtype) -> bool:
    if isinstance(dtype, pl.List | pl.Array):
        dtype = dtype.inner
    return (dtype.is_numeric() or dtype == pl.Boolean) and dtype not in _WIDE


def _column(path: Path, column: pl.Series) -> np.ndarray:
    """[n, 1], or [n, k] of lists with k numbers."""
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
    """The names of the rows; vectors could not be written for others, at the end."""
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


# --- folders of images


def _image_set(path: Path, source: str, options, workers: int) -> ExampleSet:
    found = [
        (file, folder.name)
        for folder in sorted(p for p in path.iterdir() if p.is_dir())
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in IMAGES
    ]
    if not found:
        raise InputNotFoundError(
            f"DATA {source} has no idx files, and no folders with images "
            f"({', '.join(IMAGES)}), one for each class."
        )
    for file, _ in found:
        if file.exists() and not file.is_file():
            raise InputError(f"DATA {source}: {file} must be a regular file.")
    # Classes would come one after the other, and the last ones validate.
    order = np.random.default_rng(0).permutation(len(found))
    files = [found[i][0] for i in order]
    labels = np.array([found[i][1] for i in order])
    keys = [str(file.relative_to(path)) for file in files]
    wrong = [key for key in keys if key.encode(errors="ignore").decode() != key]
    if wrong:  # vectors could not be written for them, at the end
        raise InputError(f"DATA {source}: names must be UTF-8, got {wrong[0]!r}.")
    manifest = _described(keys, files)

    def check() -> None:
        now = _described(keys, files)
        if changed := [a["file"] for a, b in zip(manifest, now, strict=True) if a != b]:
            raise InputError(
                f"DATA {source}: {changed[0]} changed while it was read: start again "
                "when nothing writes to it, or copy it first."
            )

    def read(cache: Path | None) -> Examples:
        size = options.image_size
        images = decoded(files, size, workers, cache, manifest, check)
        return _examples(images, labels, source, keys)

    return ExampleSet(path.resolve().name, source, manifest, read)


def _described(keys: list[str], files: list[Path]) -> list[dict[str, Any]]:
    stats = [file.stat() for file in files]
    return [
        {"file": key, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        for key, stat in zip(keys, stats, strict=True)
    ]


# --- all


def _examples(
    features: np.ndarray, labels: np.ndarray, where: str, keys: list[str] | None = None
) -> Examples:
    """Checked and in their dtypes."""
    features = np.asanyarray(features)  # which may lie in a file
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if features.ndim < 2 or labels.shape != features.shape[:1] or not features.size:
        raise InputError(
            f"{where}: features must be [n, ...] and labels [n], got "
            f"{list(features.shape)} and {list(labels.shape)}."
        )
    _check_room(where, len(labels) * _ROW_BYTES)
    features = _numbers(features, where)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"{where}: labels must be finite.")
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if labels.dtype.kind == "U":
        _check_text(labels, where)
    if labels.dtype.kind not in "iubfU":
        raise InputError(
            f"{where}: labels must be numbers or text, got {labels.dtype}."
        )
    classes, places = np.unique(labels, return_inverse=True)
    names = keys if keys is not None else [str(i) for i in range(len(labels))]
    return Examples(features, places.astype(np.int32), [str(c) for c in classes], names)


def _check_room(where: str | Path, needed: int) -> None:
    check_room(needed, f"{where}: reading it takes", "give a part of it")


def _check_text(labels: np.ndarray, where: str) -> None:
    """Labels are written to files at the end, and NumPy's can hold what is no text."""
    try:
        labels.astype(labels.dtype.newbyteorder("<")).tobytes().decode("utf-32-le")
    except UnicodeDecodeError as error:
        row = error.start // labels.dtype.itemsize
        raise InputError(
            f"{where}: labels must be valid Unicode, got {error.reason} in row {row}."
        ) from error


def _numbers(features: np.ndarray, where: str) -> np.ndarray:
    """u8, f32 and f64 as they are; other numbers as f32, or f64 where that is wider."""
    if features.dtype.kind not in "iubf":
        raise InputError(f"{where}: features must be numbers, got {features.dtype}.")
    if features.dtype == np.uint8:
        return features
    wide = np.float64 if features.dtype.itemsize > 4 else np.float32
    if features.dtype.kind == "f" and features.dtype.itemsize < 4:
        wide = np.float32
    with np.errstate(over="ignore"):  # it is refused below
        converted = np.ascontiguousarray(features, wide)
    for start, rows in _pieces(converted):
        finite = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        if not finite.all():
            row = start + int(np.flatnonzero(~finite)[0])
            raise InputError(f"{where}: row {row} has features that are not finite.")
    return converted


def _pieces(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    rows = max(1, _PIECE // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]
