"""Atomic writes of files, and what messages about files need."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedder.errors import InputError, InputNotFoundError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Writes a file atomically: readers see the old file or the whole new one.

    Yields a temporary path beside `path` to write to. If the body succeeds, the
    temporary file is synced to disk (fsync) and renamed to `path`; if it raises, the
    temporary file is removed and the old file stays.

    Raises:
      InputNotFoundError: the folder of `path` does not exist.
    """
    path = Path(os.path.realpath(path))  # writes to the target of a symbolic link
    if not path.parent.is_dir():
        raise InputNotFoundError(f"Folder {path.parent} does not exist.")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.touch()
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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


def check_utf8_path(path: str | os.PathLike[str], argument: str) -> None:
    """Refuses a path that Polars and Orbax cannot open.

    Args:
      argument: what the message calls the path.

    Raises:
      InputError: the path is not UTF-8.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{argument} must be a path in UTF-8, got {os.fspath(path)!r}: rename "
            "it, or give another."
        ) from None


def short_reason(error: object) -> str:
    """The text of `error` on one line without its full stop, at most 200 characters.

    An error without a text gives the name of its class.
    """
    text = " ".join(str(error).split())[:200].removesuffix(".")
    return text or type(error).__name__
