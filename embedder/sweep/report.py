"""What a finished sweep tells its user: the best trials, if they are better, and a
picture of all."""

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embedder.disk.files import atomic_file
from embedder.errors import install_command, is_installed
from embedder.sweep.folder import SweepFolder
from embedder.sweep.space import Choices, Range
from embedder.sweep.sweep import Outcome
from embedder.sweep.trials import Result

_SHOWN = 10  # trials; trials.csv has all
_FADED = "0.82"  # grey of trials that were dropped
_log = logging.getLogger(__name__)


def draw_picture(workdir: Path, outcome: Outcome) -> None:
    """Draws trials.svg, or logs that matplotlib is missing."""
    if not is_installed("matplotlib"):
        _log.info("trials.svg is not drawn: %s.", install_command("sweep"))
        return
    path = SweepFolder(workdir).picture
    try:
        _draw(path, outcome)
    except OSError as error:
        _log.warning("%s is not written: %s.", path, error.strerror or error)


def lines(outcome: Outcome) -> Iterator[str]:
    """The best trials and the given settings, a line each, and what follows."""
    shown = outcome.results[:_SHOWN]
    first = next(each for each in outcome.results if each.trial.number == 0)
    for result in shown if first in shown else [*shown, first]:
        yield f"{_described(result, outcome)}: {_settings(result)}"
    yield _conclusion(outcome.results[0], first, outcome)


def _conclusion(best: Result, first: Result, outcome: Outcome) -> str:
    if best is first:
        return "No trial is better than the settings as given."
    if first.score is None:
        return f"Trial {best.trial.number} is the best; the settings as given diverged."
    assert best.score is not None, "a sweep of diverged trials only raises"
    by = best.score - first.score
    text = (
        f"Trial {best.trial.number} is the best: {outcome.score.name} is better by "
        f"{by:.4g} than with the settings as given"
    )
    if best.spread is None or first.spread is None:
        advice = "--replicas 3 in another --workdir tells how much of that is chance."
        return f"{text}. {advice}"
    error = math.sqrt(
        best.spread**2 / len(best.scores) + first.spread**2 / len(first.scores)
    )
    if by < 2 * error:
        return f"{text}, which is less than twice its standard error, {error:.2g}."
    return f"{text}, with a standard error of {error:.2g}."


def _described(result: Result, outcome: Outcome) -> str:
    score = outcome.score
    text = "no score"
    if result.score is not None:
        text = f"{score.name} {score.sign * result.score:.4f}"
    if result.spread is not None:
        text += f" +- {result.spread:.4f}"
    epochs = f"{result.epochs} epoch{'s' * (result.epochs != 1)}"
    return f"trial {result.trial.number}, {epochs}, {text}"


def _settings(result: Result) -> str:
    shown = ((name, x) for name, x in result.values.items() if x not in (None, ()))
    text = ", ".join(f"{name} {_shown(value)}" for name, value in shown)
    return f"as given ({text})" if result.trial.number == 0 else text


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _draw(path: Path, outcome: Outcome) -> None:
    """Draws the trials as SVG; needs matplotlib: parallel coordinates with an axis for
    each setting, and a last one for the score (Inselberg 1985, The Visual Computer 1).

    Lines of trials with the most epochs are coloured by their score, others are grey;
    that of the given settings, trial 0, is dashed.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    space, score = outcome.space, outcome.score
    shown = [each for each in outcome.results if each.score is not None]
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
    if not all(isinstance(x, int | float) and np.isfinite(x) for x in values):
        tried = dimension.values if isinstance(dimension, Choices) else ()
        known = [*dict.fromkeys(map(_tick, [*tried, *values]))]
        even = np.linspace(0, 1, len(known)) if len(known) > 1 else np.array([0.5])
        positions = dict(zip(known, even.tolist(), strict=True))
        ticks = [(position, text) for text, position in positions.items()]
        return np.array([positions[_tick(value)] for value in values]), ticks
    numbers = np.array(values, float)
    is_log = numbers.max() >= 20 * numbers.min()
    if isinstance(dimension, Range):
        is_log = dimension.is_log
    return _scaled(numbers, is_log and numbers.min() > 0)


def _tick(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "default" if value is None else f"{value}"


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
