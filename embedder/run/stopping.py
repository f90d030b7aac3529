"""Signals that stop a run: it finishes the step, saves, and exits with 128 + number."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME = 0.2  # seconds: GNU timeout signals the process, and then its group as well


class Stopped(KeyboardInterrupt):
    """A signal ended the run."""

    def __init__(self, number: int, message: str = "Interrupted."):
        super().__init__(message)
        self.number = number


class Stop:
    """Whether a signal has come that asks to stop."""

    def __init__(self):
        self.number = 0
        """Of the signal; 0: none has come."""
        self.is_awaited = False
        """Whether `number` is looked at before long; else a signal stops at once."""
        self._came = 0.0  # when the first signal did

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles SIGINT, SIGTERM and SIGHUP in the body; a second one exits at once.

        Signals within 0.2 seconds count as one.

        A signal that the parent process ignores, as `nohup` does, stays ignored.
        """
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        before = [pair for pair in before if pair[1] != signal.SIG_IGN]
        for number, _ in before:
            signal.signal(number, self._take)
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def request(self, number: int) -> None:
        """Stops the run after its next step, as if the signal `number` had come."""
        self.number = self.number or number

    def _take(self, number: int, frame) -> None:
        now = time.monotonic()
        if self.number:
            if now - self._came > _SAME:
                os._exit(128 + number)
            return
        self.number, self._came = number, now
        if not self.is_awaited:
            raise Stopped(number)
