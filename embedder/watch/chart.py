"""A curve as lines of text: dots of braille, or stars where there are only letters."""

from collections.abc import Sequence

import numpy as np

_BLANK = 0x2800  # the pattern without dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of [row][column]


def chart(
    points: Sequence[tuple[float, float]],
    width: int,
    height: int,
    *,
    dots: bool = True,
) -> list[str]:
    """`height` lines of `width` characters with a line through `points`.

    The least x is at the left edge and the largest at the right, values likewise from
    bottom to top; equal values are in the middle.

    Args:
      points: (x, value), finite, with ascending x; one or more.
      dots: braille, which has 2 x 4 dots a character; else "*".
    """
    across, down = (2, 4) if dots else (1, 1)
    levels = _levels(points, width * across, height * down)
    grid = np.zeros((height * down, width * across), bool)
    before = levels[0]
    for column, level in enumerate(levels):
        low, high = sorted((before, level))
        low += level > before  # the dots between two columns, without the first's own
        high -= level < before
        grid[low : high + 1, column] = True
        before = level
    grid = grid[::-1]
    if not dots:
        return ["".join("*" if x else " " for x in row).rstrip() for row in grid]
    cells = grid.reshape(height, down, width, across).astype(int)
    codes = np.einsum("hdwa,da->hw", cells, np.array(_DOTS))
    return ["".join(chr(_BLANK + code) for code in row) for row in codes.tolist()]


def _levels(
    points: Sequence[tuple[float, float]], columns: int, rows: int
) -> list[int]:
    """The row, from the bottom, of the curve in each column: the mean of the points
    there, and where there are none, on the line between those beside it."""
    x, y = np.array(points, np.float64).T
    first, last = x[0], x[-1]
    span = last - first
    at = np.zeros(len(x), int)
    if span > 0:
        at = np.minimum(columns - 1, ((x - first) / span * columns).astype(int))
    num = np.bincount(at, minlength=columns)
    sums = np.bincount(at, y, minlength=columns)
    has = np.flatnonzero(num)
    values = np.interp(np.arange(columns), has, sums[has] / num[has])
    low, high = values.min(), values.max()
    if not high > low:
        return [rows // 2] * columns
    return np.rint((values - low) / (high - low) * (rows - 1)).astype(int).tolist()
