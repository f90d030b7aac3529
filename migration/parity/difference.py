"""Differences of two arrays, and whether they are within a tolerance."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

EXACT = 0.0


class Difference(NamedTuple):
    """One line of the report: a quantity of the port compared with the oracle's."""

    stage: str
    dtype: str  # of the tables; "" if there are none
    quantity: str
    size: int  # values compared
    absolute: float  # largest difference; inf for NaN, or another shape or dtype
    relative: float  # the same divided by the oracle's largest value
    tolerance: float  # 0: bit-exact
    passed: bool


def difference(
    stage: str, quantity: str, actual, desired, *, dtype="", tolerance: float = EXACT
) -> Difference:
    """Compares arrays of numbers.

    Passes if the largest absolute difference <= tolerance * max(1, largest |desired|).
    """
    actual, desired = np.asarray(actual), np.asarray(desired)
    if actual.shape != desired.shape or actual.dtype != desired.dtype:
        gap, scale = np.inf, 1.0
    else:
        gap = _largest(actual.astype(np.float64) - desired.astype(np.float64))
        scale = _largest(desired.astype(np.float64))
    return Difference(
        stage=stage,
        dtype=dtype,
        quantity=quantity,
        size=desired.size,
        absolute=gap,
        relative=gap / scale if 0 < scale < np.inf else gap,
        tolerance=tolerance,
        passed=bool(np.isfinite(gap) and gap <= tolerance * max(scale, 1)),
    )


def difference_of_tokens(
    stage: str, actual: Sequence[str], desired: Sequence[str], *, dtype=""
) -> Difference:
    """The number of tokens that differ, in value or in position."""
    missing = abs(len(actual) - len(desired))
    others = sum(a != b for a, b in zip(actual, desired, strict=False))
    return difference(
        stage, "tokens", float(missing + others), 0.0, dtype=dtype
    )._replace(size=len(desired))


def worst(differences: Iterable[Difference]) -> Difference:
    """The largest of several differences of one quantity, as one."""
    found = list(differences)
    return found[0]._replace(
        size=sum(each.size for each in found),
        absolute=max(each.absolute for each in found),
        relative=max(each.relative for each in found),
        passed=all(each.passed for each in found),
    )


def _largest(values: np.ndarray) -> float:
    """Largest absolute value; inf if there is a NaN, 0 if there are no values."""
    largest = float(np.abs(values).max(initial=0.0))
    return np.inf if np.isnan(largest) else largest
