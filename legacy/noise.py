"""Noise ids, drawn by an alias table with integer thresholds.

Integers, so that a draw is the same id in every dtype and every program.

Reference: Vose 1991, "A linear algorithm for generating random numbers with a given
distribution", IEEE Trans. Software Eng. 17(9).
"""

from typing import NamedTuple

import numpy as np


class NoiseTable(NamedTuple):
    """A column is drawn uniformly, then it or its alias, by a uniform u32 coin."""

    limit: np.ndarray  # u32[V]: the column itself is drawn if coin <= limit
    alias: np.ndarray  # i32[V]


def build_noise_table(counts: np.ndarray, ns_exponent: float) -> NoiseTable:
    """The table that draws id i with probability count_i**ns_exponent / sum, to 2**-32.

    Raises:
        ValueError: the weights leave the range of float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = counts.astype(np.float64) ** ns_exponent
        total = weights.sum()
    if not 0 < total < np.inf:
        raise ValueError(
            "`ns_exponent` must leave count ** ns_exponent finite, "
            f"got {ns_exponent!r}."
        )
    probability, alias = _vose((weights / total * counts.size).tolist())
    limit = np.clip(np.rint(np.array(probability) * 2**32), 1, 2**32) - 1
    return NoiseTable(limit.astype(np.uint32), np.array(alias, np.int32))


def draw_noise(table: NoiseTable, rng: np.random.Generator, size: int) -> np.ndarray:
    """Noise ids i32[size]; all columns are drawn before all coins."""
    column = rng.integers(0, table.limit.size, size=size, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    own = coin <= table.limit[column]
    return np.where(own, column, table.alias[column]).astype(np.int32)


def _vose(scaled: list[float]) -> tuple[list[float], list[int]]:
    """Probability of each column's own id, and its alias; `scaled` has mean 1.

    The order of the two stacks and of the two operations on `scaled` is part of the
    contract: another order is another table, as good, but with other draws.
    """
    probability = [1.0] * len(scaled)  # of the columns left over by rounding, too
    alias = list(range(len(scaled)))
    small = [i for i, value in enumerate(scaled) if value < 1]
    large = [i for i, value in enumerate(scaled) if value >= 1]
    while small and large:
        less, more = small.pop(), large.pop()
        probability[less], alias[less] = scaled[less], more
        scaled[more] = (scaled[more] + scaled[less]) - 1.0
        (small if scaled[more] < 1 else large).append(more)
    return probability, alias
