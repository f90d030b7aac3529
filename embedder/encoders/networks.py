"""A ReLU network over features in Haiku; its last hidden layer is the embedding.

Axis letters: B examples of a batch, F features, E widths of the last hidden layer, C
classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np


class Encoder(NamedTuple):
    """The network as pure functions of its parameters."""

    init: object  # init(None, x) -> params, of NumPy
    embed: object  # embed(params, x [B, F]) -> [B, E]
    scores: object  # scores(params, x [B, F]) -> [B, C]
    widths: tuple[int, ...]
    dtype: np.dtype


def encoder(
    widths: Sequence[int], *, dtype, seed: int, precision: str = "highest"
) -> Encoder:
    """The network with layers of these `widths`, from features to classes.

    Args:
      dtype: of parameters and arithmetic.
      seed: of the first weights.
      precision: of matrix products, as `jax.default_matmul_precision` takes it.
    """
    dtype = np.dtype(dtype)

    def network():
        init = _Uniform(seed)
        hidden = hk.nets.MLP(
            widths[1:-1], w_init=init, activate_final=True, name="hidden"
        )
        classes = hk.Linear(widths[-1], w_init=init, name="classes")

        def embed(x):
            return hidden(scaled(x, dtype))

        def scores(x):
            return classes(embed(x))

        return scores, (embed, scores)

    transformed = hk.without_apply_rng(hk.multi_transform(network))
    embed, scores = (_at(precision, function) for function in transformed.apply)
    return Encoder(transformed.init, embed, scores, tuple(widths), dtype)


def scaled(x: jax.Array, dtype) -> jax.Array:
    """Features [B, ...] as [B, F] in `dtype`; u8, as pixels are, from 0 to 1."""
    flat = x.reshape(len(x), -1)
    if flat.dtype == np.uint8:
        return flat.astype(dtype) / jnp.asarray(255, dtype)
    return flat.astype(dtype)


def initial_params(network: Encoder) -> hk.Params:
    """The first parameters, of NumPy: {module: {"w": [in, out], "b": [out]}}."""
    x = np.zeros((1, network.widths[0]), network.dtype)
    with jax.enable_x64(True):  # or float64 would be cut to float32
        params = network.init(None, x)
        return jax.tree.map(np.asarray, hk.data_structures.to_mutable_dict(params))


def layers_of(params: hk.Params) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights [in, out] and biases [out] of each layer, from the features on."""
    return [
        (np.asarray(params[name]["w"]), np.asarray(params[name]["b"]))
        for name in module_names(len(params))
    ]


def params_of(layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> hk.Params:
    """The parameters that have these layers."""
    names = module_names(len(layers))
    return {name: {"w": w, "b": b} for name, (w, b) in zip(names, layers, strict=True)}


def module_names(num_layers: int) -> list[str]:
    """Names of the modules of so many layers."""
    hidden = [f"hidden/~/linear_{number}" for number in range(num_layers - 1)]
    return [*hidden, "classes"]


class _Uniform:
    """Weights uniform with variance 2 / in (He et al. 2015, arXiv:1502.01852).

    One generator draws those of one layer after the other.
    """

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))

    def __call__(self, shape, dtype) -> np.ndarray:
        bound = (6 / shape[0]) ** 0.5
        return ((2 * self._rng.random(shape) - 1) * bound).astype(dtype)


def _at(precision: str, function):
    """`function` with its matrix products in `precision`."""

    def precise(*arguments):
        with jax.default_matmul_precision(precision):
            return function(*arguments)

    return precise
