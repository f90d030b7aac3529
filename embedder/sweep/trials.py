"""Trials of a sweep and their results, in memory and in trials.jsonl and trials.csv."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from embedder.disk.files import atomic_file
from embedder.errors import InputError
from embedder.sweep.space import Settings


class Trial(NamedTuple):
    """Settings to try; number 0 are the given ones."""

    number: int
    settings: Settings


class Result(NamedTuple):
    """The score of a trial after some epochs."""

    trial: Trial
    epochs: int
    scores: tuple[float, ...]  # of each replica; (): it diverged
    values: Settings  # of all that is tried, resolved; None: an optimizer's default
    seconds: float  # of its share of the models trained beside it

    @property
    def score(self) -> float | None:
        """The mean over its replicas; None: it diverged."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over its replicas; None of fewer than two."""
        if len(self.scores) < 2:
            return None
        assert self.score is not None
        squares = sum((x - self.score) ** 2 for x in self.scores)
        return math.sqrt(squares / (len(self.scores) - 1))


def read_results(path: Path) -> list[Result]:
    """The results in trials.jsonl; none if it is missing.

    Raises:
      InputError: the file is damaged.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [_result(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}): give another --workdir, or "
            "--overwrite to start anew."
        ) from error


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Writes trials.jsonl, a line for each result."""
    lines = []
    for each in results:
        trial = {"trial": each.trial.number, "settings": each.trial.settings}
        others = {name: x for name, x in each._asdict().items() if name != "trial"}
        lines.append(json.dumps(trial | others) + "\n")
    with atomic_file(path) as part:
        part.write_text("".join(lines), encoding="utf-8")


def newest(results: Sequence[Result]) -> list[Result]:
    """The result of each trial after most epochs, the best trial first.

    Trials with more epochs come before those with fewer; those that diverged are last.
    """
    by_number: dict[int, Result] = {}
    for each in sorted(results, key=lambda result: result.epochs):
        by_number[each.trial.number] = each

    def rank(result: Result) -> tuple:
        score = -math.inf if result.score is None else result.score
        return result.score is None, -result.epochs, -score, result.trial.number

    return sorted(by_number.values(), key=rank)


def table(results: Sequence[Result], score: str, sign: int) -> pl.DataFrame:
    """A row for each trial, the best first: number, settings, epochs, score, seconds.

    Args:
      score: name of the score's column.
      sign: -1 of a score that is negated, since less is better.
    """
    ranked = newest(results)
    columns: dict[str, list[Any]] = {"trial": [each.trial.number for each in ranked]}
    for name in ranked[0].values if ranked else ():
        values = (each.values[name] for each in ranked)
        columns[name] = [
            " ".join(map(str, x)) if isinstance(x, tuple | list) else x for x in values
        ]
    columns["epochs"] = [each.epochs for each in ranked]
    scores = (each.score for each in ranked)
    columns[score] = [None if x is None else sign * x for x in scores]
    if any(each.spread is not None for each in ranked):
        columns["standard deviation"] = [each.spread for each in ranked]
    columns["seconds"] = [round(each.seconds, 2) for each in ranked]
    return pl.DataFrame(columns, strict=False)


def _result(record: dict[str, Any]) -> Result:
    trial = Trial(int(record["trial"]), _settings(record["settings"]))
    return Result(
        trial,
        int(record["epochs"]),
        tuple(map(float, record["scores"])),
        _settings(record["values"]),
        float(record["seconds"]),
    )


def _settings(record: dict[str, Any]) -> Settings:
    return {n: tuple(x) if isinstance(x, list) else x for n, x in record.items()}
