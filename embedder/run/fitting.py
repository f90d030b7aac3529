"""What a training in Python shows, logs and calls."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console

from embedder.engine.callbacks import Callback, Callbacks, Every
from embedder.engine.epochs import Snapshot, Status, Trainable, run_epochs
from embedder.engine.state import TrainState
from embedder.errors import InputTypeError
from embedder.run.progress import display, shows_bars, summary

Given = Callback | Every | Iterable[Callback | Every]
"""One callback, or several."""

_AFTER = 1.0  # seconds until a bar that nobody asked for appears
_log = logging.getLogger(__name__)


class Fitting(NamedTuple):
    """A training that can be watched."""

    show: Callable[[Status], object]
    callbacks: Callbacks

    def run(self, training: Trainable, start: TrainState) -> Snapshot:
        """Trains from the state `start` to the end, or until a callback stops it.

        Raises:
          FloatingPointError: training diverged.
        """
        return run_epochs(
            training,
            start,
            self._on_status,
            is_stopped=lambda: self.callbacks.is_stopped,
            needs_loss=self.callbacks.is_due,
        )

    def _on_status(self, status: Status) -> None:
        if status.is_epoch_end:
            _log.info("%s", summary(status))
        self.show(status)
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
        with display(console, 0.0 if verbose else _AFTER) as show:
            yield Fitting(show, called)
    else:
        yield Fitting(lambda status: None, called)
