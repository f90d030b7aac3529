"""TensorFlow, imported when it is first needed: only tf.data on the CPU is used.

It may be absent, as where it has no wheel: the loader `memory` needs none.
"""

import os
import platform
import sys
from typing import Any

from embedder.errors import MissingPackageError, is_installed


def has_tensorflow() -> bool:
    """Whether TensorFlow is installed; it is not loaded."""
    return is_installed("tensorflow")


def check_tensorflow() -> None:
    """Raises MissingPackageError if TensorFlow is not installed."""
    if not has_tensorflow():
        is_small = sys.platform == "linux" and platform.machine() == "x86_64"
        package = "tensorflow-cpu" if is_small else "tensorflow"
        raise MissingPackageError(
            "`loader` tfdata needs TensorFlow, which is not installed: python -m pip "
            f"install {package}. The loader memory makes the same batches without it."
        )


def import_tensorflow() -> Any:
    """The module `tensorflow`, with GPUs hidden from it and its notices off. Raises
    MissingPackageError if it is not installed."""
    check_tensorflow()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Else oneDNN logs a notice; TensorFlow computes nothing here.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    return tf


def quiet_options(tf: Any) -> Any:
    """A tf.data.Options with few threads, which leaves the cores to the updates."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 2
    options.threading.max_intra_op_parallelism = 1
    return options
