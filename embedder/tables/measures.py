"""What the vectors of tokens are scored by while they are trained.

Each score comes with baselines: what counting has, which is logged once, or what
another rule makes of the same vectors. `TablesOptions.best_by` names the score of the
best evaluation.
"""

import functools
import logging
import math
from collections.abc import Sequence

import numpy as np

from embedder.engine.epochs import Metrics
from embedder.errors import InputError
from embedder.evaluation.counting import (
    first_tokens,
    followed_most_often,
    num_products,
    same_session,
)
from embedder.evaluation.intervals import RESAMPLES, Estimate, mean_estimates
from embedder.evaluation.ranking import (
    Cases,
    Scorer,
    by_popularity,
    by_vectors,
    case_scores,
    last_items,
    target_ranks,
)
from embedder.evaluation.score_table import VECTORS, ScoreTable
from embedder.tables import heldout
from embedder.tables.encoded import TokenSource
from embedder.tables.heldout import mean_by_sequence
from embedder.tables.measured import Measure, Scores, Tables
from embedder.tables.options import HELD_OUT_SCORES, LINKS, TablesOptions
from embedder.tables.split import (
    Sequences,
    num_held_out,
    sequences,
    trained_sequences,
)

TOPN = 10
"""Items of a ranking among which the next item must be."""
HELD_OUT, NEXT_ITEM = "held_out", f"hr@{TOPN}"
"""Names of scores: a mean log likelihood, a hit rate."""
ITEM_SCORES = NEXT_ITEM, f"ndcg@{TOPN}", "mrr"
"""Names of the scores of next items; the first tells the best evaluation."""
_COUNTED_TOKENS = 10_000_000  # of a training, that baselines count at most: 0.5 GB
_MOST_PRODUCTS = 10**9  # that counting for a baseline may take: some seconds

_log = logging.getLogger(__name__)


class Measures:
    """The scores of models.

    Args:
      best: the name of the score that tells the best evaluation; "": none.
    """

    def __init__(self, measures: Sequence[Measure], best: str = ""):
        self._measures = measures
        self.best = best
        self.baselines: dict[str, float] = {}
        """What counting has, by "SCORE by MODEL"; after the first evaluation."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores."""
        return tuple(name for measure in self._measures for name in measure.names)

    def means(self, models: Sequence[Tables]) -> Metrics:
        """The mean of each score over `models`; None where it is not finite."""
        found = [[of(tables, 0) for tables in models] for _, of in self._measures]
        self._log_baselines([each[0] for each in found])
        means: list[float | None] = []
        for each in found:
            for estimates in zip(*(scores[VECTORS] for scores in each), strict=True):
                mean = sum(x.value for x in estimates) / len(estimates)
                means.append(mean if math.isfinite(mean) else None)
        return tuple(means)

    def with_intervals(self, tables: Tables) -> ScoreTable:
        """The scores of a model and of baselines, with their intervals, (75)."""
        found: dict[str, dict[str, Estimate]] = {name: {} for name in self.names}
        for names, of in self._measures:
            for model, estimates in of(tables, RESAMPLES).items():
                for name, estimate in zip(names, estimates, strict=True):
                    found[name][model] = estimate
        return found

    def _log_baselines(self, found: list[Scores]) -> None:
        known = [
            (name, model, estimate.value)
            for measure, scores in zip(self._measures, found, strict=True)
            for model, estimates in scores.items()
            for name, estimate in zip(measure.names, estimates, strict=True)
            if model != VECTORS and math.isfinite(estimate.value)
        ]
        if known and not self.baselines:
            shown = (f"{name} {value:.4f} ({model})" for name, model, value in known)
            _log.info("baselines from counts: %s", ", ".join(shown))
        self.baselines |= {f"{name} by {model}": x for name, model, x in known}


