"""Images in idx files, the format of MNIST (LeCun, yann.lecun.com/exdb/mnist)."""

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np

from embedder.disk.files import name_file_in_errors
from embedder.encoders.examples import (
    MAX_PACKING,
    Decode,
    Examples,
    ExampleSet,
    Source,
    check_examples_fit,
    file_set,
    make_examples,
)
from embedder.errors import InputError, InputNotFoundError

_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_CHUNK = 2**24  # bytes that are unpacked at once


def open_idx(source: Source) -> ExampleSet | None:
    """The images of an idx file, or of the training file in a folder, with labels.

    Raises:
      InputNotFoundError: the file of labels is missing.
    """
    path = source.path
    if _is_images(path):
        return _idx_set(source.stem, source, path)
    if not path.is_dir():
        return None
    files = sorted(p for p in path.iterdir() if _is_images(p))
    train = [p for p in files if p.name.startswith("train")] or files
    return _idx_set(path.resolve().name, source, train[0]) if train else None


def _is_images(path: Path) -> bool:
    return path.is_file() and "images" in path.name and "idx" in path.name


def labels_name(name: str) -> str:
    """The name of the file of labels, beside the idx file `name` of images."""
    if "images" not in name or "idx" not in name:
        return name
    return name.replace("images", "labels").replace("idx3", "idx1")


def _idx_set(name: str, source: Source, images: Path) -> ExampleSet:
    labels = images.with_name(labels_name(images.name))
    if not labels.exists() and source.needs_labels:
        raise InputNotFoundError(f"{images} has no labels: {labels} does not exist.")

    def read(_: Decode) -> Examples:
        if not labels.exists():
            return make_examples(read_idx(images), None, str(images))
        features, classes = read_idx(images), read_idx(labels)
        return make_examples(features, classes, f"{images} and {labels}")

    paths = [path for path in (images, labels) if path.exists()]
    return file_set(name, source, paths, read)


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file, which may be a .gz file.

    Raises:
      InputError: it is not an idx file, has more or fewer bytes than its header says,
        or does not fit in memory.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with name_file_in_errors(path), opener(path, "rb") as file:
            head = file.read(4)
            is_idx = len(head) == 4 and head[:2] == b"\0\0" and head[2] in _DTYPES
            if not is_idx or not 0 < head[3] <= 64:  # NumPy has at most 64 axes
                raise InputError(f"{path} is not an idx file: it begins {head!r}.")
            sizes = file.read(4 * head[3])
            if len(sizes) < 4 * head[3]:
                raise InputError(f"{path} ends within its header.")
            shape = tuple(np.frombuffer(sizes, ">u4").tolist())
            dtype = np.dtype(_DTYPES[head[2]])
            expected = math.prod(shape) * dtype.itemsize
            bound = os.path.getsize(path) * (MAX_PACKING if opener is gzip.open else 1)
            check_examples_fit(path, 2 * min(expected, bound))
            data = bytearray()
            while chunk := file.read(min(_CHUNK, expected + 1 - len(data))):
                data += chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error
    if len(data) != expected:
        found = "more" if len(data) > expected else f"{len(data)}"
        raise InputError(
            f"{path} claims {expected} bytes, {list(shape)} of {dtype.name}, and has "
            f"{found}."
        )
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))
