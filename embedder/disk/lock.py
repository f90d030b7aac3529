"""A lock file for a folder: one process writes there at a time.

The lock is the kernel's, which releases it when the process ends or is killed.
The lock file names its owner (process id, host, boot id) for messages, and for network
disks, where a host may not see the locks of another. Containers have host names of
their own but share the kernel: on a local disk, an owner with the boot id of this
kernel is known to have ended once the kernel grants the lock.
"""

import contextlib
import errno
import json
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from embedder.disk.file_lock import has_flock, lock_file
from embedder.errors import InputError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
# File systems on local disks, where all processes see each other's locks.
_LOCAL_FILE_SYSTEMS = {
    *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs"),
    *("reiserfs", "tmpfs", "xfs", "zfs"),
}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_log = logging.getLogger(__name__)


class LockedError(InputError):
    """Another process holds the lock, or may hold it on another host."""


class _Owner(NamedTuple):
    """The process that a lock file names."""

    pid: int
    host: str
    boot: str  # id of the kernel's boot; "" where it is not known


@contextmanager
def hold_lock(path: Path, force: bool = False) -> Iterator[None]:
    """Holds a lock during the body; its file `path` is created, and removed after it.

    Args:
      force: take over a lock file that names another host, if no process that this
        kernel knows holds its lock.

    Raises:
      LockedError: another process holds the lock, or one of another host may.
      OSError: the file cannot be created.
    """
    file, is_granted = _open_locked(path)
    try:
        former, here = _owner(file), socket.gethostname()
        has_ended = is_granted and _is_on_this_machine(former, path)
        if former and former.host != here and not (force or has_ended):
            raise LockedError(
                f"{path.parent} may be in use by process {former.pid} of host "
                f"{former.host}: if that has ended, give --force-lock, or delete "
                f"{path}."
            )
        if former:
            _log.info(
                "Process %d, which was writing to %s, has ended: its lock is taken "
                "over.",
                *(former.pid, path.parent),
            )
        _write_owner(file, here)
        try:
            yield
        finally:
            _remove(file, path)
    finally:
        file.close()


def ended_owner(path: Path) -> int | None:
    """The id of the process that the lock file names, if it was of this host and has
    ended, as by kill -9; None: it runs, or nothing tells. The lock is not touched."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            owner = _owner(file)
    except OSError:
        return None
    here = socket.gethostname(), _boot_id()
    if owner is None or owner.pid < 1 or (owner.host, owner.boot) != here:
        return None
    if os.name == "nt":  # where signal 0 is Ctrl-C
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return owner.pid
    except (OSError, OverflowError):  # of another user
        pass
    return None


def _open_locked(path: Path) -> tuple[IO[str], bool]:
    """The open lock file, and whether it is locked: not every disk supports locks."""
    while True:
        file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        try:
            lock_file(file)
            if _is_at(file, path):
                return file, True
            file.close()  # its owner deleted it after we had opened it
        except BlockingIOError:
            owner = _owner(file)
            file.close()
            who = f"process {owner.pid} of host {owner.host}" if owner else ""
            raise LockedError(
                f"{path.parent} is in use by {who or 'another process'}: wait for its "
                "end, or give another --workdir."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                file.close()
                raise
            _log.warning(
                "%s: the disk has no locks (%s): make sure that no other run writes "
                "there.",
                path.parent,
                error.strerror,
            )
            return file, False


def _remove(file: IO[str], path: Path) -> None:
    """Removes the lock file while it is locked, so that nobody locks a removed file.

    On Windows it is closed first, and stays if another process has opened it meanwhile;
    it is emptied, so that it names no former owner.
    """
    if has_flock():
        path.unlink(missing_ok=True)
        return
    file.truncate(0)
    file.close()
    with contextlib.suppress(PermissionError):
        path.unlink(missing_ok=True)


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _is_on_this_machine(owner: _Owner | None, path: Path) -> bool:
    """Whether `owner` ran on this kernel and `path` is on a local disk."""
    boot = _boot_id()
    is_same_kernel = owner is not None and boot != "" and owner.boot == boot
    return is_same_kernel and _file_system(path) in _LOCAL_FILE_SYSTEMS


def _boot_id() -> str:
    """The kernel's id of this boot; "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _file_system(path: Path) -> str:
    """The type of the file system of `path`, as "ext4"; "" if it is not known."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    path, longest, kind = Path(os.path.realpath(path)), Path(), ""
    for line in lines:
        mount, _, file_system = line.partition(" - ")
        escaped = mount.split(" ")[4]
        point = Path(re.sub(r"\\([0-7]{3})", lambda x: chr(int(x[1], 8)), escaped))
        if path.is_relative_to(point) and len(point.parts) >= len(longest.parts):
            longest, kind = point, file_system.split(" ")[0]  # a later mount hides it
    return kind


def _owner(file: IO[str]) -> _Owner | None:
    """The owner that the lock file names; None if it names none, or is damaged."""
    file.seek(0)
    try:
        owner = json.load(file)
        boot = str(owner.get("boot", ""))
        return _Owner(int(owner["pid"]), str(owner["host"]), boot)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _write_owner(file: IO[str], host: str) -> None:
    file.seek(0)
    file.truncate()
    json.dump(_Owner(os.getpid(), host, _boot_id())._asdict(), file)
    file.flush()
