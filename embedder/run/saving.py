"""When a run saves where it is, and when it stops."""

import contextlib
import logging
import time
from typing import NamedTuple

from embedder.engine.epochs import RunPosition, Status
from embedder.hosts import processes
from embedder.hosts.joining import leave, watch
from embedder.run.checkpoints import Checkpoints, arrays_of
from embedder.run.stopping import Stop, Stopped
from embedder.settings import Interval

_SAVE, _STOP, _FAIL = 1, 100, 1000  # what a process wants; _STOP: plus the signal
_MEET_EVERY = 16  # steps: some ten in a second are usual
_log = logging.getLogger(__name__)


class _Saved(NamedTuple):
    """When the run was saved last, or began."""

    updates: int
    epoch: int
    time: float


class Saver:
    """Saves a training at intervals and before it stops; to be called after each step.

    Of several processes the first writes. They save after the same step: every so often
    each says what it wants, and all do what the most urgent wants.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        interval: Interval,
        stop: Stop,
        *,
        saves_best: bool = False,
        start: RunPosition,
        facts: dict,
    ):
        self._checkpoints = checkpoints
        self._interval = interval
        self._stop = stop
        self._facts = facts
        self._saves_best = saves_best
        self._saved = _Saved(start.updates, start.epoch, time.monotonic())
        self._steps = 0
        self._error: OSError | None = None  # of the last attempt to write
        self._watch = watch()

    def __call__(self, status: Status) -> None:
        """Saves if it is time, or if writing has failed; stops if a signal has come.

        Raises:
          OSError: writing has failed twice.
          Stopped: all is saved.
        """
        self._stop.is_awaited = True
        self._watch.beat(status)
        self._steps += 1
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
        """To be called before what takes its time."""
        self._watch.pause()

    def finish(self) -> None:
        """Waits for what is being written; from now on a signal stops at once."""
        self._stop.is_awaited = False
        self._watch.end()
        try:
            self._checkpoints.wait()
        except OSError as error:  # no matter: what comes now is the whole result
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
            and is_written  # else a slow disk would hold up every step
            and time.monotonic() - self._saved.time >= self._interval.seconds
        )
        return _SAVE if is_time or self._is_due(status) else 0

    def _is_due(self, status: Status) -> bool:
        """Whether it is time by what is done, which is so in all processes."""
        if self._saves_best and status.is_epoch_end and status.best == status.updates:
            return True
        if status.updates - self._saved.updates >= self._interval.updates:
            return True
        epochs = status.epoch + 1 - self._saved.epoch
        return status.is_epoch_end and epochs >= self._interval.epochs

    def _is_meeting(self, status: Status) -> bool:
        is_due = status.is_epoch_end or self._is_due(status)
        return is_due or self._steps % _MEET_EVERY == 0

    def _save(self, status: Status) -> None:
        epoch = status.epoch + status.is_epoch_end
        self._watch.pause()
        self._saved = _Saved(status.updates, epoch, time.monotonic())
        state, position = status.snapshot()
        if processes.is_first():
            facts = self._facts | {"place": position._asdict()}
            arrays = arrays_of(state)
            self._checkpoints.save(position.updates, arrays, facts, status.best)
        if processes.num_processes() > 1:
            processes.largest(0)  # the first may have waited for its disk
