"""Networks over features, in Haiku; the last hidden layer is the embedding.

To add a network: write a class like `MLP` here, add its settings to `EncoderOptions`,
and let `network_for` (of new settings) and `network_in` (of a file) return it. Nothing
else knows which networks there are, except `FeatureEncoder`: like the oracle, it is an
`MLP` only.

Axis letters: B examples of a batch, F features, E values of an embedding, C classes.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from embedder.encoders.options import EncoderOptions
from embedder.errors import InputError

_HIDDEN = 128  # width of the one hidden layer if no layers are given

Array = jax.Array | np.ndarray
Params = Mapping[str, Mapping[str, Array]]
"""Parameters of a network as Haiku has them: {module: {name: array}}."""

Layer = tuple[np.ndarray, np.ndarray]
"""Weights [in, out] and biases [out] of a linear layer."""

Initializer = Callable[[Sequence[int], Any], jax.Array]
"""Shape and dtype to the first values of a parameter, as Haiku calls it."""

Forward = Callable[[jax.Array], jax.Array]


class Network(Hashable, Protocol):
    """An architecture without parameters, as a frozen dataclass.

    It is a key of caches: networks of two classes must not be equal.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """The values of `EncoderOptions` that give this network; others have defaults.

        A run keeps them in its settings, and its encoder file stores them.
        """

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of the features of an example; those of a batch may be flattened."""

    @property
    def vector_size(self) -> int:
        """E, the number of values of an embedding."""

    @property
    def num_classes(self) -> int:
        """C, the number of scores."""

    @property
    def num_params(self) -> int:
        """Number of all values of the parameters."""

    def modules(self, initializer: Initializer) -> tuple[Forward, Forward]:
        """The functions [B, ...] -> [B, E] and [B, E] -> [B, C], of Haiku modules.

        Called inside a Haiku transform; features are scaled, see `scaled`.
        """

    def to_arrays(self, params: Params) -> dict[str, np.ndarray]:
        """The parameters as named arrays of an encoder file."""

    def to_params(self, arrays: Mapping[str, np.ndarray]) -> Params:
        """The parameters that `to_arrays` made `arrays` of."""


@dataclass(frozen=True)
class MLP:
    """Multilayer perceptron with ReLU, over flattened features.

    h_0 = x, h_i = relu(h_{i-1} W_i + b_i); the last h is the embedding, and the scores
    are linear in it.
    """

    layers: tuple[int, ...]  # widths, from F to C

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "MLP":
        """The MLP whose parameters are `arrays`; InputError if there is none."""
        _check_names(arrays)
        layers = layers_in(arrays)
        if len(layers) < 2:
            raise InputError(f"it has {len(layers)} layers")
        for number, (weights, biases) in enumerate(layers):
            if weights.ndim != 2 or biases.shape != weights.shape[1:]:
                shapes = f"{weights.shape} and {biases.shape}"
                raise InputError(f"layer {number} is {shapes}")
        for (first, _), (second, _) in itertools.pairwise(layers):
            if first.shape[1] != second.shape[0]:
                shapes = f"{first.shape} and {second.shape}"
                raise InputError(f"layers of {shapes} do not fit")
        return cls((len(layers[0][0]), *(len(biases) for _, biases in layers)))

    @property
    def settings(self) -> dict[str, Any]:
        return {"layers": self.layers}

    @property
    def example_shape(self) -> tuple[int, ...]:
        return self.layers[:1]

    @property
    def vector_size(self) -> int:
        return self.layers[-2]

    @property
    def num_classes(self) -> int:
        return self.layers[-1]

    @property
    def num_params(self) -> int:
        return sum((a + 1) * b for a, b in itertools.pairwise(self.layers))

    def modules(self, initializer: Initializer) -> tuple[Forward, Forward]:
        hidden = hk.nets.MLP(
            self.layers[1:-1], w_init=initializer, activate_final=True, name="hidden"
        )
        classes = hk.Linear(self.num_classes, w_init=initializer, name="classes")
        return lambda x: hidden(x.reshape(x.shape[0], -1)), classes

    def to_arrays(self, params: Params) -> dict[str, np.ndarray]:
        return arrays_of(layers_of(params))

    def to_params(self, arrays: Mapping[str, np.ndarray]) -> Params:
        return params_of(layers_in(arrays))


def network_for(
    options: EncoderOptions, example_shape: tuple[int, ...], num_classes: int
) -> Network:
    """The network of the settings for such examples.

    Raises:
      InputError: the settings do not fit the examples.
    """
    num_features, layers = math.prod(example_shape), options.layers
    if not layers:
        return MLP((num_features, _HIDDEN, num_classes))
    if (layers[0], layers[-1]) != (num_features, num_classes):
        raise InputError(
            f"`layers` must go from {num_features} features to {num_classes} classes, "
            f"got {' '.join(map(str, layers))}."
        )
    return MLP(layers)


def network_in(
    options: EncoderOptions,
    arrays: Mapping[str, np.ndarray],
    example_shape: tuple[int, ...] | None = None,
) -> Network:
    """The network of an encoder file, whose parameters are `arrays`.

    Args:
      options: the `Network.settings` that the file holds; those that it lacks have
        their defaults.
      example_shape: the shape in the file; files of `legacy` have none.

    Raises:
      InputError: they are not the parameters of such a network.
    """
    return MLP.of_arrays(arrays)


def _check_names(arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that they are weights_0, biases_0 and so on."""
    num_layers = sum(name.startswith("weights_") for name in arrays)
    known = {f"{kind}_{i}" for kind in ("weights", "biases") for i in range(num_layers)}
    if not arrays.keys() <= known:  # checksums do not cover names
        unknown = sorted(arrays.keys() - known)
        raise InputError(f"{unknown} are not members of an encoder")
    if missing := sorted(known - arrays.keys()):
        raise InputError(f"it has no {missing[0]!r}")


