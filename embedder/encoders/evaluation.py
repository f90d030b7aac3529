"""Evaluates an encoder: accuracy, likelihood, calibration, and rejection.

Examples of classes that it was not trained on have only embeddings, not predictions.
"""

import math
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
from embedder.encoders.predictor import Predictions, Predictor, predictor_of
from embedder.encoders.score_intervals import Intervals, score_intervals
from embedder.encoders.uncertainty import (
    Rejection,
    Reliability,
    kept_examples,
    rejection,
    reliability,
)
from embedder.errors import InputError
from embedder.evaluation.intervals import Estimate
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
    intervals: Intervals  # of the scores, and of constant predictions


class Evaluated(NamedTuple):
    """Labelled examples, with what an encoder makes of them."""

    examples: str  # which, for the user
    num_networks: int
    labels: np.ndarray  # i[n] from 0
    vectors: np.ndarray  # embeddings f[n, E]; of replicas their mean
    features: np.ndarray | None  # [n, ...]; None: they were not read
    untrained: tuple[str, ...]  # classes that the encoder does not have
    predictions: Evaluation | None  # None: there are such classes


def evaluate_run(run: Path, examples: str | None, seed: int = 0) -> Evaluated:
    """Evaluates the encoder of a run, or of an encoder file.

    Args:
      examples: path of labelled examples in a format of training; None: the validation
        examples of the run, by its labels.parquet and vectors.safetensors.
      seed: of the intervals.

    Raises:
      InputNotFoundError: there is no run, or there are no such examples.
      InputError: the run has no validation examples, or `examples` have other shapes
        or dtypes than the encoder.
    """
    if examples is None:
        return _evaluate_validation(run, seed)
    model = read_model(run)
    found = _read_examples(run, model, examples)
    where = f"examples of {Path(without_secrets(examples)).name}"
    predictor, predictions = predictor_of(model), None
    untrained = _untrained(found, model)
    if not untrained:
        names = [str(name) for name in model.classes]
        known = {name: i for i, name in enumerate(names)}
        labels = np.array([known[name] for name in found.classes])[found.labels]
        predicted, vectors = predictor.predict_and_embed(
            found.features, model.rotations, labels
        )
        about = where, predictor.num_networks
        predictions = _evaluation(*about, predicted, labels, seed)
    else:
        vectors = predictor.vectors(found.features, model.rotations)
    return Evaluated(
        *(where, predictor.num_networks, found.labels, vectors, found.features),
        *(untrained, predictions),
    )


def evaluate_labelled(
    predictor: Predictor,
    features: np.ndarray,
    labels: np.ndarray,
    examples: str,
    seed: int = 0,
) -> Evaluation:
    """Evaluates a network or replicas on features [n, ...] with labels i[n].

    Args:
      examples: which these are, for the user.
      seed: of the intervals.
    """
    found = predictor.predict_labelled(features, labels)
    return _evaluation(examples, predictor.num_networks, found, labels, seed)


def _evaluation(
    examples: str,
    num_networks: int,
    found: Predictions,
    labels: np.ndarray,
    seed: int,
) -> Evaluation:
    return make_evaluation(
        examples,
        num_networks,
        labels=labels,
        confidence=found.split.probabilities.max(axis=1),
        is_correct=found.split.probabilities.argmax(axis=1) == labels,
        log_likelihood=found.log_likelihood,
        entropy=found.split.total,
        seed=seed,
    )


def make_evaluation(
    examples: str,
    num_networks: int,
    *,
    labels: np.ndarray,
    confidence: np.ndarray,
    is_correct: np.ndarray,
    log_likelihood: np.ndarray,
    entropy: np.ndarray,
    seed: int = 0,
) -> Evaluation:
    """The evaluation of n predictions.

    Args:
      labels: [n], of any type.
      confidence: [n], probability of the predicted class.
      is_correct: bool[n], whether that is the label.
      log_likelihood: [n], log of the probability of the label.
      entropy: [n], of the probabilities, in nats.
      seed: of the intervals.
    """
    intervals = score_intervals(
        labels,
        confidence=confidence,
        is_correct=is_correct,
        log_likelihood=log_likelihood,
        kept={percent: kept_examples(entropy, percent) for percent in PERCENTS},
        seed=seed,
    )
    return Evaluation(
        examples,
        len(is_correct),
        num_networks,
        float(is_correct.mean()),
        max(0.0, -float(log_likelihood.mean())),  # not -0
        reliability(confidence, is_correct),
        rejection(is_correct, entropy),
        intervals,
    )


def report(found: Evaluation) -> list[str]:
    """The evaluation as lines of text."""
    networks = "" if found.num_networks == 1 else f", {found.num_networks} networks"
    rejected = "  ".join(f"{percent:5} %" for percent in PERCENTS)
    remaining = "  ".join(f"{found.rejection.at(each):7.4f}" for each in PERCENTS)
    each = found.intervals
    others = [each.rejection[percent] for percent in PERCENTS]
    lower, upper = ("  ".join(f"{x[i]:7.4f}" for x in others) for i in (1, 2))
    return [
        f"{found.num_examples} {found.examples}{networks}",
        f"accuracy                      {_shown(each.accuracy)}",
        f"  most frequent class         {_shown(each.most_frequent)}",
        f"negative log likelihood       {_shown(each.negative_log_likelihood)}",
        f"  frequencies of the classes  {_shown(each.frequencies)}",
        f"calibration error (ECE)       {_shown(each.calibration_error)}",
        f"most uncertain rejected       {rejected}",
        f"accuracy of the others        {remaining}",
        f"  from                        {lower}",
        f"  to                          {upper}",
        *_warnings(found),
    ]


def _shown(found: Estimate) -> str:
    return f"{max(found.value, 0.0):7.4f} [{found.lower:.4f}, {found.upper:.4f}]"


def _warnings(found: Evaluation) -> list[str]:
    """Lines about scores in which a constant prediction is as good."""
    each, lines = found.intervals, []
    if each.most_frequent.value >= each.accuracy.value:
        lines.append("the most frequent class is as accurate")
    if each.frequencies.value <= each.negative_log_likelihood.value:
        lines.append("the frequencies of the classes are as likely")
    return lines


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
            | _bounds(found.intervals.rejection[each])
            for each in PERCENTS
        ],
        "intervals": {
            name: _bounds(getattr(found.intervals, name))
            for name in ("accuracy", "negative_log_likelihood", "calibration_error")
        },
        "baselines": {
            "most frequent class": {"accuracy": _plain(found.intervals.most_frequent)},
            "frequencies of the classes": {
                "negative_log_likelihood": _plain(found.intervals.frequencies)
            },
        },
    }


def _plain(found: Estimate) -> dict[str, float | None]:
    """An estimate for `json.dumps`; what is not finite is None."""
    return {
        name: value if math.isfinite(value) else None
        for name, value in found._asdict().items()
    }


def _bounds(found: Estimate) -> dict[str, float | None]:
    plain = _plain(found)
    return {name: plain[name] for name in ("lower", "upper")}


def _evaluate_validation(run: Path, seed: int) -> Evaluated:
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
        labels=columns["label"],
        confidence=columns["probability"],
        is_correct=columns["label"] == columns["predicted"],
        log_likelihood=columns["log_likelihood"],
        entropy=columns["entropy"],
        seed=seed,
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
