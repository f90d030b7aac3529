"""The progress of a training: a bar on a terminal or in a notebook, else lines."""

import functools
import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from embedder.run.stopping import Stop
from embedder.stages import showing_stages
from embedder.terminal import LogStream, say_done, showing_log, shown

if TYPE_CHECKING:
    from embedder.engine.epochs import Status

_LINES_AFTER = 10.0  # seconds without a line until one says how far an epoch is
_LINES_EVERY = 60.0  # seconds between such lines


@contextmanager
def progress(stop: Stop, details: bool = False) -> Iterator[Callable[["Status"], None]]:
    """A function that shows each `Status` of a run on standard error.

    If standard error cannot be written, the run continues, and a line on standard
    output says so at the end. If its reader has gone, `stop` is requested.

    Args:
      details: show what is for experts, too: memory, devices, times to compile.
    """
    log = LogStream(sys.stderr, lambda: stop.request(signal.SIGPIPE))
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
def starting() -> Iterator[None]:
    """Shows on a terminal that the program starts: its libraries take seconds."""
    console = Console(file=cast(TextIO, LogStream(sys.stderr)))
    if not console.is_terminal:
        yield
        return
    with console.status("starting"):
        yield


@contextmanager
def display(
    console: Console, after: float = 0.0
) -> Iterator[Callable[["Status"], None]]:
    """A function that shows each `Status` on `console`.

    Args:
      after: seconds until anything is shown; what is done before shows nothing.
    """
    if not shows_bars(console):
        yield _Lines(console).show
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
    left = _seconds_left(status)
    return f"{epoch}: {share}, {loss}, {_rate(status)}, about {_duration(left)} left"


def _print_message(console: Console, message: str) -> None:
    console.print(shown(message), markup=False, highlight=False, soft_wrap=True)


class _Lines:
    """Prints a line for each epoch and evaluation, and now and then between them."""

    def __init__(self, console: Console):
        self._console = console
        self._due = time.monotonic() + _LINES_AFTER

    def show(self, status: "Status") -> None:
        if not (status.is_epoch_end or status.scores):
            if time.monotonic() < self._due or not status.loss:
                return
        self._due = time.monotonic() + _LINES_EVERY
        _print_message(self._console, summary(status))
        self._console.file.flush()


class _Bar:
    """Shows the stage of the work, and then a bar with a line of numbers below it."""

    def __init__(self, console: Console, after: float):
        self._stage = console.status("starting")
        self._bar = _BarAndText(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("", total=1.0, epoch="", numbers="", stage="")
        self._loss = self._scores = ""
        self._lock = threading.Lock()  # the timer's thread, and others that read
        self._is_begun = self._is_training = self._is_closed = False
        self._cancel: Callable[[], object]
        if after:
            timer = threading.Timer(after, self._begin)
            timer.daemon = True
            timer.start()
            self._cancel = timer.cancel
        else:
            self._cancel = lambda: None
            self._begin()

    def show_stage(self, text: str) -> None:
        with self._lock:
            self._stage.update(Text(shown(text)))
            self._bar.update(self._task, stage=shown(text))

    def show(self, status: "Status") -> None:
        with self._lock:
            epoch = f"{status.epoch + 1}/{status.epochs}"
            numbers = self._numbers(status)
            self._bar.update(
                self._task,
                completed=status.progress,
                epoch=epoch,
                numbers=numbers,
                stage="",
            )
            if not self._is_training:
                self._is_training = True
                if self._is_begun:
                    self._stage.stop()
                    self._bar.start()

    def close(self) -> None:
        """Leaves the last bar on the screen, and no stage."""
        self._cancel()
        with self._lock:
            self._is_closed = True
            self._stage.stop()
            if self._bar.live.is_started:
                self._bar.update(self._task, stage="")
                self._bar.stop()

    def _begin(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_begun = True
            if self._is_training:
                self._bar.start()
            else:
                self._stage.start()

    def _numbers(self, status: "Status") -> str:
        """An epoch without a loss yet keeps the previous one."""
        if status.loss or status.is_epoch_end:
            self._loss = f", loss {status.loss:.4f}"
        if status.scores:
            self._scores = f", {_numbers(status.scores)}"
        return f"{_rate(status)}{self._loss}{self._scores}"


class _BarAndText(Progress):
    """A bar, and below it lines that are as long as they need to be."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            lines = task.fields["numbers"], task.fields["stage"]
            yield from (Text(line) for line in lines if line)


def _seconds_left(status: "Status") -> float:
    left = 1 - status.progress
    num_items = status.items / max(status.progress, 1e-9)
    return left * num_items / max(status.items_per_second, 1e-9)


def _duration(seconds: float) -> str:
    """As 40 s, 12 min or 3 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _rate(status: "Status") -> str:
    return f"{status.items_per_second:,.0f} {status.unit}/s"


def _numbers(metrics: dict[str, float | None]) -> str:
    given = {name: x for name, x in metrics.items() if x is not None}
    return ", ".join(f"{name} {value:.4f}" for name, value in given.items())
