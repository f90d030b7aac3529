"""The memory of a network: its activations, and where the features of examples are."""

import dataclasses
import functools
import logging
from typing import Any, Literal

import jax
import numpy as np
import optax

from embedder.base.limits import gib
from embedder.config.run_options import RunOptions
from embedder.data.examples.examples import Examples
from embedder.data.examples.lazy_images import LazyImages
from embedder.data.tfdata import check_tensorflow, has_tensorflow
from embedder.encoders.networks.encoder import Encoder, model_shapes
from embedder.encoders.networks.network import Model
from embedder.encoders.train_step import (
    Draw,
    Extras,
    Learning,
    Part,
    loss_sums,
    one_update,
)
from embedder.engine.collectives import Collectives
from embedder.engine.devices import capacity
from embedder.engine.memory import peak_bytes
from embedder.engine.state import TrainState

_AUTO, _MEMORY = 4, 2  # features take at most one part in so many of a device's memory
_log = logging.getLogger(__name__)
_EXAMPLES = 16  # traced for the bytes of one, so that copies of kernels hardly count
_Shape: Any = jax.ShapeDtypeStruct  # stands for an array


@functools.lru_cache(maxsize=32)
def output_bytes(encoder: Encoder) -> int:
    """Bytes of the activations of an example for its outputs, estimated."""
    encoder = Encoder(encoder.network, encoder.dtype)
    features = _Shape((_EXAMPLES, *encoder.network.example_shape), np.float32)
    labels, weights = (_Shape((_EXAMPLES,), x) for x in (np.int32, encoder.dtype))
    with jax.enable_x64(encoder.dtype == np.float64):
        sums = functools.partial(loss_sums, encoder)
        model = _model(encoder)
        num_bytes = peak_bytes(sums, model, features, labels, weights)
    return max(1, num_bytes // _EXAMPLES)


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
        network: Any = learning.encoder.network
        overhead = network.cpu_overhead
        if getattr(network, "remat", False):
            network = dataclasses.replace(network, remat=False)
        learning = learning._replace(encoder=Encoder(network, learning.encoder.dtype))
    encoder, augment = learning.encoder, learning.augment
    with jax.enable_x64(encoder.dtype == np.float64):
        model = _model(encoder)
        seed, step = _Shape((2,), np.uint32), _Shape((), np.int32)
        average = model.params if learning.average else None
        extras = Extras(model.averages, seed, average)
        state = TrainState(model.params, optax.EmptyState(), step, extras)
        part = _part(learning, shape, dtype)
        epoch = None if augment is None else step
        fixed = learning, optax.identity(), Collectives()
        update = functools.partial(one_update, *fixed)
        return round(
            overhead * peak_bytes(update, state, part, Draw(seed, step, epoch))
        )


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


def _model(encoder: Encoder) -> Model:
    shapes = model_shapes(encoder.network)
    return jax.tree.map(lambda x: _Shape(x.shape, encoder.dtype), shapes)


def choose_loader(
    run: RunOptions, examples: Examples
) -> tuple[Literal["tfdata", "memory"], bool]:
    """The loader of a run, and whether all features stay on each device.

    `memory` keeps the features on each device where they take at most half of its
    memory; else threads gather those of batches, as tf.data does. `auto` is `memory`
    where the features take at most a quarter of it, so that TensorFlow, which takes
    seconds to import and 650 MiB, is not needed; and where none is installed. CPU
    devices have equal parts of the memory that the process may use. Images that are
    decoded each time are always gathered; so are the features of several processes,
    which may have different memory, and must agree. The log says which was chosen.

    Raises:
      MissingPackageError: `loader` is tfdata, and TensorFlow is not installed.
    """
    if run.loader == "tfdata":
        check_tensorflow()
        return "tfdata", False
    is_auto = run.loader == "auto" and has_tensorflow()
    size, local = examples.features.nbytes, jax.local_devices()
    room = min(capacity(device, len(local)) for device in local)
    is_lazy = isinstance(examples.features, LazyImages)
    fits = not is_lazy and size <= room // (_AUTO if is_auto else _MEMORY)
    is_resident = fits and jax.process_count() == 1
    loader: Literal["tfdata", "memory"] = "tfdata"
    if is_resident or not is_auto:
        loader = "memory"
    where = "stay on the devices" if is_resident else "are gathered"
    _log.debug("loader: %s, features of %s %s", loader, gib(size), where)
    return loader, is_resident


def memory_advice() -> str:
    """What to change where memory is short; tfdata only where TensorFlow is."""
    tfdata = "--loader tfdata, " if has_tensorflow() else ""
    return f"give {tfdata}a smaller network or `batch_size`, or more `micro_batches`."
