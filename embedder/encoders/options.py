"""Settings of encoders."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from embedder.errors import InputError, InputTypeError
from embedder.settings import (
    integer,
    integers,
    number,
    positive_finite,
    setting,
    text,
    validate,
)


def _arguments(section, name: str) -> None:
    """Texts that `parse_arguments` reads, which become a tuple."""
    values = getattr(section, name)
    if not isinstance(values, list | tuple):
        raise InputTypeError(f"`{name}` must be a list of NAME=VALUE, got {values!r}.")
    parse_arguments(values)
    object.__setattr__(section, name, tuple(values))


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """A network over features or images, and how it is trained."""

    best_needs: ClassVar[str] = "validation_fraction"
    """The option without which no epoch can be the best."""

    layers: tuple[int, ...] = setting((), integers(1))
    """Widths from features to classes, as 784 512 10; none: one hidden layer of 128."""
    optimizer_args: tuple[str, ...] = setting((), _arguments)
    """Arguments of the optimizer, as momentum=0.9 nesterov=true."""
    learning_rate: float = setting(0.01, number("a finite number > 0", positive_finite))
    """Of every update."""
    batch_size: int = setting(32, integer(1))
    """Examples of an update; the last one of an epoch may have fewer."""
    validation_fraction: float = setting(
        0.0, number("a number in [0, 1)", lambda x: 0 <= x < 1)
    )
    """Share of the examples, the last ones, that is held out to validate."""
    precision: Literal["default", "high", "highest"] = setting("highest")
    """Of matrix products: highest is all of float32; default may be less on a GPU."""
    label: str = setting("label", text)
    """Column of a parquet file, or array of an npz, with the labels."""
    key: str = setting("", text)
    """Column of a parquet file with names of the rows; none given: their numbers."""
    image_size: tuple[int, ...] = setting((), integers(1))
    """Height and width that images are scaled to; none given: they must be equal."""

    def __post_init__(self):
        validate(self)
        if self.layers and len(self.layers) < 3:
            raise InputError(
                "`layers` must be three widths or more, from features to classes, got "
                f"{self.layers}."
            )
        if len(self.image_size) not in (0, 2):
            raise InputError(
                f"`image_size` must be height and width, got {self.image_size}."
            )

    def check_optimizer(self, name: str) -> None:
        """Nothing: `optimizer_by_name` checks it, which imports optax."""


def parse_arguments(texts: Iterable[str]) -> dict[str, float | bool]:
    """The arguments in texts such as momentum=0.9 and nesterov=true.

    Raises:
      ValueError: one is not NAME=NUMBER, true or false.
    """
    arguments: dict[str, float | bool] = {}
    for each in texts:
        name, _, value = str(each).partition("=")
        word = {"true": True, "false": False}.get(value.lower())
        try:
            arguments[name] = float(value) if word is None else word
        except ValueError:
            raise InputError(
                "`optimizer_args` must be NAME=VALUE, a number, true or false, got "
                f"{each!r}."
            ) from None
    return arguments
