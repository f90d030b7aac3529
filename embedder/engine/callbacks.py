"""Functions that a training calls, and that may stop it."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from embedder.engine.epochs import Status
from embedder.errors import InputError, InputTypeError

Callback = Callable[[Status], Any]
"""Gets how far a training is; returns True to stop it, anything else to go on."""


class Every(NamedTuple):
    """A callback with its interval."""

    updates: int
    call: Callback


def every(updates: int, call: Callback) -> Every:
    """`call` after each `updates` updates in place of each epoch.

    Several updates are one call of compiled code, at most `updates`, of tables rounded
    up to a multiple of 16: `call` follows the first that reaches a multiple of
    `updates`. It gets the losses of all updates until then.

    Raises:
      InputError, InputTypeError: `updates` is less than 1, or `call` is no function.
    """
    if isinstance(updates, bool) or not isinstance(updates, int | np.integer):
        raise InputTypeError(f"`updates` must be an integer, got {updates!r}.")
    if updates < 1:
        raise InputError(f"`updates` must be at least 1, got {updates}.")
    return Every(int(updates), _checked(call))


class Callbacks:
    """Calls functions at their intervals.

    Args:
      callbacks: a function, or several; those without an interval are called after each
        epoch.
      also: another one.

    Raises:
      InputTypeError: one is no function.
    """

    def __init__(
        self,
        callbacks: Callback | Every | Iterable[Callback | Every] = (),
        also: Callback | None = None,
    ):
        if isinstance(callbacks, Every) or not isinstance(callbacks, Iterable):
            callbacks = [callbacks]
        self._by_epoch: list[Callback] = []
        self._by_updates: list[Every] = []
        for each in [*callbacks, *([] if also is None else [also])]:
            if isinstance(each, Every):
                self._by_updates.append(each)
            else:
                self._by_epoch.append(_checked(each))
        self._before = 0  # updates at the last call
        self.is_stopped = False
        """Whether a function has returned True."""

    @property
    def updates_per_call(self) -> float:
        """The shortest interval; inf: none is in updates."""
        return min((each.updates for each in self._by_updates), default=math.inf)

    def is_due(self, updates: int) -> bool:
        """Whether a function with an interval is due after `updates` updates."""
        return bool(self._due(updates))

    def __call__(self, status: Status) -> None:
        """Calls the functions that are due."""
        by_updates = self._due(status.updates)
        self._before = status.updates
        for call in self._by_epoch if status.is_epoch_end else by_updates:
            answer = call(status)
            if isinstance(answer, bool | np.bool_) and answer:  # an array does not stop
                self.is_stopped = True

    def _due(self, updates: int) -> list[Callback]:
        before = self._before
        return [
            each.call
            for each in self._by_updates
            if updates // each.updates > before // each.updates
        ]


def _checked(call: Any) -> Callback:
    if not callable(call):
        raise InputTypeError(
            "`callbacks` must be functions of one argument, or `every(N, function)`, "
            f"got {call!r}."
        )
    return call
