"""TensorFlow, of which only tf.data on the CPU is used; imported when it is needed."""

import os


def import_tensorflow():
    """TensorFlow, kept to the CPU and quiet."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # No arithmetic is done with it: this spares a notice.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    return tf


def quiet_options(tf):
    """No threads that look for work while the updates need the cores."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 2
    options.threading.max_intra_op_parallelism = 1
    return options
