"""The progress of a training: a bar on a terminal or in a notebook, else lines."""

import contextlib
import functools
import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.spinner import Spinner
from rich.text import Text

from embedder.base.stages import showing_stages
from embedder.base.terminal import SIGPIPE, LogStream, say_done, showing_log, shown
from embedder.run.stopping import Stop, Stopped

if TYPE_CHECKING:
    from embedder.engine.epochs import Status
    from embedder.engine.task import Trainer

_log = logging.getLogger(__name__)
WORK_AFTER = 1.0
"""Seconds until something is shown that nobody asked for."""

_LINES_AFTER = 10.0  # seconds without a line until one says how far an epoch is
_LINES_EVERY = 60.0  # seconds between such lines
_SHORTEST = 0.01  # share of the time after the first call from which a rate is told


@contextmanager
def progress(stop: Stop, details: bool = False) -> Iterator[Callable[["Status"], None]]:
    """A function that shows each `Status` of a run on standard error.

    If standard error cannot be written, the run goes on, and a line on standard output
    says so at the end. If its reader has gone, `stop` is requested.

    Args:
      details: also show lines for experts: memory, devices, times to compile.
    """
    log = LogStream(sys.stderr, lambda: stop.request(SIGPIPE))
    console = Console(file=cast(TextIO, log))  # it has all that a TextIO has
    show_message = functools.partial(_print_message, console)
    try:
        with showing_log(show_message, details), display(console) as show:
            yield show
    finally:
        if log.error:
            reason = getattr(log.error, "strerror", None) or log.error
            say_done(f"The log has gaps: standard error failed ({reason}).")


@contextmanager
def starting(stop: Stop) -> Iterator[None]:
    """Shows on a terminal that libraries are loaded in the body, which takes seconds.

    Raises:
      Stopped: `stop` was requested meanwhile; raised within, C code may crash.
    """
    console = Console(file=cast(TextIO, LogStream(sys.stderr)))
    stop.is_polled = True
    try:
        with contextlib.ExitStack() as stack:
            if console.is_terminal:
                stack.enter_context(console.status("starting"))
            yield
    finally:
        stop.is_polled = False
    if stop.number:
        raise Stopped(stop.number)


@contextmanager
def working() -> Iterator[None]:
    """Shows on a terminal what the body does if that takes more than a second; the body
    must not print."""
    console = Console(file=cast(TextIO, LogStream(sys.stderr)))
    with display(console, WORK_AFTER):
        yield


@contextmanager
def display(
    console: Console, after: float = 0.0
) -> Iterator[Callable[["Status"], None]]:
    """A function that shows each `Status` on `console`.

    Args:
      after: seconds until anything is shown.
    """
    if not shows_bars(console):
        timer = LineTimer()

        def show_line(status: "Status") -> None:
            if timer.is_due(status):
                _print_message(console, summary(status))
                console.file.flush()

        yield show_line
        return
    bar = _Bar(console, after)
    try:
        with showing_stages(bar.show_stage):
            yield bar.show
    finally:
        bar.close()


