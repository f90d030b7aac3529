"""The files of a mirrored run, and the manifest that says which of them count.

    mirror.json         names, sizes and SHA-256 of all files; written last
    NAME                a file of the run, under its name there
    NAME.DIGITS         a file whose content replaces that of one in mirror.json

No file in the manifest is overwritten, so a killed upload leaves the manifest true.
"""

import json
import logging
import re
import shutil
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from embedder.disk.digests import file_digest
from embedder.disk.store import Store
from embedder.disk.workdir import Workdir, clear, temporary_run
from embedder.errors import InputError, InputNotFoundError

MANIFEST = "mirror.json"
_FORMAT = 1
_THREADS = 8
_STEP = re.compile(r"checkpoints/([0-9]{1,18})/.+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A file of the run, as mirrored."""

    path: str  # in the mirror: the name of the file, or that with digits
    size: int  # bytes
    sha256: str


class Manifest(NamedTuple):
    """What a mirror has."""

    writer: str  # the process that writes there
    finished: bool  # the run
    files: dict[str, Entry]  # by their names in the run

    @property
    def steps(self) -> list[int]:
        """The checkpoints, newest first."""
        steps = {step for name in self.files if (step := step_of(name)) is not None}
        return sorted(steps, reverse=True)

    @property
    def has_run(self) -> bool:
        """Whether a run was started; if not, the mirror is empty."""
        return Workdir("").config.name in self.files

    @property
    def progress(self) -> tuple[bool, int]:
        """Whether the run is finished, and its newest checkpoint; -1: none."""
        return self.finished, max(self.steps, default=-1)


def step_of(name: str) -> int | None:
    """The checkpoint that a file belongs to; None: to none."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def to_json(manifest: Manifest) -> bytes:
    files = {name: entry._asdict() for name, entry in manifest.files.items()}
    values = {"format": _FORMAT, **manifest._asdict(), "files": files}
    return (json.dumps(values, indent=1) + "\n").encode()


def read_manifest(store: Store) -> Manifest | None:
    """The manifest of a mirror; None: the folder is empty.

    Raises:
      InputError: it is damaged, or the folder holds something else.
    """
    data = store.read_file(MANIFEST)
    if data is None:
        if any(not _is_temporary(name) for name in store.names()):
            raise InputError(
                f"`mirror` must be the mirror of a run, or empty, or new: {store.shown}"
                " holds other files."
            )
        return None
    try:
        return _manifest(json.loads(data))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{store.shown}/{MANIFEST} is damaged: give another --mirror, or delete "
            "this one."
        ) from None


def _manifest(values: dict) -> Manifest:
    if values["format"] != _FORMAT:
        raise InputError("of another version")
    files = {name: Entry(**each) for name, each in values["files"].items()}
    for name, entry in files.items():
        is_sound = (
            is_of_run(name)
            and is_of_run(entry.path)
            and isinstance(entry.size, int)
            and _SHA256.fullmatch(entry.sha256)
        )
        if not is_sound:
            raise InputError(name)
    run = Workdir("")
    if files and not {run.config.name, run.corpus.name} <= {*files}:
        raise InputError("without the settings of its run")
    return Manifest(str(values["writer"]), bool(values["finished"]), files)


def is_of_run(name: str) -> bool:
    """Whether a mirror may have a file `name`; others in its folder are left alone."""
    path = PurePosixPath(name)
    if path.is_absolute() or {"..", "."} & {*name.split("/")} or "\0" in name:
        return False
    run = Workdir("")
    folders = run.checkpoints.name, run.events.name
    if len(path.parts) > 1:
        return path.parts[0] in folders
    names = {each.name for each in {*vars(run).values()}} - {run.lock.name, ""}
    plain = re.sub(r"\.[0-9a-f]{16}$", "", name)
    return plain in names - {*folders, run.cache.name} or _is_temporary(name)


def _is_temporary(name: str) -> bool:
    """Whether a killed process left the file."""
    last = PurePosixPath(name).name
    return last.startswith(".") and last.endswith(".tmp")


def fetch(store: Store, entry: Entry, path: Path) -> None:
    """Copies a file of a mirror to `path`.

    Raises:
      InputError: it is missing or damaged, or the mirror cannot be read.
    """
    damage = "is missing"
    try:
        store.fetch(entry.path, path)
        is_whole = (path.stat().st_size, file_digest(path)) == entry[1:]
        damage = "" if is_whole else "is not what was written"
    except InputNotFoundError:
        pass
    if damage:
        raise DamagedMirrorError(
            f"{store.shown}/{entry.path} {damage}: give another --mirror, or "
            "--overwrite to start anew."
        )


class DamagedMirrorError(InputError):
    """A file of a mirror is missing, or is not what was written."""


def restore(
    store: Store, manifest: Manifest, run: Workdir, steps: Collection[int]
) -> bool:
    """Replaces the run in a folder by the mirrored one, without damaged checkpoints;
    returns whether it did. A killed process leaves a folder without settings, hence
    without a run.

    Args:
      steps: nothing is replaced unless one of these checkpoints is whole.

    Raises:
      InputError: another file is damaged, or the mirror cannot be read.
    """
    with temporary_run(run) as made:
        damaged = _fetch_all(store, manifest, made)
        if steps and damaged.issuperset(steps):
            return False
        clear(run)
        moved = {path.name for path in made.path.iterdir()}
        last = [made.config.name, made.vectors.name]
        for name in (*sorted(moved - {*last}), *last):
            if name in moved:
                (made.path / name).rename(run.path / name)
    return True


def _fetch_all(store: Store, manifest: Manifest, made: Workdir) -> set[int]:
    """Copies the files of a mirror into a new run; returns the damaged checkpoints."""
    damaged: dict[int, str] = {}

    def fetch_one(name: str) -> None:
        step = step_of(name)
        try:
            fetch(store, manifest.files[name], made.path / name)
        except DamagedMirrorError as error:
            if step is None:
                raise
            damaged[step] = str(error).partition(": give ")[0]

    pool = ThreadPoolExecutor(_THREADS, "mirror")
    try:
        for _ in pool.map(fetch_one, manifest.files):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    for step, reason in sorted(damaged.items()):
        _log.warning("%s: checkpoint %d is left out.", reason, step)
        shutil.rmtree(made.checkpoints / str(step), ignore_errors=True)
    return {*damaged}
