"""What the vectors of tokens are scored by while they are trained.

Each score that counting can have, too, comes with a baseline from counts, which is
logged once. `TablesOptions.best_by` names the score of the best evaluation.
"""

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from embedder.engine.epochs import Metrics
from embedder.errors import InputError
from embedder.evaluation.ranking import (
    by_popularity,
    by_vectors,
    last_items,
    ranking,
    target_ranks,
)
from embedder.tables import heldout
from embedder.tables.encoded import TokenSource
from embedder.tables.options import TablesOptions
from embedder.tables.split import Sequences, num_held_out, sequences
from embedder.vectors.evaluate import ScoredPairs

TOPN = 10
"""Items of a ranking among which the next item must be."""
HELD_OUT, NEXT_ITEM, PAIRS = "held_out", f"hr@{TOPN}", "spearman"
"""Names of scores: a mean log likelihood, a hit rate, a rank correlation."""

_log = logging.getLogger(__name__)
Tables = Mapping[str, np.ndarray]
"""The tables "input" and "output" of a model, [V, D]."""


class Measured(NamedTuple):
    """A score of a model."""

    score: float  # more is better; nan or -inf: not measured
    baseline: float = math.nan  # the same score of counting; nan: none


Measure = Callable[[Tables], Measured]


class Measures:
    """The scores of models by their names."""

    def __init__(self, measures: Mapping[str, Measure]):
        self._measures = measures
        self._is_logged = False  # the baselines are

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores."""
        return tuple(self._measures)

    def means(self, models: Sequence[Tables]) -> Metrics:
        """The mean of each score over `models`; None where it is not finite."""
        found = {
            name: [measure(tables) for tables in models]
            for name, measure in self._measures.items()
        }
        self._log_baselines({name: each[0].baseline for name, each in found.items()})
        means = (sum(x.score for x in each) / len(each) for each in found.values())
        return tuple(mean if math.isfinite(mean) else None for mean in means)

    def _log_baselines(self, baselines: dict[str, float]) -> None:
        known = {n: x for n, x in baselines.items() if math.isfinite(x)}
        if known and not self._is_logged:
            shown = (f"{name} {x:.4f} ({_MODELS[name]})" for name, x in known.items())
            _log.info("baselines from counts: %s", ", ".join(shown))
        self._is_logged = True


_MODELS = {HELD_OUT: "frequencies alone", NEXT_ITEM: "popularity"}
"""The model of each baseline."""


def best_score(options: TablesOptions) -> str:
    """The name of the score that `best_by` chooses; "": none."""
    names = {"": "", "held-out": HELD_OUT, "next-item": NEXT_ITEM}
    return names.get(options.best_by, PAIRS)


def measures(options: TablesOptions, encoded: TokenSource) -> Measures:
    """The scores that the settings ask for.

    Raises:
      InputError, OSError: what `best_by` needs is missing.
    """
    found: dict[str, Measure] = {}
    best = best_score(options)
    if best == PAIRS:
        found[PAIRS] = _pairs_measure(options.best_by, encoded)
    if options.holdout:
        found[HELD_OUT] = _held_out_measure(options, encoded, best == HELD_OUT)
    if best == NEXT_ITEM:
        found[NEXT_ITEM] = _next_item_measure(options, encoded)
    return Measures(found)


def held_out_sequences(encoded: TokenSource, share: float, wanted: str) -> Sequences:
    """The held-out sequences, for the score `wanted`.

    Raises:
      InputError: there is none, or none has two tokens.
    """
    num_held_out(encoded.shard_sequences, share)
    found = sequences(encoded, share)
    if not (found.lengths >= 2).any():
        raise InputError(
            f"`holdout` {share} holds out no sequence of two tokens or more, which the "
            f"score {wanted} needs: give a larger share."
        )
    return found


def _pairs_measure(path: str, encoded: TokenSource) -> Measure:
    pairs = ScoredPairs(path, encoded.vocabulary.tokens)
    return lambda tables: Measured(pairs.score(np.asarray(tables["input"])).spearman)


def _held_out_measure(
    options: TablesOptions, encoded: TokenSource, is_needed: bool
) -> Measure:
    """`is_needed`: refuse sequences without a prediction now, not at the end."""
    if is_needed:
        held_out_sequences(encoded, options.holdout, "held-out")
    likelihood = heldout.scorer(options, encoded)

    def measure(tables: Tables) -> Measured:
        found = likelihood(tables)
        return Measured(found.mean, found.baseline)

    return measure


def _next_item_measure(options: TablesOptions, encoded: TokenSource) -> Measure:
    """The last item of held-out sequences, as `ranking.next_item` ranks it."""
    held_out = held_out_sequences(encoded, options.holdout, "next-item")
    cases = last_items(held_out, "excluded")
    if not cases.num:
        raise InputError(
            f"`holdout` {options.holdout} holds out no sequence whose last item is new "
            "in it, which the score next-item needs: give a larger share."
        )
    counts = encoded.vocabulary.counts

    @functools.cache
    def popularity() -> float:
        ranks = target_ranks(by_popularity(counts), cases, len(counts))
        return ranking(ranks, TOPN).hit_rate

    def measure(tables: Tables) -> Measured:
        scorer = by_vectors(np.asarray(tables["input"]), np.asarray(tables["output"]))
        ranks = target_ranks(scorer, cases, len(counts))
        return Measured(ranking(ranks, TOPN).hit_rate, popularity())

    return measure
