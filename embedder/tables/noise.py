"""Noise ids, drawn in proportion to count ** ns_exponent."""

from typing import NamedTuple

import numpy as np

from embedder.errors import InputError


class NoiseTable(NamedTuple):
    """An alias table: column i gives i where a uniform uint32 is at most limit[i].

    Reference: Vose 1991, IEEE Trans. Software Eng. 17(9), 972-975.
    """

    limit: np.ndarray  # u32[V]
    alias: np.ndarray  # i32[V], the id that column i gives otherwise


def noise_table(counts: np.ndarray, exponent: float) -> NoiseTable:
    """The table for tokens of these `counts` i64[V].

    Raises:
      ValueError: the weights leave the range of float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = counts.astype(np.float64) ** exponent
        total = weights.sum()
    if not 0 < total < np.inf:
        raise InputError(
            f"`ns_exponent` must leave count ** ns_exponent finite, got {exponent!r}."
        )
    scaled = weights / total * len(counts)
    probability, alias = _alias_columns(scaled)
    limit = np.clip(np.rint(np.array(probability) * 2**32), 1, 2**32) - 1
    return NoiseTable(limit.astype(np.uint32), np.array(alias, dtype=np.int32))


def draw_noise(table: NoiseTable, size: int, rng: np.random.Generator) -> np.ndarray:
    """`size` noise ids, i32[size]."""
    column = rng.integers(0, len(table.limit), size=size, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    return np.where(
        coin <= table.limit[column], column.view(np.int32), table.alias[column]
    )


def _alias_columns(scaled: np.ndarray) -> tuple[list[float], list[int]]:
    """Fills each column below 1 from one above, in plain floats: quick in Python."""
    mass = scaled.tolist()
    probability, alias = [1.0] * len(mass), list(range(len(mass)))
    small = np.flatnonzero(scaled < 1).tolist()
    large = np.flatnonzero(scaled >= 1).tolist()
    while small and large:
        taker, giver = small.pop(), large.pop()
        probability[taker], alias[taker] = mass[taker], giver
        mass[giver] = (mass[giver] + mass[taker]) - 1.0
        (small if mass[giver] < 1 else large).append(giver)
    return probability, alias
