"""Sections of settings: frozen dataclasses whose fields declare their own rules.

`setting` declares a field: default, rule, former names, whether it changes the vectors,
whether hosts, or models trained side by side, may differ in it. A field that is a
`Literal` accepts its values. Wrong values are refused with the name and the value.
"""

import dataclasses
import functools
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from embedder.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Rule = Callable[[Any, str], None]
"""Checks a field of a section, given by name, and may normalise its value."""


def setting(
    default: Any,
    rule: Rule | None = None,
    *,
    changes_vectors: bool = True,
    is_per_host: bool = False,
    is_per_model: bool = False,
    formerly: str = "",
    formerly_in: str = "",
    former_values: Mapping[str, str] | None = None,
    also: str = "",
) -> Any:
    """A field of a section.

    Args:
      default: its value if it is not given; None: resolved for the corpus.
      rule: checks the value; None: it must be a value of the field's `Literal`.
      changes_vectors: whether the vectors depend on it, apart from rounding.
      is_per_host: whether the processes of a run may have different values.
      is_per_model: whether models trained side by side may have different values.
      formerly: its name in earlier versions, which is still accepted.
      formerly_in: the table of TOML files that had it in earlier versions.
      former_values: values of earlier versions, still accepted -> values now.
      also: the name that another family has for the same thing; as a flag it is
        accepted for both.
    """
    metadata = {
        "also": also,
        "rule": rule,
        "changes": changes_vectors,
        "per_host": is_per_host,
        "per_model": is_per_model,
        "formerly": formerly,
        "formerly_in": formerly_in,
        "former_values": former_values or {},
    }
    return dataclasses.field(default=default, metadata=metadata)


def validate(section: "DataclassInstance") -> None:
    """Checks all fields of a section by their rules.

    Raises:
      InputError: a value is wrong; of the wrong type: an InputTypeError.
    """
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if field.default is None and value is None:
            continue
        if isinstance(value, str) and value in field.metadata["former_values"]:
            _replace(section, field.name, field.metadata["former_values"][value])
        rule = field.metadata["rule"] or choice(_choices(type(section))[field.name])
        rule(section, field.name)


@functools.cache
def _choices(section: type) -> dict[str, tuple[str, ...]]:
    """The values of each field that is a `Literal`."""
    hints = typing.get_type_hints(section)
    return {
        name: typing.get_args(hint)
        for name, hint in hints.items()
        if typing.get_origin(hint) is Literal
    }


@functools.cache
def former_names(*sections: type) -> Mapping[str, str]:
    """Former name -> name now, of the renamed settings of `sections`."""
    found = {
        f.metadata["formerly"]: f.name
        for section in sections
        for f in dataclasses.fields(section)
        if f.metadata["formerly"]
    }
    return types.MappingProxyType(found)


Mark = Literal["changes", "per_host", "per_model"]
"""What `setting` says of a field, as True or False."""


def names_where(section: type, key: Mark) -> set[str]:
    """The fields of a section that `setting` marks with `key`."""
    return {f.name for f in dataclasses.fields(section) if f.metadata[key]}


def positive_finite(x: float) -> bool:
    return 0 < x < math.inf


def integer(low: int, high: int | None = None) -> Rule:
    """An integer from `low` to `high`; None: unbounded."""
    bounds = f">= {low}" if high is None else f"from {low} to {_power(high)}"

    def check(section, name: str) -> None:
        value = getattr(section, name)
        message = f"`{name}` must be an integer {bounds}, got {value!r}."
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise InputTypeError(message)
        number = int(value)
        if number < low or (high is not None and number > high):
            raise InputError(message)
        _replace(section, name, number)

    return check


def integer_or(word: str, low: int, high: int) -> Rule:
    """An integer from `low` to `high`, or the text `word`."""

    def check(section, name: str) -> None:
        value = getattr(section, name)
        if isinstance(value, str) and value == word:
            _replace(section, name, str(value))
            return
        try:
            integer(low, high)(section, name)
        except InputError as error:
            rule = f"an integer from {low} to {high} or {word!r}"
            raise type(error)(f"`{name}` must be {rule}, got {value!r}.") from None

    return check


