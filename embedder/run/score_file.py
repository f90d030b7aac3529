"""scores.json: what the vectors of a run score, and what baselines do, with intervals.

An object of scores, each of them an object of models, "vectors" the first; of each
model the value and the two ends of its interval, None where there is none.
"""

import json
import math
from typing import Any

from embedder.disk.files import name_file_in_errors, short_reason
from embedder.errors import InputError
from embedder.evaluation.intervals import Estimate
from embedder.evaluation.score_table import ScoreTable
from embedder.run.workdir import Workdir, write_text


def write_scores(run: Workdir, scores: ScoreTable) -> None:
    """Writes the file, whole or not at all."""
    found = {
        name: {model: [*map(_finite, x)] for model, x in by_model.items()}
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


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _estimate(values: Any) -> Estimate:
    value, lower, upper = (math.nan if x is None else float(x) for x in values)
    return Estimate(value, lower, upper)
