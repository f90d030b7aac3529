"""Finds the benches: `BENCHES` and `TABLES` of the modules of this package.

`BENCHES` has the name of a bench on the command line and the function that runs it. The
arguments of that function are those of the command line, its docstring is their help,
and what it returns is the table to print, or None. `TABLES` has the name of a file in
bench/results and the function that makes its table.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Literal

import bench

OWN_COMMANDS = "gpu", "gpu-kit", "gpu-session"
"""Names of `bench.gpu.main`, which runs without the packages of others."""

_WITHOUT = {
    *("__main__", "commands", "render"),  # these use the others
    "torch_networks",  # PyTorch may not be installed
}
"""Modules that are not searched."""


def collected(kind: Literal["BENCHES", "TABLES"]) -> dict[str, Callable[..., Any]]:
    """The entries of `kind` of all modules; a name must be in one alone."""
    found: dict[str, Callable[..., Any]] = {}
    for name in sorted(each.name for each in pkgutil.iter_modules(bench.__path__)):
        if name in _WITHOUT:
            continue
        module = importlib.import_module(f"bench.{name}")
        for key, function in getattr(module, kind, {}).items():
            assert key not in found, f"{kind} of two modules of bench have {key!r}."
            found[key] = function
    return found
