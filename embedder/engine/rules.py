"""The cap on row steps and plain SGD in optax, and optimizers of optax by name.

The cap and SGD take what changes from update to update as extra arguments, so that one
compiled update serves all of them. They work on gradients of gathered rows and of whole
tables alike: every leaf is [..., D], a row last.
"""

import difflib
import inspect

import jax
import jax.numpy as jnp
import optax

from embedder.errors import InputError


def capped_sgd(cap: float) -> optax.GradientTransformationExtraArgs:
    """row_r <- row_r - rate min(1, cap / c_r) gradient_r.

    `update` takes `rate`, a scalar, and `weights`, shaped as the gradients less their
    last axis.
    """
    return optax.chain(cap_rows(cap), scale_by_rate())


def cap_rows(cap: float) -> optax.GradientTransformationExtraArgs:
    """Scales the gradient of a row by min(1, cap / c).

    The weight c of a row is the number of pair terms that touch it in this update: a
    summed gradient then moves no row by more than `cap` pair steps. The extra argument
    `weights` holds c for each row of the gradients.
    """

    def update(gradients, state, params=None, *, weights, **extra):
        def scale(gradient, weight):
            share = jnp.where(weight > cap, cap / weight, 1).astype(gradient.dtype)
            return gradient * share[..., jnp.newaxis]

        return jax.tree.map(scale, gradients, weights), state

    return optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), update
    )


def scale_by_rate() -> optax.GradientTransformationExtraArgs:
    """Multiplies by minus the extra argument `rate`: one step downhill."""

    def update(gradients, state, params=None, *, rate, **extra):
        return jax.tree.map(lambda gradient: -rate * gradient, gradients), state

    return optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), update
    )


def linear_rate(progress, *, alpha: float, min_alpha: float):
    """Learning rate at `progress` in [0, 1], falling from `alpha` to `min_alpha`."""
    return alpha - (alpha - min_alpha) * progress


def optimizer_by_name(
    name: str, learning_rate: float, arguments: dict[str, float | bool]
) -> optax.GradientTransformation:
    """optax.NAME(learning_rate, **arguments).

    Raises:
      ValueError: there is no such optimizer, or no such argument.
    """
    known = optimizers()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else f": {', '.join(known)}."
        raise InputError(f"`optimizer` must be one of optax, got {name!r}{hint}")
    parameters = inspect.signature(known[name]).parameters
    for given in arguments:
        if given not in parameters or given == "learning_rate":
            names = ", ".join(n for n in parameters if n != "learning_rate")
            raise InputError(
                f"`optimizer_args` of {name!r} must be of {names}, got {given!r}."
            )
    try:
        return known[name](learning_rate, **arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"`optimizer_args` of {name!r}: {error}") from error


def optimizers() -> dict[str, object]:
    """The functions of optax whose first argument, `learning_rate`, may be all.

    Without those that are parts of others, or ask for more than gradients.
    """
    found = {}
    for name, function in sorted(vars(optax).items()):
        if inspect.isfunction(function) and not name.startswith(("scale_by", "lbfgs")):
            first, *rest = [*inspect.signature(function).parameters.values(), None]
            needed = [p for p in rest if p and p.default is p.empty]
            if first and first.name == "learning_rate" and not needed:
                found[name] = function
    return found
