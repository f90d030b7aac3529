"""Where the time of a run went: waiting for input, updates, scores."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from embedder.engine import stopwatch
from embedder.report.chart import Chart, area_chart
from embedder.report.metrics import Metrics

_NAMES = {
    "compile": "compiling, the first call",
    "input": "waiting for input",
    "evaluation": "scores",
    "other": "saving and others",
}
ACTIVITIES = {f"{each}_seconds": _NAMES[each] for each in stopwatch.ACTIVITIES}
"""What is timed, by the names of its numbers in the files; the rest are updates."""
UPDATES = "updates"
_COLUMNS = 80  # of a picture

ProgressLine = dict[str, float]
"""A line of progress.jsonl."""


def read_progress(path: Path) -> tuple[ProgressLine, ...]:
    """Lines of progress.jsonl without those that are damaged or half written; () if
    there is no such file, as before the first update."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    lines = map(_line, data.splitlines())
    return tuple(line for line in lines if line is not None)


def _line(data: bytes) -> ProgressLine | None:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    numbers = {str(n): float(x) for n, x in values.items() if _is_finite(x)}
    return numbers if "updates" in numbers else None


def _is_finite(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < 1e300 and math.isfinite(value)  # type: ignore


def time_spent(
    metrics: Metrics, progress: Sequence[ProgressLine]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Times of a run, f64[N] in seconds from its start, first 0, and the seconds that
    each activity took up to then, f64[N].

    The parts of a run that was resumed follow each other. N is 1 if no line has times
    of activities, as in files of earlier versions.
    """
    needed = {"updates", "seconds", *ACTIVITIES}
    lines: list[Mapping[str, float | None]] = [*metrics.lines, *progress]
    known = [
        {name: float(line[name] or 0.0) for name in needed}
        for line in lines
        if needed <= {*line}
    ]
    known.sort(key=lambda line: (line["updates"], line["seconds"]))
    rows = [np.zeros(1 + len(ACTIVITIES))]
    offset, last = rows[0], 0.0
    for line in known:
        row = np.array([line["seconds"], *(line[name] for name in ACTIVITIES)])
        if row[0] < last:  # a part that began anew
            offset = rows[-1]
        last = row[0]
        rows.append(np.maximum(rows[-1], offset + row))
    seconds, *spent = np.array(rows).T
    activities = dict(zip(ACTIVITIES.values(), spent, strict=True))
    updates = np.maximum(0, seconds - np.sum(spent, axis=0))
    return seconds, {UPDATES: updates, **activities}


def timeline(
    metrics: Metrics, progress: Sequence[ProgressLine]
) -> tuple[Chart | None, dict[str, float]]:
    """The share of each activity over the time of a run, and in the whole time, in
    [0, 1]; None and {}: it is not known."""
    seconds, spent = time_spent(metrics, progress)
    if seconds[-1] <= 0:
        return None, {}
    edges = np.unique(seconds)
    if len(edges) > _COLUMNS:
        edges = np.linspace(0, seconds[-1], _COLUMNS + 1)
    layers = {
        name: np.maximum(0, np.diff(np.interp(edges, seconds, each)))
        for name, each in spent.items()
        if each[-1] > 0
    }
    chart = area_chart("time, % by activity", edges, layers, "seconds")
    return chart, {name: float(x[-1] / seconds[-1]) for name, x in spent.items()}