def measures(options: TablesOptions, encoded: TokenSource) -> Measures:
    """The scores that the settings ask for.

    Raises:
      InputError, OSError: what `best_by` needs is missing.
    """
    found: list[Measure] = []
    best_by, best = options.best_by, ""
    if best_by and best_by not in (*HELD_OUT_SCORES, LINKS):
        from embedder.tables.file_measures import file_measure

        found.append(file_measure(options, encoded))
        best = found[0].names[0]
    if options.holdout and options.walks:
        from embedder.tables.link_measure import link_measure

        found.append(link_measure(options, encoded))
        best = best or (found[-1].names[0] if best_by else "")
    elif options.holdout:
        found.append(_held_out_measure(options, encoded, best_by == "held-out"))
        best = HELD_OUT if best_by == "held-out" else best
    if best_by == "next-item":
        found.append(_next_item_measure(options, encoded))
        best = NEXT_ITEM
    return Measures(found, best)


def held_out_sequences(encoded: TokenSource, share: float, wanted: str) -> Sequences:
    """The held-out sequences, for the score `wanted`.

    Raises:
      InputError: there is none, or none has two tokens.
    """
    num_held_out(encoded.own_sequences, share)
    found = sequences(encoded, share)
    if not (found.lengths >= 2).any():
        raise InputError(
            f"`holdout` {share} holds out no sequence of two tokens or more, which the "
            f"score {wanted} needs: give a larger share."
        )
    return found


def check_ranks_items(options: TablesOptions, what: str) -> None:
    """Raises InputError if there are no output rows of items, which `what` needs."""
    if not options.negative:
        raise InputError(
            f"{what} needs output rows of items, which `hs` alone has not: give a "
            "`negative` above 0."
        )


def _held_out_measure(
    options: TablesOptions, encoded: TokenSource, is_needed: bool
) -> Measure:
    """`is_needed`: refuse sequences without a prediction now, not at the end."""
    if is_needed:
        held_out_sequences(encoded, options.holdout, "held-out")
    predict = heldout.predictor(options, encoded)

    def measure(tables: Tables, num: int) -> Scores:
        found = predict(tables)
        by_model = {VECTORS: found.model, "frequencies alone": found.baseline}
        return {
            model: (mean_by_sequence(values, found.sequence, num),)
            for model, values in by_model.items()
        }

    return Measure((HELD_OUT,), measure)


def _next_item_measure(options: TablesOptions, encoded: TokenSource) -> Measure:
    """The last item of held-out sequences, as `ranking.next_item` ranks it."""
    check_ranks_items(options, "`best_by` next-item")
    held_out = held_out_sequences(encoded, options.holdout, "next-item")
    cases = last_items(held_out, "excluded")
    if not cases.num:
        raise InputError(
            f"`holdout` {options.holdout} holds out no sequence whose last item is new "
            "in it, which the score next-item needs: give a larger share."
        )
    counts = encoded.vocabulary.counts

    def scores(scorer: Scorer, num: int) -> tuple[Estimate, ...]:
        found = case_scores(target_ranks(scorer, cases, len(counts)), TOPN)
        return tuple(mean_estimates(found[:, : len(ITEM_SCORES)], num))

    @functools.cache
    def counted() -> dict[str, Scorer]:
        return _item_counts(options, encoded, cases)

    @functools.cache
    def baselines(num: int) -> Scores:
        return {model: scores(scorer, num) for model, scorer in counted().items()}

    def measure(tables: Tables, num: int) -> Scores:
        output = np.asarray(tables["output"])[: len(counts)]
        model = by_vectors(np.asarray(tables["input"]), output)
        return {VECTORS: scores(model, num), **baselines(num)}

    return Measure(ITEM_SCORES, measure)


def _item_counts(
    options: TablesOptions, encoded: TokenSource, cases: Cases
) -> dict[str, Scorer]:
    """Scorers that count in the sequences that are trained, by name.

    "same session" is left out where it would take long: on texts, whose sequences are
    long and have the same words.
    """
    counts = encoded.vocabulary.counts
    training = trained_sequences(encoded, options.holdout)
    parts = first_tokens(training, _COUNTED_TOKENS)
    ids, lengths = map(np.concatenate, zip(*parts, strict=True))
    counted = ids, lengths
    found = {
        "popularity": by_popularity(counts),
        "followed most often": followed_most_often(counted, len(counts)),
    }
    if num_products(counted, cases.queries, len(counts)) > _MOST_PRODUCTS:
        _log.info(
            'The baseline "same session" is left out: in sequences as long as these '
            "it takes minutes. `embedder evaluate --sessions` counts it."
        )
        return found
    return found | {"same session": same_session(counted, len(counts))}
