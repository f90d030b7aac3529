"""Atomic creation of folders: written under a temporary name, renamed when complete.

While a temporary folder is written, its process holds a lock file beside it. The lock
tells the remains of a killed process from what a live process is writing, also where
several runs share a cache.
"""

import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedder.disk.lock import LockedError, hold_lock, lock_file

_TEMPORARY = re.compile(r"(\..+-[0-9a-f]{8})(\.lock)?")
_log = logging.getLogger(__name__)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Creates `folder` atomically, with the files that the body writes.

    Yields a new temporary folder beside `folder`, which is renamed to `folder` if the
    body succeeds and removed if it raises. If another process has created `folder`
    meanwhile, that one stays and this one is removed.
    """
    temporary = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(_lock(temporary)):  # for as long as the temporary folder exists
        temporary.mkdir()
        try:
            yield temporary
            try:
                os.replace(temporary, folder)
            except OSError:
                if not folder.exists():  # else another process was first
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _lock(temporary: Path) -> Path:
    return temporary.with_name(f"{temporary.name}.lock")


def unfinished_folders(parent: Path) -> list[Path]:
    """Temporary folders in `parent`, sorted: of live and of killed processes."""
    names = [_TEMPORARY.fullmatch(path.name) for path in parent.glob(".*-*")]
    return sorted({parent / name[1] for name in names if name})


def remove_unfinished_folders(parent: Path) -> None:
    """Removes the temporary folders in `parent` of killed processes, and logs them.

    A folder that a live process may be writing, perhaps on another host, stays.
    """
    for folder in unfinished_folders(parent):
        try:
            with hold_lock(_lock(folder)):
                is_dead = _excludes_others(_lock(folder))
                if is_dead:
                    _log.info("%s was not finished: it is removed.", folder)
                    shutil.rmtree(folder, ignore_errors=True)
        except (LockedError, OSError):
            is_dead = False
        if not is_dead and folder.exists():
            _log.info(
                "%s is not finished and stays, because a process may be writing it. If "
                "none is, delete it.",
                folder,
            )


def _excludes_others(lock: Path) -> bool:
    """Whether file locks work on this disk: a lock that is held is refused here."""
    with open(lock) as file:
        try:
            lock_file(file)
        except BlockingIOError:
            return True
    return False
