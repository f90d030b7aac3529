"""Files that are whole or not there, arrays that are what they claim, no pickles."""

import os
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place if the body succeeds."""
    path = Path(os.path.realpath(path))  # a link stays a link
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Folder {path.parent} does not exist.")
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


def read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of an .npz, after a look at what its header claims."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"`{name}` is compressed")
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"`{name}` has format {version}")
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"`{name}` holds pickled objects, which are not read")
        if file.tell() + np.prod(shape, dtype=object) * dtype.itemsize > info.file_size:
            raise ValueError(f"`{name}` claims shape {shape}, more than its bytes")
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def pack_strings(strings: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The strings in UTF-8, end to end, u8[bytes], and where each ends, i64[V]."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def unpack_strings(tokens: np.ndarray, ends: np.ndarray) -> list[str]:
    """The strings that `pack_strings` packed; ValueError if the two do not fit."""
    if tokens.dtype != np.uint8 or ends.dtype != np.int64:
        raise ValueError(
            f"`tokens` must be uint8 and `token_ends` int64, got {tokens.dtype} "
            f"and {ends.dtype}."
        )
    bounds = np.concatenate([[0], ends.ravel()])
    if (np.diff(bounds) < 0).any() or bounds[-1] != tokens.size:
        raise ValueError(
            f"`token_ends` must rise to {tokens.size}, the size of `tokens`, "
            f"got {ends.ravel()[-1:].tolist()} at the end."
        )
    text, places = tokens.tobytes(), bounds.tolist()
    return [text[a:b].decode() for a, b in zip(places, places[1:], strict=False)]
