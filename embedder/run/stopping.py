"""Signals that stop a run: it finishes the call of updates, saves, and exits."""

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from embedder.stages import report_stage

_NAMES = "SIGINT", "SIGTERM", "SIGHUP"
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
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
        self._noticed = 0.0  # the same, noticed while the main thread is in C code
        self._resent = 0  # signals that came again only for the collector's sake

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles SIGINT, SIGTERM and SIGHUP in the body; a second one exits at once.

        Python's handlers wait for the end of C code, as of a compilation. A thread does
        not: it tells at the first signal that the work is about to stop, and exits at
        the second.

        Signals within 0.2 seconds count as one. A signal that the parent process
        ignores, as under `nohup`, stays ignored.
        """
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        before = [pair for pair in before if pair[1] != signal.SIG_IGN]
        with _noticing({number for number, _ in before}, self._notice):
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
            again = threading.Timer(0.01, self._resend, (main, number))
            again.daemon = True
            again.start()
            return
        now = time.monotonic()
        if self.number:
            if now - self._came > _SAME:
                _exit(number)
            return
        self.number, self._came = number, now
        if not self.is_polled:
            raise Stopped(number)

    def _resend(self, thread: int, number: int) -> None:
        self._resent += 1
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(thread, number)
        else:  # Windows
            signal.raise_signal(number)

    def _notice(self, number: int) -> None:
        """Called in a thread as soon as a signal comes."""
        if self._resent:
            self._resent -= 1
            return
        now = time.perf_counter()
        if not self._noticed:
            self._noticed = now
            report_stage("stopping; Ctrl-C again ends at once")
        elif now - self._noticed > _SAME:
            _exit(number)


_ending = threading.RLock()


def _exit(number: int) -> NoReturn:
    """Ends the process at once, with the cursor that a bar has hidden."""
    with _ending:  # of the handler and the thread the first one alone writes
        with contextlib.suppress(OSError):
            if os.isatty(2):
                os.write(2, b"\x1b[?25h\n")
        os._exit(128 + number)


@contextmanager
def _noticing(numbers: set[int], notice: Callable[[int], None]) -> Iterator[None]:
    """Calls `notice` in a thread with each of the signals that come in the body."""
    reading, writing = socket.socketpair()  # a pipe of Windows blocks
    writing.setblocking(False)

    def notice_all() -> None:
        while data := reading.recv(1):
            if data[0] in numbers:
                notice(data[0])
        reading.close()

    threading.Thread(target=notice_all, daemon=True).start()
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writing.close()


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
