"""Functions that a training calls, and that may stop it."""

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

    Several updates are one call of compiled code: `call` follows the first such call
    that reaches a multiple of `updates`.

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
      given: a function, or several; those without an interval are called after each
        epoch.

    Raises:
      InputTypeError: one is no function.
    """

    def __init__(self, given: Callback | Every | Iterable[Callback | Every] = ()):
        if isinstance(given, Every) or not isinstance(given, Iterable):
            given = [given]
        self._by_epoch: list[Callback] = []
        self._by_updates: list[Every] = []
        for each in given:
            if isinstance(each, Every):
                self._by_updates.append(each)
            else:
                self._by_epoch.append(_checked(each))
        self._before: int | None = None
        self.is_stopped = False
        """Whether a function has returned True."""

    def __call__(self, status: Status) -> None:
        """Calls the functions that are due."""
        before = self._before or 0
        self._before = status.updates
        if status.is_epoch_end:
            due = self._by_epoch
        else:
            due = [
                each.call
                for each in self._by_updates
                if status.updates // each.updates > before // each.updates
            ]
        for call in due:
            if _is_true(call(status)):
                self.is_stopped = True


def _is_true(value: object) -> bool:
    """Whether a callback asks to stop: an array, say, that it returns does not."""
    return isinstance(value, bool | np.bool_) and bool(value)


def _checked(call: Any) -> Callback:
    if not callable(call):
        raise InputTypeError(
            "`callbacks` must be functions of one argument, or `every(N, function)`, "
            f"got {call!r}."
        )
    return call
