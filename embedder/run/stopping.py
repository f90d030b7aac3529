"""Signals that stop a run: it finishes the call of updates, saves, and exits."""

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME = 0.2  # seconds: GNU timeout signals the process, and then its whole group


class Stopped(KeyboardInterrupt):
    """A signal ended the run; the exit code is 128 + `number`."""

    def __init__(self, number: int, message: str = "Interrupted."):
        super().__init__(message)
        self.number = number


class Stop:
    """Whether a signal has requested to stop."""

    def __init__(self) -> None:
        self.number = 0
        """Number of the signal; 0: none was received."""
        self.is_polled = False
        """Whether `number` is polled; if not, a signal stops the run at once."""
        self._came = 0.0  # time of the first signal

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles SIGINT, SIGTERM and SIGHUP in the body; a second one exits at once.

        Signals within 0.2 seconds count as one. A signal that the parent process
        ignores, as under `nohup`, stays ignored.
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
        """Stops the run after its next call of updates, as the signal `number` does."""
        self.number = self.number or number

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self.is_polled and _is_collecting(frame):
            main = threading.main_thread().ident
            again = threading.Timer(0.01, signal.pthread_kill, (main, number))
            again.daemon = True
            again.start()
            return
        now = time.monotonic()
        if self.number:
            if now - self._came > _SAME:
                os._exit(128 + number)
            return
        self.number, self._came = number, now
        if not self.is_polled:
            raise Stopped(number)


def _is_collecting(frame: FrameType | None) -> bool:
    """Whether a signal came in a callback of the garbage collector, as JAX has one, of
    a weak reference, or in `__del__`: what is raised there is printed, and lost."""
    codes = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None:
        code = frame.f_code
        if code in codes or code.co_name == "__del__":
            return True
        if code.co_name in ("_remove", "remove") and "weakref" in code.co_filename:
            return True
        frame = frame.f_back
    return False
