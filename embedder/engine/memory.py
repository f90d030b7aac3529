"""The memory that a run needs: whether the host has it, its description, and an
estimate for a function from its operations."""

import collections
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from embedder.base.limits import gib, memory_limit
from embedder.errors import InputError

_LOOPS = ("scan", "while")  # the results of all turns beside the values of one


class MemoryUse(Protocol):
    """The memory that a training needs, in bytes by purpose."""

    @property
    def memory(self) -> dict[str, int]:
        """On the host, at most, beside Python and JAX."""

    @property
    def device_memory(self) -> dict[str, int]:
        """On each device."""


def check_memory(needed: dict[str, int], advice: str) -> None:
    """Checks that a run fits in memory, before anything is allocated.

    Args:
      needed: bytes by purpose, as in `MemoryUse`.
      advice: what to do otherwise, a clause that ends the message.

    Raises:
      InputError: it does not fit in the limit of this machine or container.
    """
    total, limit = sum(needed.values()), memory_limit()
    if total > limit.size:
        parts = ", ".join(f"{name} {gib(n)}" for name, n in needed.items() if n)
        raise InputError(
            f"The run must fit in the {gib(limit.size)} of {limit.source}, got "
            f"{gib(total)} ({parts}): {advice}"
        )


def memory_lines(training: MemoryUse) -> list[str]:
    """The memory that a training needs on the host and on each device, as text."""
    return [
        f"memory: {_total(training.memory)}",
        f"on each device: {_total(training.device_memory)}",
    ]


def _total(needed: dict[str, int]) -> str:
    parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items() if n)
    return f"{sum(needed.values()) / 2**20:.1f} MiB ({parts})"


def peak_bytes(function: Callable, *arguments: Any) -> int:
    """Bytes of the values that `function` holds at once, at most, besides its
    arguments.

    A value is held from the operation that computes it to the last one that uses it, in
    the order of the function. XLA has an order of its own, fuses operations, and needs
    room within some of them, so this is an estimate.

    Args:
      arguments: arrays, or their `jax.ShapeDtypeStruct`; nothing is computed.
    """
    return _peak(jax.make_jaxpr(function)(*arguments).jaxpr)


def _peak(jaxpr: Jaxpr) -> int:
    ends: dict[Any, int] = {}  # value that is used -> its last use
    for index, equation in enumerate(jaxpr.eqns):
        ends |= {v: index for v in equation.invars if not isinstance(v, Literal)}
    end = len(jaxpr.eqns)  # results are held to the end
    ends |= {v: end for v in jaxpr.outvars if not isinstance(v, Literal)}
    inputs = {*jaxpr.invars, *jaxpr.constvars}
    ending = collections.defaultdict(list)
    for value, index in ends.items():
        if value not in inputs:
            ending[index].append(value)
    held = most = 0
    for index, equation in enumerate(jaxpr.eqns):
        new = sum(_size(value) for value in equation.outvars if value in ends)
        inner = max(map(_peak, _inner(equation)), default=0)
        is_loop = equation.primitive.name in _LOOPS
        most = max(most, held + (new + inner if is_loop else max(new, inner)))
        held += new - sum(map(_size, ending[index]))
    return most


def _inner(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The functions that an operation calls: bodies of loops, branches and others."""
    for parameter in equation.params.values():
        for each in parameter if isinstance(parameter, tuple | list) else [parameter]:
            each = getattr(each, "jaxpr", each)  # of a closed one
            if isinstance(each, Jaxpr):
                yield each


def _size(value: Any) -> int:
    """Bytes of an array; 0 of anything else, such as a key of random numbers."""
    shape = value.aval
    return shape.size * getattr(shape.dtype, "itemsize", 0)
