"""Predictions of the examples of a run: labels.parquet, and exports for others.

Columns of labels.parquet: key, label, predicted (the most probable class), probability
(of that class), log_likelihood (of the label), trained (False: held out for
validation), entropy (of the probabilities, in nats). The probabilities of replicas are
their means; these have entropy_data and entropy_model, too, see `EntropySplit`.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder.data.examples.batches import split_validation
from embedder.data.examples.examples import Examples
from embedder.disk.arrays import pack_strings
from embedder.disk.digests import check_digest, read_digests
from embedder.disk.files import atomic_file, check_utf8_path
from embedder.disk.untrusted import read_table
from embedder.disk.workdir import Workdir
from embedder.encoders.artefact import EncoderFile, read_model
from embedder.encoders.new_examples import read_examples
from embedder.encoders.predictor import Predictions, predictor_of
from embedder.errors import InputError
from embedder.metrics.uncertainty import EntropySplit
from embedder.vectors.array_formats import save_arrays
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import ending_of, write_ensemble, write_table

_ENDINGS = ".parquet", ".safetensors"

_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("key", "label", "predicted"), pl.String),
    **dict.fromkeys(("probability", "log_likelihood", "entropy"), pl.Float64),
    "trained": pl.Boolean,
}
"""Columns of every file."""


def write_labels(
    path: Path,
    examples: Examples,
    predictions: Predictions,
    is_trained: np.ndarray,
    has_replicas: bool,
) -> None:
    """Writes the file atomically.

    Args:
      is_trained: bool[n], whether each example was trained on.
    """
    columns = prediction_columns(examples, predictions.split, is_trained)
    columns |= {"log_likelihood": predictions.log_likelihood}
    columns |= entropy_columns(predictions.split, has_replicas)
    with atomic_file(path) as part:
        pl.DataFrame(columns).write_parquet(part)


def prediction_columns(
    examples: Examples, split: EntropySplit, is_trained: np.ndarray
) -> dict[str, Any]:
    """The columns from key to trained, without the likelihood."""
    classes = np.array(examples.classes)
    return {
        "key": examples.keys,
        "label": classes[examples.labels],
        "predicted": classes[split.probabilities.argmax(axis=1)],
        "probability": split.probabilities.max(axis=1),
        "trained": is_trained,
    }


def entropy_columns(split: EntropySplit, has_replicas: bool) -> dict[str, np.ndarray]:
    """The total entropy, and of replicas its parts."""
    if not has_replicas:
        return {"entropy": split.total}
    parts = {"entropy_data": split.data, "entropy_model": split.model}
    return {"entropy": split.total, **parts}


def read_labels(run: Path, columns: list[str]) -> pl.DataFrame:
    """The columns of the labels.parquet of a run, which is checked.

    Raises:
      InputError: the file is damaged, or lacks a column.
      FileNotFoundError: there is none.
    """
    path = Workdir(run).labels
    check_utf8_path(path, "The path of a run")
    try:
        with contextlib.suppress(FileNotFoundError):
            check_digest(path, read_digests(run).get(path.name))
        frame = read_table(path)
    except ValueError as error:
        raise InputError(f"{path} is not a whole file of labels: {error}.") from error
    for name in columns:
        dtype, expected = frame.schema.get(name, pl.Null()), _TYPES[name]
        is_number = expected == pl.Float64 and dtype.is_float()
        if not (is_number or dtype == expected) or frame[name].null_count():
            is_there = f"column `{name}` is {dtype}"
            why = is_there if name in frame else f"no column `{name}`"
            raise InputError(f"{path} is not a whole file of labels: {why}.")
    return frame.select(columns)


def export_predictions(run: Path, path: Path) -> int:
    """Writes class probabilities and entropies of a run's examples, atomically.

    .parquet has the columns of labels.parquet but for the likelihood, and a column
    `probability_CLASS` for each class. .safetensors has `probabilities` [n, C],
    `entropy` f64[n], of replicas `entropy_data` and `entropy_model`; `label` and
    `predicted` i32[n], indices of classes; `trained` u8[n]; the names `keys` and
    `classes`, u8 in UTF-8 end to end, with `key_ends` i64[n] and `class_ends` i64[C].

    Returns:
      Number of examples.

    Raises:
      InputError: the ending is another, or the examples of the run have changed.
      InputNotFoundError: they are gone.
    """
    ending = ending_of(path, _ENDINGS, "to")
    model, examples, is_trained = _read(run)
    predictor = predictor_of(model)
    split = predictor.predict(examples.features)
    entropies = entropy_columns(split, predictor.has_replicas)
    if ending == ".safetensors":
        packed = *pack_strings(examples.keys), *pack_strings(examples.classes)
        names = "keys", "key_ends", "classes", "class_ends"
        arrays = dict(zip(names, packed, strict=True)) | {
            "label": examples.labels,
            "predicted": split.probabilities.argmax(axis=1).astype(np.int32),
            "trained": is_trained.astype(np.uint8),
            "probabilities": split.probabilities,
            **entropies,
        }
        with atomic_file(path) as part:
            save_arrays(arrays, part)
    else:
        columns = prediction_columns(examples, split, is_trained) | entropies
        by_class = zip(examples.classes, split.probabilities.T, strict=True)
        columns |= {f"probability_{name}": values for name, values in by_class}
        write_table(columns, path)
    return len(examples.keys)


def export_replicas(run: Path, path: Path) -> tuple[int, int]:
    """Writes the aligned embeddings of a run's examples by each network.

    As `write_ensemble`: examples are its tokens, with a count of 1.

    Returns:
      Numbers of networks and of examples.

    Raises:
      InputError: as `export_predictions`, or the run has one network.
    """
    ending_of(path, _ENDINGS, "to")
    model, examples, _ = _read(run)
    if model.rotations is None:
        raise InputError(f"`replicas` applies only to a run with replicas, got {run}.")
    vectors = predictor_of(model).each_vectors(examples.features, model.rotations)
    counts = np.ones(len(examples.keys), np.int64)
    write_ensemble(Ensemble(examples.keys, vectors, counts), path)
    return len(model.rotations), len(examples.keys)


def _read(run: Path) -> tuple[EncoderFile, Examples, np.ndarray]:
    """The encoder of a run, its examples, and whether each was trained on, bool[n]."""
    model = read_model(run)
    config, examples = read_examples(run)
    num = len(examples.labels)
    train, _ = split_validation(num, config.encoder.validation_fraction)
    return model, examples, np.isin(np.arange(num), train)
