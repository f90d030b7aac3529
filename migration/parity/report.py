"""Runs the parity ladder and prints its lines, as a table or as JSON."""

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from embedder import evaluate_analogies, evaluate_pairs
from embedder.base.terminal import say, shown
from embedder.config import Config, nearest, options_of, with_options
from embedder.errors import InputError, InputNotFoundError
from embedder.vectors.vectors import Vectors
from migration.parity.difference import Difference
from migration.parity.encoder import ENCODER_STAGES, encoder_ladder
from migration.parity.encoder_subject import encoder_subject
from migration.parity.ladder import STAGES, ladder, subject
from migration.parity.training import Trainer
from migration.parity.workers import Score

_COLUMNS = (
    *("stage", "dtype", "quantity", "values", "difference", "relative"),
    *("tolerance", "verdict"),
)

_WIDTH = 120  # columns, without a terminal


def compare(
    config: Config,
    source: str | None,
    *,
    words: int,
    seeds: Sequence[int],
    stages: Sequence[str] = (),
    pairs: Sequence[Path] = (),
    analogies: Sequence[Path] = (),
    as_json: bool = False,
) -> bool:
    """Runs and prints the ladder on the data at `source`; returns whether all passes.

    Args:
      words: number of words, or of examples, to train on; 0: all.
      seeds: of the whole trainings.
      stages: which to run; (): all.
      pairs: similarity sets to evaluate whole trainings on.
      analogies: files of analogy questions, for the same.

    Raises:
      InputError, OSError: bad input.
      FloatingPointError: training diverged, in either program.
    """
    is_encoder = config.run.model == "encoder"
    known = ENCODER_STAGES if is_encoder else STAGES
    _check(config, words, seeds, stages, known, (*pairs, *analogies))
    if is_encoder:
        examples = encoder_subject(config, source, words)
        about = {
            "data": source,
            "examples": len(examples.examples.labels),
            "classes": len(examples.examples.classes),
        }
        differences = encoder_ladder(examples, stages or None)
    else:
        compared = subject(
            config, source, words=words, seeds=seeds, scores=scores(pairs, analogies)
        )
        about = {
            "corpus": compared.corpus.source,
            "words": int(compared.text.ids.size),
            "words_trained": sum(map(len, compared.sequences)),
            "tokens": len(compared.encoded.vocabulary),
        }
        differences = ladder(compared, stages or None)
    return _report(differences, about, config, as_json)


def _report(
    differences: Iterator[Difference], about: dict, config: Config, as_json: bool
) -> bool:
    """Computes and prints the lines; returns whether all pass."""
    lines, console, passed = [], Console(stderr=True), False
    try:
        with console.status("reading") as status:
            for line in differences:
                lines.append(line)
                status.update(line.stage)
        passed = all(line.passed for line in lines)
    finally:  # after an error, the lines before it are printed
        about["passed"] = passed
        if as_json:
            print(to_json(lines, about | {"settings": options_of(config)}))
        else:
            say(", ".join(f"{name} {value}" for name, value in about.items()))
            width = None if Console().is_terminal else _WIDTH
            print_table(lines, Console(width=width))
    return passed


def _check(
    config: Config,
    words: int,
    seeds: Sequence[int],
    stages: Sequence[str],
    known: Mapping[str, object],
    files: Sequence[Path],
) -> None:
    if config.run.bootstrap:
        raise InputError(
            "`bootstrap` must be False for parity, got True. Its stage `bootstrap` "
            "trains on resamples."
        )
    if config.run.replicas > 1:
        raise InputError(
            f"`replicas` must be 1 for parity, got {config.run.replicas}. Its stage "
            "`replicas` trains several models."
        )
    if share := options_of(config).get("holdout"):
        raise InputError(f"`holdout` must be 0 for parity, got {share}.")
    for name in ("init_from", "freeze"):
        if path := options_of(config).get(name):
            raise InputError(
                f"`{name}` must be empty for parity, got {path!r}. Its stage `row "
                "factors` starts from vectors, and freezes rows."
            )
    if share := options_of(config).get("replay"):
        raise InputError(
            f"`replay` must be 0 for parity, got {share}. Its stage `model update` "
            "replays a text."
        )
    if patience := config.run.patience:
        raise InputError(
            f"`patience` must be 0 for parity, got {patience}: the oracle trains all "
            "epochs."
        )
    if isinstance(window := options_of(config).get("window"), str):
        raise InputError(
            "`window` must be an integer for parity: the NumPy trainer has no blocks "
            f"of whole sessions, got {window!r}."
        )
    if column := options_of(config).get("weights"):
        raise InputError(
            f"`weights` must be empty for parity, got {column!r}: the oracle has no "
            "weights of sessions."
        )
    if options_of(config).get("attributes"):
        raise InputError(
            "`attributes` must be empty for parity: the oracle has none. With "
            "`subwords` rows that tokens share are compared."
        )
    if words < 0:
        raise InputError(f"`words` must be an integer >= 0, got {words}.")
    if not seeds:
        raise InputError("`seeds` must be one integer or more, got none.")
    for seed in seeds:
        with_options(config, seed=seed)
    for stage in stages:
        if stage not in known:
            raise InputError(
                f"Unknown stage `{stage}`{nearest(stage, known)} The stages are: "
                f"{', '.join(known)}."
            )
    for file in files:
        if not file.is_file():
            raise InputNotFoundError(f"File {file} does not exist.")


def scores(pairs: Sequence[Path], analogies: Sequence[Path]) -> dict[str, Score]:
    """Name -> function that evaluates a trained model on one file."""

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
    """Prints a row for each line; the name of a stage only on its first row."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(_COLUMNS):
        table.add_column(
            column, no_wrap=True, justify="right" if 3 <= number <= 6 else "left"
        )
    stage = None
    for line in lines:
        table.add_row(*_cells(line, stage), style=None if line.passed else "red")
        stage = line.stage
    console.print(table)


def _cells(line: Difference, stage_before: str | None) -> tuple[str, ...]:
    return (
        "" if line.stage == stage_before else line.stage,
        line.dtype,
        escape(shown(line.quantity)),
        f"{line.size:,}",
        _number(line.absolute),
        _number(line.relative),
        _number(line.tolerance),
        "pass" if line.passed else "FAIL",
    )


def _number(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def to_json(lines: Sequence[Difference], about: dict[str, Any]) -> str:
    """One JSON object; infinity and NaN become null."""
    report = about | {"lines": [_finite(line._asdict()) for line in lines]}
    report["settings"] = _finite(report["settings"])
    return json.dumps(report, indent=2, allow_nan=False)


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
