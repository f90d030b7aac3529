"""Sections of settings: frozen dataclasses whose fields say all about a setting.

`setting` declares a field: default, rule, former names, the other settings that it
needs, whether it changes the vectors, whether hosts, or models trained side by side,
may differ in it. The text below a field is its help. The flags of the command line, the
docstrings of the estimators and docs/reference/settings.md are made from the fields. A
section has `groups`: the first field of each group -> what help calls the group.

A field that is a `Literal` accepts its values. Wrong values are refused with the name
and the value.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import numbers
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from embedder.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Rule = Callable[[Any, str], None]
"""Checks a field of a section, given by name, and may normalise its value."""


class Refusal(NamedTuple):
    """A value other than the default that does not go with other settings."""

    holds: Callable[[Any], Any]
    """Whether the value is refused: a function of the section, or of all settings."""
    message: str
    """With {name}, {value}, {text} (the value without quotes) and {s.OTHER}."""
    of_run: bool = False
    """Whether `holds` takes all settings of a run, with `scores`, those by which its
    family is scored, and `is_scored`."""


def setting(
    default: Any,
    rule: Rule | None = None,
    *,
    changes_vectors: bool = True,
    is_per_host: bool = False,
    is_per_model: bool = False,
    formerly: str = "",
    also: str = "",
    refusals: tuple[Refusal, ...] = (),
) -> Any:
    """A field of a section.

    Args:
      default: its value if it is not given; None: resolved for the corpus.
      rule: checks the value; None: it must be a value of the field's `Literal`.
      changes_vectors: whether the vectors depend on it, apart from rounding.
      is_per_host: whether the processes of a run may have different values.
      is_per_model: whether models trained side by side may have different values.
      formerly: its name in the NumPy trainer, which is accepted, too.
      also: the name that another family has for the same thing; as a flag it is
        accepted for both.
      refusals: values that do not go with other settings.
    """
    metadata = {
        "also": also,
        "refusals": refusals,
        "rule": rule,
        "changes": changes_vectors,
        "per_host": is_per_host,
        "per_model": is_per_model,
        "formerly": formerly,
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
        rule = field.metadata["rule"] or choice(_choices(type(section))[field.name])
        rule(section, field.name)
    refuse(section, section, of_run=False)


def refuse(section: "DataclassInstance", settings: Any, of_run: bool) -> None:
    """Raises InputError for the first value of a section that one of its refusals holds
    for.

    Args:
      settings: the section itself, or all settings of a run.
      of_run: which refusals are checked.
    """
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if value == field.default:
            continue
        for refusal in field.metadata["refusals"]:
            if refusal.of_run == of_run and refusal.holds(settings):
                words = (
                    " ".join(map(str, value))
                    if isinstance(value, tuple)
                    else str(value)
                )
                message = refusal.message
                raise InputError(
                    message.format(name=field.name, value=value, text=words, s=settings)
                )


@functools.cache
def texts(section: type) -> Mapping[str, str]:
    """The text of each field of a dataclass: that of its annotated type, or the string
    below it in the source."""
    annotated = {
        field.name: field.type.__metadata__[0]
        for field in dataclasses.fields(section)
        if hasattr(field.type, "__metadata__")
    }
    return annotated | {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in itertools.pairwise(
            _bodies(section.__module__)[section.__name__]
        )
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


@functools.cache
def _bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements in each class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)
    }


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
    names = {
        f.metadata["formerly"]: f.name
        for section in sections
        for f in dataclasses.fields(section)
        if f.metadata["formerly"]
    }
    return types.MappingProxyType(names)


Mark = Literal["changes", "per_host", "per_model"]
"""What `setting` says of a field, as True or False."""


def positive_finite(x: float) -> bool:
    return 0 < x < math.inf


def rule(words: str, read: Callable[[Any], Any]) -> Rule:
    """A rule that replaces a value by what `read` makes of it. If that raises a
    TypeError or a ValueError, the message says that the value must be `words`."""

    def check(section, name: str) -> None:
        value = getattr(section, name)
        try:
            object.__setattr__(section, name, read(value))
        except (TypeError, ValueError) as error:
            kind = InputTypeError if isinstance(error, TypeError) else InputError
            raise kind(f"`{name}` must be {words}, got {value!r}.") from None

    return check


def read_integer(value: Any, low: int, high: int | None = None) -> int:
    """An integer from `low` to `high`; None: unbounded."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError
    value = int(value)
    if value < low or (high is not None and value > high):
        raise ValueError
    return value


