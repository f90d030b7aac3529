"""Scores of a model, and of what it is compared with."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

Tables = Mapping[str, np.ndarray]
"""The tables "input" and "output" of a model, [V, D]."""


class Baseline(NamedTuple):
    """A score of counting, which does not depend on the vectors."""

    score: str
    value: float  # nan: there is none
    model: str


class Measured(NamedTuple):
    """The scores of a model."""

    scores: tuple[float, ...]  # more is better; nan or -inf: not measured
    baselines: tuple[Baseline, ...] = ()


class Measure(NamedTuple):
    """What scores models."""

    names: tuple[str, ...]  # of the scores; the first can tell the best evaluation
    of: Callable[[Tables], Measured]
