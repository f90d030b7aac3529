"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from embedder.engine.epochs import Status
from embedder.run.stopping import Stop
from embedder.terminal import LogStream, say_done, showing_log, shown


@contextmanager
def progress(stop: Stop) -> Iterator[Callable[[Status], None]]:
    """A function that shows each `Status` of a run on standard error.

    If standard error cannot be written, the run continues, and a line on standard
    output says so at the end. If its reader has gone, `stop` is requested.
    """
    log = LogStream(sys.stderr, lambda: stop.request(signal.SIGPIPE))
    console = Console(file=cast(TextIO, log))  # it has all that a TextIO has
    try:
        with showing_log(functools.partial(_print_message, console)):
            if console.is_terminal:
                with _shown(console) as show:
                    yield show
            else:
                yield functools.partial(_print_line, log)
    finally:
        if log.error:
            reason = getattr(log.error, "strerror", None) or log.error
            say_done(f"The log has gaps: standard error failed ({reason}).")


def _print_message(console: Console, message: str) -> None:
    console.print(shown(message), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _shown(console: Console) -> Iterator[Callable[[Status], None]]:
    reading = console.status("reading the corpus, compiling")
    bar = _bar(console)
    task = bar.add_task("", total=1.0, epoch="", rate="", loss="", scores="")

    def show(status: Status) -> None:
        reading.stop()
        bar.update(task, completed=status.progress, **_fields(status))
        bar.start()

    try:
        reading.start()
        yield show
    finally:
        reading.stop()
        if bar.live.is_started:
            bar.stop()


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("loss {task.fields[loss]}{task.fields[scores]}"),
        TimeRemainingColumn(),
        console=console,
        expand=True,
    )


def _fields(status: Status) -> dict[str, Any]:
    """The text beside the bar; an epoch without a loss yet keeps the previous one."""
    fields = {"epoch": f"{status.epoch + 1}/{status.epochs}", "rate": _rate(status)}
    if status.loss or status.is_epoch_end:
        fields["loss"] = f"{status.loss:.4f}"
    if status.scores:
        fields["scores"] = f", {_numbers(status.scores)}"
    return fields


def _print_line(log: LogStream, status: Status) -> None:
    """Prints one line per epoch, and per evaluation within one."""
    epoch = f"epoch {status.epoch + 1}/{status.epochs}"
    if status.is_epoch_end:
        print(
            f"{epoch}: {_numbers(status.metrics)}, "
            f"{_rate(status)}, {status.seconds:.1f} s "
            f"({status.compile_seconds:.1f} s to compile)",
            file=log,
            flush=True,
        )
    elif status.scores:
        scores = _numbers(status.scores)
        print(f"{epoch}, update {status.updates}: {scores}", file=log, flush=True)


def _rate(status: Status) -> str:
    return f"{status.items_per_second:,.0f} {status.unit}/s"


def _numbers(metrics: dict[str, float | None]) -> str:
    given = {name: x for name, x in metrics.items() if x is not None}
    return ", ".join(f"{name} {value:.4f}" for name, value in given.items())
