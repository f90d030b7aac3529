"""Scores of a model, and of what it is compared with."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from embedder.evaluation.intervals import Estimate

Tables = Mapping[str, np.ndarray]
"""The tables "input" and "output" of a model, [V, D]."""

Scores = dict[str, tuple[Estimate, ...]]
"""What the model, `score_table.VECTORS`, and each baseline score, an estimate for each
of `Measure.names`; more is better.

A value that is not finite was not measured. Baselines do not depend on the vectors:
most are counts, in the order in which they are shown.
"""


class Measure(NamedTuple):
    """What scores models."""

    names: tuple[str, ...]  # of the scores; the first can tell the best evaluation
    of: Callable[[Tables, int], Scores]
    """A model, and the number of resamples of its intervals; 0: there are none."""
