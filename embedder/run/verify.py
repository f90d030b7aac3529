"""Which files of a run are whole, which are damaged, and how to repair them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedder.disk.digests import (
    DIGESTS_FILE,
    check_digests,
    describe_damage,
    read_digests,
)
from embedder.disk.folders import unfinished_folders
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import CheckpointError, Checkpoints
from embedder.errors import InputNotFoundError
from embedder.vectors.index import index_damage

_ANEW = "train anew with --overwrite, or restore a copy"
_CURVE = "only a longer run depends on it; only training anew restores it"
_MOVE = "the same command moves them; until then files of both are here"
_NAMES = "delete {path} and give --names again"
_AGAIN = "delete {path}; the same command resumes from the last whole checkpoint"
_PART = "was not finished", "the next run here removes it"


class Finding(NamedTuple):
    """The state of one file or folder of a run."""

    name: str
    fault: str = ""  # what is wrong; empty: it is whole
    advice: str = ""  # what to do

    def __str__(self) -> str:
        if not self.fault:
            return f"{self.name}: whole"
        return f"{self.name}: {self.fault}: {self.advice}"


def verify(path: Path) -> Iterator[Finding]:
    """Checks all files of a run that have checksums; changes nothing.

    Raises:
      FileNotFoundError: an InputError; there is no run at `path`.
    """
    run = Workdir(path)
    if not run.is_started:
        raise InputNotFoundError(f"RUN {path} holds no run: {run.config} is missing.")
    yield from _files(run)
    yield from _checkpoints(run)
    yield from _longer(run)
    damage = index_damage(run.index)
    if damage is not None:
        advice = "`embedder index` writes it anew; until then search is exact"
        yield Finding(run.index.name, damage, advice)
    yield from _cache(run)
    for path in (*run.parts, *unfinished_folders(run.cache)):
        if not path.name.startswith(f".{run.report.name}."):  # the run is whole
            yield Finding(os.path.relpath(path, run.path), *_PART)


def _files(run: Workdir) -> Iterator[Finding]:
    """Findings about the files in the folder itself."""
    try:
        sums = read_digests(run.path)
    except FileNotFoundError:
        yield Finding(DIGESTS_FILE, "is missing", "the next run here writes it")
        return
    except ValueError as error:
        yield Finding(DIGESTS_FILE, f"is damaged ({error})", _ANEW)
        return
    inputs = run.config, run.corpus, run.base, run.start, run.attributes, run.vocabulary
    settings = {path.name for path in inputs}
    for name, expected in sums.items():
        path = run.path / name
        advice = _AGAIN.format(path=run.vectors)
        if name in settings:
            advice = _ANEW
        elif path == run.names:
            advice = _NAMES.format(path=path)
        elif path in (run.metrics, run.progress) or path.parent == run.events:
            advice = _CURVE
        yield Finding(name, describe_damage(path, expected), advice)


def _checkpoints(run: Workdir) -> Iterator[Finding]:
    checkpoints = Checkpoints(run.checkpoints)
    for step in checkpoints.steps():
        name = f"{run.checkpoints.name}/{step}"
        try:
            checkpoints.read(step)
            yield Finding(name)
        except CheckpointError as error:
            fault = f"is damaged {str(error).partition(' is damaged ')[2]}"
            yield Finding(name, fault, "the run resumes from the one before")
    for path in checkpoints.parts():
        yield Finding(os.path.relpath(path, run.path), *_PART)


def _longer(run: Workdir) -> Iterator[Finding]:
    """Findings about the longer run in the folder of a finished one."""
    longer = Workdir(run.longer)
    name = longer.path.name
    if longer.is_finished:
        yield Finding(name, "is finished, but its files are not moved", _MOVE)
    elif longer.is_started:
        for each in (*_files(longer), *_checkpoints(longer)):
            yield each._replace(name=f"{name}/{each.name}")


def _cache(run: Workdir) -> Iterator[Finding]:
    if not run.cache.is_dir():
        return
    parts = unfinished_folders(run.cache)
    for folder in sorted(run.cache.iterdir()):
        if not folder.is_dir() or folder in parts:
            continue
        name = f"{run.cache.name}/{folder.name}"
        try:
            check_digests(folder)
            yield Finding(name)
        except (OSError, ValueError) as error:
            advice = f"delete {folder}; the next run writes it again"
            yield Finding(name, f"is damaged ({error})", advice)
