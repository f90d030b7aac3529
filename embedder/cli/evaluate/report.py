"""What `evaluate` prints of a file: scores beside baselines, with intervals."""

import dataclasses
import math
from typing import Any, NamedTuple

from embedder.metrics.intervals import Estimate
from embedder.metrics.scores import SCORES
from embedder.metrics.words import AnalogyScore

Scores = dict[str, Estimate]
"""Estimates by the headings of scores."""


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
    mixture: Scores | None = None  # of the model and of counting


def as_json(report: Report) -> dict[str, Any]:
    """The report for `json.dumps`; scores and bounds that are not finite are None."""
    sections = [dataclasses.asdict(section) for section in report.sections]
    return {
        "test": report.test,
        "file": report.file,
        "counts": report.counts,
        "settings": report.settings,
        "model": report.model,
        "scores": _plain(report.scores),
        **({} if report.mixture is None else {"mixture": _plain(report.mixture)}),
        "baselines": {name: _plain(x) for name, x in report.baselines.items()},
        "missing": report.missing,
        "better_baselines": {name: best for name, best, _ in _better(report)},
    } | ({"sections": sections} if sections else {})


def _plain(scores: Scores) -> dict[str, dict[str, float | None]]:
    return {name: plain(estimate) for name, estimate in scores.items()}


def plain(estimate: Estimate) -> dict[str, float | None]:
    """An estimate for `json.dumps`; what is not finite is None."""
    return {
        name: value if math.isfinite(value) else None
        for name, value in estimate._asdict().items()
    }


def lines(report: Report) -> list[str]:
    """The report as text: a row for the model, and one for each baseline."""
    rows = [[f"  {report.model}", *map(estimate_text, report.scores.values())]]
    mixture = {} if report.mixture is None else {"mixture": report.mixture}
    for name, scores in (mixture | report.baselines).items():
        rows.append([f"  {name}", *(estimate_text(scores[x]) for x in report.scores)])
    head = ["", *report.scores]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    texts = [
        f"{report.file}: {x.name}: {100 * x.accuracy:.1f} %, {x.num_correct} of "
        f"{x.num_used} ({x.num_unknown} out of vocabulary)"
        for x in report.sections
    ]
    texts.append(f"{report.file}: {report.title}")
    for row in (head, *rows):
        cells = (x.ljust(width) for x, width in zip(row, widths, strict=True))
        texts.append("  ".join(cells).rstrip())
    texts += [f"  {name}: none, {why}" for name, why in report.missing.items()]
    return texts + [f"  {text}" for _, _, text in _better(report)]


def estimate_text(estimate: Estimate) -> str:
    """A value with its bounds, if it has any."""
    value, lower, upper = estimate
    if math.isnan(lower):
        return f"{value:.3f}"
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"


def _better(report: Report) -> list[tuple[str, str, str]]:
    """Each score that a baseline has more of, the best baseline, and a line of text."""
    better = []
    signs = {heading: score.sign for score in SCORES for heading in score.headings}
    for name, value in report.scores.items():
        sign = signs.get(name, 1)
        mixed = value if report.mixture is None else report.mixture[name]
        own = max(_raised(value, sign), _raised(mixed, sign))
        by_model = report.baselines.items()
        others = {model: _raised(scores[name], sign) for model, scores in by_model}
        best = max(others, key=lambda x: others[x], default=None)
        if best is None or not (other := others[best]).value > own.value:
            continue
        text = f"{report.better} is better: {name} of {best} {sign * other.value:.3f} "
        text += f"{'>' if sign > 0 else '<'} {sign * own.value:.3f}"
        if other.lower <= own.upper:
            text += ", but their intervals overlap"
        better.append((name, best, text))
    return better


def _raised(score: Estimate, sign: int) -> Estimate:
    """A score, so that more is better."""
    value, lower, upper = score
    return score if sign > 0 else Estimate(-value, -upper, -lower)
