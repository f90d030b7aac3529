"""Runs side by side: settings that differ, scores, curves."""

import os
from pathlib import Path

from embedder.config import read_toml
from embedder.evaluation.score_table import score_rows
from embedder.report.page import Comparison, curves, results
from embedder.report.settings import different
from embedder.report.state import metrics_of, unfinished
from embedder.report.text import short
from embedder.run.score_file import read_scores
from embedder.run.workdir import Workdir


def compare(paths: list[Path]) -> Comparison:
    """The comparison of runs, finished or not; each has its own name."""
    runs = [Workdir(path) for path in paths]
    names = _names(paths)
    configs = [read_toml(run.config) for run in runs]
    metrics = [
        metrics_of(run, config) for run, config in zip(runs, configs, strict=True)
    ]
    found = [
        dict(results(each, config.run.epochs, config.run.patience, unfinished(run)))
        | {f"{name} of the vectors": x for name, x in score_rows(read_scores(run))}
        for run, each, config in zip(runs, metrics, configs, strict=True)
    ]
    rows = dict.fromkeys(name for each in found for name in each)
    return Comparison(
        names,
        different(configs),
        [(name, [each.get(name, "–") for each in found]) for name in rows],
        curves(list(zip(names, metrics, strict=True))),
    )


def _names(paths: list[Path]) -> list[str]:
    """The names of folders, or where two are the same their paths."""
    names = [path.resolve().name for path in paths]
    if len({*names}) < len(names):
        names = [os.fspath(path) for path in paths]
    return [short(name) for name in names]
