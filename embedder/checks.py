"""Checks of settings: what is wrong is said with the name and the value."""

import math
import numbers
import re
from typing import NamedTuple


def positive_finite(x: float) -> bool:
    return 0 < x < math.inf


def check_integer(section, name: str, low: int, high: int | None = None) -> None:
    value = getattr(section, name)
    bounds = f">= {low}" if high is None else f"from {low} to {_power(high)}"
    message = f"`{name}` must be an integer {bounds}, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(message)
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(message)
    object.__setattr__(section, name, number)


def _power(bound: int) -> str:
    return "2**64 - 1" if bound == 2**64 - 1 else str(bound)


def check_integers(section, name: str, low: int) -> None:
    """Of several: they become a tuple."""
    values = getattr(section, name)
    message = f"`{name}` must be integers >= {low}, got {values!r}."
    if not isinstance(values, list | tuple):
        raise TypeError(message)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(message)
        if value < low:
            raise ValueError(message)
    object.__setattr__(section, name, tuple(map(int, values)))


def check_number(section, name: str, rule: str, valid) -> None:
    value = getattr(section, name)
    message = f"`{name}` must be {rule}, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(message)
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.nan
    if not valid(number):
        raise ValueError(message)
    object.__setattr__(section, name, number)


def check_choice(section, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(section, name)
    rule = " or ".join(repr(choice) for choice in choices)
    message = f"`{name}` must be {rule}, got {value!r}."
    if not isinstance(value, str):
        raise TypeError(message)
    if value not in choices:
        raise ValueError(message)
    object.__setattr__(section, name, str(value))


def check_text(section, name: str) -> None:
    value = getattr(section, name)
    if not isinstance(value, str):
        raise TypeError(f"`{name}` must be text, got {value!r}.")


def check_multiple(section, name: str, of: str) -> None:
    value, divisor = getattr(section, name), getattr(section, of)
    message = f"`{name}` must be a positive multiple of `{of}`, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(message)
    number = int(value)
    if number < 1 or number % divisor:
        raise ValueError(message)
    object.__setattr__(section, name, number)


class Interval(NamedTuple):
    """How often something is done: after so many of one of these."""

    updates: float = math.inf
    seconds: float = math.inf
    epochs: float = math.inf


_UNITS = {
    "": (1, "updates"),
    "s": (1, "seconds"),
    "min": (60, "seconds"),
    "h": (3600, "seconds"),
    "epoch": (1, "epochs"),
    "epochs": (1, "epochs"),
}


def read_interval(text: str) -> Interval:
    """The interval in a text such as 100 (updates), 30s, 10min, 2h, 1epoch; or never.

    Raises:
      ValueError: it is none of these.
    """
    if text == "never":
        return Interval()
    found = re.fullmatch(r"0*([1-9][0-9]{0,8}) ?([a-z]*)", text)
    if not found or found[2] not in _UNITS:
        raise ValueError(text)
    size, unit = _UNITS[found[2]]
    return Interval(**{unit: int(found[1]) * size})


def check_interval(section, name: str) -> None:
    value = getattr(section, name)
    text = str(value)
    message = (
        f"`{name}` must be a number of updates, a time as 30s, 10min or 2h, a number "
        f"of passes as 1epoch, or never, got {value!r}."
    )
    if isinstance(value, bool) or not isinstance(value, str | numbers.Integral):
        raise TypeError(message)
    try:
        read_interval(text)
    except ValueError:
        raise ValueError(message) from None
    object.__setattr__(section, name, text)
