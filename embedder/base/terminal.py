"""Text on standard output and standard error.

Text from files and corpora is escaped, so that it cannot control the terminal. A log
that cannot be written never ends a training.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

SIGPIPE = 13
"""Number of the signal that tells that a reader has gone; Windows lacks it."""

_JOINERS = "\u200c\u200d"  # joiners in Persian and Indic words, and in emoji


class LogStream:
    """A text stream that never raises: text that cannot be written is dropped.

    Other attributes are those of `stream`.

    Args:
      stream: the stream to write to.
      on_broken_pipe: called each time that the reader of the stream has gone.
    """

    def __init__(
        self, stream: TextIO, on_broken_pipe: Callable[[], None] = lambda: None
    ):
        self._stream = stream
        self._on_broken_pipe = on_broken_pipe
        self.num_failed = 0
        """Number of failed calls."""
        self.error: Exception | None = None
        """The first error."""

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Tries to write `text`; returns its length."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Tries to flush the stream."""
        self._try(self._stream.flush)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self.num_failed += 1
            self.error = self.error or error
            if isinstance(error, BrokenPipeError):
                self._on_broken_pipe()


@contextlib.contextmanager
def showing_log(show: Callable[[str], object], details: bool = False) -> Iterator[None]:
    """Calls `show` with each message of the package's log, INFO and above.

    Args:
      details: with DEBUG, too.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show(record.getMessage())

    log, handler = logging.getLogger("embedder"), Handler()
    silent = logging.NullHandler()
    level = log.level
    logging.root.addHandler(silent)  # or Orbax adds one that repeats all records
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if details else logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        logging.root.removeHandler(silent)
        log.setLevel(level)


def open_standard_streams() -> None:
    """Opens those of file descriptors 0, 1 and 2 that the parent process has closed.

    Otherwise the next opened file gets the number, and what a library prints goes into
    that file. Reading and writing the opened ones fails, as if they were closed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            is_input = number == 0
            os.open(os.devnull, os.O_WRONLY if is_input else os.O_RDONLY)
            mode = "r" if is_input else "w"
            stream = open(number, mode, errors="backslashreplace", closefd=False)
            setattr(sys, name, stream)


def say(text: str, to: TextIO | LogStream | None = None) -> None:
    """Prints `text`, which may have several lines, with control characters escaped.

    Raises:
      OSError: the output cannot be written; its `filename` is "standard output".
    """
    with _output_named():
        print("\n".join(map(shown, text.split("\n"))), file=to or sys.stdout)


def flush_output() -> None:
    """Flushes standard output.

    Raises:
      OSError: it cannot be written; its `filename` is "standard output".
    """
    with _output_named():
        sys.stdout.flush()


@contextlib.contextmanager
def _output_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def say_done(text: str) -> None:
    """Prints `text` on standard output; an error is ignored, as the work is done."""
    try:
        say(text)
        flush_output()
    except OSError:  # drop the buffer, or Python writes it again at exit
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)


def shown(text: str) -> str:
    """`text` with invisible characters escaped: control characters, newlines, marks of
    the writing direction, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _JOINERS else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
