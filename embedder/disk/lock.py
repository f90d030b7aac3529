"""A lock on a folder: one process writes there at a time.

The kernel holds it (flock), and lets it go when the process ends, however that is. The
file says who holds it, for people, and for hosts that share the disk but not the lock.
Containers share the kernel, each with a host name of its own: the file has the id of
the kernel's start, too, and on a disk of this machine a lock granted by it is enough.
"""

import errno
import fcntl
import json
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from embedder.errors import InputError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
# File systems of one machine, where all its processes see each other's locks.
_LOCAL = {
    *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs"),
    *("reiserfs", "tmpfs", "xfs", "zfs"),
}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_log = logging.getLogger(__name__)


class LockedError(InputError):
    """Another process writes there."""


@contextmanager
def held(path: Path, force: bool = False) -> Iterator[None]:
    """Holds the lock file `path`, which is there no more after the body.

    Args:
      force: take a lock over that names another host; never one that is held.

    Raises:
      LockedError: another process holds it, or one of another host may.
      OSError: the file cannot be made.
    """
    file, is_granted = _locked(path)
    try:
        before, here = _owner(file), socket.gethostname()
        is_sure = force or (is_granted and _is_of_this_machine(before, path))
        if before and before["host"] != here and not is_sure:
            raise LockedError(
                f"{path.parent} may be in use by process {before['pid']} of host "
                f"{before['host']}: if that has ended, give --force-lock, or delete "
                f"{path}."
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


def _locked(path: Path) -> tuple[IO[str], bool]:
    """The file, opened, and whether it is locked: not every disk has locks."""
    while True:
        file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                return file, True
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
            return file, False


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _is_of_this_machine(owner: dict | None, path: Path) -> bool:
    """Whether a lock granted at `path` says that `owner` has ended."""
    boot = _boot_id()
    is_same_kernel = owner is not None and boot != "" and owner["boot"] == boot
    return is_same_kernel and _file_system(path) in _LOCAL


def _boot_id() -> str:
    """The id of this start of the kernel; empty where there is none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _file_system(path: Path) -> str:
    """The kind of file system that `path` lies on; empty where nothing tells."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    path, found, kind = Path(os.path.realpath(path)), Path(), ""
    for line in lines:
        mount, _, of_disk = line.partition(" - ")
        escaped = mount.split(" ")[4]
        place = Path(re.sub(r"\\([0-7]{3})", lambda x: chr(int(x[1], 8)), escaped))
        if path.is_relative_to(place) and len(place.parts) >= len(found.parts):
            found, kind = place, of_disk.split(" ")[0]  # the last mount lies on top
    return kind


def _owner(file: IO[str]) -> dict | None:
    """Who the file says holds the lock; None: nobody, or it is not readable."""
    file.seek(0)
    try:
        owner = json.load(file)
        boot = str(owner.get("boot", ""))
        return {"pid": int(owner["pid"]), "host": str(owner["host"]), "boot": boot}
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _write_owner(file: IO[str], host: str) -> None:
    file.seek(0)
    file.truncate()
    json.dump({"pid": os.getpid(), "host": host, "boot": _boot_id()}, file)
    file.flush()
