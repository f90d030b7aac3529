"""Evaluates an encoder: accuracy, likelihood, calibration, and rejection.

Examples of classes that it was not trained on have only embeddings, not predictions.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.config import read_toml
from embedder.data.examples.example_formats import open_examples
from embedder.data.examples.examples import UNLABELLED, Examples
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.encoders.artefact import EncoderFile, read_model
from embedder.encoders.new_examples import reading_options
from embedder.encoders.predicted_labels import read_labels
from embedder.encoders.predictor import Predictions, Predictor, predictor_of
from embedder.errors import InputError
from embedder.metrics.intervals import RESAMPLES
from embedder.metrics.uncertainty import (
    Intervals,
    Predicted,
    Rejection,
    Reliability,
    rejection,
    reliability,
    score_intervals,
)
from embedder.vectors.export import read_vectors

_WHOLE = re.compile(r"-?\d+\.0")


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
    predicted: Predicted  # what they are scores of


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
    labelled = _read_examples(run, model, examples)
    where = f"examples of {Path(without_secrets(examples)).name}"
    predictor, predictions = predictor_of(model), None
    known = {str(name): i for i, name in enumerate(model.classes)}
    if all(_WHOLE.fullmatch(name) for name in known):  # of labels that were floats
        known |= {name.removesuffix(".0"): i for name, i in known.items()}
    untrained = tuple(name for name in labelled.classes if name not in known)
    if not untrained:
        labels = np.array([known[name] for name in labelled.classes])[labelled.labels]
        predicted, vectors = predictor.predict_and_embed(
            labelled.features, model.rotations, labels
        )
        predictions = _evaluation(
            where, predictor.num_networks, predicted, labels, seed
        )
    else:
        vectors = predictor.vectors(labelled.features, model.rotations)
    return Evaluated(
        *(where, predictor.num_networks, labelled.labels, vectors, labelled.features),
        *(untrained, predictions),
    )


def evaluate_labelled(
    predictor: Predictor, features: np.ndarray, labels: np.ndarray
) -> Evaluation:
    """Evaluates a network or replicas on features [n, ...] with labels i[n]."""
    predictions = predictor.predict_labelled(features, labels)
    return _evaluation("examples", predictor.num_networks, predictions, labels, 0)


def _evaluation(
    examples: str,
    num_networks: int,
    predictions: Predictions,
    labels: np.ndarray,
    seed: int,
) -> Evaluation:
    predicted = Predicted(
        labels,
        confidence=predictions.split.probabilities.max(axis=1),
        is_correct=predictions.split.probabilities.argmax(axis=1) == labels,
        log_likelihood=predictions.log_likelihood,
        entropy=predictions.split.total,
    )
    return make_evaluation(examples, num_networks, predicted, seed)


def make_evaluation(
    examples: str, num_networks: int, predicted: Predicted, seed: int
) -> Evaluation:
    """The evaluation of predictions with entropies; `seed` is that of the intervals."""
    is_correct, entropy = predicted.is_correct, predicted.entropy
    assert entropy is not None, "rejection is by entropy"
    return Evaluation(
        examples,
        len(is_correct),
        num_networks,
        float(is_correct.mean()),
        max(0.0, -float(predicted.log_likelihood.mean())),  # not -0
        reliability(predicted.confidence, is_correct),
        rejection(is_correct, entropy),
        score_intervals(predicted, RESAMPLES, seed),
        predicted,
    )


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
    predicted = Predicted(
        columns["label"],
        confidence=columns["probability"],
        is_correct=columns["label"] == columns["predicted"],
        log_likelihood=columns["log_likelihood"],
        entropy=columns["entropy"],
    )
    predictions = make_evaluation(where, num_networks, predicted, seed)
    _, labels = np.unique(columns["label"], return_inverse=True)
    held_vectors = vectors.matrix[is_held.to_numpy()]
    return Evaluated(where, num_networks, labels, held_vectors, None, (), predictions)


def _read_examples(run: Path, model: EncoderFile, source: str) -> Examples:
    """The examples at `source`.

    Raises:
      InputError: they do not fit the encoder; the message names `--examples`.
    """
    options = reading_options(run, model)
    examples = open_examples(source, options, columns=model.columns).read(None)
    shape, dtype = examples.features.shape[1:], examples.features.dtype
    is_uint8 = model.example_dtype == "uint8"
    if shape != model.example_shape or (dtype == np.uint8) != is_uint8:
        raise InputError(
            f"--examples {without_secrets(source)} must have features "
            f"{model.example_dtype}{list(model.example_shape)}, as the encoder was "
            f"trained on, got {dtype}{list(shape)}."
        )
    return examples
