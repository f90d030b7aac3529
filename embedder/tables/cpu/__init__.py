"""The kernel: updates of tables compiled by Numba for the cores of a CPU."""
