"""Which networks there are, and the one that settings or an encoder file name."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from embedder.encoders.networks.conv_small import ConvSmall
from embedder.encoders.networks.encoder import model_shapes
from embedder.encoders.networks.mlp import MLP
from embedder.encoders.networks.network import (
    BaseNetwork,
    Head,
    Network,
    own_fields,
)
from embedder.encoders.networks.resnet import ResNet
from embedder.encoders.networks.vit import ViT
from embedder.encoders.networks.wide_resnet import WideResNet
from embedder.encoders.options import ARCFACE_SCALE, EncoderOptions, parse_arguments
from embedder.errors import InputError

NETWORKS: dict[str, type[BaseNetwork]] = {
    each.name: each for each in (ConvSmall, ResNet, WideResNet, ViT)
}
"""The networks by the values of `network`; besides there is the `MLP`."""

_HIDDEN = 128  # width of the one hidden layer of an MLP if no layers are given


def network_for(
    options: EncoderOptions, example_shape: tuple[int, ...], num_classes: int
) -> Network:
    """The network of the settings for such examples.

    Raises:
      InputError: the settings do not fit the examples.
    """
    name = network_name(options, example_shape)
    if name != "mlp":
        return _named(name, options, example_shape, num_classes)
    if options.network_args:
        raise InputError(
            "`network_args` are of networks of images, got "
            f"{' '.join(options.network_args)} with an mlp: give --layers."
        )
    num_features, layers = math.prod(example_shape), options.layers
    size = options.embedding_size
    if not layers:
        return MLP((num_features, size or _HIDDEN, num_classes), _head(options))
    if (layers[0], layers[-1]) != (num_features, num_classes):
        raise InputError(
            f"`layers` must go from {num_features} features to {num_classes} classes, "
            f"got {' '.join(map(str, layers))}."
        )
    if size not in (0, layers[-2]):
        raise InputError(
            f"`vector_size` of an mlp is its last hidden layer, {layers[-2]} of "
            f"`layers`, got {size}."
        )
    return MLP(layers, _head(options))


def network_name(options: EncoderOptions, example_shape: tuple[int, ...]) -> str:
    """The value of `network`; auto: conv-small for images, else mlp."""
    if options.network != "auto":
        return options.network
    is_image = len(example_shape) in (2, 3) and min(example_shape[:2]) >= 8
    return "mlp" if options.layers or not is_image else ConvSmall.name


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
    head = _head(options)
    if options.network in ("auto", "mlp") and not head:
        return MLP.of_arrays(arrays)
    weights = arrays.get("params/classes/w")
    if weights is None or weights.ndim != 2:
        raise InputError("it has no 'params/classes/w' [E, C]")
    if options.network in ("auto", "mlp"):
        network: Network = MLP(options.layers, head)
    elif example_shape is None:
        raise InputError("it has no 'shape'")
    else:
        num = weights.shape[1]
        network = _named(options.network, options, example_shape, num)
    expected = named_arrays_shapes(network)
    found = {name: array.shape for name, array in arrays.items()}
    if found != expected:
        wrong = sorted({*found.items()} ^ {*expected.items()})[0][0]
        raise InputError(
            f"`{wrong}` is {found.get(wrong)}, not {expected.get(wrong)} as of its "
            "network"
        )
    return network


def named_arrays_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """The shape of each of `named_arrays` of a model of `network`."""
    model: Any = model_shapes(network)
    return {
        f"{kind}/{module}/{name}": array.shape
        for kind, tree in model._asdict().items()
        for module, values in tree.items()
        for name, array in values.items()
    }


def _head(options: EncoderOptions) -> Head:
    if options.objective != "arcface":
        return 0.0
    arguments = parse_arguments(options.objective_args, "objective_args")
    return arguments.get("scale", ARCFACE_SCALE)


def _named(
    name: str, options: EncoderOptions, shape: tuple[int, ...], num_classes: int
) -> BaseNetwork:
    if options.layers:
        raise InputError(
            f"`layers` is of `network` mlp, got it with {name!r}: give --network-args."
        )
    kind = NETWORKS[name]
    return kind(
        example_shape=shape,
        num_classes=num_classes,
        projection=options.embedding_size,
        head=_head(options),
        **_arguments(kind, options.network_args),
    )


def _arguments(kind: type[BaseNetwork], texts: tuple[str, ...]) -> dict[str, Any]:
    """The values of `network_args` in the types of the fields.

    Raises:
      InputError: there is no such field, or the value is not of its type.
    """
    fields = own_fields(kind)
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        name = name.replace("-", "_")
        if name not in fields:
            raise InputError(
                f"`network_args` of {kind.name} must be of {', '.join(fields)}, got "
                f"{name!r}."
            )
        found[name] = _typed(kind, name, value)
    return found


def _typed(kind: type[BaseNetwork], name: str, value: str) -> Any:
    default = own_fields(kind)[name].default
    if isinstance(default, str):
        return value
    rule, read, is_valid = _RULES[type(default)]
    try:
        found = read(value)
    except (KeyError, ValueError):
        found = None
    if found is None or not is_valid(found):
        raise InputError(
            f"`network_args` of {kind.name}: {name} must be {rule}, got {value!r}."
        )
    return found


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_RULES: dict[type, tuple[str, Callable[[str], Any], Callable[[Any], bool]]] = {
    bool: ("true or false", _boolean, lambda x: True),
    int: ("an integer >= 1", int, lambda x: x >= 1),
    float: ("a number in [0, 1)", float, lambda x: 0 <= x < 1),
}
"""Of each type: what a value must be, how it is read, and whether it is valid."""
