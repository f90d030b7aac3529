"""Examples in .npz files of NumPy, and images in idx files, the format of MNIST.

Reference for idx: LeCun, yann.lecun.com/exdb/mnist.
"""

import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from embedder.base.limits import NoRoomError
from embedder.data.examples.examples import (
    MAX_PACKING,
    Decode,
    Examples,
    ExampleSet,
    Source,
    check_examples_fit,
    file_set,
    make_examples,
)
from embedder.disk.arrays import read_npz_array
from embedder.disk.files import (
    is_gzip_name,
    name_file_in_errors,
    open_unpacked,
    short_reason,
)
from embedder.errors import InputError, InputNotFoundError

_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_CHUNK = 2**24  # bytes that are unpacked at once


def open_idx(source: Source) -> ExampleSet | None:
    """The images of an idx file, or of the training file in a folder, with labels.
    Raises InputNotFoundError if the file of labels is missing."""
    path = source.path
    inside = path.iterdir() if path.is_dir() else (path,)
    files = sorted(p for p in inside if p.is_file() and _is_images(p.name))
    train = [p for p in files if p.name.startswith("train")] or files
    return _idx_set(source, train[0]) if train else None


def _is_images(name: str) -> bool:
    return "images" in name and "idx" in name


def labels_name(name: str) -> str:
    """The name of the file of labels, beside the idx file `name` of images."""
    if not _is_images(name):
        return name
    return name.replace("images", "labels").replace("idx3", "idx1")


def _idx_set(source: Source, images: Path) -> ExampleSet:
    labels = images.with_name(labels_name(images.name))
    if not labels.exists() and source.needs_labels:
        raise InputNotFoundError(f"{images} has no labels: {labels} does not exist.")

    def read(_: Decode) -> Examples:
        if not labels.exists():
            return make_examples(read_idx(images), None, str(images))
        features, classes = read_idx(images), read_idx(labels)
        return make_examples(features, classes, f"{images} and {labels}")

    paths = [path for path in (images, labels) if path.exists()]
    return file_set(source, paths, read)


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file, which may be a .gz file. Raises InputError if it is not
    an idx file, has more or fewer bytes than its header says, or does not fit in
    memory."""
    with open_unpacked(path) as file:
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
        bound = os.path.getsize(path) * (MAX_PACKING if is_gzip_name(path) else 1)
        check_examples_fit(path, 2 * min(expected, bound))
        data = bytearray()
        while chunk := file.read(min(_CHUNK, expected + 1 - len(data))):
            data += chunk
    if len(data) != expected:
        num_bytes = "more" if len(data) > expected else f"{len(data)}"
        raise InputError(
            f"{path} claims {expected} bytes, {list(shape)} of {dtype.name}, and has "
            f"{num_bytes}."
        )
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def open_npz(source: Source) -> ExampleSet | None:
    """The examples in an .npz file."""
    path, options = source.path, source.options
    if path.suffix.lower() != ".npz" or path.is_dir():
        return None
    needs = source.needs_labels
    return file_set(source, [path], lambda _: read_npz(path, options.label, needs))


def read_npz(path: Path, label: str = "label", needs_labels: bool = True) -> Examples:
    """Examples from two arrays: x_train and y_train, X and y, or features and labels.

    Args:
      label: name of the array of labels, if it is none of these; the features are then
        the one other array, or one of these.
      needs_labels: False: features without labels will do, if there is no such pair.

    Raises:
      InputError: there are no two such arrays, or they do not hold examples.
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
            pair: tuple[str, ...] | None = next(
                (p for p in pairs if {*p} <= {*names}), None
            )
            if pair is None and not needs_labels:
                usual = (name for name, _ in pairs if name in names)
                only = names[0] if len(names) == 1 else next(usual, None)
                pair = None if only is None else (only,)
            if pair is None:
                known = ", or ".join(map(" and ".join, pairs))
                raise InputError(
                    f"it has {', '.join(names) or 'no array'}, and must have {known}"
                )
            members = [archive.getinfo(f"{name}.npy") for name in pair]
            bounds = [min(x.file_size, MAX_PACKING * x.compress_size) for x in members]
            check_examples_fit(path, 2 * sum(bounds))
            features, *labels = (read_npz_array(archive, name) for name in pair)
    except NoRoomError:
        raise
    except (
        *(zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error),
        RuntimeError,  # encrypted
    ) as error:
        reason = short_reason(error)
        raise InputError(f"{path} has no features and labels: {reason}.") from error
    return make_examples(features, labels[0] if labels else None, str(path))
