"""The state of a training: what updates change."""

from typing import Any, NamedTuple

import jax
import numpy as np
import optax


class TrainState(NamedTuple):
    """All that an update changes, a pytree.

    Arrays are of NumPy on the host, of JAX on devices.
    """

    params: Any  # of Haiku: {module: {name: array}}
    opt_state: optax.OptState
    step: jax.Array | np.ndarray  # i32[], updates applied so far
    extras: Any = ()  # what a family has besides, as moving averages


def device_state(state: TrainState) -> TrainState:
    """A copy of `state` in arrays of JAX, which may be donated."""
    with jax.enable_x64(True):
        return jax.tree.map(jax.numpy.array, state)
