"""The cap on row steps and plain SGD, as optax gradient transformations.

Both take what changes from update to update as extra arguments, so that one compiled
update serves all of them. They work on gradients of gathered rows and of whole tables
alike: every leaf is [..., D], a row last.
"""

import jax
import jax.numpy as jnp
import optax


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
