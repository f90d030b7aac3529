"""What keeps the memory of a process that runs many tests small."""

import ctypes
import gc
import os
from pathlib import Path

import jax

_FIRST = 700.0  # MiB, of which imports take most: TensorFlow alone takes 200
_MORE = 150.0  # MiB beside what was left when programs were forgotten
_least = _FIRST


def forget_programs() -> None:
    """Makes JAX forget what it compiled, where this process has become large."""
    global _least
    if _own() > _least + _MORE:
        jax.clear_caches()
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
        if trim is not None:
            trim(0)
        _least = max(_FIRST, _own())


def _own() -> float:
    """MiB of memory that this process alone has, so without the pages of libraries that
    are files, some 700 MiB; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    resident, shared = map(int, statm.read_text().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") / 2**20
