"""How a run ends before it is finished.

A signal stops it: it finishes the call of updates, saves, and exits. ended.json says
why the last process ended; only the report and `watch` read it, and a process that is
killed writes none.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal, NamedTuple, NoReturn, get_args

from embedder.base.stages import report_stage
from embedder.disk.workdir import Workdir, write_text

_NAMES = "SIGINT", "SIGTERM", "SIGHUP"
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
_SAME = 0.2  # seconds: GNU timeout signals the process, and then its whole group
_LONGEST = 2000  # characters of a message in ended.json
How = Literal["diverged", "stopped", "failed"]


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
        self._resent = 0  # signals that this process sent itself once more
        self._is_listening = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles SIGINT, SIGTERM and SIGHUP in the body; a second one exits at once.

        Python's handlers wait for the end of C code, such as a compilation. A thread
        does not: it says at the first signal that the run is about to stop, and exits
        at the second. The signal is sent once more if the main thread fell asleep as it
        came, or if the error of its handler was lost, as in garbage collection or in a
        callback of a library.

        Signals within 0.2 seconds count as one. A signal that the parent process
        ignores, as under `nohup`, stays ignored.
        """
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        before = [pair for pair in before if pair[1] != signal.SIG_IGN]
        with _noticing({number for number, _ in before}, self._notice):
            unraisable, sys.unraisablehook = sys.unraisablehook, self._lost
            self._unraisable, self._is_listening = unraisable, True
            for number, _ in before:
                signal.signal(number, self._take)
            try:
                yield
            finally:
                self._is_listening, sys.unraisablehook = False, unraisable
                for number, handler in before:
                    signal.signal(number, handler)

    def request(self, number: int) -> None:
        """Stops the run after its next call of updates, as the signal `number` does."""
        self.number = self.number or number

    def _take(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.number:
            if now - self._came > _SAME:
                _exit(number)
            return
        self.number, self._came = number, now
        if not self.is_polled:
            raise Stopped(number)

    def _lost(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Receives an error that nobody can catch."""
        if not isinstance(unraisable.exc_value, Stopped):
            self._unraisable(unraisable)
            return
        seconds = 0.01
        while True:
            try:
                self.number = 0
                self._send_again(unraisable.exc_value.number, seconds)
                return
            except Stopped:  # on a busy machine it comes while its thread begins
                seconds *= 2

    def _send_again(self, number: int, seconds: float) -> None:
        if self._is_listening:
            again = threading.Timer(seconds, self._send, [number])
            again.daemon = True
            again.start()

    def _send(self, number: int) -> None:
        """Sends the main thread the signal, unless it has taken it by now."""
        main = threading.main_thread().ident
        if self.number or not self._is_listening or main is None:
            return
        self._resent += 1
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, number)
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
            # Python's handler does not end a sleep that began just after the signal.
            self._send_again(number, 0.1)
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


class Ending(NamedTuple):
    """How a process ended, and what it said."""

    how: How
    message: str


def write_ending(run: Workdir, error: BaseException) -> None:
    """Writes how `error` ended the training of `run`, if one was started.

    An error of writing is ignored: `error` itself must reach the user.
    """
    if not run.is_started or run.is_finished:
        return
    how: How = "failed"
    if isinstance(error, KeyboardInterrupt):  # `Stopped` is one
        how = "stopped"
    elif isinstance(error, FloatingPointError):
        how = "diverged"
    ending = Ending(how, (str(error) or type(error).__name__)[:_LONGEST])
    with contextlib.suppress(OSError):
        write_text(run.ended, json.dumps(ending._asdict()) + "\n")


def read_ending(run: Workdir) -> Ending | None:
    """What `write_ending` wrote; None: there is none, or it is damaged."""
    try:
        values = json.loads(run.ended.read_text(encoding="utf-8"))
        how, message = values["how"], values["message"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if how not in get_args(How) or not isinstance(message, str):
        return None
    return Ending(how, message[:_LONGEST])