def read_integers(values: Any, low: int) -> tuple[int, ...]:
    """Integers >= `low`, of a list or tuple."""
    return tuple(read_integer(x, low) for x in read_instance(values, list | tuple))


def read_instance(value: Any, kind: Any) -> Any:
    """`value` itself, of a type."""
    if not isinstance(value, kind):
        raise TypeError
    return value


def integer(low: int, high: int | None = None) -> Rule:
    """An integer from `low` to `high`; None: unbounded."""
    most = "2**64 - 1" if high == 2**64 - 1 else high
    words = f">= {low}" if high is None else f"from {low} to {most}"
    return rule(f"an integer {words}", lambda x: read_integer(x, low, high))


def integer_or(word: str, low: int, high: int) -> Rule:
    """An integer from `low` to `high`, or the text `word`."""
    return rule(
        f"an integer from {low} to {high} or {word!r}",
        lambda x: (
            word if isinstance(x, str) and x == word else read_integer(x, low, high)
        ),
    )


def integers(low: int) -> Rule:
    """A list or tuple of integers >= `low`; it becomes a tuple."""
    return rule(f"integers >= {low}", lambda x: read_integers(x, low))


def number(words: str, is_valid: Callable[[float], bool]) -> Rule:
    """A number that `is_valid` accepts; messages describe it by `words`."""

    def read(value: Any) -> float:
        if isinstance(value, bool):
            raise TypeError
        try:
            value = float(read_instance(value, numbers.Real))
        except OverflowError:  # an integer of hundreds of digits
            value = math.nan
        if not is_valid(value):
            raise ValueError
        return value

    return rule(words, read)


def choice(choices: Collection[str]) -> Rule:
    """One of the texts `choices`."""

    def read(value: Any) -> str:
        if read_instance(value, str) not in choices:
            raise ValueError
        return str(value)

    return rule(" or ".join(map(repr, choices)), read)


text = rule("text", lambda x: read_instance(x, str))
"""Any text."""

boolean = rule("True or False", lambda x: read_instance(x, bool))
"""True or False."""


def multiple(of: str) -> Rule:
    """A positive multiple of another field of the section."""

    def check(section, name: str) -> None:
        def read(value: Any) -> int:
            value = read_integer(value, 1)
            if value % getattr(section, of):
                raise ValueError
            return value

        rule(f"a positive multiple of `{of}`", read)(section, name)

    return check


class Interval(NamedTuple):
    """An interval in updates, seconds or epochs; inf: never."""

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


@functools.cache  # each text is parsed once
def read_interval(value: str) -> Interval:
    """The interval in a text: 100 (updates), 30s, 10min, 2h, 1epoch or never.

    Raises:
      InputError: it is none of these.
    """
    if value == "never":
        return Interval()
    match = re.fullmatch(r"0*([1-9][0-9]{0,8}) ?([a-z]*)", value)
    if not match or match[2] not in _UNITS:
        raise InputError(value)
    size, unit = _UNITS[match[2]]
    return Interval(**{unit: int(match[1]) * size})


def _interval(value: Any) -> str:
    if isinstance(value, bool):
        raise TypeError
    read_interval(str(read_instance(value, str | numbers.Integral)))
    return str(value)


interval = rule(
    "a number of updates, a time as 30s, 10min or 2h, a number of passes as 1epoch, or "
    "never",
    _interval,
)
"""A text that `read_interval` reads, or a number of updates."""
