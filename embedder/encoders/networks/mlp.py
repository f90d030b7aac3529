"""mlp: multilayer perceptron, the network of the oracle."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import haiku as hk
import jax
import numpy as np

from embedder.config.encoder_options import EncoderOptions
from embedder.encoders.networks.network import (
    CLASSES,
    Draws,
    Forward,
    Head,
    Layer,
    Model,
    Params,
    head_of,
    named_arrays,
    named_model,
)
from embedder.errors import InputError

_HIDDEN = 128  # width of the one hidden layer if no layers are given


@dataclass(frozen=True)
class MLP:
    """Multilayer perceptron with ReLU, over flattened features.

    h_0 = x, h_i = relu(h_{i-1} W_i + b_i); the last h is the embedding, and the scores
    are linear in it.
    """

    name: ClassVar[str] = "mlp"
    default_schedule: ClassVar[str] = "constant"
    needs_images: ClassVar[bool] = False
    cpu_overhead: ClassVar[float] = 1.0

    layers: tuple[int, ...]  # widths, from F to C
    head: Head = 0.0

    @classmethod
    def is_auto(cls, options: EncoderOptions, example_shape: tuple[int, ...]) -> bool:
        return True

    @classmethod
    def of_settings(
        cls, options: EncoderOptions, example_shape: tuple[int, ...], num_classes: int
    ) -> "MLP":
        if options.network_args:
            raise InputError(
                "`network_args` are of networks of images, got "
                f"{' '.join(options.network_args)} with an mlp: give --layers."
            )
        num_features, layers = math.prod(example_shape), options.layers
        size = options.embedding_size
        if not layers:
            return cls((num_features, size or _HIDDEN, num_classes))
        if (layers[0], layers[-1]) != (num_features, num_classes):
            raise InputError(
                f"`layers` must go from {num_features} features to {num_classes} "
                f"classes, got {' '.join(map(str, layers))}."
            )
        if size not in (0, layers[-2]):
            raise InputError(
                f"`vector_size` of an mlp is its last hidden layer, {layers[-2]} of "
                f"`layers`, got {size}."
            )
        return cls(layers)

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
    def needs_keys(self) -> bool:
        return False

    def modules(self, draws: Draws) -> tuple[Forward, Forward]:
        hidden = hk.nets.MLP(
            self.layers[1:-1], w_init=draws, activate_final=True, name="hidden"
        )
        head = head_of(self.head, self.num_classes, draws)
        return lambda x, use: hidden(x.reshape(x.shape[0], -1)), head

    def linear_layers(self, model: Model) -> list[Layer] | None:
        return None if self.head else layers_of(model.params)

    def to_arrays(self, model: Model) -> dict[str, np.ndarray]:
        if self.head:
            return jax.tree.map(np.asarray, named_arrays(model))
        return arrays_of(layers_of(model.params))

    def to_model(self, arrays: Mapping[str, np.ndarray]) -> Model:
        if self.head:
            return named_model(arrays)
        return Model(params_of(layers_in(arrays)))

    def with_features(self, model: Model, rows: Sequence[int]) -> Model:
        first = module_names(len(model.params))[0]
        layer = model.params[first]
        layer = {**layer, "w": np.asarray(layer["w"])[[*rows]]}
        return model._replace(params={**model.params, first: layer})


def _check_names(arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that they are weights_0, biases_0 and so on."""
    num_layers = sum(name.startswith("weights_") for name in arrays)
    known = {f"{kind}_{i}" for kind in ("weights", "biases") for i in range(num_layers)}
    if not arrays.keys() <= known:  # checksums do not cover names
        unknown = sorted(arrays.keys() - known)
        raise InputError(f"{unknown} are not members of an encoder")
    if missing := sorted(known - arrays.keys()):
        raise InputError(f"it has no {missing[0]!r}")


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
    return [*hidden, CLASSES]


def arrays_of(layers: Sequence[Layer]) -> dict[str, np.ndarray]:
    """The layers of an MLP as arrays of an encoder file: weights_0, biases_0, ..."""
    named = zip(("weights", "biases"), zip(*layers, strict=True), strict=True)
    return {f"{name}_{i}": x for name, arrays in named for i, x in enumerate(arrays)}


def layers_in(arrays: Mapping[str, np.ndarray]) -> list[Layer]:
    """The layers that `arrays_of` made `arrays` of."""
    numbers = range(len(arrays) // 2)
    return [(arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in numbers]
