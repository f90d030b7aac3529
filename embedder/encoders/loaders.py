"""Which loader makes the batches of an encoder."""

import logging
from typing import Literal

import jax

from embedder.encoders.examples import Examples
from embedder.encoders.lazy_images import LazyImages
from embedder.engine.devices import capacity
from embedder.errors import InputError
from embedder.limits import gib
from embedder.options import RunOptions

_SHARE = 4  # features take at most one part in so many of the memory of a device
_log = logging.getLogger(__name__)


def choose_loader(run: RunOptions, examples: Examples) -> Literal["tfdata", "memory"]:
    """The loader of a run: `auto` is `memory` if the features fit, else `tfdata`.

    They fit if one process has all devices and the features take at most a quarter of
    the memory of each, since `memory` puts all of them on every device. CPU devices
    have equal parts of the memory that the process may use. TensorFlow, which `tfdata`
    needs, takes seconds to import, and 650 MiB. Processes may have different memory,
    and must agree: of several the loader is `tfdata`. So it is of images that are
    decoded each time. The log says which was chosen.

    Raises:
      InputError: `loader` is memory, and images are decoded each time.
    """
    is_lazy = isinstance(examples.features, LazyImages)
    if is_lazy and run.loader == "memory":
        raise InputError(
            "`loader` must be tfdata for images that are decoded each time, got "
            "'memory', which keeps all of them on the devices: give --decode once."
        )
    if run.loader != "auto":
        return run.loader
    local = jax.local_devices()
    room = min(capacity(device, len(local)) for device in local) // _SHARE
    size = examples.features.nbytes
    loader: Literal["tfdata", "memory"] = "tfdata"
    if jax.process_count() == 1 and size <= room and not is_lazy:
        loader = "memory"
    _log.debug("loader: %s, for features of %s", loader, gib(size))
    return loader
