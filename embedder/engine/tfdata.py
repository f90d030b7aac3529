"""TensorFlow, imported when it is first needed: only tf.data on the CPU is used."""

import os
from typing import Any


def import_tensorflow() -> Any:
    """The module `tensorflow`, with GPUs hidden from it and its notices off."""
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
