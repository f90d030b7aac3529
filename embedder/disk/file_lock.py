"""Exclusive locks on open files: by flock, or by locking one byte on Windows.

The system releases a lock when the file is closed, and when its process has ended.
"""

import errno
import importlib.util
import os
import time
from typing import IO, Any

_FAR = 2**40  # offset beyond all contents, which a lock of Windows keeps from readers
_EVERY = 0.1  # seconds between two tries


def lock_file(file: IO[Any], *, wait: bool = False) -> None:
    """Locks an open file.

    Args:
      wait: until no other open file holds the lock.

    Raises:
      BlockingIOError: another open file holds the lock, and `wait` is false.
      OSError: the disk has no locks.
    """
    if not has_flock():
        _lock_byte(file.fileno(), wait)
        return
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def has_flock() -> bool:
    """Whether the system has flock; Windows does not."""
    return importlib.util.find_spec("fcntl") is not None


def close_to_move(file: IO[Any]) -> None:
    """Closes a file that is to be moved or removed on Windows, which does that to no
    open file; elsewhere the file stays locked meanwhile."""
    if not has_flock():
        file.close()


def _lock_byte(file: int, wait: bool) -> None:
    from msvcrt import LK_NBLCK, locking  # type: ignore[attr-defined]

    before = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, _FAR, os.SEEK_SET)
    try:
        while True:
            try:
                return locking(file, LK_NBLCK, 1)
            except PermissionError as error:
                if not wait:
                    raise BlockingIOError(errno.EAGAIN, "It is locked") from error
            time.sleep(_EVERY)
    finally:
        os.lseek(file, before, os.SEEK_SET)
