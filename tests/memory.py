"""What keeps the memory of a process that runs many tests small."""

import ctypes
import gc
import os
from pathlib import Path

import jax

_FIRST = 1000.0  # MiB, of which imports take most: TensorFlow alone takes 600
_MORE = 150.0  # MiB beside what was left when programs were forgotten
_least = _FIRST


def forget_programs() -> None:
    """Makes JAX forget what it compiled, where this process has become large."""
    global _least
    if _resident() > _least + _MORE:
        jax.clear_caches()
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
        if trim is not None:
            trim(0)
        _least = max(_FIRST, _resident())


def _resident() -> float:
    """MiB of memory that this process has; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
