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
    """An encoder: network, training, and columns of the data."""

    best_needs: ClassVar[str] = "validation_fraction"
    """The option that `result` best and `patience` need."""
    scored_by: ClassVar[tuple[str, ...]] = ("validation_fraction",)
    """The options with which networks are evaluated."""

    layers: tuple[int, ...] = setting((), integers(1))
    """Widths from features to classes, e.g. 784 512 10; none: one hidden layer of 128.
    """
    optimizer_args: tuple[str, ...] = setting((), _arguments, is_per_model=True)
    """Arguments of the optimizer, e.g. momentum=0.9 nesterov=true."""
    learning_rate: float = setting(
        0.01, number("a finite number > 0", positive_finite), is_per_model=True
    )
    """Learning rate of all updates."""
    batch_size: int = setting(32, integer(1))
    """Examples per update. The last update of an epoch may have fewer."""
    validation_fraction: float = setting(
        0.0, number("a number in [0, 1)", lambda x: 0 <= x < 1)
    )
    """Share of the examples, from the end, that is held out for validation."""
    precision: Literal["default", "high", "highest"] = setting("highest")
    """Precision of matrix products. highest: full float32. default: less on a GPU."""
    label: str = setting("label", text)
    """Column of a parquet file, or array of an npz file, that has the labels."""
    key: str = setting("", text)
    """Column of a parquet file that has the names of the rows; none: row numbers."""
    image_size: tuple[int, ...] = setting((), integers(1))
    """Height and width to scale images to; none: all must have the same size."""
    channels: Literal["auto", "1", "3"] = setting("auto")
    """Channels of image files: 1 (grey) or 3 (RGB). auto: 1 if all files are grey, else
    3."""

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

    def check_best(self) -> None:
        """Nothing: `best_needs` is all that the best is told by."""

    def check_optimizer(self, name: str) -> None:
        """Nothing: `optimizer_by_name` checks it later, since it imports optax."""


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
