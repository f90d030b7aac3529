"""Files that are whole or not there, arrays that are what they claim, no pickles."""

import math
import os
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from embedder.errors import InputError, InputNotFoundError

LONGEST_TOKEN = 2**20
"""Bytes in UTF-8. A corpus is read without longer ones; word2vec files take none."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place if the body succeeds."""
    path = Path(os.path.realpath(path))  # a link stays a link
    if not path.parent.is_dir():
        raise InputNotFoundError(f"Folder {path.parent} does not exist.")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        os.chmod(temporary, mode)  # safetensors makes its file private
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Gives errors of the disk that name no file the name of `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def check_utf8(path: str | os.PathLike[str], argument: str) -> None:
    """Refuses a path that Polars and Orbax cannot open, named as `argument`.

    Raises:
      ValueError: it is not UTF-8.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{argument} must be a path in UTF-8, got {os.fspath(path)!r}: rename "
            "it, or give another."
        ) from None


def short_reason(error: object) -> str:
    """What `error` says, for a message: a line without its full stop, cut if long."""
    text = " ".join(str(error).split())[:200].removesuffix(".")
    return text or type(error).__name__


def read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of an .npz that is not compressed, as `read_packed`."""
    if archive.getinfo(f"{name}.npy").compress_type != zipfile.ZIP_STORED:
        raise InputError(f"`{name}` is compressed")
    return read_packed(archive, name)


def read_packed(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of an .npz, after a look at what its headers claim.

    Raises:
      KeyError: there is no such array.
      ValueError: it claims more than its bytes can hold, or holds objects.
    """
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"`{name}` is packed in a way that NumPy does not use")
    size = min(info.compress_size, os.path.getsize(archive.filename))
    if info.compress_type == zipfile.ZIP_STORED and info.file_size > size:
        raise InputError(f"`{name}` claims {info.file_size} bytes, and has {size}")
    if info.file_size > 1000 * max(1, size):
        raise InputError(f"`{name}` is packed more than a thousandfold")
    with archive.open(info) as file:
        _check_header(file, f"`{name}`", info.file_size)
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def map_array(path: Path) -> np.ndarray:
    """The array in an .npy file, mapped into memory, after a look at its header.

    Raises:
      ValueError: it claims more than its bytes, or holds objects.
    """
    with open(path, "rb") as file:
        _check_header(file, "it", os.path.getsize(path))
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _check_header(file: BinaryIO, name: str, size: int) -> None:
    """Refuses objects, and a header that claims more than `size` bytes.

    NumPy would make the room.
    """
    shape, dtype = _read_header(file, name)
    if dtype.hasobject:
        raise InputError(f"{name} holds pickled objects, which are not read")
    is_shape = all(type(length) is int and length >= 0 for length in shape)
    if not is_shape or file.tell() + math.prod(shape) * dtype.itemsize > size:
        raise InputError(f"{name} claims shape {shape}, more than its bytes")


def _read_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype that the header of an .npy file claims."""
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise InputError(f"{name} has format {version}")
    try:
        shape, _, dtype = read_header(file)
    except Exception as error:  # it is Python to NumPy, which raises nearly anything
        raise InputError(f"{name} has no whole header: {short_reason(error)}") from None
    return shape, dtype


def pack_strings(strings: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The strings in UTF-8, end to end, u8[bytes], and where each ends, i64[V]."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def unpack_strings(tokens: np.ndarray, ends: np.ndarray) -> list[str]:
    """The strings that `pack_strings` packed; ValueError if the two do not fit."""
    if tokens.dtype != np.uint8 or ends.dtype != np.int64:
        raise InputError(
            f"`tokens` must be uint8 and `token_ends` int64, got {tokens.dtype} "
            f"and {ends.dtype}."
        )
    bounds = np.concatenate([[0], ends.ravel()])
    if (np.diff(bounds) < 0).any() or bounds[-1] != tokens.size:
        raise InputError(
            f"`token_ends` must rise to {tokens.size}, the size of `tokens`, "
            f"got {ends.ravel()[-1:].tolist()} at the end."
        )
    text, places = tokens.tobytes(), bounds.tolist()
    return [text[a:b].decode() for a, b in zip(places, places[1:], strict=False)]
