"""Collective operations of a compiled program, from its HLO text."""

import math
import re
from typing import NamedTuple

_RESULT = re.compile(
    r"= (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(-start)?\("
)
_ARRAY = re.compile(r"(pred|[a-z]+(\d+))\[([\d,]*)\]")


class Collective(NamedTuple):
    """One result of a collective operation, on each device."""

    kind: str
    shape: tuple[int, ...]
    num_bytes: int


def collectives(text: str) -> list[Collective]:
    """The collectives of an HLO program; one in a loop is counted once."""
    found = []
    for result, kind, is_start in _RESULT.findall(text):
        arrays = _ARRAY.findall(result)
        if is_start and kind != "all-reduce":  # (operands, results)
            arrays = arrays[len(arrays) // 2 :]
        for _, bits, sizes in arrays:
            shape = tuple(int(size) for size in sizes.split(",") if size)
            found.append(
                Collective(kind, shape, math.prod(shape) * int(bits or 8) // 8)
            )
    return found
