"""Noise ids (negative samples), drawn in proportion to count ** ns_exponent."""

from typing import NamedTuple

import numpy as np

from embedder.errors import InputError


class NoiseTable(NamedTuple):
    """Vose's alias table: a draw picks a column i and a coin, both uniform.

    The draw is i if coin <= limit[i], else alias[i].

    Reference: Vose 1991, IEEE Trans. Software Eng. 17(9), 972-975.
    """

    limit: np.ndarray  # u32[V], for a uniform uint32 coin
    alias: np.ndarray  # i32[V]


def noise_table(counts: np.ndarray, exponent: float) -> NoiseTable:
    """The alias table of the weights `counts` ** `exponent`, for `counts` i64[V].

    A token with count 0 is not drawn.

    Raises:
      InputError: the weights overflow or underflow float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = np.maximum(counts, 1).astype(np.float64) ** exponent
        weights[counts == 0] = 0
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
    """`size` independent noise ids, i32[size]. Draws all columns, then all coins."""
    column = rng.integers(0, len(table.limit), size=size, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    return np.where(
        coin <= table.limit[column], column.view(np.int32), table.alias[column]
    )


def _alias_columns(scaled: np.ndarray) -> tuple[list[float], list[int]]:
    """Probability of the own id of each column, and its alias (Vose 1991).

    Each column below 1 is filled up from one above 1.

    Args:
      scaled: probability of each id times their number, f64[V].
    """
    mass = scaled.tolist()  # lists: indexing an array is slower here
    probability, alias = [1.0] * len(mass), list(range(len(mass)))
    small = np.flatnonzero(scaled < 1).tolist()
    large = np.flatnonzero(scaled >= 1).tolist()
    while small and large:
        low, high = small.pop(), large.pop()
        probability[low], alias[low] = mass[low], high
        mass[high] = (mass[high] + mass[low]) - 1.0
        (small if mass[high] < 1 else large).append(high)
    return probability, alias
