"""The predictions of an encoder: confusion matrix, calibration, hardest examples."""

import base64
import io
from typing import NamedTuple, Protocol

import numpy as np

from embedder.report.chart import Chart, Series, line_chart
from embedder.report.intervals import Scores, scores_of
from embedder.report.text import short

_MAX_CLASSES = 20  # of a whole matrix; of more the most frequent confusions are listed
_CONFUSIONS = 20
NUM_HARDEST = 24
_IMAGE = 112  # pixels of the longer side of a thumbnail, at most


class Bins(Protocol):
    """Accuracy by confidence, as of `encoders.uncertainty.Reliability`; [B] each."""

    @property
    def num_examples(self) -> np.ndarray: ...
    @property
    def confidence(self) -> np.ndarray: ...
    @property
    def accuracy(self) -> np.ndarray: ...
    @property
    def calibration_error(self) -> float: ...


class Predicted(NamedTuple):
    """Predictions of n labelled examples."""

    what: str  # which examples, for the user
    keys: list[str]
    labels: np.ndarray  # of text [n]
    predicted: np.ndarray  # of text [n]
    probability: np.ndarray  # f[n], of the predicted class
    log_likelihood: np.ndarray  # f[n], of the label
    bins: Bins
    pictures: dict[str, np.ndarray] = {}  # u8[h, w, 3] of some keys


class Confusion(NamedTuple):
    """How often each class is predicted as each other."""

    classes: list[str]
    counts: list[list[int]]  # [label][predicted]
    shares: list[list[float]]  # of the examples of a label


class Hard(NamedTuple):
    """An example whose label is unlikely by the network."""

    key: str
    label: str
    predicted: str
    probability: float  # of `predicted`
    likelihood: float  # probability of the label
    image: str | None  # URI of data


class Predictions(NamedTuple):
    """What the page shows of predictions."""

    what: str
    num: int
    scores: Scores
    majority: float  # accuracy of always the most frequent label: the baseline
    num_classes: int
    confusion: Confusion | None  # None: there are too many classes
    confusions: list[
        tuple[str, str, int]
    ]  # label, predicted, examples; of many classes
    calibration: Chart | None
    hardest: list[Hard]


def hardest(log_likelihood: np.ndarray, num: int = NUM_HARDEST) -> np.ndarray:
    """Rows of the examples with the least likely labels, the least first, i64."""
    return np.argsort(log_likelihood, kind="stable")[:num]


def predictions(found: Predicted) -> Predictions:
    """The parts of the page about predictions of one example or more."""
    classes, numbers = np.unique(
        np.concatenate([found.labels, found.predicted]), return_inverse=True
    )
    labels, predicted = np.split(numbers, 2)
    num = len(labels)
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(matrix, (labels, predicted), 1)
    is_small = len(classes) <= _MAX_CLASSES
    names = [short(str(name)) for name in classes]
    return Predictions(
        what=found.what,
        num=num,
        scores=scores_of(
            labels == predicted,
            found.log_likelihood,
            found.probability.astype(np.float64),
            found.bins.calibration_error,
            len(found.bins.num_examples),
        ),
        majority=float(matrix.sum(axis=1).max() / num),
        num_classes=len(classes),
        confusion=_confusion(names, matrix) if is_small else None,
        confusions=[] if is_small else _most_confused(names, matrix),
        calibration=_calibration(found.bins),
        hardest=[_hard(found, row) for row in hardest(found.log_likelihood)],
    )


def _confusion(names: list[str], matrix: np.ndarray) -> Confusion:
    sums = np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    return Confusion(names, matrix.tolist(), (matrix / sums).tolist())


def _most_confused(names: list[str], matrix: np.ndarray) -> list[tuple[str, str, int]]:
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_CONFUSIONS]
    rows, columns = np.unravel_index(order, wrong.shape)
    return [
        (names[i], names[j], int(wrong[i, j]))
        for i, j in zip(rows, columns, strict=True)
        if wrong[i, j]
    ]


def _calibration(bins: Bins) -> Chart | None:
    which = np.flatnonzero(bins.num_examples)
    points = [(float(bins.confidence[b]), float(bins.accuracy[b])) for b in which]
    series = [Series("accuracy", points)]
    return line_chart("Accuracy by confidence", series, "confidence", unit_square=True)


def _hard(found: Predicted, row: int) -> Hard:
    key = found.keys[row]
    pixels = found.pictures.get(key)
    return Hard(
        short(key),
        short(str(found.labels[row])),
        short(str(found.predicted[row])),
        float(found.probability[row]),
        float(np.exp(found.log_likelihood[row])),
        None if pixels is None else thumbnail(pixels),
    )


def thumbnail(pixels: np.ndarray) -> str:
    """A PNG of u8[h, w, 3] as a URI of data; large images are made smaller."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((_IMAGE, _IMAGE))
    data = io.BytesIO()
    image.save(data, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
