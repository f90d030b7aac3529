"""How far a run is, by its files; each may change or go while it is read."""

import contextlib
import math
import time
from pathlib import Path
from typing import Literal, NamedTuple

from embedder.config import Config, read_toml
from embedder.disk.lock import ended_owner
from embedder.disk.run_record import noun_of
from embedder.disk.workdir import Workdir, check_free
from embedder.errors import InputError
from embedder.report.metrics import Metrics, read_metrics
from embedder.report.timeline import ProgressLine, read_progress
from embedder.run.stopping import Ending, read_ending

Phase = Literal["waiting", "training", "finished"]
Point = tuple[float, float]  # updates, value
_RECENT = 30  # lines by which the time left is told


class State(NamedTuple):
    """A run at a moment."""

    run: Workdir  # of a run that gets longer, that in its folder
    phase: Phase
    config: Config | None = None  # None: it is not started
    metrics: Metrics = Metrics([])
    progress: tuple[ProgressLine, ...] = ()  # see `Points`
    silent: float = 0.0  # seconds since a file of the run was written
    is_locked: bool = False  # by a process that writes, or was killed
    ended: int | None = None  # that process, if it has ended
    ending: Ending | None = None  # why the last process ended, if it could say so

    @property
    def updates(self) -> int:
        """Updates done, by the newest line."""
        return int(self.metrics._replace(within=self.progress).updates or 0)

    @property
    def fraction(self) -> float:
        """The fraction of the run that is done, in [0, 1]."""
        if self.phase == "finished":
            return 1.0
        of_lines = [x.get("progress") or 0.0 for x in self.progress[-1:]]
        return min(1.0, max(of_lines, default=0.0))

    @property
    def seconds_left(self) -> float | None:
        """The time to the end at the speed of the last lines; None: nothing tells."""
        lines = [x for x in self.progress[-_RECENT:] if {"progress", "seconds"} <= {*x}]
        lines = _newest_part(lines)
        if self.phase != "training" or len(lines) < 2:
            return None
        done = lines[-1]["progress"] - lines[0]["progress"]
        passed = lines[-1]["seconds"] - lines[0]["seconds"]
        return passed / done * (1 - lines[-1]["progress"]) if done > 0 else None

    def points(self, *names: str) -> list[Point]:
        """(updates, value) of the metric that has one of `names`: within epochs if
        there are more of these points than epochs."""
        return max(
            _points(self.progress, names), _points(self.metrics.lines, names), key=len
        )


def read_state(path: Path) -> State:
    """The state of the run at `path`, which may not be started.

    Raises:
      InputError: there is something else, or its settings are damaged.
      OSError: the folder cannot be read.
    """
    run = Workdir(path)
    try:
        longer = Workdir(run.longer)
        if longer.is_started and not longer.is_finished:
            run = longer
        if not run.is_started:
            check_free(run, "RUN")
            return State(run, "waiting", is_locked=run.lock.exists())
        config = read_toml(run.config)
        is_finished = run.is_finished  # first: what is read next is then whole
        metrics = read_metrics(run.metrics)._replace(noun=_noun(run))
        progress = read_progress(run.progress)
    except FileNotFoundError:  # it is started anew at this moment
        return State(Workdir(path), "waiting")
    if is_finished:
        return State(run, "finished", config, metrics, progress)
    return State(
        *(run, "training", config, metrics, progress, _silence(run)),
        is_locked=Workdir(path).lock.exists(),
        ended=ended_owner(Workdir(path).lock),
        ending=read_ending(run),
    )


def _noun(run: Workdir) -> str:
    """`noun_of`; "" also where corpus.json is damaged, which only resuming needs."""
    try:
        return noun_of(run)
    except (InputError, OSError):
        return ""


def _points(lines, names: tuple[str, ...]) -> list[Point]:
    """Points of lines, sorted by updates."""
    points = []
    for line in lines:
        value = next((x for n in names if (x := line.get(n)) is not None), None)
        if value is not None and line.get("updates") is not None:
            points.append((float(line["updates"]), float(value)))
    return sorted(points, key=lambda point: point[0])


def _newest_part(lines: list[dict[str, float]]) -> list[dict[str, float]]:
    """Lines since the run was last resumed, where its seconds began at 0."""
    starts = [
        i for i in range(1, len(lines)) if lines[i]["seconds"] < lines[i - 1]["seconds"]
    ]
    return lines[starts[-1] :] if starts else lines


def _silence(run: Workdir) -> float:
    """Seconds since a file of the run was written."""
    paths = [run.config, run.metrics, run.progress, run.checkpoints, run.lock]
    newest = -math.inf
    for path in paths:
        with contextlib.suppress(OSError):
            newest = max(newest, path.stat().st_mtime)
    return max(0.0, time.time() - newest) if newest > -math.inf else 0.0
