"""The predictions of an encoder: confusion matrix, calibration, hardest examples."""

import base64
import io
from typing import NamedTuple

import numpy as np

from embedder.metrics import uncertainty
from embedder.metrics.intervals import Estimate, affordable, shown
from embedder.metrics.scores import measured
from embedder.report.chart import Chart, Series, line_chart
from embedder.report.text import number, short

_MAX_CLASSES = 20  # of a whole matrix; of more the most frequent confusions are listed
_CONFUSIONS = 20
NUM_HARDEST = 24
_DRAWS = 5e7  # of examples in all resamples of scores: about a second
_IMAGE = 112  # pixels of the longer side of a thumbnail, at most


class Predicted(NamedTuple):
    """Predictions of n labelled examples."""

    what: str  # which examples, for the user
    keys: list[str]
    labels: np.ndarray  # of text [n]
    predicted: np.ndarray  # of text [n]
    probability: np.ndarray  # f[n], of the predicted class
    log_likelihood: np.ndarray  # f[n], of the label
    bins: uncertainty.Reliability
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
    scores: dict[str, Estimate]  # all of `metrics.scores` that need predictions
    majority: float  # accuracy of always the most frequent label: the baseline
    num_classes: int
    confusion: Confusion | None  # None: there are too many classes
    confusions: list[tuple[str, str, int]]  # label, predicted, examples
    calibration: Chart | None
    hardest: list[Hard]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Numbers and scores as texts, the baseline of accuracy after it."""
        rows = [("examples", number(self.num)), ("classes", number(self.num_classes))]
        for heading, value in self.scores.items():
            rows.append((heading, shown(value)))
            if heading == "accuracy":
                name = "baseline: always the most frequent class"
                rows.append((name, f"{self.majority:.4f}"))
        return rows


def hardest(log_likelihood: np.ndarray, num: int = NUM_HARDEST) -> np.ndarray:
    """Rows of the examples with the least likely labels, the least first, i64."""
    return np.argsort(log_likelihood, kind="stable")[:num]


def predictions(examples: Predicted) -> Predictions:
    """The parts of the page about predictions of one example or more."""
    classes, numbers = np.unique(
        np.concatenate([examples.labels, examples.predicted]), return_inverse=True
    )
    labels, predicted = np.split(numbers, 2)
    num, is_correct = len(labels), labels == predicted
    confidence, logs = examples.probability.astype(np.float64), examples.log_likelihood
    scored = uncertainty.Predicted(labels, confidence, is_correct, logs)
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(matrix, (labels, predicted), 1)
    shares = (matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)).tolist()
    is_small = len(classes) <= _MAX_CLASSES
    names = [short(str(name)) for name in classes]
    return Predictions(
        what=examples.what,
        num=num,
        scores=measured("predictions", None, scored, affordable(num, _DRAWS)),
        majority=float(matrix.sum(axis=1).max() / num),
        num_classes=len(classes),
        confusion=Confusion(names, matrix.tolist(), shares) if is_small else None,
        confusions=[] if is_small else _most_confused(names, matrix),
        calibration=_calibration(examples.bins),
        hardest=[_hard(examples, row) for row in hardest(examples.log_likelihood)],
    )


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


def _calibration(bins: uncertainty.Reliability) -> Chart | None:
    which = np.flatnonzero(bins.num_examples)
    points = [(float(bins.confidence[b]), float(bins.accuracy[b])) for b in which]
    series = [Series("accuracy", points)]
    return line_chart("Accuracy by confidence", series, "confidence", unit_square=True)


def _hard(examples: Predicted, row: int) -> Hard:
    key = examples.keys[row]
    pixels = examples.pictures.get(key)
    return Hard(
        short(key),
        short(str(examples.labels[row])),
        short(str(examples.predicted[row])),
        float(examples.probability[row]),
        float(np.exp(examples.log_likelihood[row])),
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
