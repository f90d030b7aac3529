"""Evaluates an encoder: accuracy, likelihood, calibration, and rejection."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.config import read_toml
from embedder.disk.urls import without_secrets
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.embedding import read_model
from embedder.encoders.examples import Examples
from embedder.encoders.formats import open_examples
from embedder.encoders.labels import read_labels
from embedder.encoders.new_examples import reading_options
from embedder.encoders.predictor import Predictor, predictor_of
from embedder.encoders.uncertainty import Rejection, Reliability, rejection, reliability
from embedder.errors import InputError
from embedder.run.workdir import Workdir

PERCENTS = (0, 10, 20, 50)
"""Percentages of the examples that are rejected."""


class Evaluation(NamedTuple):
    """How good predictions of labelled examples are, and how well they know it."""

    examples: str  # which, for the user
    num_examples: int
    num_networks: int
    accuracy: float
    negative_log_likelihood: float  # mean of -log of the probability of the label
    reliability: Reliability
    rejection: Rejection  # by total entropy


def evaluate_run(run: Path, examples: str | None) -> Evaluation:
    """Evaluates the encoder of a run, or of an encoder file.

    Args:
      examples: path of labelled examples in a format of training; None: the validation
        examples of the run, by its labels.parquet.

    Raises:
      InputNotFoundError: there is no run, or there are no such examples.
      InputError: the run has no validation examples, or `examples` have other shapes,
        dtypes or classes than the encoder.
    """
    if examples is None:
        return _evaluate_validation(run)
    model = read_model(run)
    found = _read_examples(run, model, examples)
    where = f"examples of {Path(without_secrets(examples)).name}"
    return evaluate_labelled(predictor_of(model), found.features, found.labels, where)


def evaluate_labelled(
    predictor: Predictor, features: np.ndarray, labels: np.ndarray, examples: str
) -> Evaluation:
    """Evaluates a network or replicas on features [n, ...] with labels i[n].

    Args:
      examples: which these are, for the user.
    """
    found = predictor.predict_labelled(features, labels)
    return make_evaluation(
        examples,
        predictor.num_networks,
        confidence=found.split.probabilities.max(axis=1),
        is_correct=found.split.probabilities.argmax(axis=1) == labels,
        log_likelihood=found.log_likelihood,
        entropy=found.split.total,
    )


def make_evaluation(
    examples: str,
    num_networks: int,
    *,
    confidence: np.ndarray,
    is_correct: np.ndarray,
    log_likelihood: np.ndarray,
    entropy: np.ndarray,
) -> Evaluation:
    """The evaluation of n predictions.

    Args:
      confidence: [n], probability of the predicted class.
      is_correct: bool[n], whether that is the label.
      log_likelihood: [n], log of the probability of the label.
      entropy: [n], of the probabilities, in nats.
    """
    return Evaluation(
        examples,
        len(is_correct),
        num_networks,
        float(is_correct.mean()),
        max(0.0, -float(log_likelihood.mean())),  # not -0
        reliability(confidence, is_correct),
        rejection(is_correct, entropy),
    )


def report(found: Evaluation) -> list[str]:
    """The evaluation as lines of text."""
    networks = "" if found.num_networks == 1 else f", {found.num_networks} networks"
    rejected = "  ".join(f"{percent:5} %" for percent in PERCENTS)
    remaining = "  ".join(f"{found.rejection.at(each):7.4f}" for each in PERCENTS)
    return [
        f"{found.num_examples} {found.examples}{networks}",
        f"accuracy                      {found.accuracy:7.4f}",
        f"negative log likelihood       {found.negative_log_likelihood:7.4f}",
        f"calibration error (ECE)       {found.reliability.calibration_error:7.4f}",
        f"most uncertain rejected       {rejected}",
        f"accuracy of the others        {remaining}",
    ]


def as_json(found: Evaluation) -> dict[str, Any]:
    """The evaluation for `json.dumps`; means of empty bins are None."""
    bins = found.reliability
    edges = np.linspace(0, 1, len(bins.num_examples) + 1)
    return {
        "examples": found.num_examples,
        "networks": found.num_networks,
        "accuracy": found.accuracy,
        "negative_log_likelihood": found.negative_log_likelihood,
        "calibration_error": bins.calibration_error,
        "bins": [
            {
                "lower": float(edges[b]),
                "upper": float(edges[b + 1]),
                "examples": int(num),
                "confidence": float(bins.confidence[b]) if num else None,
                "accuracy": float(bins.accuracy[b]) if num else None,
            }
            for b, num in enumerate(bins.num_examples)
        ],
        "rejection": [
            {"rejected": each / 100, "accuracy": found.rejection.at(each)}
            for each in PERCENTS
        ],
    }


def _evaluate_validation(run: Path) -> Evaluation:
    names = ["label", "predicted", "probability", "log_likelihood", "entropy"]
    frame = read_labels(run, [*names, "trained"])
    frame = frame.filter(~frame["trained"])
    if frame.is_empty():
        raise InputError(
            f"RUN {run} has no validation examples: train with --validation-fraction, "
            "or give labelled examples by --examples DATA."
        )
    columns = {name: frame[name].to_numpy() for name in names}
    return make_evaluation(
        "validation examples",
        read_toml(Workdir(run).config).run.replicas,
        confidence=columns["probability"],
        is_correct=columns["label"] == columns["predicted"],
        log_likelihood=columns["log_likelihood"],
        entropy=columns["entropy"],
    )


def _read_examples(run: Path, model: EncoderFile, source: str) -> Examples:
    """The examples at `source`, with labels as indices into the encoder's classes.

    Raises:
      InputError: they do not fit the encoder; the message names `--examples`.
    """
    examples = open_examples(source, reading_options(run, model)).read(None)
    source = without_secrets(source)
    _check_features(source, examples.features, model)
    known = {str(name): i for i, name in enumerate(model.classes)}
    if others := [name for name in examples.classes if name not in known]:
        raise InputError(
            f"--examples {source} must have classes of the encoder "
            f"({', '.join([*known][:10])}), got {others[0]!r}."
        )
    indices = np.array([known[name] for name in examples.classes])
    return examples._replace(
        labels=indices[examples.labels], classes=[str(each) for each in model.classes]
    )


def _check_features(source: str, features: np.ndarray, model: EncoderFile) -> None:
    shape, is_uint8 = features.shape[1:], features.dtype == np.uint8
    if shape == model.example_shape and is_uint8 == (model.example_dtype == "uint8"):
        return
    raise InputError(
        f"--examples {source} must have features {model.example_dtype}"
        f"{list(model.example_shape)}, as the encoder was trained on, got "
        f"{features.dtype}{list(shape)}."
    )
