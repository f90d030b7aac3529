"""The updates of tables as a kernel for the cores of a CPU, compiled by Numba."""

OBJECTIVES = "skipgram", "cbow"
"""The objectives that the kernel has: a module each, here and in `embedder.tables`."""

OPTIMIZERS = "sgd", "adagrad"
"""The optimizers that it has; see `rows.py` and `thread.apply_on_thread`."""
