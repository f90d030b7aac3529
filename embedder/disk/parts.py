"""Folders that are written under another name, and get their own when they are whole.

While a part is written, a lock file beside it is held: what a dead process has left can
be told from what a live one is writing, also where several runs share the place.
"""

import fcntl
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedder.disk.lock import LockedError, held

_PART = re.compile(r"(\..+-[0-9a-f]{8})(\.lock)?")
_log = logging.getLogger(__name__)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder`, which takes its name if the body succeeds.

    If another process was first, its folder stays.
    """
    part = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(_lock(part)):  # before the folder is there, and until it is not
        part.mkdir()
        try:
            yield part
            _move(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _lock(part: Path) -> Path:
    return part.with_name(f"{part.name}.lock")


def _move(part: Path, folder: Path) -> None:
    try:
        os.replace(part, folder)
    except OSError:
        if not folder.exists():  # else another run has made the same
            raise


def parts_in(place: Path) -> list[Path]:
    """The parts in `place` that are being written, or that a dead process has left."""
    names = [_PART.fullmatch(path.name) for path in place.glob(".*-*")]
    return sorted({place / name[1] for name in names if name})


def remove_parts(place: Path) -> None:
    """Removes the parts in `place` that a dead process has left, and logs them.

    Those that a live process may be writing, perhaps on another host, stay.
    """
    for part in parts_in(place):
        try:
            with held(_lock(part)):
                is_dead = _excludes_others(_lock(part))
                if is_dead:
                    _log.info("%s was not finished: it is removed.", part)
                    shutil.rmtree(part, ignore_errors=True)
        except (LockedError, OSError):
            is_dead = False
        if not is_dead and part.exists():
            _log.info(
                "%s is not finished and stays, because a process may be writing it. If "
                "none is, delete it.",
                part,
            )


def _excludes_others(lock: Path) -> bool:
    """Whether the disk has locks: the one that is held is refused to a second user."""
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
