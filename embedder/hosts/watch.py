"""A watch over the steps of a run: what stalls or leaps is said while it happens."""

import logging
import math
import threading
import time
from collections.abc import Callable

_STALLED = 60.0  # seconds without a step that are said
_LEAP = 3.0  # times the mean loss of the epoch so far
_log = logging.getLogger(__name__)


class Watch:
    """Says that no step has come for long, and in the end that it waits no more.

    `check` looks how long the last step is ago; `start` runs it in a thread.

    JAX's runtime notices other processes that have ended or are stopped, by their
    heartbeats, which come from threads of its own; not one that waits for its disk.

    Args:
      limit: seconds without a step, or ten times the longest so far, or twice the
        first, after which `on_hang` is called with the seconds.
      stalled: the same for a warning.
      clock: gives seconds that only grow.
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
        self._longest = 0.0  # between two steps, so far
        self._born = clock()
        self._first: float | None = None  # seconds until the first step, compiling
        self._last: float | None = None  # step; None: there is nothing to wait for
        self._updates = 0
        self._leapt = -1  # epoch whose leap was said
        self._told: float | None = None  # step after which a stall was said
        self._ended = threading.Event()

    def start(self) -> threading.Thread:
        """Checks in a thread, which is returned, until `end`."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def beat(self, status) -> None:
        """To be called after each step."""
        now = self._clock()
        if self._first is None:
            self._first = now - self._born
        if self._last is not None:
            self._longest = max(self._longest, now - self._last)
        self._last, self._updates = now, status.updates
        self._check_leap(status)

    def pause(self) -> None:
        """To be called before what takes its time, and after the last step."""
        self._last = None

    def end(self) -> None:
        """Ends the watch."""
        self._ended.set()

    def check(self) -> None:
        """Says what there is to say by now."""
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
                "No step has come for %.0f s, since update %d: the loader or a "
                "device stalls.",
                waited,
                self._updates,
            )

    def _check_leap(self, status) -> None:
        """Says that the loss has leapt, once an epoch."""
        if self._leapt == status.epoch or status.is_epoch_end:
            return
        if 0 < _LEAP * status.loss < status.recent_loss:
            self._leapt = status.epoch
            _log.warning(
                "The loss leaps: %.4g near update %d, in epoch %d, whose mean so far "
                "is %.4g.",
                status.recent_loss,
                status.updates,
                status.epoch + 1,
                status.loss,
            )

    def _run(self) -> None:
        while not self._ended.wait(min(self._limit / 20, self._stalled / 4)):
            self.check()
