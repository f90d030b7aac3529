"""Climbs the ladder and prints its lines, as a table or as JSON."""

import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from embedder.config import Config, nearest, options_of
from embedder.vectors.evaluate import evaluate_analogies, evaluate_pairs
from embedder.vectors.vectors import Vectors
from migration.parity.difference import Difference
from migration.parity.ladder import RUNGS, ladder, subject
from migration.parity.training import Trainer
from migration.parity.workers import Score

_COLUMNS = (
    *("rung", "dtype", "quantity", "values", "difference", "relative"),
    *("tolerance", "verdict"),
)

_WIDTH = 120  # columns, where there is no terminal


def compare(
    config: Config,
    source: str | None,
    *,
    words: int,
    seeds: Sequence[int],
    rungs: Sequence[str] = (),
    pairs: Sequence[Path] = (),
    analogies: Sequence[Path] = (),
    as_json: bool = False,
) -> bool:
    """Prints the ladder on the corpus at `source`; whether all of it passes.

    Raises:
      OSError, ValueError: bad input.
      FloatingPointError: training diverged, in either program.
    """
    _check(words, seeds, rungs)
    compared = subject(
        config, source, words=words, seeds=seeds, scores=scores(pairs, analogies)
    )
    lines, console = [], Console(stderr=True)
    with console.status("vocabulary") as status:
        for line in ladder(compared, rungs or None):
            lines.append(line)
            status.update(line.rung)
    about = {
        "corpus": compared.corpus.source,
        "words": int(compared.text.ids.size),
        "words_trained": sum(map(len, compared.sequences)),
        "tokens": len(compared.encoded.vocabulary),
    }
    if as_json:
        print(to_json(lines, about | {"settings": options_of(config)}))
    else:
        print(", ".join(f"{name} {value}" for name, value in about.items()))
        width = None if Console().is_terminal else _WIDTH
        print_table(lines, Console(width=width))
    return all(line.passed for line in lines)


def _check(words: int, seeds: Sequence[int], rungs: Sequence[str]) -> None:
    if words < 0:
        raise ValueError(f"`words` must be an integer >= 0, got {words}.")
    if not seeds or min(seeds) < 0:
        raise ValueError(f"`seeds` must be integers >= 0, got {tuple(seeds)}.")
    for rung in rungs:
        if rung not in RUNGS:
            raise ValueError(f"Unknown rung `{rung}`{nearest(rung, RUNGS)}")


def scores(pairs: Sequence[Path], analogies: Sequence[Path]) -> dict[str, Score]:
    """Measures of a trained model by similarity sets and by analogy questions."""

    def spearman(path: Path, trained: Trainer) -> float:
        return evaluate_pairs(_vectors(trained), path).spearman

    def accuracy(path: Path, trained: Trainer) -> float:
        return evaluate_analogies(_vectors(trained), path).total.accuracy

    measures = [(spearman, path) for path in pairs]
    measures += [(accuracy, path) for path in analogies]
    return {
        f"{path.name}, {measure.__name__}": functools.partial(measure, path)
        for measure, path in measures
    }


def _vectors(trained: Trainer) -> Vectors:
    return Vectors(trained.index_to_key, trained.vectors)


def print_table(lines: Sequence[Difference], console: Console) -> None:
    """Prints one row a line; a rung is named on its first row."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(_COLUMNS):
        table.add_column(
            column, no_wrap=True, justify="right" if 3 <= number <= 6 else "left"
        )
    rung = None
    for line in lines:
        table.add_row(*_cells(line, rung), style=None if line.passed else "red")
        rung = line.rung
    console.print(table)


def _cells(line: Difference, rung_before: str | None) -> tuple[str, ...]:
    return (
        "" if line.rung == rung_before else line.rung,
        line.dtype,
        line.quantity,
        f"{line.size:,}",
        _number(line.absolute),
        _number(line.relative),
        _number(line.tolerance),
        "pass" if line.passed else "FAIL",
    )


def _number(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def to_json(lines: Sequence[Difference], about: dict[str, Any]) -> str:
    """One JSON object: what was compared, its lines, and whether all pass.

    JSON has no infinity: it is null.
    """
    plain = [
        {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in line._asdict().items()
        }
        for line in lines
    ]
    passed = all(line.passed for line in lines)
    return json.dumps(about | {"passed": passed, "lines": plain}, indent=2)
