"""Which loader makes the batches of an encoder."""

import logging
from typing import Literal, NamedTuple

import jax

from embedder.encoders.examples import Examples
from embedder.encoders.lazy_images import LazyImages
from embedder.engine.devices import capacity
from embedder.engine.tfdata import check_tensorflow, has_tensorflow
from embedder.limits import gib
from embedder.options import RunOptions

_AUTO, _MEMORY = 4, 2  # features take at most one part in so many of a device's memory
_log = logging.getLogger(__name__)


class Loading(NamedTuple):
    """How an encoder gets the features of its batches."""

    loader: Literal["tfdata", "memory"]
    is_resident: bool  # all features stay on each device; else batches are gathered


def choose_loader(run: RunOptions, examples: Examples) -> Loading:
    """The loader of a run, and whether the features stay on the devices.

    `memory` keeps the features on each device where they take at most half of its
    memory; else threads gather those of batches, as tf.data does. `auto` is `memory`
    where TensorFlow, which takes seconds to import and 650 MiB, is not needed: the
    features take at most a quarter of that memory. It is `memory`, too, where no
    TensorFlow is installed. CPU devices have equal parts of the memory that the process
    may use. Images that are decoded each time are always gathered. So are the features
    of several processes, which may have different memory, and must agree. The log says
    which was chosen.

    Raises:
      MissingPackageError: `loader` is tfdata, and TensorFlow is not installed.
    """
    if run.loader == "tfdata":
        check_tensorflow()
        return Loading("tfdata", is_resident=False)
    is_auto = run.loader == "auto" and has_tensorflow()
    size, local = examples.features.nbytes, jax.local_devices()
    room = min(capacity(device, len(local)) for device in local)
    is_lazy = isinstance(examples.features, LazyImages)
    fits = not is_lazy and size <= room // (_AUTO if is_auto else _MEMORY)
    is_resident = fits and jax.process_count() == 1
    is_memory = is_resident or not is_auto
    found = Loading("memory" if is_memory else "tfdata", is_resident)
    kept = "stay on the devices" if found.is_resident else "are gathered"
    _log.debug("loader: %s, features of %s %s", found.loader, gib(size), kept)
    return found


def memory_advice() -> str:
    """What to change where memory is short; tfdata only where TensorFlow is."""
    tfdata = "--loader tfdata, " if has_tensorflow() else ""
    return f"give {tfdata}a smaller network or `batch_size`, or more `micro_batches`."
