"""The space of a sweep: the settings to try, by their values or ranges, in TOML.

    alpha = { low = 0.01, high = 0.1, scale = "log" }
    sample = { low = 1e-5, high = 1e-2, scale = "log", steps = 4 }
    window = [2, 5, 10]

A list is the values to try; a range with `steps` is as many values of it. A range
without `steps` is searched. For an encoder a name may also be an argument of its
optimizer, as momentum or b1.
"""

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.config import (
    Config,
    changing_names,
    current_name,
    options_of,
    section_of,
    with_options,
)
from embedder.config.encoder_options import parse_arguments
from embedder.config.token_options import Window
from embedder.errors import InputError

_MOST = 10_000  # combinations of a grid: more are likely a mistake
_OF_DATA = (
    *("label", "key", "image_size", "channels", "decode", "unicode_errors"),
    *("session", "item", "order", "items", "weights"),
    *("source", "target", "weight", "directed"),
)
_NOT_HERE = dict.fromkeys(_OF_DATA, "the data are opened once for all trials") | {
    "optimizer_args": "give its arguments by their names, as momentum = [0.5, 0.9]",
    "init_from": "all trials start from the same vectors",
    "init_network": "all trials start from the same network",
    "key_errors": "all trials start from the same vectors",
    "freeze": "all trials have the same frozen rows",
    "attributes": "all trials have the same attributes",
    "best_by": "give the set as --score pairs --pairs FILE",
    "min_count": "trials are compared with the same vocabulary",
    "model": "another family has other settings",
    "eval_every": "trials are scored after their last epoch",
    "patience": "trials are compared after the same epochs: give --halving",
    "epochs": "trials are compared after the same epochs",
    "replicas": "give it as a flag: the score is the mean of a trial's replicas",
    "holdout": "trials are compared on the same sequences",
    "validation_fraction": "trials are compared on the same examples",
}

Settings = dict[str, Any]
"""The settings of a trial that differ from the given ones, by name."""


class Choices(NamedTuple):
    """Values to try."""

    values: tuple[Any, ...]


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included, to search."""

    low: float
    high: float
    is_log: bool
    is_integer: bool


Space = dict[str, Choices | Range]
"""What to try of each setting, in the order of the file."""


def read_space(path: Path, config: Config) -> Space:
    """The space in a TOML file.

    Args:
      config: the settings that trials have besides.

    Raises:
      OSError, InputError: the file cannot be read, a name is unknown, or a value is
        wrong.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        if not tables:
            raise InputError("it names no setting to try.")
        space: Space = {}
        for key, value in tables.items():
            name = current_name(key)
            _check_name(name, key, config)
            if name in space:
                raise InputError(f"`{name}` is given twice.")
            space[name] = _dimension(name, value, config)
    except (ValueError, RecursionError) as error:
        text = " ".join(str(error).split())
        end = "" if text.endswith((".", "?")) else "."
        raise InputError(f"SPACE {path}: {text}{end}") from error
    num = math.prod(
        len(each.values) for each in space.values() if isinstance(each, Choices)
    )
    if is_grid(space) and num > _MOST:
        raise InputError(
            f"SPACE {path} has {num} combinations, more than {_MOST}: give ranges "
            "without `steps`, which are searched."
        )
    return space


def is_grid(space: Space) -> bool:
    """Whether all of `space` can be tried, since it has no range."""
    return all(isinstance(each, Choices) for each in space.values())


def grid(space: Space) -> list[Settings]:
    """All combinations of the values of a grid, the last setting changing first."""
    values = [each.values for each in space.values() if isinstance(each, Choices)]
    return [dict(zip(space, each, strict=True)) for each in itertools.product(*values)]


def with_settings(config: Config, settings: Settings) -> Config:
    """`config` with the settings of a trial; InputError if they do not fit together."""
    own = {name: x for name, x in settings.items() if name in options_of(config)}
    arguments = {name: x for name, x in settings.items() if name not in own}
    if arguments:
        before = parse_arguments(config.encoder.optimizer_args)
        texts = (f"{n}={str(x).lower()}" for n, x in (before | arguments).items())
        own["optimizer_args"] = tuple(texts)
    return with_options(config, **own)


