"""The table of scores: what training, sweeps, `evaluate` and reports compare models by.

A new score is a function, and an entry of `SCORES`. Training measures all scores of
what `--best-by` and `--holdout` give, a sweep the one of `--score`, `evaluate` all
scores of a file or of an encoder, the report all of the predictions of an encoder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from embedder.errors import InputError

if TYPE_CHECKING:  # the command line reads this table, and must start at once
    from embedder.metrics.intervals import Estimate

Data = Literal["texts", "graphs", "encoder"]
"""What a model is trained on; "encoder": examples."""

TOPN = 10
"""Items of a ranking among which the next item must be, in training and sweeps."""


class Need(NamedTuple):
    """What some scores are measured on."""

    of: tuple[Data, ...]  # the trainings that have it
    holdout: str = ""  # the setting that holds a share of the data out; "": a file
    share: float = 0.0  # what a sweep holds out if the setting is 0


NEEDS = {
    "sequences": Need(("texts",), "holdout", 0.05),
    "items": Need(("texts",), "holdout", 0.05),
    "edges": Need(("graphs",), "holdout", 0.05),
    "pairs": Need(("texts", "graphs")),
    "analogies": Need(("texts", "graphs")),
    "labels": Need(("graphs",)),
    "validation": Need(("encoder",), "validation_fraction", 0.1),
    "predictions": Need(("encoder",)),
    "rejection": Need(("encoder",)),
    "retrieval": Need(("encoder",)),
}
"""What a score can need. Trainings of tokens have it from `eval_sets`, those of
encoders measure "validation", and the last three are measured on labelled examples
after a training. What `Score.measure` reads of it, the functions below tell."""


@dataclass(frozen=True)
class Score:
    """A score of models, with the values that are measured beside it."""

    needs: str
    """A key of `NEEDS`."""
    measure: Callable[[Any, Any, int, int], tuple["Estimate", ...]]
    """The data to measure on, what a model or a baseline answers, the number of
    resamples (0: no intervals) and their seed -> values, the compared one first; one
    that is not finite was not measured."""
    names: tuple[str, ...]
    """Of the first values, in files of runs and in logs."""
    headings: tuple[str, ...] = ()
    """Of the first values, in `evaluate`; "{topn}" is the number of items."""
    choice: str = ""
    """Its value of `--score` and of `--best-by`; "": it has none. One of held-out
    tokens, items or edges must be in `token_options.BEST_BY`, too."""
    sign: int = 1
    """-1: less is better."""
    title: str = ""
    """In messages about the best evaluation; "": its first name."""

    @property
    def name(self) -> str:
        """The name of the compared value, in files."""
        return self.names[0]

    @property
    def need(self) -> Need:
        """What it is measured on."""
        return NEEDS[self.needs]

    def shown(self, value: float) -> str:
        """A value with its name."""
        return f"{self.title or self.name} {value:.4f}"


def _held_out(data: Any, logs: Any, num: int, seed: int) -> tuple:
    """None; log likelihoods of predictions f[n], and i64[n] the sequence of each."""
    from embedder.metrics.intervals import mean_by_sequence

    values, sequence = logs
    return (mean_by_sequence(values, sequence, num, seed),)


def _next_item(data: Any, scorer: Any, num: int, seed: int) -> tuple:
    """`ranking.RankedItems`; a `ranking.Scorer`, or its ranks of `target_ranks`."""
    import numpy as np

    from embedder.metrics.intervals import mean_estimates
    from embedder.metrics.ranking import case_scores, target_ranks

    is_ranked = isinstance(scorer, tuple)
    ranks = scorer if is_ranked else target_ranks(scorer, data.cases, data.num_items)
    found = case_scores(ranks, data.topn)
    found = np.column_stack([found, found[:, 0] * found[:, 2]])  # with MRR of `topn`
    return tuple(mean_estimates(found[:, : data.num_values], num, seed))


def _links(data: Any, similarity: Any, num: int, seed: int) -> tuple:
    """`links.LinkCases`, and a function from pairs of nodes to f[n]."""
    from embedder.metrics.links import link_scores

    scores = similarity(data.edges), similarity(data.others())
    return link_scores(*scores, num, seed)


def _pairs(pairs: Any, values: Any, num: int, seed: int) -> tuple:
    """`words.ScoredPairs`, and a value for each pair, f64[n]."""
    from embedder.metrics.words import correlations

    return correlations(values, pairs.scores, num, seed)


def _analogies(data: Any, answers: Any, num: int, seed: int) -> tuple:
    """None, and `words.AnalogyAnswers`."""
    import numpy as np

    from embedder.metrics.intervals import mean_estimates

    right = np.stack([answers.is_right, answers.is_nearest], axis=1)[answers.is_known]
    return tuple(mean_estimates(right.astype(np.float64), num, seed))


def _labels(data: Any, predictor: Any, num: int, seed: int) -> tuple:
    """`labels.LabelCases`, and a `labels.Predictor`; None: it cannot predict."""
    from embedder.metrics.intervals import NOT_MEASURED
    from embedder.metrics.label_scores import f1_scores

    if predictor is None:
        return NOT_MEASURED, NOT_MEASURED
    has_label, share, splits = data
    return f1_scores(predictor, has_label, share, splits, num, seed)


def _loss(data: Any, found: Any, num: int, seed: int) -> tuple:
    """None, and the mean loss and the accuracy of the validation examples."""
    from embedder.metrics.intervals import NOT_MEASURED

    return (NOT_MEASURED._replace(value=found[0]),)


def _accuracy(data: Any, found: Any, num: int, seed: int) -> tuple:
    return _loss(data, found[1:], num, seed)


def _of_predictions(name: str) -> Callable[[Any, Any, int, int], tuple]:
    """None, and `uncertainty.Predicted`."""

    def measure(data: Any, predicted: Any, num: int, seed: int) -> tuple:
        from embedder.metrics.uncertainty import score_intervals

        return (getattr(score_intervals(predicted, num, seed), name),)

    return measure


def _rejection(data: Any, predicted: Any, num: int, seed: int) -> tuple:
    """The same, with entropies."""
    from embedder.metrics.uncertainty import score_intervals

    return (*score_intervals(predicted, num, seed).rejection.values(),)


def _retrieval(data: Any, vectors: Any, num: int, seed: int) -> tuple:
    """Classes of all examples, i[n], and `retrieval.Queries`; and the vectors of all,
    f[n, D]; None: a random order."""
    from embedder.metrics.intervals import mean_estimates
    from embedder.metrics.retrieval import chance, retrieval_scores

    if vectors is None:
        return tuple(mean_estimates(chance(*data), num, seed))
    return tuple(mean_estimates(retrieval_scores(vectors, *data), num, seed))


_ITEMS = f"hr@{TOPN}", f"ndcg@{TOPN}", "mrr"
_ITEM_HEADINGS = *("HR@{topn}", "NDCG@{topn}", "MRR", "recall@{topn}"), "MRR@{topn}"
_F1, _F1_HEADINGS = ("micro_f1", "macro_f1"), ("micro F1", "macro F1")
_NLL, _ECE = "negative_log_likelihood", "calibration_error"
_NLL_HEADINGS = ("negative log likelihood",)
_ECE_HEADINGS = ("calibration error (ECE)",)
_REJECTED = "0 %", "10 %", "20 %", "50 %"
_RETRIEVED = "recall@1", "recall@5", "recall@10", "mAP@R", "10-NN accuracy"

SCORES: list[Score] = [
    Score("sequences", _held_out, ("held_out",), ("log likelihood",), "held-out"),
    Score("items", _next_item, _ITEMS, _ITEM_HEADINGS, "next-item"),
    Score("edges", _links, ("link_auc", "link_ap"), ("AUC", "AP"), "links"),
    Score("pairs", _pairs, ("spearman",), ("Spearman", "Pearson"), "pairs"),
    Score("analogies", _analogies, ("analogies", "nearest_to_c"), ("accuracy",)),
    Score("labels", _labels, _F1, _F1_HEADINGS),
    Score("validation", _loss, ("val_loss",), (), "val-loss", -1, "validation loss"),
    Score("validation", _accuracy, ("val_accuracy",), (), "val-accuracy"),
    Score("predictions", _of_predictions("accuracy"), ("accuracy",), ("accuracy",)),
    Score("predictions", _of_predictions(_NLL), (_NLL,), _NLL_HEADINGS, sign=-1),
    Score("predictions", _of_predictions(_ECE), (_ECE,), _ECE_HEADINGS, sign=-1),
    Score("rejection", _rejection, (), _REJECTED),
    Score("retrieval", _retrieval, _RETRIEVED, _RETRIEVED),
]
"""All scores. The first that fits a training is the default of its `--score`; the first
of what `--best-by` gives tells the best evaluation."""


def scores_on(needs: str) -> list[Score]:
    """The scores that need `needs`."""
    return [score for score in SCORES if score.needs == needs]


def measured(
    needs: str,
    data: Any,
    answer: Any,
    num: int | None = None,
    seed: int = 0,
    by: Literal["names", "headings"] = "headings",
) -> dict[str, "Estimate"]:
    """The values of all scores that need `needs`, by their names or headings.

    Args:
      data, answer, num, seed: as of `Score.measure`; num: None: `RESAMPLES`.
    """
    from embedder.metrics.intervals import RESAMPLES

    draws = RESAMPLES if num is None else num
    return {
        label: value
        for score in scores_on(needs)
        for label, value in zip(
            getattr(score, by), score.measure(data, answer, draws, seed), strict=False
        )
    }


def choices(data: Data | None = None) -> dict[str, Score]:
    """The values of `--score` and their scores; None: for any data."""
    return {x.choice: x for x in SCORES if x.choice and data in (None, *x.need.of)}


def score_of(choice: str, data: Data) -> Score:
    """The score that a sweep over `data` compares trials by; auto: the first.

    Raises:
      InputError: it is of other data.
    """
    found = choices(data)
    if choice == "auto":
        return next(iter(found.values()))
    if choice not in found:
        kinds = {"graphs": "walks over a graph", "encoder": "an encoder"}
        raise InputError(
            f"`score` must be {' or '.join(map(repr, found))} for "
            f"{kinds.get(data, data)}, got {choice!r}."
        )
    return found[choice]
