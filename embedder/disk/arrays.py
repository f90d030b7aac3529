"""Arrays from untrusted .npy and .npz files: no pickles, no decompression bombs.

NumPy allocates what a header claims, so each header is checked against the size of its
file before the array is read.
"""

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from embedder.disk.files import short_reason
from embedder.errors import InputError

_MAX_COMPRESSION = 1000  # of an array; deflate of zeros reaches 1032


def read_stored_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """The array `name` of an .npz archive that is stored without compression.

    Raises:
      InputError: the array is compressed, or as `read_npz_array`.
      KeyError: there is no such array.
    """
    if archive.getinfo(f"{name}.npy").compress_type != zipfile.ZIP_STORED:
        raise InputError(f"`{name}` is compressed")
    return read_npz_array(archive, name)


def read_npz_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """The array `name` of an untrusted .npz archive, whose headers are checked first.

    Raises:
      KeyError: there is no such array.
      InputError: its headers claim more than its bytes can hold, it is compressed more
        than a thousandfold or by another method than deflate, or it holds objects.
    """
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"`{name}` has a compression method that NumPy does not use")
    assert archive.filename is not None, "the archive is a file"
    size = min(info.compress_size, os.path.getsize(archive.filename))
    if info.compress_type == zipfile.ZIP_STORED and info.file_size > size:
        raise InputError(f"`{name}` claims {info.file_size} bytes, and has {size}")
    if info.file_size > _MAX_COMPRESSION * max(1, size):
        raise InputError(f"`{name}` is compressed more than a thousandfold")
    with archive.open(info) as file:
        _check_header(file, f"`{name}`", info.file_size)
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def npz_has(path: Path, member: str) -> bool:
    """Whether an .npz file has an array `member`; False also if it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{member}.npy" in archive.namelist()
    except Exception:  # a damaged zip raises nearly anything; its reader tells what
        return False


def stored_shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape that the header of array `name` of an .npz archive claims.

    Raises:
      KeyError: there is no such array.
      InputError: it has no whole header.
    """
    with archive.open(f"{name}.npy") as file:
        return _read_header(file, f"`{name}`")[0]


def memory_map_npy(path: Path) -> np.ndarray:
    """The array of an untrusted .npy file, memory-mapped and read-only.

    Raises:
      InputError: its header claims more than the file's bytes, or it holds objects.
      ValueError: it is no .npy file.
    """
    with open(path, "rb") as file:
        _check_header(file, "it", os.path.getsize(path))
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _check_header(file: IO[bytes], name: str, size: int) -> None:
    """Refuses objects, and an array that is larger than its `size` in bytes."""
    shape, dtype = _read_header(file, name)
    if dtype.hasobject:
        raise InputError(f"{name} holds pickled objects, which are not read")
    is_shape = all(type(length) is int and length >= 0 for length in shape)
    if not is_shape or file.tell() + math.prod(shape) * dtype.itemsize > size:
        raise InputError(f"{name} claims shape {shape}, more than its bytes")


def _read_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype]:
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
    except Exception as error:  # NumPy evaluates the header: nearly any error occurs
        raise InputError(f"{name} has no whole header: {short_reason(error)}") from None
    return shape, dtype


def pack_strings(strings: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The strings in UTF-8, concatenated, u8[bytes], and the end of each, i64[V]."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def unpack_strings(tokens: np.ndarray, ends: np.ndarray) -> list[str]:
    """The V strings that `pack_strings` packed.

    Raises:
      InputError: the dtypes are not u8 and i64, or `ends` does not fit `tokens`.
      UnicodeDecodeError: a string is not UTF-8.
    """
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
    text, offsets = tokens.tobytes(), bounds.tolist()
    return [text[a:b].decode() for a, b in zip(offsets, offsets[1:], strict=False)]
