"""What `evaluate` prints of a file: scores beside baselines, with intervals."""

import dataclasses
import math
from typing import Any, NamedTuple

from embedder.evaluation.intervals import Estimate
from embedder.vectors.evaluate import AnalogyScore

Scores = dict[str, Estimate]
"""Estimates by the names of scores; more is better."""


class Report(NamedTuple):
    """The scores of a run on a file."""

    test: str  # the flag that names the file
    file: str
    title: str  # how many cases there are, and what was left out
    counts: dict[str, int]  # the same numbers
    settings: dict[str, Any]
    model: str  # how the model scores
    scores: Scores
    baselines: dict[str, Scores]
    missing: dict[str, str]  # baseline -> why it has no scores
    sections: tuple[AnalogyScore, ...] = ()  # of analogies
    better: str = "counting"  # what is better than the model where a baseline is


def as_json(report: Report) -> dict[str, Any]:
    """The report for `json.dumps`; scores and bounds that are not finite are None."""
    return {
        "test": report.test,
        "file": report.file,
        "counts": report.counts,
        "settings": report.settings,
        "model": report.model,
        "scores": _plain(report.scores),
        "baselines": {name: _plain(x) for name, x in report.baselines.items()},
        "missing": report.missing,
        "better_baselines": {name: best for name, best, _ in _better(report)},
    } | ({"sections": _sections(report)} if report.sections else {})


def _sections(report: Report) -> list[dict[str, Any]]:
    return [dataclasses.asdict(section) for section in report.sections]


def _plain(scores: Scores) -> dict[str, dict[str, float | None]]:
    return {
        name: {
            key: value if math.isfinite(value) else None
            for key, value in estimate._asdict().items()
        }
        for name, estimate in scores.items()
    }


def lines(report: Report) -> list[str]:
    """The report as text: a row for the model, and one for each baseline."""
    rows = [[f"  {report.model}", *map(_shown, report.scores.values())]]
    for name, scores in report.baselines.items():
        rows.append([f"  {name}", *(_shown(scores[x]) for x in report.scores)])
    head = ["", *report.scores]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    found = [_section(report.file, each) for each in report.sections]
    found.append(f"{report.file}: {report.title}")
    for row in (head, *rows):
        cells = (x.ljust(width) for x, width in zip(row, widths, strict=True))
        found.append("  ".join(cells).rstrip())
    found += [f"  {name}: none, {why}" for name, why in report.missing.items()]
    return found + [f"  {text}" for _, _, text in _better(report)]


def _section(file: str, score: AnalogyScore) -> str:
    return (
        f"{file}: {score.name}: {100 * score.accuracy:.1f} %, {score.num_correct} of "
        f"{score.num_used} ({score.num_unknown} out of vocabulary)"
    )


def _shown(estimate: Estimate) -> str:
    value, lower, upper = estimate
    if math.isnan(lower):
        return f"{value:.3f}"
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"


def _better(report: Report) -> list[tuple[str, str, str]]:
    """Each score that a baseline has more of, the best baseline, and a line of text."""
    found = []
    for name, own in report.scores.items():
        best = max(
            report.baselines, key=lambda x: report.baselines[x][name], default=None
        )
        if best is None or not (other := report.baselines[best][name])[0] > own.value:
            continue
        text = f"{report.better} is better: {name} of {best} {other.value:.3f} > "
        text += f"{own.value:.3f}"
        if other.lower <= own.upper:
            text += ", but their intervals overlap"
        found.append((name, best, text))
    return found