def shows_bars(console: Console) -> bool:
    """Whether a bar can be shown: on a terminal, or by the widget of a notebook."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


def summary(status: "Status") -> str:
    """An epoch at its end, or how far one is, as a line."""
    epoch = f"epoch {status.epoch + 1}/{status.epochs}"
    if status.is_epoch_end:
        return (
            f"{epoch}: {_numbers(status.metrics)}, {_rate(status)}, "
            f"{status.seconds:.1f} s ({status.compile_seconds:.1f} s to compile)"
        )
    if status.scores:
        return f"{epoch}, update {status.updates}: {_numbers(status.scores)}"
    share = f"{100 * status.progress:.0f} % of the run"
    loss = f"loss {status.recent_loss:.4f}"
    parts = f"{epoch}: {share}", loss, _rate(status), _left(status)
    return ", ".join(filter(None, parts))


def log_description(
    training: "Trainer", source: str = "", others: Iterable[str] = ()
) -> None:
    """Logs what is trained on, how large it is, and for how many epochs. Other lines
    are for experts, but those about a start, which may fit in part only, for all.

    Args:
      source: text before the first line.
      others: more lines for experts.
    """
    first, *more = training.description
    num = len(training.epochs)
    _log.info("%s%s; %s epoch%s", source, first, f"{num:,}", "" if num == 1 else "s")
    for line in (*more, *others):
        level = logging.INFO if line in training.start_lines else logging.DEBUG
        _log.log(level, "%s", line)


class LineTimer:
    """Tells when a line is due: at the end of an epoch, after an evaluation, and now
    and then between these."""

    def __init__(self) -> None:
        self._due = time.monotonic() + _LINES_AFTER

    def is_due(self, status: "Status") -> bool:
        """Whether to write a line now."""
        if not (status.is_epoch_end or status.scores):
            if time.monotonic() < self._due or not status.loss:
                return False
        self._due = time.monotonic() + _LINES_EVERY
        return True


def _print_message(console: Console, message: str) -> None:
    console.print(shown(message), markup=False, highlight=False, soft_wrap=True)


class _Bar:
    """Shows the stage of the work, and then a bar with lines of text below it."""

    def __init__(self, console: Console, after: float):
        self._lock = threading.Lock()  # the timer's thread, and others that read
        self._stage, self._spinner = "", Spinner("dots", style="green")
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[left]}", style="cyan"),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("", total=1.0, epoch="", left="")
        self._loss = self._scores = self._numbers = ""
        self._is_training = self._is_closed = False
        self._live = Live(
            console=console, get_renderable=self._content, refresh_per_second=10
        )
        self._timer = threading.Timer(after, self._begin)
        self._timer.daemon = True
        if after:
            self._timer.start()
        else:
            self._begin()

    def show_stage(self, text: str) -> None:
        self._stage = shown(text)

    def show(self, status: "Status") -> None:
        epoch = f"{status.epoch + 1}/{status.epochs}"
        self._bar.update(
            self._task, completed=status.progress, epoch=epoch, left=_left(status)
        )
        self._numbers, self._stage = self._text(status), ""
        self._is_training = True

    def close(self) -> None:
        """Leaves the last bar on the screen, and no stage."""
        self._timer.cancel()
        with self._lock:
            self._is_closed, self._stage = True, ""
            self._live.transient = not self._is_training
            if self._live.is_started:
                self._live.refresh()  # a notebook gets no last one
            self._live.stop()

    def _begin(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._live.start(refresh=True)

    def _content(self) -> RenderableType:
        if not self._is_training:
            self._spinner.update(text=Text(self._stage))
            return Text() if self._is_closed else self._spinner
        lines = [Text(line) for line in (self._numbers, self._stage) if line]
        return Group(self._bar.make_tasks_table(self._bar.tasks), *lines)

    def _text(self, status: "Status") -> str:
        """The numbers of a status; an epoch without a loss yet keeps the previous."""
        if status.loss or status.is_epoch_end:
            self._loss = f", loss {status.loss:.4f}"
        if status.scores:
            self._scores = f", {_numbers(status.scores)}"
        return f"{_rate(status)}{self._loss}{self._scores}"


def _left(status: "Status") -> str:
    """The time left, as 40 s, 12 min or 3 h 5 min; "" after the call that compiles."""
    working = status.seconds - status.compile_seconds
    done = status.items_per_second * status.seconds  # items
    if working < _SHORTEST * status.seconds or not done or not status.progress:
        return ""
    left = (1 - status.progress) * status.items / status.progress * working / done
    if left < 90:
        return f"{left:.0f} s left"
    minutes = round(left / 60)
    if minutes < 90:
        return f"{minutes} min left"
    return f"{minutes // 60} h {minutes % 60} min left"


def _rate(status: "Status") -> str:
    return f"{status.items_per_second:,.0f} {status.noun}/s"


def _numbers(metrics: dict[str, float | None]) -> str:
    measured = ((name, x) for name, x in metrics.items() if x is not None)
    return ", ".join(f"{name} {value:.4f}" for name, value in measured)
