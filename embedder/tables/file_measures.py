"""Scores of vectors on files: similarity sets, analogy questions, labels of nodes."""

import functools
from pathlib import Path

import numpy as np

from embedder.evaluation.correlation import correlations
from embedder.evaluation.counting import first_tokens, log_ratios, positive_pmi
from embedder.evaluation.intervals import NOT_MEASURED, Estimate, mean_estimates
from embedder.evaluation.label_files import read_labels
from embedder.evaluation.labels import (
    F1Scores,
    Predictor,
    by_frequency,
    by_regression,
    f1_scores,
)
from embedder.evaluation.score_table import VECTORS
from embedder.tables.encoded import TokenSource
from embedder.tables.graph import Walks
from embedder.tables.link_measure import adjacency_of
from embedder.tables.measured import Measure, Scores, Tables
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

    def score(values: np.ndarray, num: int) -> tuple[Estimate]:
        return (correlations(values, pairs.scores, num).spearman,)

    @functools.cache
    def counted() -> dict[str, np.ndarray]:
        found = {"frequency": log_ratios(vocabulary.counts, pairs.rows)}
        if not isinstance(encoded, Walks):
            training = trained_sequences(encoded, options.sequence_holdout)
            found["co-occurrence"] = positive_pmi(
                first_tokens(training), pairs.rows, len(vocabulary)
            )
        return found

    @functools.cache
    def baselines(num: int) -> Scores:
        return {model: score(values, num) for model, values in counted().items()}

    def measure(tables: Tables, num: int) -> Scores:
        cosines = pairs.cosines(np.asarray(tables["input"]))
        return {VECTORS: score(cosines, num), **baselines(num)}

    return Measure((PAIRS,), measure)


def _analogies_measure(path: str, encoded: TokenSource) -> Measure:
    """Accuracy of b - a + c, beside that of the nearest neighbour of c."""
    questions = AnalogyQuestions(path, encoded.vocabulary.tokens)
    questions.check_known()

    def measure(tables: Tables, num: int) -> Scores:
        found = questions.answers(unit_rows(np.asarray(tables["input"])))
        right = np.stack([found.is_right, found.is_nearest], axis=1)[found.is_known]
        return {VECTORS: tuple(mean_estimates(right.astype(np.float64), num))}

    return Measure((ANALOGIES, NEAREST), measure)


def _labels_measure(path: str, walks: Walks) -> Measure:
    """F1 of labels, (74), of half of the nodes, from the vectors of the other half."""
    labels = read_labels(Path(path), walks.vocabulary.tokens)

    def f1(predictor: Predictor, num: int) -> F1Scores:
        return f1_scores(predictor, labels.has_label, _TRAIN_SHARE, 1, num)

    @functools.cache
    def baselines(num: int) -> Scores:
        adjacency = adjacency_of(walks)
        degrees = adjacency.sum(axis=0) + adjacency.sum(axis=1)
        features = np.log(degrees[labels.rows, np.newaxis] + 1.0)
        predictors = {
            "most frequent labels": by_frequency(labels.has_label),
            "degree": by_regression(features, labels.has_label),
        }
        return {model: f1(each, num) for model, each in predictors.items()}

    def measure(tables: Tables, num: int) -> Scores:
        features = np.asarray(tables["input"])[labels.rows]
        if not np.isfinite(features).all():
            return {VECTORS: (NOT_MEASURED, NOT_MEASURED)}
        found = f1(by_regression(features, labels.has_label), num)
        return {VECTORS: found, **baselines(num)}

    return Measure((MICRO, MACRO), measure)
