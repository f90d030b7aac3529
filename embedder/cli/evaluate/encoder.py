"""What the verb `evaluate` does with an encoder."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from embedder.base.limits import NoRoomError, check_room
from embedder.base.terminal import say, shown
from embedder.cli.evaluate.report import Report, Scores, as_json, lines, plain
from embedder.disk.workdir import check_target
from embedder.encoders.evaluation import Evaluated, Evaluation, evaluate_run
from embedder.encoders.picture import check_picture, draw
from embedder.errors import InputError
from embedder.metrics.intervals import RESAMPLES, Estimate
from embedder.metrics.retrieval import choose_queries
from embedder.metrics.scores import Score, measured, scores_on
from embedder.metrics.uncertainty import PERCENTS

_SHOWN = 5  # classes that are named
_COPIES = 2  # of the features in float64, while they are scored
_INPUT = "input features"
_CONSTANT = {
    "accuracy": (
        *("most frequent class", "most_frequent"),
        "the most frequent class is as accurate",
    ),
    "negative_log_likelihood": (
        *("frequencies of the classes", "frequencies"),
        "the frequencies of the classes are as likely",
    ),
}
"""Score -> the best constant prediction by it, its name in `Intervals`, and what is
said where it is as good."""


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
    evaluated = evaluate_run(run, examples, seed)
    if picture is not None:
        if evaluated.predictions is None:
            raise InputError(
                f"`picture` is of accuracy, and {_untrained(evaluated)} not trained on."
            )
        draw(evaluated.predictions, picture)
    retrieval = score_retrieval(evaluated, seed)
    if print_json:
        printed = [
            json.dumps(_as_json(evaluated, seed) | {"retrieval": as_json(retrieval)})
        ]
    else:
        printed = [*_lines(evaluated, seed), *lines(retrieval)]
    for line in printed:
        say(shown(line))


def _lines(evaluated: Evaluated, seed: int) -> list[str]:
    if evaluated.predictions is not None:
        return evaluation_lines(evaluated.predictions, seed)
    return [
        f"{len(evaluated.labels)} {evaluated.examples}: {_untrained(evaluated)} not "
        "trained on, so there is no accuracy."
    ]


def _as_json(evaluated: Evaluated, seed: int) -> dict[str, Any]:
    about = {
        "examples": len(evaluated.labels),
        "networks": evaluated.num_networks,
        "untrained_classes": [*evaluated.untrained],
    }
    if evaluated.predictions is None:
        return about
    return about | evaluation_json(evaluated.predictions, seed)


def _untrained(evaluated: Evaluated) -> str:
    """The classes that the encoder does not have, up to the verb."""
    num, names = len(evaluated.untrained), ", ".join(evaluated.untrained[:_SHOWN])
    more = ", ..." if num > _SHOWN else ""
    if num == 1:
        return f"class {names} was"
    return f"{num} classes ({names}{more}) were"


def _networks(num: int) -> str:
    return "" if num == 1 else f", {num} networks"


def _measured(evaluation: Evaluation, seed: int) -> list[tuple[Score, Estimate]]:
    """The scores of predictions, each with its value."""
    case = None, evaluation.predicted, RESAMPLES, seed
    return [(score, score.measure(*case)[0]) for score in scores_on("predictions")]


def evaluation_lines(evaluation: Evaluation, seed: int) -> list[str]:
    """The evaluation as lines of text."""
    networks = _networks(evaluation.num_networks)
    printed = [f"{evaluation.num_examples} {evaluation.examples}{networks}"]
    warnings = []
    for score, value in _measured(evaluation, seed):
        printed.append(f"{score.headings[0]:<30}{_estimate(value)}")
        if constant := _CONSTANT.get(score.name):
            name, field, warning = constant
            other = getattr(evaluation.intervals, field)
            printed.append(f"  {name:<28}{_estimate(other)}")
            if score.sign * other.value >= score.sign * value.value:
                warnings.append(warning)
    case = None, evaluation.predicted, RESAMPLES, seed
    remaining = measured("rejection", *case, by="headings")
    rejected = "  ".join(f"{heading:>7}" for heading in remaining)
    values, lower, upper = (
        "  ".join(f"{x[i]:7.4f}" for x in remaining.values()) for i in range(3)
    )
    return [
        *printed,
        f"most uncertain rejected       {rejected}",
        f"accuracy of the others        {values}",
        f"  from                        {lower}",
        f"  to                          {upper}",
        *warnings,
    ]


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.value:7.4f} [{estimate.lower:.4f}, {estimate.upper:.4f}]"


def evaluation_json(evaluation: Evaluation, seed: int) -> dict[str, Any]:
    """The evaluation for `json.dumps`; means of empty bins are None."""
    bins, each = evaluation.reliability, evaluation.intervals
    edges = np.linspace(0, 1, len(bins.num_examples) + 1)
    scores = {score.name: value for score, value in _measured(evaluation, seed)}
    return {
        "examples": evaluation.num_examples,
        "networks": evaluation.num_networks,
        **{name: value.value for name, value in scores.items()},
        "bins": [
            {
                "lower": float(edges[b]),
                "upper": float(edges[b + 1]),
                "examples": int(num),
                "confidence": float(bins.confidence[b]) if num else None,
                "accuracy": float(bins.accuracy[b]) if num else None,
            }
            for b, num in enumerate(bins.num_examples)
        ],
        "rejection": [
            {"rejected": percent / 100, "accuracy": each.rejection[percent].value}
            | _bounds(each.rejection[percent])
            for percent in PERCENTS
        ],
        "intervals": {name: _bounds(value) for name, value in scores.items()},
        "baselines": {
            name: {score: plain(getattr(each, field))}
            for score, (name, field, _) in _CONSTANT.items()
        },
    }


def _bounds(estimate: Estimate) -> dict[str, float | None]:
    return {name: x for name, x in plain(estimate).items() if name != "value"}


def score_retrieval(evaluated: Evaluated, seed: int) -> Report:
    """Whether the examples nearest to one have its class, by the cosine of embeddings.

    The baselines are the cosine of the features, such as pixels, and chance.

    Args:
      seed: of the intervals, and of the queries where not all examples are queries.
    """
    labels = evaluated.labels
    queries = choose_queries(labels, seed=seed)

    def scored(rows: np.ndarray | None, num: int = RESAMPLES) -> Scores:
        return measured("retrieval", (labels, queries), rows, num, seed, "headings")

    baselines, missing = {}, {}
    if evaluated.features is None:
        missing[_INPUT] = "which needs the data: --examples DATA"
    elif too_large := _does_not_fit(evaluated.features):
        missing[_INPUT] = too_large
    else:
        baselines[_INPUT] = scored(evaluated.features)
    baselines["chance"] = scored(None, 0)
    num = len(queries.ids)
    title = f"nearest of {len(labels) - 1} others to each of {num} examples"
    if queries.num_alone:
        title += f"; {queries.num_alone} left out, alone in their class"
    counts = {"examples": len(labels), "queries": num}
    return Report(
        *("retrieval", evaluated.examples, title),
        counts | {"alone_in_class": queries.num_alone},
        {"similarity": "cosine", "seed": seed},
        f"embeddings{_networks(evaluated.num_networks)}",
        scored(evaluated.vectors),
        baselines,
        missing,
        better="a baseline",
    )


def _does_not_fit(features: np.ndarray) -> str:
    """Why features cannot be scored; "": they can."""
    needed = _COPIES * 8 * math.prod(features.shape)
    try:
        check_room(needed, "they take", "give fewer examples")
    except NoRoomError as error:
        return str(error)
    return ""
