"""Locks on open files, and a lock file for a folder: one process writes there.

The lock is the kernel's, by flock, or of one byte on Windows; it is released when the
file is closed, and when the process ends or is killed.
The lock file names its owner (process id, host, boot id) for messages, and for network
disks, where a host may not see the locks of another. Containers have host names of
their own but share the kernel: on a local disk, an owner with the boot id of this
kernel is known to have ended once the kernel grants the lock.
"""

import contextlib
import errno
import importlib.util
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from embedder.errors import InputError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
# File systems on local disks, where all processes see each other's locks.
_LOCAL_FILE_SYSTEMS = {
    *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs"),
    *("reiserfs", "tmpfs", "xfs", "zfs"),
}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_FAR = 2**40  # offset beyond all contents, which a lock of Windows keeps from readers
_EVERY = 0.1  # seconds between two tries
_log = logging.getLogger(__name__)


def lock_file(file: IO[Any], *, wait: bool = False) -> None:
    """Locks an open file; OSError if the disk has no locks.

    Args:
      wait: until no other open file holds the lock; False: BlockingIOError if one does.
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
        has_ended = is_granted and former is not None and _is_local(former, path)
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
        file.seek(0)
        file.truncate()
        json.dump(_Owner(os.getpid(), here, _boot_id())._asdict(), file)
        file.flush()
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
            if is_at(file, path):
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
            text = "%s: the disk has no locks (%s): make sure that no other run writes "
            _log.warning(f"{text}there.", path.parent, error.strerror)
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


def is_at(file: IO[Any], path: Path) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _is_local(owner: _Owner, path: Path) -> bool:
    """Whether `owner` ran on this kernel and `path` is on a local disk."""
    is_same_kernel = owner.boot != "" and owner.boot == _boot_id()
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
