"""Atomic writes of files, their fingerprints and kinds, and messages about them."""

import gzip
import hashlib
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from embedder.errors import InputError, InputNotFoundError

_MOST_NAME_BYTES = 255  # of a file's name, on most systems


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Writes a file atomically: readers see the old file or the whole new one.

    Yields a temporary path beside `path` to write to. If the body succeeds, the
    temporary file is synced to disk (fsync) and renamed to `path`; if it raises, the
    temporary file is removed and the old file stays. Raises InputNotFoundError if the
    folder of `path` does not exist. A file that is replaced keeps its mode. What is no
    regular file, as a device or a named pipe, is written into.
    """
    path = Path(os.path.realpath(path))  # writes to the target of a symbolic link
    if _is_special(path):
        with _special_file(path) as temporary:
            yield temporary
        return
    if not path.parent.is_dir():
        raise InputNotFoundError(f"Folder {path.parent} does not exist.")
    temporary = temporary_path(path)
    try:
        temporary.touch()
        yield temporary
        sync(temporary)
        if path.is_file():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_path(path: Path) -> Path:
    """A new name beside `path`, as long as names may be."""
    ending = f".{uuid.uuid4().hex[:8]}.tmp"
    name = os.fsencode(path.name)[: _MOST_NAME_BYTES - 1 - len(ending)]
    return path.with_name(f".{name.decode(errors='ignore')}{ending}")


def _is_special(path: Path) -> bool:
    """Whether something is at `path` that is neither a file nor a folder."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _special_file(path: Path) -> Iterator[Path]:
    """Writes a device or a named pipe: a temporary file, which is copied into it."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / path.name
        temporary.touch()
        yield temporary
        with temporary.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)


def sync(path: Path) -> None:
    """Waits until the content of a file is on disk (fsync)."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Sets the file name of each OSError of the body that has none to `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def is_utf8(text: str) -> bool:
    """Whether text can be written as UTF-8: it has no lone surrogates."""
    return text.encode(errors="ignore").decode() == text


def check_utf8_path(path: str | os.PathLike[str], argument: str) -> None:
    """Refuses a path that Polars and Orbax cannot open.

    Args:
      argument: what the message calls the path.

    Raises:
      InputError: the path is not UTF-8.
    """
    if not is_utf8(os.fspath(path)):
        raise InputError(
            f"{argument} must be a path in UTF-8, got {os.fspath(path)!r}: rename "
            "it, or give another."
        )


def short_reason(error: object) -> str:
    """The text of `error` on one line without its full stop, at most 200 characters.

    An error without a text gives the name of its class.
    """
    text = " ".join(str(error).split())[:200].removesuffix(".")
    return text or type(error).__name__


IMAGES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff"),
)
"""Endings of the names of image files, in lower case."""


def is_image_name(name: str) -> bool:
    """Whether a file of this name is an image that is not hidden, as `._a.png` is."""
    return name.lower().endswith(IMAGES) and not name.rpartition("/")[2].startswith(".")


def is_gzip_name(path: Path) -> bool:
    """Whether a file of this name is gzip."""
    return path.suffix.lower() == ".gz"


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file to read, unpacked where its name is that of gzip.

    Raises:
      InputError: it is not a whole .gz file; also for an EOFError of the body.
    """
    opener: Callable[..., Any] = gzip.open if is_gzip_name(path) else open
    try:
        with name_file_in_errors(path), opener(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error


_END_BYTES = 2**16  # that are hashed at each end: a digest of all would read it twice


def file_fingerprint(path: Path) -> dict[str, Any]:
    """Name, size, modification time and a SHA-256 of both ends, ready for JSON."""
    stat = path.stat()
    with name_file_in_errors(path), open(path, "rb") as file:
        head = file.read(_END_BYTES)
        file.seek(max(0, stat.st_size - _END_BYTES))
        ends = hashlib.sha256(head + file.read()).hexdigest()
    return {
        "file": path.name,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "ends_sha256": ends,
    }


def watched_files(
    paths: Sequence[Path],
) -> tuple[list[dict[str, Any]], Callable[[], None]]:
    """The fingerprints of files, and a function that checks that none has changed."""
    fingerprints = [file_fingerprint(path) for path in paths]

    def check() -> None:
        for path, before in zip(paths, fingerprints, strict=True):
            check_unchanged(path, before)

    return fingerprints, check


def check_unchanged(path: Path, before: dict[str, Any]) -> None:
    """Raises InputError if the fingerprint of `path` is another than `before`."""
    now = file_fingerprint(path)
    if now != before:
        old_size, size = before["bytes"], now["bytes"]
        sizes = f" ({old_size} bytes before, {size} now)" if size != old_size else ""
        raise InputError(
            f"{path} changed while it was read{sizes}: start again when nothing writes "
            "to it, or copy it first."
        )
