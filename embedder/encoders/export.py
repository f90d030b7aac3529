"""Exports of an encoder's run: predictions, and the embeddings of each replica."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.disk.arrays import pack_strings
from embedder.disk.files import atomic_file, check_utf8_path
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.batches import split_validation
from embedder.encoders.embedding import read_model
from embedder.encoders.examples import Examples
from embedder.encoders.labels import entropy_columns, prediction_columns
from embedder.encoders.predictor import predictor_of
from embedder.encoders.run_examples import read_examples
from embedder.encoders.uncertainty import EntropySplit
from embedder.errors import InputError
from embedder.vectors.array_formats import save_arrays
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble


class _Run(NamedTuple):
    """A run of an encoder with its examples."""

    model: EncoderFile
    examples: Examples
    is_trained: np.ndarray  # bool[n]


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
    ending = _ending(path)
    model, examples, is_trained = _read(run)
    predictor = predictor_of(model)
    split = predictor.predict(examples.features)
    entropies = entropy_columns(split, predictor.has_replicas)
    if ending == ".safetensors":
        arrays = _arrays(examples, split, is_trained) | entropies
        with atomic_file(path) as part:
            save_arrays(arrays, part)
    else:
        columns = prediction_columns(examples, split, is_trained) | entropies
        _write_table(columns | _by_class(examples.classes, split), path)
    return len(examples.keys)


def export_replicas(run: Path, path: Path) -> tuple[int, int]:
    """Writes the aligned embeddings of a run's examples by each network.

    As `write_ensemble`: examples are its tokens, with a count of 1.

    Returns:
      Numbers of networks and of examples.

    Raises:
      InputError: as `export_predictions`, or the run has one network.
    """
    _ending(path)
    model, examples, _ = _read(run)
    if model.rotations is None:
        raise InputError(f"`replicas` applies only to a run with replicas, got {run}.")
    vectors = predictor_of(model).each_vectors(examples.features, model.rotations)
    counts = np.ones(len(examples.keys), np.int64)
    write_ensemble(Ensemble(examples.keys, vectors, counts), path)
    return len(model.rotations), len(examples.keys)


def _ending(path: Path) -> str:
    """The ending of `path`; InputError if it is another than the two."""
    ending = path.suffix.lower()
    if ending not in (".parquet", ".safetensors"):
        raise InputError(
            f"`to` must end in .parquet or .safetensors, got {os.fspath(path)!r}."
        )
    return ending


def _read(run: Path) -> _Run:
    model = read_model(run)
    config, examples = read_examples(run)
    train, _ = split_validation(
        len(examples.labels), config.encoder.validation_fraction
    )
    return _Run(model, examples, np.isin(np.arange(len(examples.labels)), train))


def _arrays(
    examples: Examples, split: EntropySplit, is_trained: np.ndarray
) -> dict[str, np.ndarray]:
    keys, key_ends = pack_strings(examples.keys)
    classes, class_ends = pack_strings(examples.classes)
    return {
        "keys": keys,
        "key_ends": key_ends,
        "classes": classes,
        "class_ends": class_ends,
        "label": examples.labels,
        "predicted": split.probabilities.argmax(axis=1).astype(np.int32),
        "trained": is_trained.astype(np.uint8),
        "probabilities": split.probabilities,
    }


def _by_class(classes: list[str], split: EntropySplit) -> dict[str, np.ndarray]:
    """A column of probabilities for each class."""
    columns = zip(classes, split.probabilities.T, strict=True)
    return {f"probability_{name}": values for name, values in columns}


def _write_table(columns: dict[str, Any], path: Path) -> None:
    import polars as pl

    check_utf8_path(path, "A parquet file")
    try:
        with atomic_file(path) as part:
            pl.DataFrame(columns).write_parquet(part)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"A table cannot be written to {path.parent}: {error}") from error
