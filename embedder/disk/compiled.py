"""Functions that Numba compiles for any CPU."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from embedder.base.compiler import numba_fault

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """`function`, compiled by Numba when it is first called; the code is kept in files.

    It releases the GIL, and checks no index. Without fast maths, so that every machine
    computes the same bits. Where Numba cannot be used, the function itself, which is
    slow.
    """
    if numba_fault():
        return function
    from numba import njit

    from embedder.disk.kernel_cache import cached_on_disk

    kernel = cached_on_disk(njit(nogil=True, error_model="numpy")(function))
    return cast(Callable[_Arguments, _Result], kernel)
