"""What the verb `evaluate` does with an encoder."""

import json
from pathlib import Path
from typing import Any

from embedder.encoders.evaluation import Evaluated, as_json, evaluate_run, report
from embedder.encoders.picture import check_picture, draw
from embedder.errors import InputError
from embedder.run.workdir import check_target
from embedder.scoring import report as scores
from embedder.scoring.retrieval import score_retrieval
from embedder.terminal import say, shown

_SHOWN = 5  # classes that are named


def evaluate(
    run: Path, examples: str | None, picture: Path | None, seed: int, print_json: bool
) -> None:
    """Prints the evaluation of a run, or of an encoder file; draws it to `picture`.

    Raises:
      InputError: see `evaluate_run` and `check_picture`, or a picture is wanted of
        classes that the encoder does not have.
    """
    if picture is not None:
        check_target(picture, "`picture`")
        check_picture(picture)
    found = evaluate_run(run, examples, seed)
    if picture is not None:
        if found.predictions is None:
            raise InputError(
                f"`picture` is of accuracy, and {_untrained(found)} not trained on."
            )
        draw(found.predictions, picture)
    retrieval = score_retrieval(found, seed)
    if print_json:
        lines = [json.dumps(_as_json(found) | {"retrieval": scores.as_json(retrieval)})]
    else:
        lines = [*_lines(found), *scores.lines(retrieval)]
    for line in lines:
        say(shown(line))


def _lines(found: Evaluated) -> list[str]:
    if found.predictions is not None:
        return report(found.predictions)
    return [
        f"{len(found.labels)} {found.examples}: {_untrained(found)} not trained on, so "
        "there is no accuracy."
    ]


def _as_json(found: Evaluated) -> dict[str, Any]:
    about = {
        "examples": len(found.labels),
        "networks": found.num_networks,
        "untrained_classes": [*found.untrained],
    }
    return about if found.predictions is None else about | as_json(found.predictions)


def _untrained(found: Evaluated) -> str:
    """The classes that the encoder does not have, up to the verb."""
    num, names = len(found.untrained), ", ".join(found.untrained[:_SHOWN])
    more = ", ..." if num > _SHOWN else ""
    if num == 1:
        return f"class {names} was"
    return f"{num} classes ({names}{more}) were"
