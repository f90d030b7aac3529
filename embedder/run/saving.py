"""When a run saves a checkpoint, and when it stops."""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from embedder.engine.epochs import RunPosition, Snapshot, Status
from embedder.hosts import processes
from embedder.hosts.joining import leave, watch
from embedder.run.checkpoints import Checkpoints, arrays_of
from embedder.run.stopping import Stop, Stopped
from embedder.settings import Interval
from embedder.stages import report_stage

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

    Must be called after each call of updates. Of several processes the first writes.
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
        start: RunPosition,
        facts: dict[str, Any],
        on_save: Callable[[Snapshot], None] = lambda snapshot: None,
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
        elif self._is_meeting(status):
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
        """Whether updates or epochs say so: the same in all processes."""
        if self._saves_best and status.best == status.updates:
            return True
        if status.updates - self._saved.updates >= self._interval.updates:
            return True
        epochs = status.epoch + 1 - self._saved.epoch
        return status.is_epoch_end and epochs >= self._interval.epochs

    def _is_meeting(self, status: Status) -> bool:
        is_due = status.is_epoch_end or self._is_due(status)
        return is_due or self._calls % MEET_EVERY == 0

    def _save(self, status: Status) -> None:
        epoch = status.epoch + status.is_epoch_end
        self._watch.pause()
        self._saved = _Saved(status.updates, epoch, time.monotonic())
        state, position = snapshot = status.snapshot()
        if processes.is_first():
            self._on_save(snapshot)
            facts = self._facts | {"place": position._asdict()}
            arrays = arrays_of(state)
            self._checkpoints.save(position.updates, arrays, facts, status.best)
        if processes.num_processes() > 1:
            processes.barrier()  # the first may have waited for its disk
