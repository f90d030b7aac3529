"""Presets: defaults for a kind of data, where those of text do not fit.

What they hold was measured: `docs/how-to/choose-settings.md` has the figures.
"""

from types import MappingProxyType
from typing import Any, Literal

from embedder.config import Config, with_options
from embedder.errors import InputError

Preset = Literal["none", "items", "words", "graph"]

PRESETS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "none": {},
        "items": {
            **{"window": "session", "negative": 10, "sample": 0.0, "epochs": 10},
            "next_items": True,
        },
        "words": {
            **{"window": 5, "negative": 5, "ns_exponent": 0.75, "sample": 1e-3},
            **{"min_count": 5, "epochs": 5},
        },
        "graph": {"walks": 10, "walk_length": 80, "window": 10, "vector_size": 128},
    }
)
"""Settings of each preset. Those that it does not name keep their defaults."""


def with_preset(config: Config, preset: str) -> Config:
    """`config` of tokens with the settings of a preset.

    Raises:
      InputError: `config` is of an encoder.
    """
    check_preset(preset, config.run.model)
    return with_options(config, **PRESETS[preset])


def check_preset(preset: str, model: str) -> None:
    """Raises InputError if `model` is not one of tokens, which presets are for."""
    if preset != "none" and model != "tokens":
        raise InputError(
            f"`preset` applies only to `model` = 'tokens', got {preset!r} with "
            f"{model!r}."
        )
