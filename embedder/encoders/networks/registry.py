"""The network that settings or an encoder file name."""

import dataclasses
import pkgutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from embedder.config.encoder_options import NETWORKS, EncoderOptions
from embedder.encoders.networks.encoder import model_shapes
from embedder.encoders.networks.network import Network, named_arrays
from embedder.encoders.objectives import objective_for
from embedder.errors import InputError

_LEGACY = "mlp"  # the network of `legacy`, whose files name none


def network_for(
    options: EncoderOptions, example_shape: tuple[int, ...], num_classes: int
) -> Network:
    """The network of the settings for such examples.

    Raises:
      InputError: the settings do not fit the examples.
    """
    kind = network_kind(network_name(options, example_shape))
    network: Any = kind.of_settings(options, example_shape, num_classes)
    return dataclasses.replace(network, head=objective_for(options).scale)


def network_name(options: EncoderOptions, example_shape: tuple[int, ...]) -> str:
    """The value of `network`; auto: the last of `NETWORKS` that says so."""
    if options.network != "auto":
        return options.network
    names = (x for x in NETWORKS if network_kind(x).is_auto(options, example_shape))
    return [*names][-1]


def network_kind(name: str) -> type[Network]:
    """The class of a network."""
    return pkgutil.resolve_name(NETWORKS[name])


def network_in(
    options: EncoderOptions,
    arrays: Mapping[str, np.ndarray],
    example_shape: tuple[int, ...] | None,
) -> Network:
    """The network of an encoder file, whose parameters are `arrays`.

    Args:
      options: the `Network.settings` that the file holds; those that it lacks have
        their defaults.
      example_shape: the shape in the file; files of `legacy` have none.

    Raises:
      InputError: they are not the parameters of such a network.
    """
    name = _LEGACY if options.network == "auto" else options.network
    if not objective_for(options).scale:
        network = network_kind(name).of_arrays(arrays)
        if network is not None:
            return network
    weights = arrays.get("params/classes/w")
    if weights is None or weights.ndim != 2:
        raise InputError("it has no 'params/classes/w' [E, C]")
    if example_shape is None:
        raise InputError("it has no 'shape'")
    options = dataclasses.replace(options, network=name)
    network = network_for(options, example_shape, weights.shape[1])
    model = named_arrays(model_shapes(network))
    expected, shapes = ({n: x.shape for n, x in y.items()} for y in (model, arrays))
    if shapes != expected:
        wrong = sorted({*shapes.items()} ^ {*expected.items()})[0][0]
        raise InputError(
            f"`{wrong}` is {shapes.get(wrong)}, not {expected.get(wrong)} as of its "
            "network"
        )
    return network
