"""Charts: as numbers that the template draws as SVG, and as lines of text."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

WIDTH, HEIGHT = 480, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 10, 10, 40
_TICKS = 5
_ACROSS = WIDTH - _LEFT - _RIGHT
_UP = HEIGHT - _TOP - _BOTTOM
_DIAGONAL = (float(_LEFT), float(_TOP + _UP), float(_LEFT + _ACROSS), float(_TOP))

_BLANK = 0x2800  # the pattern without dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of [row][column]

Points = list[tuple[float, float]]


class Series(NamedTuple):
    """A line: its name, and its points (x, y)."""

    name: str
    points: Points


class Tick(NamedTuple):
    """A tick of an axis: its position in the picture, and its text."""

    at: float
    text: str


class Dot(NamedTuple):
    """A point in the picture, with what it shows."""

    x: float
    y: float
    text: str


class Column(NamedTuple):
    """A part of a column in the picture, with what it shows."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines, or layers of columns upon each other, in pixels of WIDTH x HEIGHT."""

    title: str
    x_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    description: str  # for a reader who does not see the picture
    lines: Sequence[tuple[str, list[Dot]]] = ()  # names and points
    layers: Sequence[tuple[str, list[Column]]] = ()  # names and columns, lowest first
    diagonal: tuple[float, float, float, float] | None = None  # where y equals x
    left: ClassVar[int] = _LEFT
    right: ClassVar[int] = WIDTH - _RIGHT
    top: ClassVar[int] = _TOP
    bottom: ClassVar[int] = HEIGHT - _BOTTOM
    width: ClassVar[int] = WIDTH
    height: ClassVar[int] = HEIGHT


def line_chart(
    title: str, series: list[Series], x_label: str = "epochs", unit_square: bool = False
) -> Chart | None:
    """The chart of some series; None: none has a point.

    Args:
      unit_square: both axes are from 0 to 1, and y = x is drawn.
    """
    series = [each for each in series if each.points]
    if not series:
        return None
    points = [point for each in series for point in each.points]
    x_ends, y_ends = (0.0, 1.0), (0.0, 1.0)
    if not unit_square:
        x_ends, y_ends = (_bounds(axis) for axis in zip(*points, strict=True))
    lines = [
        (
            each.name,
            [
                Dot(_across(x, *x_ends), _up(y, *y_ends), f"{y:.4g} at {x:.4g}")
                for x, y in each.points
            ],
        )
        for each in series
    ]
    ends = (f"{n}: from {dots[0].text} to {dots[-1].text}" for n, dots in lines)
    x_ticks = _round_ticks(*x_ends, is_integer=x_label == "epochs")
    return Chart(
        title=title,
        x_label=x_label,
        x_ticks=[Tick(_across(x, *x_ends), f"{x:,.6g}") for x in x_ticks],
        y_ticks=[Tick(_up(y, *y_ends), f"{y:,.6g}") for y in _round_ticks(*y_ends)],
        description="; ".join(ends),
        lines=lines,
        diagonal=_DIAGONAL if unit_square else None,
    )


def area_chart(
    title: str, edges: np.ndarray, layers: dict[str, np.ndarray], x_label: str
) -> Chart:
    """The shares of `layers`, from 0 to 100 %, in columns between `edges`.

    Args:
      edges: f64[N + 1], ascending, the ends of the columns.
      layers: by name f64[N], how much of each column it is.
    """
    total = np.maximum(sum(layers.values()), 1e-300)
    first, last = float(edges[0]), float(edges[-1])
    ends = list(itertools.pairwise(edges.tolist()))
    below, layer_columns = np.zeros(len(total)), []
    for name, layer in layers.items():
        shares = layer / total
        below = below + shares
        columns = [
            Column(
                _across(x, first, last),
                _up(top, 0.0, 1.0),
                round((after - x) / (last - first) * _ACROSS, 2),
                round(share * _UP, 2),
                f"{100 * share:.3g} % from {x:.4g} to {after:.4g}",
            )
            for (x, after), top, share in zip(
                *(ends, below.tolist(), shares.tolist()), strict=True
            )
        ]
        layer_columns.append((name, columns))
    sums = {name: float(layer.sum()) for name, layer in layers.items()}
    whole = sum(sums.values()) or 1.0
    about = (f"{name} {100 * x / whole:.3g} %" for name, x in sums.items())
    x_ticks = _round_ticks(first, last)
    return Chart(
        title=title,
        x_label=x_label,
        x_ticks=[Tick(_across(x, first, last), f"{x:,.6g}") for x in x_ticks],
        y_ticks=[Tick(_up(y, 0, 100), f"{y}") for y in (0, 25, 50, 75, 100)],
        description="of the whole " + ", ".join(about),
        layers=layer_columns,
    )


def _across(x: float, low: float, high: float) -> float:
    return round(_LEFT + (x - low) / (high - low) * _ACROSS, 2)


def _up(y: float, low: float, high: float) -> float:
    return round(HEIGHT - _BOTTOM - (y - low) / (high - low) * _UP, 2)


def _bounds(values: tuple[float, ...]) -> tuple[float, float]:
    """The least and the largest value, apart from each other."""
    low, high = min(values), max(values)
    if high - low > 1e-9 * max(abs(low), abs(high), 1e-30):
        return low, high
    margin = abs(low) / 2 or 1.0
    return low - margin, high + margin


def _round_ticks(low: float, high: float, is_integer: bool = False) -> list[float]:
    """Round numbers within [low, high], some `_TICKS` of them, at least two."""
    step = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(step))
    # The nearest of 1, 2 and 5 times a power of ten that is not below it.
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= step * (1 - 1e-9))
    if is_integer:
        step = max(1.0, step)
    while True:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last > first or (is_integer and last == first):
            return [round(i * step, 12) for i in range(first, last + 1)]
        step /= 2


def text_chart(
    points: Sequence[tuple[float, float]], width: int, height: int, *, dots: bool = True
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
