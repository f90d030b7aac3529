"""How programs of child processes are compiled."""

import jax


def do_not_optimize() -> None:
    """Machine code of programs is that of LLVM without its optimizations.

    These take much of the time. `child.cells` has every layout of two devices with
    them, `network_cells.one_network` a network. XLA shards and rewrites programs as
    ever.
    """
    jax.config.update("jax_disable_most_optimizations", True)