def values_of(config: Config, space: Space) -> Settings:
    """The values that `config` has for the settings of `space`; None: it leaves out
    this argument of the optimizer."""
    options = options_of(config)
    if config.run.model == "encoder":
        options = parse_arguments(config.encoder.optimizer_args) | options
    return {name: options.get(name) for name in space}


def _check_name(name: str, key: str, config: Config) -> None:
    if name in _NOT_HERE:
        raise InputError(f"`{key}` cannot be tried: {_NOT_HERE[name]}.")
    if name not in options_of(config):
        if config.run.model == "encoder" and not _is_setting(name):
            return  # of the optimizer, which is checked with its values
        raise InputError(
            f"`{key}` applies only to `model` = {section_of(name)!r}, got it with "
            f"{config.run.model!r}."
        )
    if name not in changing_names():
        raise InputError(f"`{key}` cannot be tried: it does not change the vectors.")


def _is_setting(name: str) -> bool:
    try:
        section_of(name)
    except InputError:
        return False
    return True


def _dimension(name: str, value: Any, config: Config) -> Choices | Range:
    is_integer = _is_integer(name, config)
    if isinstance(value, dict):
        dimension = _range(name, value, is_integer)
    elif isinstance(value, list) and value:
        values = (_hashable(each) for each in value)
        dimension = Choices(tuple(dict.fromkeys(values)))
    else:
        raise InputError(
            f"`{name}` must be a list of values, or a range as "
            f'{{ low = 1, high = 10, scale = "log" }}, got {value!r}.'
        )
    ends = dimension.values if isinstance(dimension, Choices) else dimension[:2]
    for end in ends:
        tried = with_settings(config, {name: end})
        if name == "walks" and bool(tried.tables.walks) != bool(config.tables.walks):
            raise InputError(
                "`walks` of all trials must be above 0 and --walks be given, or none: "
                f"the data are opened once, got {end!r} with --walks "
                f"{config.tables.walks}."
            )
    return dimension


def _range(name: str, table: dict[str, Any], is_integer: bool) -> Choices | Range:
    known = {"low", "high", "scale", "steps"}
    if not {"low", "high"} <= {*table} <= known:
        raise InputError(
            f"the range of `{name}` must have low and high, and may have scale and "
            f"steps, got {', '.join(table) or 'nothing'}."
        )
    low, high, scale = table["low"], table["high"], table.get("scale", "lin")
    for end in (low, high):
        if isinstance(end, bool) or not isinstance(end, int | float):
            raise InputError(f"low and high of `{name}` must be numbers, got {end!r}.")
    if scale not in ("lin", "log"):
        raise InputError(f"scale of `{name}` must be 'lin' or 'log', got {scale!r}.")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"low of `{name}` must be less than high, got {low!r} and {high!r}."
        )
    if scale == "log" and low <= 0:
        raise InputError(f"low of `{name}` must be > 0 with 'log', got {low!r}.")
    if is_integer and not (float(low).is_integer() and float(high).is_integer()):
        raise InputError(
            f"low and high of `{name}` must be integers, got {low!r} and {high!r}."
        )
    number: Callable[[Any], Any] = int if is_integer else float
    dimension = Range(number(low), number(high), scale == "log", is_integer)
    return (
        dimension if "steps" not in table else _steps(name, dimension, table["steps"])
    )


def _steps(name: str, range_: Range, steps: Any) -> Choices:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 2:
        raise InputError(f"steps of `{name}` must be an integer >= 2, got {steps!r}.")
    spaced = np.geomspace if range_.is_log else np.linspace
    values = spaced(range_.low, range_.high, min(steps, _MOST + 1)).tolist()
    if range_.is_integer:
        values = [round(value) for value in values]
    return Choices(tuple(dict.fromkeys(values)))


def _is_integer(name: str, config: Config) -> bool:
    """Whether a setting is an integer; arguments of optimizers are numbers."""
    types = {
        f.name: f.type
        for section in (config.run, config.family)
        for f in dataclasses.fields(section)
    }
    return types.get(name) in (int, int | None, Window)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
