"""The settings of a run, those that differ from the defaults first."""

from typing import Any, NamedTuple

from embedder.config import Config, make_config, options_of
from embedder.report.text import short


class Setting(NamedTuple):
    """A setting and its values as text."""

    name: str
    value: str
    default: str


class Settings(NamedTuple):
    """The settings of a run by where their values are from."""

    given: list[Setting]  # other than the defaults
    chosen: list[Setting]  # left open, and chosen for the data
    defaults: list[Setting]


def settings_of(config: Config, chosen: dict[str, Any] | None = None) -> Settings:
    """The settings of `config`.

    Args:
      chosen: those that were left open, as `run.inputs.open_settings` returns them.
    """
    values = options_of(config)
    defaults = options_of(make_config({"model": config.run.model}))
    found = Settings([], [], [])
    for name, value in values.items():
        texts = (_text(_rounded(each)) for each in (value, defaults[name]))
        setting = Setting(name, *texts)
        if name in (chosen or {}):
            found.chosen.append(setting)
        elif value != defaults[name]:
            found.given.append(setting)
        else:
            found.defaults.append(setting)
    return found


def different(configs: list[Config]) -> list[tuple[str, list[str]]]:
    """Each setting in which runs differ, with its value in each of them."""
    values = [options_of(config) for config in configs]
    names = dict.fromkeys(name for each in values for name in each)
    rows = [(name, [each.get(name) for each in values]) for name in names]
    differing = [row for row in rows if len({*map(_text, row[1])}) > 1]
    return [(name, _distinct(found)) for name, found in differing]


def _distinct(values: list[Any]) -> list[str]:
    """Texts of values that are not all the same, rounded where they differ still."""
    rounded = [_text(_rounded(each)) for each in values]
    exact = [_text(each) for each in values]
    return rounded if len({*rounded}) == len({*exact}) else exact


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _text(value: Any) -> str:
    if value is None or value == "" or value == ():
        return "–"
    if isinstance(value, tuple | list):
        return short(" ".join(map(str, value)))
    return short(str(value).lower() if isinstance(value, bool) else str(value))
