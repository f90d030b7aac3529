"""Scores of vectors on files: similarity sets, analogy questions, labels of nodes."""

import functools
import itertools
from pathlib import Path

import numpy as np

from embedder.evaluation.counting import first_tokens, log_ratios, positive_pmi
from embedder.evaluation.label_files import read_labels
from embedder.evaluation.labels import (
    Predictor,
    by_frequency,
    by_regression,
    f1_scores,
)
from embedder.tables.encoded import TokenSource
from embedder.tables.graph import Walks
from embedder.tables.link_measure import adjacency_of
from embedder.tables.measured import Baseline, Measure, Measured, Tables
from embedder.tables.options import TablesOptions
from embedder.tables.split import trained_sequences
from embedder.vectors.evaluate import (
    AnalogyQuestions,
    ScoredPairs,
    is_analogies,
    looks_like_pairs,
)
from embedder.vectors.search import unit_rows

PAIRS, ANALOGIES, NEAREST = "spearman", "analogies", "nearest_to_c"
MICRO, MACRO = "micro_f1", "macro_f1"
"""Names of scores."""
_TRAIN_SHARE = 0.5  # of the nodes whose labels are known
_HEAD = 1000  # lines that tell a similarity set from labels


def file_measure(options: TablesOptions, encoded: TokenSource) -> Measure:
    """The scores on the file of `best_by`, by its content.

    A first line that starts with `:` makes analogy questions. On graphs other files are
    labels, unless all lines are two words and a number, as those of similarity sets.

    Raises:
      InputError, OSError: it has another format, or no known token.
    """
    path = options.best_by
    if isinstance(encoded, Walks) and (_is_packed(path) or not _is_of_words(path)):
        return _labels_measure(path, encoded)
    if is_analogies(path):
        return _analogies_measure(path, encoded)
    return _pairs_measure(path, options, encoded)


def _is_packed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _is_of_words(path: str) -> bool:
    return is_analogies(path) or looks_like_pairs(path, _HEAD)


def _pairs_measure(path: str, options: TablesOptions, encoded: TokenSource) -> Measure:
    """Rank correlation of cosines with the scores of a similarity set."""
    vocabulary = encoded.vocabulary
    pairs = ScoredPairs(path, vocabulary.tokens)

    @functools.cache
    def baselines() -> tuple[Baseline, ...]:
        counted = {"frequency": log_ratios(vocabulary.counts, pairs.rows)}
        if not isinstance(encoded, Walks):
            training = trained_sequences(encoded, options.sequence_holdout)
            counted["co-occurrence"] = positive_pmi(
                first_tokens(training), pairs.rows, len(vocabulary)
            )
        return tuple(
            Baseline(PAIRS, pairs.correlations(values)[0], model)
            for model, values in counted.items()
        )

    def measure(tables: Tables) -> Measured:
        found = pairs.score(np.asarray(tables["input"])).spearman
        return Measured((found,), baselines())

    return Measure((PAIRS,), measure)


def _analogies_measure(path: str, encoded: TokenSource) -> Measure:
    """Accuracy of b - a + c, beside that of the nearest neighbour of c."""
    questions = AnalogyQuestions(path, encoded.vocabulary.tokens)
    questions.check_known()

    def measure(tables: Tables) -> Measured:
        found = questions.answers(unit_rows(np.asarray(tables["input"])))
        right = np.stack([found.is_right, found.is_nearest], axis=1)[found.is_known]
        return Measured(tuple(right.mean(axis=0).tolist()))

    return Measure((ANALOGIES, NEAREST), measure)


def _labels_measure(path: str, walks: Walks) -> Measure:
    """F1 of labels, (74), of half of the nodes, from the vectors of the other half."""
    labels = read_labels(Path(path), walks.vocabulary.tokens)

    def f1(predictor: Predictor) -> tuple[float, ...]:
        found = f1_scores(predictor, labels.has_label, _TRAIN_SHARE, 1, num=0)
        return found.micro.value, found.macro.value

    @functools.cache
    def baselines() -> tuple[Baseline, ...]:
        adjacency = adjacency_of(walks)
        degrees = adjacency.sum(axis=0) + adjacency.sum(axis=1)
        features = np.log(degrees[labels.rows, np.newaxis] + 1.0)
        predictors = {
            "most frequent labels": by_frequency(labels.has_label),
            "degree": by_regression(features, labels.has_label),
        }
        scores = {model: f1(each) for model, each in predictors.items()}
        both = itertools.product(scores, enumerate((MICRO, MACRO)))
        return tuple(Baseline(n, scores[model][i], model) for model, (i, n) in both)

    def measure(tables: Tables) -> Measured:
        features = np.asarray(tables["input"])[labels.rows]
        if not np.isfinite(features).all():
            return Measured((np.nan, np.nan))
        return Measured(f1(by_regression(features, labels.has_label)), baselines())

    return Measure((MICRO, MACRO), measure)
