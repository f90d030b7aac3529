"""The updates of tables as a kernel for the cores of a CPU, compiled by Numba."""
