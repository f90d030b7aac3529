"""Checkpoints of a run: when it saves one, and how it resumes from one."""

import contextlib
import logging
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from embedder import __version__
from embedder.base.stages import report_stage
from embedder.config import different_options, from_toml, options_of
from embedder.config.settings import Interval
from embedder.disk.run_record import COLUMNS, KEPT_FILES
from embedder.engine.checkpoints import (
    CheckpointError,
    Checkpoints,
    StoredCheckpoint,
    arrays_of,
    tree_of,
)
from embedder.engine.epochs import Checkpoint, Progress, Status
from embedder.engine.hosts import processes
from embedder.engine.hosts.joining import leave, watch
from embedder.engine.task import Trainer
from embedder.run.stopping import Stop, Stopped

_SAVE, _STOP, _FAIL = 1, 100, 1000  # the largest of all processes wins; _STOP + signal
MEET_EVERY = 16  # calls of updates, of which about ten take a second
_log = logging.getLogger(__name__)


class _Saved(NamedTuple):
    """When the run was last saved, or started."""

    updates: int
    epoch: int
    time: float  # seconds


class Saver:
    """Saves a training at intervals and before it stops.

    It must be called after each call of updates. Of several processes the first writes.
    All save after the same update: every few calls they exchange their requests, and
    follow the most urgent one.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        interval: Interval,
        stop: Stop,
        *,
        saves_best: bool = False,
        start: Progress,
        facts: dict[str, Any],
        on_save: Callable[[Checkpoint], None] = lambda checkpoint: None,
    ):
        self._checkpoints = checkpoints
        self._interval = interval
        self._stop = stop
        self._facts = facts
        self._saves_best = saves_best
        self._on_save = on_save
        self._saved = _Saved(start.updates, start.epoch, time.monotonic())
        self._calls = 0
        self._error: OSError | None = None  # of the last attempt to write
        self._watch = watch()

    def __call__(self, status: Status) -> None:
        """Saves if it is time, or if writing failed; stops if a signal was received.

        Raises:
          OSError: writing failed twice.
          Stopped: the run is saved.
        """
        self._stop.is_polled = True
        self._watch.beat(status)
        self._calls += 1
        if processes.num_processes() == 1:
            wanted = self._wanted(status)
        elif (
            status.is_epoch_end or self._is_due(status) or self._calls % MEET_EVERY == 0
        ):
            wanted = processes.largest(self._wanted(status))
        else:
            return
        if wanted == _FAIL:
            with processes.fail_together():
                if self._error:
                    raise self._error
        if wanted > _STOP:
            report_stage("stopping: saving a checkpoint; Ctrl-C again ends at once")
        if wanted:
            self._save(status)
        if wanted > _STOP:
            self._checkpoints.wait()
            leave()
            raise Stopped(
                wanted - _STOP,
                f"Stopped after {status.updates} updates, which are saved.",
            )

    def pause(self) -> None:
        """Must be called before slow work outside the updates."""
        self._watch.pause()

    def finish(self) -> None:
        """Waits for the checkpoint being written; then a signal stops at once."""
        self._stop.is_polled = False
        self._watch.end()
        try:
            self._checkpoints.wait()
        except OSError as error:  # harmless: the results are written next
            _log.warning("%s: %s.", error.filename, error.strerror)
            if self._saves_best and self._checkpoints.retry():
                with contextlib.suppress(OSError):
                    self._checkpoints.wait()

    def _wanted(self, status: Status) -> int:
        if self._stop.number:
            return _STOP + self._stop.number
        try:
            if is_written := self._checkpoints.is_written():
                self._error = None
        except OSError as error:
            is_second, self._error = self._error is not None, error
            if is_second:
                return _FAIL
            _log.warning("%s: %s: tried again.", error.filename, error.strerror)
            return 0 if self._saves_best and self._checkpoints.retry() else _SAVE
        is_time = (
            processes.is_first()
            and is_written  # otherwise a slow disk would delay every call
            and time.monotonic() - self._saved.time >= self._interval.seconds
        )
        return _SAVE if is_time or self._is_due(status) else 0

    def _is_due(self, status: Status) -> bool:
        """Whether it is time by updates or epochs, which all processes agree on."""
        if self._saves_best and status.best == status.updates:
            return True
        if status.updates - self._saved.updates >= self._interval.updates:
            return True
        epochs = status.epoch + 1 - self._saved.epoch
        return status.is_epoch_end and epochs >= self._interval.epochs

    def _save(self, status: Status) -> None:
        epoch = status.epoch + status.is_epoch_end
        self._watch.pause()
        self._saved = _Saved(status.updates, epoch, time.monotonic())
        checkpoint = status.snapshot()
        if processes.is_first():
            self._on_save(checkpoint)
            position = checkpoint.position
            facts = self._facts | {"place": position._asdict()}
            arrays = arrays_of(checkpoint.state)
            self._checkpoints.save(position.updates, arrays, facts, status.best)
        if processes.num_processes() > 1:
            processes.barrier()  # the first may have waited for its disk


def reproducibility_facts(training: Trainer) -> dict[str, str]:
    """What the last bits of the vectors depend on, besides the settings."""
    layout = training.layout
    groups = layout.replica_devices
    replicas = f", replicas over {groups}" if groups > 1 else ""
    packages = ("jax", "jaxlib", "numpy")
    return {
        "the version of embedder": __version__,
        **{f"the version of {name}": version(name) for name in packages},
        "layout": f"{layout.mode} {layout.tables} "
        f"{layout.data_devices} x {layout.table_devices}{replicas}",
        "backend": training.backend,
        training.item_key: training.content,
    }


def checkpoint_to_resume(
    checkpoints: Checkpoints, training: Trainer, step: int | None = None
) -> Checkpoint | None:
    """What the newest whole checkpoint holds; None: there is none.

    Args:
      step: read the checkpoint of this number instead.

    Raises:
      CheckpointError: it is of another training, or that of `step` is damaged.
    """
    checkpoints.remove_parts()
    stored = checkpoints.newest() if step is None else _at(checkpoints, step)
    if stored is None:
        _log.info(
            "%s holds an unfinished run without a checkpoint: it starts anew.",
            checkpoints.folder.parent,
        )
        return None
    try:
        _check_settings(stored, training)
        checkpoint = checkpoint_of(stored, training)
    except CheckpointError as error:
        raise CheckpointError(
            f"Checkpoint {checkpoints.folder / str(stored.step)} is of another "
            f"training, {error}: give another --workdir, or --overwrite to start anew."
        ) from error
    position = checkpoint.position
    _log.info(
        "Resumes after %d updates, %.1f %% of the run.",
        *(position.updates, 100 * position.progress),
    )
    _check_facts(stored.facts["origin"], training)
    return checkpoint


def _at(checkpoints: Checkpoints, step: int) -> StoredCheckpoint:
    if step not in (steps := checkpoints.steps()):
        there = ", ".join(map(str, sorted(steps))) or "there is none"
        raise CheckpointError(
            f"`step` must be of a checkpoint in {checkpoints.folder} ({there}), got "
            f"{step}."
        )
    return checkpoints.read(step)


def _check_settings(stored: StoredCheckpoint, training: Trainer) -> None:
    if "config" not in stored.facts:
        raise CheckpointError("of an earlier version")
    configs = from_toml(stored.facts["config"]), training.config
    # Columns and files are those of the run, by its manifest and its base.
    skipped = COLUMNS | KEPT_FILES
    before, now = (
        {name: x for name, x in options_of(each).items() if name not in skipped}
        for each in configs
    )
    if different := different_options(before, now):
        raise CheckpointError(", ".join(different))


def _check_facts(before: dict[str, str], training: Trainer) -> None:
    """Warns of what may change the last bits of the vectors.

    Raises:
      CheckpointError: the run was started with other data.
    """
    now, items = reproducibility_facts(training), training.item_key
    different = [name for name in now if now[name] != before.get(name)]
    if items in different:
        raise CheckpointError(
            f"The run was started with other {items}: give another --workdir, "
            "or --overwrite to start anew."
        )
    if different:
        changes = (f"{name}: {before.get(name)}, now {now[name]}" for name in different)
        _log.warning(
            "Vectors may differ in their last bits from those of an uninterrupted run "
            "(%s).",
            "; ".join(changes),
        )


def check_best(checkpoints: Checkpoints, position: Progress) -> None:
    """Refuses `result` best if the checkpoint of the best epoch is missing.

    Raises:
      CheckpointError: it is missing.
    """
    if position.best and position.best[1] not in checkpoints.steps():
        raise CheckpointError(
            f"`result` best needs checkpoint {position.best[1]} of the best epoch so "
            "far, which was not kept: give --result last, or --overwrite to start anew."
        )


def checkpoint_of(stored: StoredCheckpoint, training: Trainer) -> Checkpoint:
    """A stored checkpoint of `training` with its state as a pytree.

    Raises:
      CheckpointError: the checkpoint is of another training.
    """
    state = tree_of(stored.arrays, training.initial_state())
    return Checkpoint(state, _position(stored.facts["place"]))


def start_or_broadcast(start: Checkpoint | None, training: Trainer) -> Checkpoint:
    """`start` of the first process, in all; the initial state if it has none."""
    if not processes.broadcast_flag(start is not None):
        return Checkpoint(training.initial_state(), Progress(training.epochs.start))
    if start is not None and processes.num_processes() == 1:
        return start
    state, position = start or (training.initial_state(), Progress(0))
    facts = processes.broadcast_facts(position._asdict())
    arrays = processes.broadcast_arrays(arrays_of(state))
    return Checkpoint(tree_of(arrays, state), _position(facts))


def _position(facts: dict[str, Any]) -> Progress:
    lists: dict[str, Any] = {
        name: tuple(facts.get(name, ()))  # earlier versions have no scores
        for name in ("position", "sums", "best", "scores")
    }
    lists["history"] = tuple(map(tuple, facts["history"]))
    return Progress(**facts | lists)
