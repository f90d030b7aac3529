"""labels.parquet: label and prediction of each example of a run.

Columns: key, label, predicted (the most probable class), probability (of that class),
log_likelihood (of the label), trained (False: held out for validation), entropy (of the
probabilities, in nats). The probabilities of replicas are their means; these have
entropy_data and entropy_model, too, see `uncertainty.EntropySplit`.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder.disk.digests import check_digest, read_digests
from embedder.disk.files import atomic_file, check_utf8_path
from embedder.disk.untrusted import read_table
from embedder.encoders.examples import Examples
from embedder.encoders.predictor import Predictions
from embedder.encoders.uncertainty import EntropySplit
from embedder.errors import InputError
from embedder.run.workdir import Workdir

_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("key", "label", "predicted"), pl.String),
    "probability": pl.Float64,
    "log_likelihood": pl.Float64,
    "trained": pl.Boolean,
    "entropy": pl.Float64,
}
"""Columns of every file."""


def write_labels(
    path: Path,
    examples: Examples,
    found: Predictions,
    is_trained: np.ndarray,
    has_replicas: bool,
) -> None:
    """Writes the file atomically.

    Args:
      is_trained: bool[n], whether each example was trained on.
    """
    columns = prediction_columns(examples, found.split, is_trained)
    columns["log_likelihood"] = found.log_likelihood
    columns |= entropy_columns(found.split, has_replicas)
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
    if missing := sorted({*columns} - {*frame.columns}):
        raise InputError(
            f"{path} has no column `{missing[0]}`, as files of former versions: train "
            "again, or give --examples DATA."
        )
    found = frame.select(columns)
    for name in columns:
        dtype, expected = found.schema[name], _TYPES[name]
        is_number = expected == pl.Float64 and dtype.is_float()
        if not (is_number or dtype == expected) or found[name].null_count():
            raise InputError(
                f"{path} is not a whole file of labels: column `{name}` is {dtype}."
            )
    return found
