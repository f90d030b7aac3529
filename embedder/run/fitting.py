"""What a training in Python shows, logs and calls."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console

from embedder.config import Config
from embedder.engine.callbacks import Callback, Callbacks, Every
from embedder.engine.epochs import Snapshot, Status, Trainable, run_epochs
from embedder.engine.evaluations import Evaluations
from embedder.engine.state import TrainState
from embedder.errors import InputTypeError
from embedder.run.points import metrics_line, timed
from embedder.run.progress import (
    WORK_AFTER,
    LineTimer,
    data_line,
    display,
    level_of,
    shows_bars,
    summary,
)

Given = Callback | Every | Iterable[Callback | Every]
"""One callback, or several."""

Lines = tuple[dict[str, Any], ...]
"""Lines as in metrics.jsonl, or as in progress.jsonl."""

_log = logging.getLogger(__name__)


class Training(Trainable, Protocol):
    """A training of either family, as far as `Fitting` uses it."""

    config: Config

    @property
    def description(self) -> list[str]:
        """Lines about it; the first is about the data."""

    @property
    def start_lines(self) -> tuple[str, ...]:
        """Those of them about what it starts from."""


class Fitting:
    """A training that can be watched."""

    def __init__(self, show: Callable[[Status], object], callbacks: Callbacks):
        self._show = show
        self._timer = LineTimer()
        self._keeps_best = False
        self._best: Snapshot | None = None
        self.callbacks = callbacks
        self.lines: list[dict[str, Any]] = []
        """The lines of its epochs, as in metrics.jsonl of a run."""
        self.times: list[dict[str, Any]] = []
        """When its first call was done, and what its time went to until then."""

    def run(self, training: Training, start: TrainState) -> Snapshot:
        """Trains from the state `start` to the end, or until `patience` or a callback
        stops it; with `result` best the snapshot of the best evaluation.

        Raises:
          FloatingPointError: training diverged.
        """
        if _log.isEnabledFor(logging.INFO):  # the lines take time to make
            first, *others = training.description
            _log.info("%s", data_line(first, training.epochs))
            for line in others:
                _log.log(level_of(line, training.start_lines), "%s", line)
        options, self._best = training.config.run, None
        self._keeps_best = training.config.save.result == "best"
        end = run_epochs(
            training,
            start,
            self._on_status,
            evaluations=Evaluations(options.evaluation_interval, options.patience),
            is_stopped=lambda: self.callbacks.is_stopped,
            needs_loss=self.callbacks.is_due,
        )
        if self._best is None:
            return end
        score = training.score_text(end.position.best[0])
        _log.info("The best is %s, with %s.", self._best.position.text, score)
        return self._best

    def after(self, lines: Lines, times: Lines) -> tuple[Lines, Lines]:
        """`lines` and `times` of former trainings with those of this one, whose updates
        count on."""
        done = max((line["updates"] for line in (*lines, *times)), default=0)

        def counted_on(given: list[dict[str, Any]]) -> Lines:
            return tuple(line | {"updates": done + line["updates"]} for line in given)

        return lines + counted_on(self.lines), times + counted_on(self.times)

    def _on_status(self, status: Status) -> None:
        if self._keeps_best and status.best == status.updates:
            self._best = status.snapshot()
        if self._timer.is_due(status):
            _log.info("%s", summary(status))
        if status.is_epoch_end:
            self.lines.append(metrics_line(status))
        self.times = self.times or [timed(status)]
        self._show(status)
        self.callbacks(status)


@contextmanager
def fitting(verbose: bool | None, callbacks: Given) -> Iterator[Fitting]:
    """What `fit` does beside training; the body reads the data and trains.

    Args:
      verbose: True shows a bar on a terminal or in a notebook, and lines elsewhere;
        False nothing; None a bar where it can be shown, if training takes more than a
        second.
      callbacks: functions to call; see `Callbacks`.

    Raises:
      InputTypeError: `verbose` is no boolean, or a callback no function.
    """
    if not (verbose is None or isinstance(verbose, bool | int)):
        raise InputTypeError(f"`verbose` must be True, False or None, got {verbose!r}.")
    called, console = Callbacks(callbacks), Console(stderr=True)
    if verbose or (verbose is None and shows_bars(console)):
        with display(console, 0.0 if verbose else WORK_AFTER) as show:
            yield Fitting(show, called)
    else:
        yield Fitting(lambda status: None, called)
