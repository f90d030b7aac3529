"""What vectors score beside what baselines do, and scores.json, the file of it.

The file has an object of scores, each of them an object of models, "vectors" the first;
of each model the value and the two ends of its interval, None where there is none.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from embedder.disk.files import name_file_in_errors, short_reason
from embedder.disk.workdir import Workdir, write_text
from embedder.errors import InputError
from embedder.metrics.intervals import Estimate, shown
from embedder.metrics.retrieval import MAX_QUERIES, choose_queries
from embedder.metrics.scores import measured

Metrics = tuple[float | None, ...]
"""The metrics of an epoch, the loss first, or of an evaluation; None: that one was not
measured."""
VECTORS = "vectors"
"""The name of the vectors among the models."""

ScoreTable = Mapping[str, Mapping[str, Estimate]]
"""Score -> model, `VECTORS` the first -> value and interval; more is better."""


def retrieval_table(
    vectors: np.ndarray, labels: np.ndarray, max_queries: int = MAX_QUERIES
) -> ScoreTable:
    """The scores of retrieval of the vectors, and what chance does; {} if no example is
    a query, or all have one class.

    Args:
      vectors, labels: f[n, D], and classes of any type, [n].
    """
    labels = np.unique(labels, return_inverse=True)[1]
    data = labels, choose_queries(labels, max_queries)
    if not len(data[1].ids) or labels.max() == 0:
        return {}
    chance = measured("retrieval", data, None, 0, by="names")
    found = measured("retrieval", data, vectors, by="names").items()
    return {name: {VECTORS: x, "chance": chance[name]} for name, x in found}


def score_rows(scores: ScoreTable) -> Iterator[tuple[str, str]]:
    """The name of each score that was measured, as `held_out` or `held_out by degree`,
    and its value with the interval."""
    for name, by_model in scores.items():
        for model, found in by_model.items():
            if math.isfinite(found.value):
                yield name if model == VECTORS else f"{name} by {model}", shown(found)


def write_scores(run: Workdir, scores: ScoreTable) -> None:
    """Writes the file, whole or not at all."""
    found = {
        name: {
            model: [float(x) if math.isfinite(x) else None for x in estimate]
            for model, estimate in by_model.items()
        }
        for name, by_model in scores.items()
    }
    write_text(run.scores, json.dumps(found, indent=1) + "\n")


def read_scores(run: Workdir) -> ScoreTable:
    """The scores of a run; {} if it has no file of them.

    Raises:
      OSError, InputError: it cannot be read, or is damaged.
    """
    try:
        with name_file_in_errors(run.scores):
            text = run.scores.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
        return {
            name: {model: _estimate(x) for model, x in by_model.items()}
            for name, by_model in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = short_reason(error)
        raise InputError(f"{run.scores} is damaged: {reason}.") from error


def _estimate(values: Any) -> Estimate:
    value, lower, upper = (math.nan if x is None else float(x) for x in values)
    return Estimate(value, lower, upper)
