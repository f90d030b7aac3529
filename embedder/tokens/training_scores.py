"""The scores of the vectors of tokens while they are trained, beside baselines."""

import functools
import logging
import math
from collections.abc import Sequence

from embedder.config.token_options import BEST_BY, TokensOptions
from embedder.data.encoded import TokenSource
from embedder.metrics.intervals import RESAMPLES, Estimate
from embedder.metrics.score_table import VECTORS, Metrics, ScoreTable
from embedder.metrics.scores import SCORES, Score, measured, scores_on
from embedder.tokens.eval_sets import (
    EvalSet,
    Tables,
    default_score,
    edges_set,
    eval_set,
    file_set,
    quick_items_set,
    sequences_set,
)

_log = logging.getLogger(__name__)


class TrainingScores:
    """The scores of models on some sets.

    Args:
      best: the score that tells the best evaluation; None: there is none.
    """

    def __init__(
        self,
        options: TokensOptions,
        sets: Sequence[EvalSet] = (),
        best: Score | None = None,
    ):
        self._options = options
        self._sets = sets
        self.best = best
        self.baselines: dict[str, float] = {}
        """What counting has, by "SCORE by MODEL"; after the first evaluation."""
        self._counted = functools.cache(self._count)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values."""
        scores = (score for each in self._sets for score in scores_on(each.needs))
        return tuple(name for score in scores for name in score.names)

    def means(self, models: Sequence[Tables]) -> Metrics:
        """The mean of each value over `models`; None where it is not finite."""
        found = [self._measured(tables, 0) for tables in models]
        self._log_baselines()
        means: list[float | None] = []
        for name in self.names:
            mean = sum(each[name][VECTORS].value for each in found) / len(found)
            means.append(mean if math.isfinite(mean) else None)
        return tuple(means)

    def with_intervals(self, tables: Tables) -> ScoreTable:
        """The scores of a model and of baselines, with their intervals, (75)."""
        return self._measured(tables, RESAMPLES)

    def best_of(self, values: Metrics) -> float | None:
        """Of the values `names` the one that tells the best evaluation, more is better;
        None without one."""
        if self.best is None:
            return None
        value = dict(zip(self.names, values, strict=True))[self.best.name]
        return None if value is None else self.best.sign * value

    def best_text(self, score: float) -> str:
        """A value of `best_of` with its name."""
        assert self.best is not None, "no evaluation is the best"
        return self.best.shown(self.best.sign * score)

    def _measured(self, tables: Tables, num: int) -> dict[str, dict[str, Estimate]]:
        found: dict[str, dict[str, Estimate]] = {name: {} for name in self.names}
        for number in range(len(self._sets)):
            each = self._set(number, num)
            answer = each.answers(self._options, tables)
            draws = min(num, each.most_resamples)
            values = measured(each.needs, each.data, answer, draws, by="names")
            for name, value in values.items():
                found[name][VECTORS] = value
            for model, values_of in self._counted(number, draws).items():
                for name, value in values_of.items():
                    found[name][model] = value
        return found

    def _count(self, number: int, num: int) -> dict[str, dict[str, Estimate]]:
        """The values of each baseline on the set of that number."""
        each = self._set(number, num)
        return {
            model: measured(each.needs, each.data, answer, num, by="names")
            for model, answer in each.baselines().items()
        }

    def _set(self, number: int, num: int) -> EvalSet:
        """The set of that number; without resamples its sample, if it has one."""
        each = self._sets[number]
        return each.sample or each if num == 0 else each

    def _log_baselines(self) -> None:
        known = [
            (name, model, estimate.value)
            for number in range(len(self._sets))
            for model, values in self._counted(number, 0).items()
            for name, estimate in values.items()
            if math.isfinite(estimate.value)
        ]
        if known and not self.baselines:
            shown = (f"{name} {value:.4f} ({model})" for name, model, value in known)
            _log.info("baselines from counts: %s", ", ".join(shown))
        self.baselines |= {f"{name} by {model}": x for name, model, x in known}


def training_scores(
    options: TokensOptions, encoded: TokenSource, needs_best: bool = False
) -> TrainingScores:
    """The scores that the settings ask for; of items those of the next one, too.

    Args:
      needs_best: one tells the best evaluation: without `best_by` the one of the data.

    Raises:
      InputError, OSError: what the score of the best evaluation needs is missing.
    """
    sets: list[EvalSet] = []
    by, best = options.best_by, None
    if by and by not in BEST_BY:
        sets.append(file_set(options, encoded))
        best = scores_on(sets[0].needs)[0]
    elif by or needs_best:
        named = (score for score in SCORES if score.choice == by)
        best = next(named) if by else default_score(options, encoded)
    if options.holdout and options.walks:
        sets.append(edges_set(options, encoded))
    elif options.holdout and best and best.needs == "sequences":
        sets.append(eval_set(best, options, encoded))
    elif options.holdout:
        is_beside = best is not None and best.needs == "items"
        sets.append(sequences_set(options, encoded, is_beside))
        if best and best.needs == "items":
            sets.append(eval_set(best, options, encoded))
        elif not best and default_score(options, encoded).needs == "items":
            sets += filter(None, [quick_items_set(options, encoded)])
    return TrainingScores(options, sets, best)
