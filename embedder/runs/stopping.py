"""Signals that end a run: it finishes the step, saves, and says so by its exit code."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes SIGINT and SIGTERM until the end of the body; the second ends all."""
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        for number in _SIGNALS:
            signal.signal(number, self._take)
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def _take(self, number: int, frame) -> None:
        if self.number:
            os._exit(128 + number)
        self.number = number
        if not self.is_awaited:
            raise Stopped(number)
