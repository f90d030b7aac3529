"""How far two arrays are apart, and whether that passes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

EXACT = 0.0


class Difference(NamedTuple):
    """One line of the report: a quantity of the port beside the oracle's."""

    rung: str
    dtype: str  # of the tables; empty where there are none
    quantity: str
    size: int  # values compared
    absolute: float  # largest difference; inf where shape or dtype differ, or for NaN
    relative: float  # that, over the largest value of the oracle's
    tolerance: float  # 0: equal to the last bit
    passed: bool


def difference(
    rung: str, quantity: str, actual, desired, *, dtype="", tolerance: float = EXACT
) -> Difference:
    """Compares arrays of numbers.

    The tolerance is one of the absolute difference, and of the relative one where
    values are larger than 1.
    """
    actual, desired = np.asarray(actual), np.asarray(desired)
    if actual.shape != desired.shape or actual.dtype != desired.dtype:
        gap, scale = np.inf, 1.0
    else:
        gap = _largest(actual.astype(np.float64) - desired.astype(np.float64))
        scale = _largest(desired.astype(np.float64))
    return Difference(
        rung=rung,
        dtype=dtype,
        quantity=quantity,
        size=desired.size,
        absolute=gap,
        relative=gap / scale if 0 < scale < np.inf else gap,
        tolerance=tolerance,
        passed=bool(np.isfinite(gap) and gap <= tolerance * max(scale, 1)),
    )


def difference_of_tokens(
    rung: str, actual: Sequence[str], desired: Sequence[str], *, dtype=""
) -> Difference:
    """The number of tokens that differ, in value or in place."""
    missing = abs(len(actual) - len(desired))
    others = sum(a != b for a, b in zip(actual, desired, strict=False))
    return difference(
        rung, "tokens", float(missing + others), 0.0, dtype=dtype
    )._replace(size=len(desired))


def worst(differences: Iterable[Difference]) -> Difference:
    """Several differences of one quantity as one."""
    found = list(differences)
    return found[0]._replace(
        size=sum(each.size for each in found),
        absolute=max(each.absolute for each in found),
        relative=max(each.relative for each in found),
        passed=all(each.passed for each in found),
    )


def _largest(values: np.ndarray) -> float:
    """Largest absolute value; inf where there is a NaN, 0 where there is none."""
    largest = float(np.abs(values).max(initial=0.0))
    return np.inf if np.isnan(largest) else largest
