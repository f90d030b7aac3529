"""The memory that a network needs for the values of its layers, its activations."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import optax

from embedder.encoders.networks.encoder import make_encoder, model_shapes
from embedder.encoders.networks.network import Model, Network
from embedder.encoders.update import (
    Draw,
    Extras,
    Learning,
    Part,
    loss_sums,
    one_update,
)
from embedder.engine.exchange import Exchange
from embedder.engine.liveness import peak_bytes
from embedder.engine.state import TrainState

_EXAMPLES = 16  # traced for the bytes of one, so that copies of kernels hardly count
_Shape: Any = jax.ShapeDtypeStruct  # stands for an array


@functools.lru_cache(maxsize=32)
def output_bytes(network: Network, dtype: str) -> int:
    """Bytes of the activations of an example for its outputs, estimated."""
    encoder = make_encoder(network, dtype=dtype, seed=0)
    features = _Shape((_EXAMPLES, *network.example_shape), np.float32)
    labels, weights = _Shape((_EXAMPLES,), np.int32), _Shape((_EXAMPLES,), dtype)
    with jax.enable_x64(encoder.dtype == np.float64):
        sums = functools.partial(loss_sums, encoder)
        model = _in_dtype(model_shapes(network), encoder.dtype)
        found = peak_bytes(sums, model, features, labels, weights)
    return max(1, found // _EXAMPLES)


@functools.lru_cache(maxsize=32)
def update_bytes(learning: Learning, shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of the activations and gradients of an update on one device, estimated.

    On CPUs XLA computes no activation twice, whatever the network asks for (`remat`),
    and needs as much for bfloat16 as for float32: that is counted as it is. There
    convolutions take more than their values, `Network.cpu_overhead`.

    Args:
      shape: of the features of the update on this device, [B, ...].
      dtype: of the features.
    """
    overhead = 1.0
    if jax.default_backend() == "cpu":
        learning = _on_cpu(learning)
        overhead = learning.encoder.network.cpu_overhead
    encoder, augment = learning.encoder, learning.augment
    with jax.enable_x64(encoder.dtype == np.float64):
        model = _in_dtype(model_shapes(encoder.network), encoder.dtype)
        seed, step = _Shape((2,), np.uint32), _Shape((), np.int32)
        average = model.params if learning.average else None
        extras = Extras(model.averages, seed, average)
        state = TrainState(model.params, optax.EmptyState(), step, extras)
        part = _part(learning, shape, dtype)
        epoch = None if augment is None else step
        update = functools.partial(one_update, learning, optax.identity(), Exchange())
        found = peak_bytes(update, state, part, Draw(seed, step, epoch))
        return round(overhead * found)


def _on_cpu(learning: Learning) -> Learning:
    """`learning` with what XLA computes on a CPU."""
    encoder = learning.encoder
    network: Any = encoder.network
    if getattr(network, "remat", False):
        network = dataclasses.replace(network, remat=False)
    return learning._replace(encoder=make_encoder(network, dtype=encoder.dtype, seed=0))


def _part(learning: Learning, shape: tuple[int, ...], dtype: str) -> Part:
    """The shapes of the examples of an update."""
    (num, *rest), augment = shape, learning.augment
    pairs = (2,) if augment is not None and augment.mixup else ()
    ids = _Shape((num, *pairs), np.int32)
    return Part(
        _Shape((num, *pairs, *rest), jax.dtypes.canonicalize_dtype(dtype)),
        ids,
        _Shape((num,), learning.encoder.dtype),
        _Shape((num,), np.int32),
        ids,
    )


def _in_dtype(model: Model, dtype: np.dtype) -> Model:
    return jax.tree.map(lambda x: _Shape(x.shape, dtype), model)
