"""A lock on a folder: one process writes there at a time.

The kernel holds it (flock), and lets it go when the process ends, however that is. The
file says who holds it, for people, and for hosts that share the disk but not the lock.
"""

import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_log = logging.getLogger(__name__)


class LockedError(ValueError):
    """Another process writes there."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the lock file `path`, which is there no more after the body.

    Raises:
      LockedError: another process holds it, or one of another host may.
      OSError: the file cannot be made.
    """
    file = _locked(path)
    try:
        before, here = _owner(file), socket.gethostname()
        if before and before["host"] != here:
            raise LockedError(
                f"{path.parent} may be in use by process {before['pid']} of host "
                f"{before['host']}: if that has ended, delete {path}."
            )
        if before:
            _log.info(
                "Process %d, which was writing to %s, has ended: its lock is taken "
                "over.",
                before["pid"],
                path.parent,
            )
        _write_owner(file, here)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        file.close()


def _locked(path: Path) -> IO[str]:
    """The file, opened and locked."""
    while True:
        file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                return file
            file.close()  # whoever had it has deleted it in between
        except BlockingIOError:
            owner = _owner(file)
            file.close()
            who = f"process {owner['pid']} of host {owner['host']}" if owner else ""
            raise LockedError(
                f"{path.parent} is in use by {who or 'another process'}: wait for its "
                "end, or give another --workdir."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                file.close()
                raise
            _log.warning(
                "%s: the disk has no locks (%s): see that no other run writes there.",
                path.parent,
                error.strerror,
            )
            return file


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _owner(file: IO[str]) -> dict | None:
    """Who the file says holds the lock; None: nobody, or it is not readable."""
    file.seek(0)
    try:
        owner = json.load(file)
        return {"pid": int(owner["pid"]), "host": str(owner["host"])}
    except (ValueError, LookupError, TypeError):
        return None


def _write_owner(file: IO[str], host: str) -> None:
    file.seek(0)
    file.truncate()
    json.dump({"pid": os.getpid(), "host": host}, file)
    file.flush()
