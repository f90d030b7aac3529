"""Line charts as numbers: the template draws them as SVG.

Axes have round ticks; a chart of other programs' series has one line for each.
"""

import math
from typing import NamedTuple

import numpy as np

WIDTH, HEIGHT = 480, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 10, 10, 40
_TICKS = 5
_ACROSS = WIDTH - _LEFT - _RIGHT
_UP = HEIGHT - _TOP - _BOTTOM

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


class AreaChart(NamedTuple):
    """Layers of columns upon each other, from 0 to 100 %, in a picture like a Chart's.

    Columns are as wide as what they are about is long.
    """

    title: str
    x_label: str
    layers: list[tuple[str, list[Column]]]  # names and parts of columns, lowest first
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    description: str
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


class Chart(NamedTuple):
    """A chart, in pixels of a picture of WIDTH x HEIGHT."""

    title: str
    x_label: str
    lines: list[tuple[str, list[Dot]]]  # names and points
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    diagonal: tuple[float, float, float, float] | None = None  # where y equals x
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def description(self) -> str:
        """What a reader hears who does not see the picture."""
        ends = (
            f"{name}: from {dots[0].text} to {dots[-1].text}"
            for name, dots in self.lines
        )
        return "; ".join(ends)


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
    axes = [(0.0, 1.0)] * 2
    if not unit_square:
        axes = [_bounds(axis) for axis in zip(*points, strict=True)]
    (x_low, x_high), (y_low, y_high) = axes
    y_ticks = _round_ticks(y_low, y_high)

    def across(x: float) -> float:
        return round(_LEFT + (x - x_low) / (x_high - x_low) * _ACROSS, 2)

    def up(y: float) -> float:
        return round(HEIGHT - _BOTTOM - (y - y_low) / (y_high - y_low) * _UP, 2)

    x_ticks = _round_ticks(x_low, x_high, is_integer=x_label == "epochs")
    lines = [
        (
            each.name,
            [Dot(across(x), up(y), f"{y:.4g} at {x:.4g}") for x, y in each.points],
        )
        for each in series
    ]
    return Chart(
        title,
        x_label,
        lines,
        [Tick(across(x), f"{x:,.6g}") for x in x_ticks],
        [Tick(up(y), f"{y:,.6g}") for y in y_ticks],
        (across(0), up(0), across(1), up(1)) if unit_square else None,
    )


def area_chart(
    title: str, edges: np.ndarray, layers: dict[str, np.ndarray], x_label: str
) -> AreaChart:
    """The shares of `layers` in columns between `edges`.

    Args:
      edges: f64[N + 1], ascending, the ends of the columns.
      layers: by name f64[N], how much of each column it is.
    """
    total = np.maximum(sum(layers.values()), 1e-300)
    width = _ACROSS / (edges[-1] - edges[0])
    xs, below, found = _LEFT + (edges - edges[0]) * width, np.zeros(len(total)), []
    for name, layer in layers.items():
        share = layer / total
        tops = HEIGHT - _BOTTOM - (below + share) * _UP
        columns = [
            Column(
                *(
                    round(x, 2),
                    round(top, 2),
                    round(after - x, 2),
                    round(part * _UP, 2),
                ),
                text=f"{100 * part:.3g} % from {start:.4g} to {end:.4g}",
            )
            for x, after, top, part, start, end in zip(
                *(x.tolist() for x in (xs[:-1], xs[1:], tops, share)),
                *(x.tolist() for x in (edges[:-1], edges[1:])),
                strict=True,
            )
        ]
        found.append((name, columns))
        below = below + share
    whole = sum(float(each.sum()) for each in layers.values()) or 1.0
    about = (f"{n} {100 * float(x.sum()) / whole:.3g} %" for n, x in layers.items())
    return AreaChart(
        title,
        x_label,
        found,
        [
            Tick(round(_LEFT + (x - edges[0]) * width, 2), f"{x:,.6g}")
            for x in _round_ticks(float(edges[0]), float(edges[-1]))
        ],
        [Tick(HEIGHT - _BOTTOM - y / 100 * _UP, f"{y}") for y in (0, 25, 50, 75, 100)],
        "of the whole " + ", ".join(about),
    )


def _bounds(values: tuple[float, ...]) -> tuple[float, float]:
    """The least and the largest value, apart from each other."""
    low, high = min(values), max(values)
    if high - low > 1e-9 * max(abs(low), abs(high), 1e-30):
        return low, high
    margin = abs(low) / 2 or 1.0
    return low - margin, high + margin


def _round_ticks(low: float, high: float, is_integer: bool = False) -> list[float]:
    """Round numbers within [low, high], some `_TICKS` of them, at least two."""
    step = _round_step((high - low) / _TICKS)
    if is_integer:
        step = max(1.0, step)
    while True:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last > first or (is_integer and last == first):
            return [round(i * step, 12) for i in range(first, last + 1)]
        step /= 2


def _round_step(step: float) -> float:
    """The nearest of 1, 2 and 5 times a power of ten that is not below `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= step * (1 - 1e-9))
