"""Evaluates an encoder: accuracy, likelihood, calibration, and rejection.

Examples of classes that it was not trained on have only embeddings, not predictions.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.config import read_toml
from embedder.disk.urls import without_secrets
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.embedding import read_model
from embedder.encoders.examples import UNLABELLED, Examples
from embedder.encoders.formats import open_examples
from embedder.encoders.labels import read_labels
from embedder.encoders.new_examples import reading_options
from embedder.encoders.predictor import Predictor, predictor_of
from embedder.encoders.uncertainty import Rejection, Reliability, rejection, reliability
from embedder.errors import InputError
from embedder.run.workdir import Workdir
from embedder.vectors.export import read_vectors

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


class Evaluated(NamedTuple):
    """Labelled examples, with what an encoder makes of them."""

    examples: str  # which, for the user
    num_networks: int
    labels: np.ndarray  # i[n] from 0
    vectors: np.ndarray  # embeddings f[n, E]; of replicas their mean
    features: np.ndarray | None  # [n, ...]; None: they were not read
    untrained: tuple[str, ...]  # classes that the encoder does not have
    predictions: Evaluation | None  # None: there are such classes


def evaluate_run(run: Path, examples: str | None) -> Evaluated:
    """Evaluates the encoder of a run, or of an encoder file.

    Args:
      examples: path of labelled examples in a format of training; None: the validation
        examples of the run, by its labels.parquet and vectors.safetensors.

    Raises:
      InputNotFoundError: there is no run, or there are no such examples.
      InputError: the run has no validation examples, or `examples` have other shapes
        or dtypes than the encoder.
    """
    if examples is None:
        return _evaluate_validation(run)
    model = read_model(run)
    found = _read_examples(run, model, examples)
    where = f"examples of {Path(without_secrets(examples)).name}"
    predictor, predictions = predictor_of(model), None
    untrained = _untrained(found, model)
    if not untrained:
        names = [str(name) for name in model.classes]
        known = {name: i for i, name in enumerate(names)}
        labels = np.array([known[name] for name in found.classes])[found.labels]
        predictions = evaluate_labelled(predictor, found.features, labels, where)
    vectors = predictor.vectors(found.features, model.rotations)
    return Evaluated(
        *(where, predictor.num_networks, found.labels, vectors, found.features),
        *(untrained, predictions),
    )


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


def _evaluate_validation(run: Path) -> Evaluated:
    names = ["key", "label", "predicted", "probability", "log_likelihood", "entropy"]
    frame = read_labels(run, [*names, "trained"])
    vectors = read_vectors(Workdir(run).vectors)
    if frame["key"].to_list() != vectors.keys:
        raise InputError(
            f"{Workdir(run).labels} and {Workdir(run).vectors.name} are not of the "
            "same examples: `embedder verify` tells which is damaged."
        )
    is_held = ~frame["trained"]
    if frame["label"].unique().to_list() == [UNLABELLED]:
        raise InputError(
            f"RUN {run} was trained on examples without labels, which have nothing to "
            "evaluate: give labelled examples by --examples DATA."
        )
    if not is_held.any():
        raise InputError(
            f"RUN {run} has no validation examples: train with --validation-fraction, "
            "or give labelled examples by --examples DATA."
        )
    held = frame.filter(is_held)
    columns = {name: held[name].to_numpy() for name in names}
    where = "validation examples"
    num_networks = read_toml(Workdir(run).config).run.replicas
    predictions = make_evaluation(
        where,
        num_networks,
        confidence=columns["probability"],
        is_correct=columns["label"] == columns["predicted"],
        log_likelihood=columns["log_likelihood"],
        entropy=columns["entropy"],
    )
    _, labels = np.unique(columns["label"], return_inverse=True)
    found = vectors.matrix[is_held.to_numpy()]
    return Evaluated(where, num_networks, labels, found, None, (), predictions)


def _read_examples(run: Path, model: EncoderFile, source: str) -> Examples:
    """The examples at `source`.

    Raises:
      InputError: they do not fit the encoder; the message names `--examples`.
    """
    examples = open_examples(source, reading_options(run, model)).read(None)
    _check_features(without_secrets(source), examples.features, model)
    return examples


def _untrained(examples: Examples, model: EncoderFile) -> tuple[str, ...]:
    """Classes of the examples that the encoder does not have."""
    known = {str(name) for name in model.classes}
    return tuple(name for name in examples.classes if name not in known)


def _check_features(source: str, features: np.ndarray, model: EncoderFile) -> None:
    shape, is_uint8 = features.shape[1:], features.dtype == np.uint8
    if shape == model.example_shape and is_uint8 == (model.example_dtype == "uint8"):
        return
    raise InputError(
        f"--examples {source} must have features {model.example_dtype}"
        f"{list(model.example_shape)}, as the encoder was trained on, got "
        f"{features.dtype}{list(shape)}."
    )
