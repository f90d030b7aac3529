"""The log likelihood of held-out tokens, as training and sweeps score it."""

from typing import NamedTuple

import numpy as np

from embedder.metrics.intervals import mean_by_sequence
from embedder.tokens.heldout import predictions


class LogLikelihood(NamedTuple):
    """Log likelihood of held-out tokens, in nats per prediction."""

    mean: float
    baseline: float  # of the unigram model: P(c) = count_c / total
    num_pairs: int  # predictions; 0: none, and the others are nan


def log_likelihood(*args, **options) -> LogLikelihood:
    """The means of `predictions`."""
    found = predictions(*args, **options)
    if not len(found.model):
        return LogLikelihood(np.nan, np.nan, 0)
    mean, baseline = (
        mean_by_sequence(values, found.sequence, 0).value
        for values in (found.model, found.baseline)
    )
    return LogLikelihood(mean, baseline, len(found.model))
