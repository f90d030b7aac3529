"""A picture of an evaluation: calibration, and accuracy against rejection."""

from pathlib import Path
from typing import Any

import numpy as np

from embedder.disk.files import atomic_file, name_file_in_errors
from embedder.encoders.evaluation import Evaluation
from embedder.errors import InputError, check_installed
from embedder.metrics.uncertainty import PERCENTS, Rejection, Reliability

_SUFFIXES = (".png", ".svg")
_BLUE, _LIGHT, _RED, _GREY = "#3b6fb6", "#9dbbe3", "#b8452e", "#6b6b6b"
_FEW = 20  # examples of a bin, whose accuracy is uncertain


def check_picture(path: Path) -> None:
    """Checks, before anything slow, that a picture can be drawn to `path`.

    Raises:
      InputError: its suffix is another than .png and .svg, or matplotlib is missing.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"`picture` must end in {' or '.join(_SUFFIXES)}, got {path}.")
    check_installed("matplotlib", "`picture`")


def draw(evaluation: Evaluation, path: Path) -> None:
    """Draws a reliability diagram beside accuracy against rejection, atomically.

    Left: accuracy of the examples in each bin of confidence, see
    `uncertainty.Reliability`, and below how many these are. Right: accuracy of the
    examples that remain when the most uncertain are rejected.

    Raises:
      InputError: as `check_picture`.
    """
    check_picture(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings = rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.hashsalt": "embedder",  # the same bytes each time
        }
    )
    with settings:
        figure = Figure(figsize=(8.4, 4.2), dpi=150, layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(3.2, 1))
        top = figure.add_subplot(grid[0, 0])
        _draw_reliability(top, evaluation.reliability)
        sizes = evaluation.reliability.num_examples
        _draw_sizes(figure.add_subplot(grid[1, 0], sharex=top), sizes)
        _draw_rejection(figure.add_subplot(grid[:, 1]), evaluation.rejection)
        figure.suptitle(_title(evaluation), fontsize=9)
        kind = path.suffix.lower()[1:]
        metadata = {"Date": None} if kind == "svg" else None
        with name_file_in_errors(path), atomic_file(path) as part:
            figure.savefig(part, format=kind, metadata=metadata)


def _title(evaluation: Evaluation) -> str:
    num = evaluation.num_networks
    networks = "" if num == 1 else f", {num} networks"
    return (
        f"{evaluation.num_examples:,} examples{networks}: accuracy "
        f"{evaluation.accuracy:.3f}, ECE "
        f"{evaluation.reliability.calibration_error:.3f}, negative log likelihood "
        f"{evaluation.negative_log_likelihood:.3f}"
    )


def _draw_reliability(axes: Any, bins: Reliability) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    sizes = bins.num_examples
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--", zorder=3)
    _draw_bins(axes, bins, sizes >= _FEW, 1.0)
    _draw_bins(axes, bins, (sizes > 0) & (sizes < _FEW), 0.3)
    axes.set(xlim=(0, 1), ylim=(0, 1.03), ylabel="accuracy", title="Calibration")
    axes.tick_params(labelbottom=False)
    handles = [
        Patch(color=_LIGHT, label="accuracy"),
        Line2D([], [], color=_RED, marker="o", ms=3.5, label="mean confidence, gap"),
    ]
    if sizes[sizes > 0].min() < _FEW:
        pale = Patch(color=_LIGHT, alpha=0.3, label=f"fewer than {_FEW} examples")
        handles.append(pale)
    axes.legend(handles=handles, loc="upper left", frameon=False, fontsize=8)


def _draw_bins(axes: Any, bins: Reliability, which: np.ndarray, alpha: float) -> None:
    """Accuracy of the bins `which`, bool[B], as bars; mean confidence as points."""
    num = len(which)
    confidence, accuracy = bins.confidence[which], bins.accuracy[which]
    lower, look = np.flatnonzero(which) / num, {"alpha": alpha, "zorder": 4}
    axes.bar(
        *(lower, accuracy, 1 / num),
        align="edge",
        color=_LIGHT,
        edgecolor="white",
        alpha=alpha,
    )
    axes.vlines(confidence, accuracy, confidence, color=_RED, linewidth=1.5, **look)
    axes.plot(confidence, confidence, "o", color=_RED, markersize=3.5, **look)


def _draw_sizes(axes: Any, sizes: np.ndarray) -> None:
    """How many examples each bin has, by a bar on a logarithmic axis and a number."""
    at, num = np.flatnonzero(sizes), len(sizes)
    axes.bar(at / num, sizes[at], 1 / num, align="edge", color="#c9cdd4", ec="white")
    for b in at:
        axes.text(
            *((b + 0.5) / num, sizes[b] * 1.15, _short(sizes[b])),
            ha="center",
            va="bottom",
            fontsize=6.5,
            color=_GREY,
        )
    axes.set_yscale("log")
    axes.set(ylim=(0.7, 6 * sizes.max()), xlabel="confidence", ylabel="examples")
    axes.minorticks_off()


def _short(number: int) -> str:
    """A number in the width of a bin: 12345 as 12k."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number // 1_000_000}M"


def _draw_rejection(axes: Any, curve: Rejection) -> None:
    percents = np.array(PERCENTS)
    accuracy = np.array([curve.at(each) for each in PERCENTS])
    few = max(1, len(curve.rejected) // 100)  # examples: their accuracy is noise
    shown = slice(0, len(curve.rejected) - few + 1)
    axes.plot(100 * curve.rejected[shown], curve.accuracy[shown], color=_BLUE)
    axes.plot(percents, accuracy, "o", color=_BLUE, markersize=4)
    for percent, share in zip(percents, accuracy, strict=True):
        axes.annotate(
            f"{share:.3f}",
            (percent, share),
            (4, -11),
            textcoords="offset points",
            fontsize=8,
            color=_GREY,
        )
    axes.axhline(curve.accuracy[0], color=_GREY, linewidth=1, linestyle="--")
    least = min(curve.accuracy[shown].min(), accuracy.min())
    margin = max(0.02, 0.15 * (1 - least))
    axes.set(xlim=(-2, 102), ylim=(least - margin, 1 + margin / 3))
    axes.set(xlabel="most uncertain examples rejected, %", title="Rejection by entropy")
    axes.set_ylabel("accuracy of the others")
