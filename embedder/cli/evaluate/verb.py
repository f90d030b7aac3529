"""The verb `evaluate`: scores on files, or the evaluation of an encoder."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from embedder.api.results import finished_run, is_encoder_run, opened_run, vectors_of
from embedder.base.terminal import say, shown
from embedder.cli.arguments import Evaluate
from embedder.cli.evaluate.report import Report, as_json, lines
from embedder.errors import InputError

_TESTS = "sessions", "edges", "labels", "pairs", "analogies", "text"
_TABLES_ONLY = "sessions", "edges", "labels", "text"
_NEEDS = {
    **dict.fromkeys(("session", "item", "order", "items", "user"), "sessions"),
    **dict.fromkeys(("seen", "topn", "score_by", "decay"), "sessions"),
    **dict.fromkeys(("targets", "new_items"), "sessions"),
    **dict.fromkeys(("source", "target", "similarity", "non_edges"), "edges"),
    **dict.fromkeys(("train_share", "splits"), "labels"),
    "restrict_vocab": "analogies",
}
"""Flags that apply only with another."""


def evaluate(args: Evaluate) -> None:
    """Prints the scores on each file, or the evaluation of an encoder.

    Raises:
      InputError: the flags do not fit, or a file has nothing to score.
    """
    tests = [name for name in _TESTS if getattr(args, name)]
    if args.seed < 0:
        raise InputError(f"`seed` must be an integer >= 0, got {args.seed}.")
    _check_flags(args, tests)
    needs_model = not tests or "sessions" in tests or "text" in tests
    with opened_run(args.run, with_model=needs_model) as run:
        _check_run(args, tests, run)
        if tests:
            for report in _reports(args, run):
                text = [json.dumps(as_json(report))] if args.json else lines(report)
                for line in text:
                    say(shown(line))
        else:
            from embedder.cli.evaluate.encoder import evaluate

            evaluate(run, args.examples, args.picture, args.seed, args.json)


def _check_flags(args: Evaluate, tests: list[str]) -> None:
    for name in _changed(args):
        if name in _NEEDS and _NEEDS[name] not in tests:
            raise InputError(f"`{name}` applies only with --{_NEEDS[name]} FILE.")
        if tests and name in ("examples", "picture"):
            raise InputError(
                f"`{name}` is for the evaluation of an encoder: leave out --{tests[0]}."
            )


def _check_run(args: Evaluate, tests: list[str], run: Path) -> None:
    of_tables = [name for name in tests if name in _TABLES_ONLY]
    if of_tables and is_encoder_run(run):
        raise InputError(
            f"`{of_tables[0]}` applies only to a run of tokens or to a file of "
            f"vectors, got {run}, a run of an encoder."
        )
    is_file = finished_run(run) is None  # one is of an encoder with examples for it
    if tests or (args.examples is not None if is_file else is_encoder_run(run)):
        return
    for name in ("examples", "picture", "json"):
        if name in _changed(args):
            raise InputError(
                f"`{name}` applies only to a run of an encoder, got {run}."
            )
    raise InputError(
        "Give at least one of --sessions, --edges, --labels, --pairs, --analogies and "
        "--text with a FILE; for the file of an encoder --examples DATA."
    )


def _changed(args: Evaluate) -> Iterator[str]:
    """The names of the flags that do not have their defaults."""
    for field in dataclasses.fields(args):
        if field.default is not dataclasses.MISSING:
            if getattr(args, field.name) != field.default:
                yield field.name


def _reports(args: Evaluate, run: Path) -> Iterator[Report]:
    """A report for each file."""
    vectors = vectors_of(run, args.key_errors)
    if args.sessions is not None:
        from embedder.cli.evaluate.sessions import score_sessions

        yield from score_sessions(args, run, vectors, args.sessions)
    if args.edges is not None:
        from embedder.cli.evaluate.graphs import score_edges

        yield score_edges(args, run, vectors, args.edges)
    if args.labels is not None:
        from embedder.cli.evaluate.graphs import score_labels

        yield score_labels(args, run, vectors, args.labels)
    if args.pairs or args.analogies or args.text is not None:
        from embedder.cli.evaluate.words import word_reports

        yield from word_reports(args, run, vectors)
