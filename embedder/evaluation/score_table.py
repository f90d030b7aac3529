"""What vectors score, beside what baselines do."""

import math
from collections.abc import Iterator, Mapping

from embedder.evaluation.intervals import Estimate, shown

VECTORS = "vectors"
"""The name of the vectors among the models."""

ScoreTable = Mapping[str, Mapping[str, Estimate]]
"""Score -> model, `VECTORS` the first -> value and interval; more is better."""


def score_rows(scores: ScoreTable) -> Iterator[tuple[str, str]]:
    """The name of each score that was measured, as `held_out` or `held_out by degree`,
    and its value with the interval."""
    for name, by_model in scores.items():
        for model, found in by_model.items():
            if math.isfinite(found.value):
                yield name if model == VECTORS else f"{name} by {model}", shown(found)
