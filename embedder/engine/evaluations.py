"""When a training is evaluated, and when it ends early."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from embedder.settings import Interval


class Evaluations(NamedTuple):
    """How often a training is evaluated, and how long it waits for a better score.

    The end of the last epoch is always evaluated.
    """

    interval: Interval = Interval(epochs=1)
    patience: int = 0  # evaluations without a better score until it ends; 0: never
    agree: Callable[[Any], Any] = lambda value: value
    """A value that JSON can hold -> that of the first process, in all processes."""
    meet_every: int = 1  # calls after which the processes agree on the time

    def is_over(self, waits: int) -> bool:
        """Whether a training ends after `waits` evaluations without a better score."""
        return 0 < self.patience <= waits


class Timer:
    """Tells when an evaluation is due; its clock starts when it is made.

    Must be called after each call of updates, and after each epoch.
    """

    def __init__(self, evaluations: Evaluations):
        self._evaluations = evaluations
        self._calls = 0
        self._evaluated = time.monotonic()

    def is_due(self, before: int, updates: int) -> bool:
        """Whether one is due after a call, from update `before` to `updates`.

        By updates that depends on nothing else, so a run that resumes is evaluated
        where it would have been.
        """
        interval = self._evaluations.interval
        if interval.updates < float("inf"):
            return updates // interval.updates > before // interval.updates
        return interval.seconds < float("inf") and self._is_time(interval.seconds)

    def is_due_at_end(self, num_epochs: int, of: int) -> bool:
        """Whether one is due after `num_epochs` epochs of all, `of`."""
        epochs = self._evaluations.interval.epochs
        return num_epochs == of or num_epochs % epochs == 0

    def restart(self) -> None:
        """Must be called after each evaluation."""
        self._evaluated = time.monotonic()

    def _is_time(self, seconds: float) -> bool:
        self._calls += 1
        if self._calls % self._evaluations.meet_every:
            return False
        waited = time.monotonic() - self._evaluated
        return bool(self._evaluations.agree(waited >= seconds))