def _power(bound: int) -> str:
    return "2**64 - 1" if bound == 2**64 - 1 else str(bound)


def _replace(section, name: str, value: Any) -> None:
    object.__setattr__(section, name, value)


def integers(low: int) -> Rule:
    """A list or tuple of integers >= `low`; it becomes a tuple."""

    def check(section, name: str) -> None:
        values = getattr(section, name)
        message = f"`{name}` must be integers >= {low}, got {values!r}."
        if not isinstance(values, list | tuple):
            raise InputTypeError(message)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise InputTypeError(message)
            if value < low:
                raise InputError(message)
        _replace(section, name, tuple(map(int, values)))

    return check


def number(rule: str, is_valid: Callable[[float], bool]) -> Rule:
    """A number that `is_valid` accepts; messages describe it by `rule`."""

    def check(section, name: str) -> None:
        value = getattr(section, name)
        message = f"`{name}` must be {rule}, got {value!r}."
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise InputTypeError(message)
        try:
            found = float(value)
        except OverflowError:  # an integer of hundreds of digits
            found = math.nan
        if not is_valid(found):
            raise InputError(message)
        _replace(section, name, found)

    return check


def choice(choices: tuple[str, ...]) -> Rule:
    """One of the texts `choices`."""
    rule = " or ".join(repr(each) for each in choices)

    def check(section, name: str) -> None:
        value = getattr(section, name)
        message = f"`{name}` must be {rule}, got {value!r}."
        if not isinstance(value, str):
            raise InputTypeError(message)
        if value not in choices:
            raise InputError(message)
        _replace(section, name, str(value))

    return check


def text(section, name: str) -> None:
    """Any text."""
    value = getattr(section, name)
    if not isinstance(value, str):
        raise InputTypeError(f"`{name}` must be text, got {value!r}.")


def multiple(of: str) -> Rule:
    """A positive multiple of another field of the section."""

    def check(section, name: str) -> None:
        value, divisor = getattr(section, name), getattr(section, of)
        message = f"`{name}` must be a positive multiple of `{of}`, got {value!r}."
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise InputTypeError(message)
        found = int(value)
        if found < 1 or found % divisor:
            raise InputError(message)
        _replace(section, name, found)

    return check


def boolean(section, name: str) -> None:
    """True or False."""
    value = getattr(section, name)
    if not isinstance(value, bool):
        raise InputTypeError(f"`{name}` must be True or False, got {value!r}.")


class Interval(NamedTuple):
    """An interval in updates, seconds or epochs; inf: never."""

    updates: float = math.inf
    seconds: float = math.inf
    epochs: float = math.inf

    @property
    def is_within_epochs(self) -> bool:
        """Whether it ends in the middle of epochs, too: by updates or time."""
        return min(self.updates, self.seconds) < math.inf


_UNITS = {
    "": (1, "updates"),
    "s": (1, "seconds"),
    "min": (60, "seconds"),
    "h": (3600, "seconds"),
    "epoch": (1, "epochs"),
    "epochs": (1, "epochs"),
}


@functools.cache  # each text is parsed once
def read_interval(value: str) -> Interval:
    """The interval in a text: 100 (updates), 30s, 10min, 2h, 1epoch or never.

    Raises:
      InputError: it is none of these.
    """
    if value == "never":
        return Interval()
    found = re.fullmatch(r"0*([1-9][0-9]{0,8}) ?([a-z]*)", value)
    if not found or found[2] not in _UNITS:
        raise InputError(value)
    size, unit = _UNITS[found[2]]
    return Interval(**{unit: int(found[1]) * size})


def interval(section, name: str) -> None:
    """A text that `read_interval` reads, or a number of updates."""
    value = getattr(section, name)
    message = (
        f"`{name}` must be a number of updates, a time as 30s, 10min or 2h, a number "
        f"of passes as 1epoch, or never, got {value!r}."
    )
    if isinstance(value, bool) or not isinstance(value, str | numbers.Integral):
        raise InputTypeError(message)
    try:
        read_interval(str(value))
    except ValueError:
        raise InputError(message) from None
    _replace(section, name, str(value))
