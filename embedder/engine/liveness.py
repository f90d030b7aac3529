"""The memory that a function needs for its values, estimated from its operations."""

import collections
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

_LOOPS = ("scan", "while")  # the results of all turns beside the values of one


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
    ends = _last_uses(jaxpr)
    given = {*jaxpr.invars, *jaxpr.constvars}
    ending = collections.defaultdict(list)
    for value, place in ends.items():
        if value not in given:
            ending[place].append(value)
    held = most = 0
    for place, equation in enumerate(jaxpr.eqns):
        new = sum(_size(value) for value in equation.outvars if value in ends)
        inner = max(map(_peak, _inner(equation)), default=0)
        is_loop = equation.primitive.name in _LOOPS
        most = max(most, held + (new + inner if is_loop else max(new, inner)))
        held += new - sum(map(_size, ending[place]))
    return most


def _last_uses(jaxpr: Jaxpr) -> dict[Any, int]:
    """For each value that is used, the place of the last equation that does so."""
    found: dict[Any, int] = {}
    for place, equation in enumerate(jaxpr.eqns):
        found |= {v: place for v in equation.invars if not isinstance(v, Literal)}
    end = len(jaxpr.eqns)  # results are held to the end
    return found | {v: end for v in jaxpr.outvars if not isinstance(v, Literal)}


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
