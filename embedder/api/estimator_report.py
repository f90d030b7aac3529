"""The report of a `FeatureEncoder`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.api.feature_ensemble import Member
from embedder.encoders.outputs import scores
from embedder.encoders.sheet import as_pixels
from embedder.errors import InputError, is_installed
from embedder.metrics.score_table import ScoreTable, retrieval_table
from embedder.metrics.uncertainty import log_likelihood, reliability
from embedder.report.points import FULL, map_of_examples
from embedder.report.predictions import Predicted, hardest, predictions
from embedder.report.text import number
from embedder.report.trained import report_of_examples

if TYPE_CHECKING:
    from embedder.report.page import Report


def encoder_report(encoder: Member, X: Any, y: Any) -> "Report":
    """The report of a fitted encoder, with a map of X and predictions of y, if given.

    Raises:
      InputError: y is given without X, has another length, or a class that the encoder
        does not have.
    """
    facts = [("classes", number(len(encoder.classes_)))]
    of_labels = of_map = None
    of_vectors: ScoreTable = {}
    if X is None and y is not None:
        raise InputError("`y` needs `X`, the features of these labels.")
    if X is not None:
        keys = [str(i) for i in range(len(X))]
        labels = None if y is None else [str(each) for each in y]
        if labels is not None:
            of_labels = predictions(_predicted(encoder, X, keys, labels))
        matrix = encoder.transform(X)
        if labels is not None:
            of_vectors = retrieval_table(matrix, np.array(labels))
        of_map = map_of_examples(keys, matrix, labels, FULL)
        facts.append(("examples", number(len(keys))))
    fitted = vars(encoder)  # an encoder of a file or a former pickle has neither
    lines, times = fitted.get("_lines") or encoder.history_, fitted.get("_times", ())
    return report_of_examples(
        *(encoder._config(), lines, facts, of_labels, of_map, times, of_vectors)
    )


def _predicted(
    encoder: Member, X: Any, keys: list[str], labels: list[str]
) -> Predicted:
    if len(labels) != len(keys):
        raise InputError(f"`y` must have {len(keys)} labels, got {len(labels)}.")
    classes = [str(each) for each in encoder.classes_]
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
