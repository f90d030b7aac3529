"""Whether Numba, which compiles for CPUs, can be used here."""

import importlib


def numba_fault() -> str:
    """Why Numba compiles nothing here, and what to do; "" if it does."""
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        return "cannot be imported: pip install numba"
    if numba.config.DISABLE_JIT:
        return "is turned off by NUMBA_DISABLE_JIT: unset it"
    return ""
