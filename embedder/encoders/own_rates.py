"""Networks trained side by side whose optimizers have numbers of their own.

A program reads the numbers that differ from its batches, [P, K], and has the others as
constants, as that of a single network has.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.config import Config
from embedder.encoders.optimizers import (
    Schedule,
    arguments_of,
    learning_rate,
    make_optimizer,
)
from embedder.encoders.options import EncoderOptions
from embedder.errors import InputError

_RATE = "learning_rate"


class Varied(NamedTuple):
    """Which arguments of an optimizer differ, its learning rate included."""

    optimizer: str
    names: tuple[str, ...]  # of the P numbers that differ
    constants: tuple[tuple[str, float | bool], ...]

    def optimizer_of(
        self, rates: Any, options: EncoderOptions, schedule: Schedule | None = None
    ) -> optax.GradientTransformation:
        """The optimizer with these numbers, f[P]; JAX may trace them."""
        numbers = dict(zip(self.names, rates, strict=True))
        arguments: dict[str, Any] = dict(self.constants) | numbers
        rate = arguments.pop(_RATE)
        return make_optimizer(self.optimizer, rate, arguments, options, schedule)


def own_rates(
    models: Sequence[Config],
) -> tuple[Varied, np.ndarray] | tuple[None, None]:
    """What the optimizers of `models` differ in, and their numbers, f64[P, K]; None
    twice where they are equal.

    Raises:
      InputError: they have other arguments, or numbers that cannot be traced.
    """
    each = [_arguments(model) for model in models]
    for arguments in each:
        if _kinds(arguments) != _kinds(each[0]):
            raise InputError(
                "`optimizer_args` of networks trained side by side must have the same "
                f"names, got {each[0]} and {arguments}."
            )
    first = each[0]
    names = [name for name in first if any(x[name] != first[name] for x in each)]
    if not names:
        return None, None
    constants = {name: x for name, x in first.items() if name not in names}
    optimizer = models[0].run.optimizer
    varied = Varied(optimizer, tuple(names), tuple(constants.items()))
    _check_traceable(varied, models[0].encoder)
    return varied, np.array([[x[name] for x in each] for name in names], np.float64)


def own_optimizer(
    model: Config, schedule: Schedule | None = None
) -> optax.GradientTransformation:
    """The optimizer of one of the networks."""
    arguments = _arguments(model)
    rate, name = arguments.pop(_RATE), model.run.optimizer
    return make_optimizer(name, rate, arguments, model.encoder, schedule)


def _arguments(model: Config) -> dict[str, float | bool]:
    options = model.encoder
    rate = learning_rate(options, model.run.optimizer)
    return {_RATE: rate, **arguments_of(options)}


def _kinds(arguments: dict[str, float | bool]) -> dict[str, bool | None]:
    """Numbers by their name; True and False, which change the program, by value."""
    return {n: x if isinstance(x, bool) else None for n, x in arguments.items()}


def _check_traceable(varied: Varied, options: EncoderOptions) -> None:
    def update(rates):
        optimizer = varied.optimizer_of(rates, options)
        params = {"w": jnp.zeros((4, 4))}
        return optimizer.update(params, optimizer.init(params), params)

    try:
        jax.eval_shape(update, jnp.zeros(len(varied.names)))
    except (TypeError, ValueError) as error:
        names = " and ".join(f"`{name}`" for name in varied.names)
        raise InputError(
            f"{names} of {varied.optimizer!r} cannot differ between networks trained "
            "side by side: give --side-by-side 1."
        ) from error
