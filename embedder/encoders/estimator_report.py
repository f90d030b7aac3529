"""The report of a `FeatureEncoder`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.encoders.outputs import scores
from embedder.encoders.sheet import as_pixels
from embedder.encoders.uncertainty import log_likelihood, reliability
from embedder.errors import InputError, is_installed
from embedder.evaluation.retrieval import retrieval_table
from embedder.evaluation.score_table import ScoreTable
from embedder.report.examples import map_of_examples
from embedder.report.points import FULL
from embedder.report.predictions import Predicted, hardest, predictions
from embedder.report.text import number
from embedder.report.trained import report_of_examples

if TYPE_CHECKING:
    from embedder.encoders.estimator import FeatureEncoder
    from embedder.report.page import Report


def encoder_report(encoder: "FeatureEncoder", X: Any, y: Any) -> "Report":
    """The report of a fitted encoder, with a map of X and predictions of y, if given.

    Raises:
      InputError: y is given without X, has another length, or a class that the encoder
        does not have.
    """
    classes = [str(each) for each in encoder.classes_]
    facts = [("classes", number(len(classes)))]
    found = of_map = None
    of_vectors: ScoreTable = {}
    if X is None and y is not None:
        raise InputError("`y` needs `X`, the features of these labels.")
    if X is not None:
        keys = [str(i) for i in range(len(X))]
        labels = None if y is None else [str(each) for each in y]
        if labels is not None:
            found = predictions(_predicted(encoder, X, keys, labels, classes))
        matrix = encoder.transform(X)
        if labels is not None:
            of_vectors = retrieval_table(matrix, np.array(labels))
        of_map = map_of_examples(keys, matrix, labels, FULL)
        facts.append(("examples", number(len(keys))))
    kept = vars(encoder)  # not of a file, nor of former pickles
    lines, times = kept.get("_lines") or encoder.history_, kept.get("_times", ())
    given = encoder._config(), lines, facts, found, of_map, times, of_vectors
    return report_of_examples(*given)


def _predicted(
    encoder: "FeatureEncoder",
    X: Any,
    keys: list[str],
    labels: list[str],
    classes: list[str],
) -> Predicted:
    if len(labels) != len(keys):
        raise InputError(f"`y` must have {len(keys)} labels, got {len(labels)}.")
    number_of = {name: i for i, name in enumerate(classes)}
    if unknown := sorted({*labels} - {*classes}):
        raise InputError(
            f"`y` must have classes that the encoder has, got {unknown[0]!r}."
        )
    ids = np.array([number_of[label] for label in labels])
    probabilities = encoder.predict_proba(X).astype(np.float64)
    logs = log_likelihood(encoder._outputs(scores, X)[np.newaxis], ids)
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    names, pixels = np.array(classes), None
    rows = hardest(logs)
    if isinstance(X, np.ndarray) and X.ndim > 2 and is_installed("PIL"):
        pixels = as_pixels(X[rows])
    pictures = (
        {}
        if pixels is None
        else {keys[i]: x for i, x in zip(rows, pixels, strict=True)}
    )
    return Predicted(
        *("the given examples", keys, names[ids], names[predicted], confidence, logs),
        reliability(confidence, predicted == ids),
        pictures,
    )
