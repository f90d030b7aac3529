"""The trials of a sweep as parallel coordinates: an axis for each setting, and a last
one for the score.

Reference: Inselberg 1985, The Visual Computer 1.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embedder.disk.files import atomic_file
from embedder.errors import is_installed
from embedder.sweep.scores import Score
from embedder.sweep.space import Choices, Range, Space
from embedder.sweep.trials import Result

_FADED = "0.82"  # grey of trials that were dropped


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    return is_installed("matplotlib")


def draw(path: Path, space: Space, results: Sequence[Result], score: Score) -> None:
    """Draws `results`, the best first, as SVG; needs matplotlib.

    Lines of trials with the most epochs are coloured by their score, others are grey;
    that of the given settings, trial 0, is dashed.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    shown = [each for each in results if each.score is not None]
    names = [*space, score.name]
    scores = np.array([score.sign * (each.score or 0.0) for each in shown])
    columns = [_positions(name, space[name], shown) for name in space]
    columns.append(_scaled(scores, is_log=False))
    figure = Figure(figsize=(1.7 * len(names) + 1.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    most = max((each.epochs for each in shown), default=0)
    ends = [i for i, each in enumerate(shown) if each.epochs == most]
    order = np.argsort(np.argsort([shown[i].score or 0.0 for i in ends]))
    colors: dict[int, Any] = {
        i: colormaps["viridis"](0.9 * rank / max(len(ends) - 1, 1))
        for i, rank in zip(ends, order, strict=True)
    }
    for i in reversed(range(len(shown))):  # the best on top
        is_given = not shown[i].trial.settings
        axes.plot(
            range(len(names)),
            [positions[i] for positions, _ in columns],
            color=colors.get(i, _FADED),
            linewidth=2.5 if i == 0 else 1.3,
            linestyle="--" if is_given else "-",
            marker=".",
            label="as given" if is_given else ("best" if i == 0 else None),
        )
    for x, (_, ticks) in enumerate(columns):
        axes.axvline(x, color="0.5", linewidth=0.8, zorder=0)
        for position, text in ticks:
            axes.text(x + 0.03, position, text, fontsize=8, va="center", alpha=0.85)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.1, len(names) - 1 + 0.45)
    axes.set_ylim(-0.06, 1.06)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    with atomic_file(path) as part:
        figure.savefig(part, format="svg")


def _positions(
    name: str, dimension: Choices | Range, results: Sequence[Result]
) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Where each trial is on the axis of a setting, in [0, 1], and the ticks."""
    values = [each.values[name] for each in results]
    if not _are_numbers(values):
        tried = dimension.values if isinstance(dimension, Choices) else ()
        known = [*dict.fromkeys(map(_text, [*tried, *values]))]
        places = np.linspace(0, 1, len(known)) if len(known) > 1 else np.array([0.5])
        found = dict(zip(known, places.tolist(), strict=True))
        return np.array([found[_text(value)] for value in values]), [
            (place, text) for text, place in found.items()
        ]
    numbers = np.array(values, float)
    is_log = numbers.max() >= 20 * numbers.min()
    if isinstance(dimension, Range):
        is_log = dimension.is_log
    return _scaled(numbers, is_log and numbers.min() > 0)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "default" if value is None else f"{value}"


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(x, int | float) and np.isfinite(x) for x in values)


def _scaled(
    numbers: np.ndarray, is_log: bool
) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Numbers as positions in [0, 1], and ticks for the least, middle and largest."""
    if not len(numbers):
        return numbers, []
    on_axis = np.log(numbers) if is_log else numbers
    low, high = float(on_axis.min()), float(on_axis.max())
    if low == high:
        return np.full(len(numbers), 0.5), [(0.5, f"{numbers[0]:.4g}")]
    middle = np.exp((low + high) / 2) if is_log else (low + high) / 2
    ends = numbers.min(), middle, numbers.max()
    ticks = [(i / 2, f"{value:.4g}") for i, value in enumerate(ends)]
    return (on_axis - low) / (high - low), ticks
