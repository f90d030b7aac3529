"""What a training in Python shows, logs and calls."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from embedder.engine.callbacks import Callback, Callbacks, Every
from embedder.engine.epochs import Checkpoint, Evaluations, Status, run_epochs
from embedder.engine.trainer import Trainer
from embedder.errors import InputTypeError
from embedder.run.curves import metrics_line, timed
from embedder.run.progress import (
    WORK_AFTER,
    LineTimer,
    display,
    log_description,
    shows_bars,
    summary,
)

CallbackArgument = Callback | Every | Iterable[Callback | Every]
"""One callback, or several."""

Lines = tuple[dict[str, Any], ...]
"""Lines as in metrics.jsonl, or as in progress.jsonl."""

_log = logging.getLogger(__name__)


class Fitting:
    """A training that can be watched."""

    def __init__(self, show: Callable[[Status], object], callbacks: Callbacks):
        self._show = show
        self._timer = LineTimer()
        self._keeps_best = False
        self._best: Checkpoint | None = None
        self.callbacks = callbacks
        self.lines: list[dict[str, Any]] = []
        """The lines of its epochs, as in metrics.jsonl of a run."""
        self.times: list[dict[str, Any]] = []
        """When its first call was done, and what its time went to until then."""

    def run(self, training: Trainer) -> Checkpoint:
        """Trains from the initial state to the end, or until `patience` or a callback
        stops it; with `result` best the checkpoint of the best evaluation.

        Raises:
          FloatingPointError: training diverged.
        """
        if _log.isEnabledFor(logging.INFO):  # the lines take time to make
            log_description(training)
        options, self._best = training.config.run, None
        self._keeps_best = training.config.save.result == "best"
        end = run_epochs(
            training,
            training.initial_state(),
            self._on_status,
            evaluations=Evaluations(options.evaluation_interval, options.patience),
            listener=self.callbacks,
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

        def counted_on(new_lines: list[dict[str, Any]]) -> Lines:
            return tuple(
                line | {"updates": done + line["updates"]} for line in new_lines
            )

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
def fitting(
    verbose: bool | None,
    callbacks: CallbackArgument,
    also: Callback | None = None,
) -> Iterator[Fitting]:
    """What `fit` does beside training; the body reads the data and trains.

    Args:
      verbose, callbacks: as of `EmbeddingTrainer.fit`.
      also: another callback, of the caller.

    Raises:
      InputTypeError: `verbose` is no boolean, or a callback no function.
    """
    if not (verbose is None or isinstance(verbose, bool | int)):
        raise InputTypeError(f"`verbose` must be True, False or None, got {verbose!r}.")
    called, console = Callbacks(callbacks, also), Console(stderr=True)
    if verbose or (verbose is None and shows_bars(console)):
        with display(console, 0.0 if verbose else WORK_AFTER) as show:
            yield Fitting(show, called)
    else:
        yield Fitting(lambda status: None, called)
