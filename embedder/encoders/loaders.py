"""Which loader makes the batches of an encoder."""

import logging
from typing import Literal

import jax

from embedder.encoders.examples import Examples
from embedder.engine.devices import capacity
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
    and must agree: of several the loader is `tfdata`. The log says which was chosen.
    """
    if run.loader != "auto":
        return run.loader
    local = jax.local_devices()
    room = min(capacity(device, len(local)) for device in local) // _SHARE
    size = examples.features.nbytes
    loader: Literal["tfdata", "memory"] = "tfdata"
    if jax.process_count() == 1 and size <= room:
        loader = "memory"
    _log.debug("loader: %s, for features of %s", loader, gib(size))
    return loader