class Encoder(NamedTuple):
    """A network as pure functions of its parameters."""

    init: Callable[[None, Array], Params]  # of features; draws the first parameters
    embed: Callable[[Params, Array], jax.Array]  # features [B, ...] -> [B, E]
    scores: Callable[[Params, Array], jax.Array]  # features [B, ...] -> [B, C]
    network: Network
    dtype: np.dtype


def make_encoder(
    network: Network, *, dtype: str | np.dtype, seed: int, precision: str = "highest"
) -> Encoder:
    """The functions of `network`.

    Args:
      dtype: of parameters and arithmetic, float32 or float64.
      seed: of the first parameters.
      precision: of matrix products, as `jax.default_matmul_precision` takes it.
    """
    dtype = np.dtype(dtype)

    def build():
        hidden, classes = network.modules(_HeUniform(seed))

        def embed(x):
            return hidden(scaled(x, dtype))

        def scores(x):
            return classes(embed(x))

        return scores, (embed, scores)

    transformed = hk.without_apply_rng(hk.multi_transform(build))
    embed, scores = (_in_precision(precision, f) for f in transformed.apply)
    return Encoder(transformed.init, embed, scores, network, dtype)


def scaled(x: Array, dtype: np.dtype) -> jax.Array:
    """Features [B, ...] in `dtype`; u8, such as pixels, becomes 0 to 1."""
    values = jnp.asarray(x)
    if values.dtype == np.uint8:
        return values.astype(dtype) / jnp.asarray(255, dtype)
    return values.astype(dtype)


def initial_params(encoder: Encoder) -> dict[str, dict[str, np.ndarray]]:
    """The first parameters, in NumPy: {module: {name: array}}."""
    x = np.zeros((1, *encoder.network.example_shape), encoder.dtype)
    with jax.enable_x64(True):  # else float64 becomes float32
        params = encoder.init(None, x)
    return {
        module: {name: np.array(value) for name, value in values.items()}
        for module, values in params.items()
    }


def layers_of(params: Params) -> list[Layer]:
    """The layers of an MLP, from the features on."""
    return [
        (np.asarray(params[name]["w"]), np.asarray(params[name]["b"]))
        for name in module_names(len(params))
    ]


def params_of(layers: Sequence[Layer]) -> dict[str, dict[str, np.ndarray]]:
    """The parameters of an MLP with these layers."""
    names = module_names(len(layers))
    return {name: {"w": w, "b": b} for name, (w, b) in zip(names, layers, strict=True)}


def module_names(num_layers: int) -> list[str]:
    """The Haiku modules of an MLP, from the features on."""
    hidden = [f"hidden/~/linear_{number}" for number in range(num_layers - 1)]
    return [*hidden, "classes"]


def arrays_of(layers: Sequence[Layer]) -> dict[str, np.ndarray]:
    """The layers of an MLP as arrays of an encoder file: weights_0, biases_0, ..."""
    named = zip(("weights", "biases"), zip(*layers, strict=True), strict=True)
    return {f"{name}_{i}": x for name, arrays in named for i, x in enumerate(arrays)}


def layers_in(arrays: Mapping[str, np.ndarray]) -> list[Layer]:
    """The layers that `arrays_of` made `arrays` of."""
    numbers = range(len(arrays) // 2)
    return [(arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in numbers]


class _HeUniform:
    """Weights uniform with variance 2 / fan-in (He et al. 2015, arXiv:1502.01852).

    The fan-in, the number of inputs of an output, is the product of all axes but the
    last: of weights [in, out], of convolution kernels [height, width, in, out].
    One generator of NumPy draws the layers in order, as the oracle does.
    """

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))

    def __call__(self, shape: Sequence[int], dtype: Any) -> jax.Array:
        bound = (6 / math.prod(shape[:-1])) ** 0.5
        values = (2 * self._rng.random(tuple(shape)) - 1) * bound
        return jnp.asarray(values.astype(dtype))


def _in_precision(
    precision: str, function: Callable[[Params, Array], jax.Array]
) -> Callable[[Params, Array], jax.Array]:
    """`function` with its matrix products in `precision`."""

    def precise(params: Params, x: Array) -> jax.Array:
        with jax.default_matmul_precision(precision):
            return function(params, x)

    return precise
