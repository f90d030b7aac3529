"""A watch over a run that logs stalls and jumps of the loss while they happen."""

import logging
import math
import threading
import time
from collections.abc import Callable

from embedder.engine.epochs import Status

_STALLED = 60.0  # seconds without an update, after which it warns
_SPIKE = 3.0  # times the mean loss of the epoch so far: warns above it
_log = logging.getLogger(__name__)


class Watch:
    """Warns when no call of updates returns for long, and at last calls `on_hang`.

    `check` compares the time since the last call; `start` runs it in a thread.

    JAX's runtime notices processes that have ended or are stopped, by the heartbeats of
    its own threads; it does not notice a process that waits for its disk.

    Args:
      limit: seconds without a call before `on_hang(seconds)`; at least ten times the
        longest call so far, and twice the first.
      stalled: the same for a warning.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        limit: float = math.inf,
        on_hang: Callable[[float], None] = lambda seconds: None,
        stalled: float = _STALLED,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._limit = limit
        self._stalled = stalled
        self._on_hang = on_hang
        self._clock = clock
        self._longest = 0.0  # seconds between two calls, so far
        self._born = clock()
        self._first: float | None = None  # seconds until the first call, with compiling
        self._last: float | None = None  # time of the last call; None: paused
        self._updates = 0
        self._leapt = -1  # epoch of the last warning of a leap
        self._told: float | None = None  # `_last` at the last warning of a stall
        self._ended = threading.Event()

    def start(self) -> threading.Thread:
        """The thread that checks until `end`."""

        def run() -> None:
            while not self._ended.wait(min(self._limit / 20, self._stalled / 4)):
                self.check()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def beat(self, status: Status) -> None:
        """Must be called after each call of updates."""
        now = self._clock()
        if self._first is None:
            self._first = now - self._born
        if self._last is not None:
            self._longest = max(self._longest, now - self._last)
        self._last, self._updates = now, status.updates
        self._check_leap(status)

    def pause(self) -> None:
        """Must be called before slow work outside the updates, and after the last."""
        self._last = None

    def end(self) -> None:
        """Ends the watch."""
        self._ended.set()

    def check(self) -> None:
        """Warns of a stall, or calls `on_hang`."""
        last = self._last
        if last is None or self._first is None:
            return
        waited = self._clock() - last
        usual = max(10 * self._longest, 2 * self._first)
        if waited > max(self._limit, usual):
            self._on_hang(waited)
        if waited > max(self._stalled, usual) and self._told != last:
            self._told = last
            _log.warning(
                "No update for %.0f s, since update %d: the loader or a device stalls.",
                waited,
                self._updates,
            )

    def _check_leap(self, status: Status) -> None:
        """Warns once per epoch that the loss has leapt."""
        if self._leapt == status.epoch or status.is_epoch_end:
            return
        if 0 < _SPIKE * status.loss < status.recent_loss:
            self._leapt = status.epoch
            _log.warning(
                "The loss spikes: %.4g near update %d, in epoch %d, whose mean so far "
                "is %.4g.",
                status.recent_loss,
                status.updates,
                status.epoch + 1,
                status.loss,
            )
