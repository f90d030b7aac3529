"""Files of ensembles: safetensors to read again, Parquet and CSV for other programs.

Axis letters: K replicas, V tokens, D dimensions.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.base.threads import use_threads
from embedder.disk.arrays import unpack_strings
from embedder.disk.files import atomic_file, check_utf8_path
from embedder.disk.workdir import REPLICAS_FILE
from embedder.errors import InputError, InputNotFoundError
from embedder.vectors.array_formats import (
    ARRAY_NAMES,
    check_arrays,
    check_names,
    key_column,
    name_damaged_file,
    named_arrays,
    no_columns,
    save_arrays,
    tensor,
    with_columns,
)
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.reduce import Packed
from embedder.vectors.vectors import KeyType, typed_keys

if TYPE_CHECKING:
    import polars as pl

_DTYPES: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


def write_ensemble(
    ensemble: Ensemble,
    path: str | os.PathLike[str],
    *,
    columns: "pl.DataFrame | None" = None,
) -> None:
    """Writes the vectors of all replicas atomically, in the format of the ending.

    .safetensors holds `vectors` [K, V, D], `tokens` u8 (in UTF-8, concatenated),
    `token_ends` i64[V], `counts` i64[V] and the SHA-256 of these; .parquet the columns
    token, replica (from 0) and vector, one replica after the other. Tokens that are
    integers are so in .parquet, and text in .safetensors.

    Args:
      columns: more columns of a .parquet file, a row for each token.

    Raises:
      InputError: the ending is another, or `columns` do not fit.
      OSError: the disk is full, say; an existing file at `path` stays.
    """
    if ending_of(path, (".safetensors", ".parquet")) == ".safetensors":
        if columns is not None:
            raise InputError(no_columns(path, (".parquet",)))
        with atomic_file(Path(path)) as part:
            save_arrays(_arrays(ensemble), part)
        return
    num_replicas, num_tokens, size = ensemble.vectors.shape
    table = {
        "token": key_column(ensemble.texts * num_replicas, ensemble.key_type),
        "replica": np.repeat(np.arange(num_replicas), num_tokens),
        "vector": ensemble.vectors.reshape(-1, size),
    }
    if columns is not None:
        columns = columns[np.tile(np.arange(num_tokens), num_replicas)]
    write_table(table, Path(path), columns)


def write_stability(
    ensemble: Ensemble,
    num: int,
    path: str | os.PathLike[str],
    *,
    columns: "pl.DataFrame | None" = None,
) -> list[str]:
    """Writes the columns token, count and stability of the `num` most frequent tokens
    to a .parquet or .csv file, atomically; returns these as text.

    Args:
      columns: more columns, a row for each token of the ensemble.

    Raises:
      InputError, InputTypeError: the ending is another, `num` is no integer >= 1, or
        `columns` do not fit.
      OSError: the disk is full, say; an existing file at `path` stays.
    """
    ending_of(path, (".parquet", ".csv"))
    rows = ensemble.frequent(num)
    texts = [ensemble.texts[row] for row in rows]
    table = {
        "token": key_column(texts, ensemble.key_type),
        "count": ensemble.counts[rows],
        "stability": ensemble.stability(texts),
    }
    write_table(table, Path(path), None if columns is None else columns[rows])
    return texts


def read_ensemble(path: str | os.PathLike[str], key_type: KeyType = "text") -> Ensemble:
    """The ensemble of a run with replicas, or of a .safetensors file of one.

    The vectors are memory-mapped.

    Args:
      key_type: of the tokens; "integer": text if one of them is no integer.

    Raises:
      InputNotFoundError: there is no such file, or the run has one model.
      InputError: the file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        path = path / REPLICAS_FILE
    if not path.is_file():
        raise InputNotFoundError(
            f"Replicas file {path} does not exist: `embedder train --replicas` "
            "writes one."
        )
    from safetensors import SafetensorError, safe_open

    with name_damaged_file(path, "replicas", SafetensorError):
        with safe_open(path, framework="numpy") as file:
            check_names(file.keys(), ARRAY_NAMES)
            tokens = tensor(file, "tokens"), tensor(file, "token_ends")
            kind = file.get_slice("vectors").get_dtype()
            if kind not in _DTYPES:
                raise InputError(f"`vectors` must be F32 or F64, got {kind}")
            shape = tuple(file.get_slice("vectors").get_shape())
            with open(path, "rb") as raw:  # `safe_open` does not give offsets
                size = int.from_bytes(raw.read(8), "little")
                place = json.loads(raw.read(size))["vectors"]["data_offsets"]
            ensemble = Ensemble(
                typed_keys(unpack_strings(*tokens), key_type),
                np.memmap(path, _DTYPES[kind], "r", 8 + size + place[0], shape=shape),
                tensor(file, "counts"),
            )
            check_arrays(_arrays(ensemble), file.metadata())
            return ensemble


def _arrays(ensemble: Ensemble) -> dict[str, np.ndarray]:
    return named_arrays(ensemble.texts, Packed(ensemble.vectors), ensemble.counts)


def ending_of(
    path: str | os.PathLike[str], endings: tuple[str, str], argument: str = "path"
) -> str:
    """The ending of `path`; InputError about `argument` if it is none of `endings`."""
    ending = Path(path).suffix.lower()
    if ending not in endings:
        raise InputError(
            f"`{argument}` must end in {' or '.join(endings)}, got {os.fspath(path)!r}."
        )
    return ending


def write_table(
    table: dict[str, Any], path: Path, columns: "pl.DataFrame | None" = None
) -> None:
    """Writes a .parquet or .csv file, atomically, with the columns of both."""
    import polars as pl

    use_threads()
    check_utf8_path(path, f"A {path.suffix[1:]} file")
    try:
        with atomic_file(path) as part:
            frame = pl.DataFrame(table)
            if columns is not None:
                frame = with_columns(frame, columns)
            if path.suffix.lower() == ".csv":
                _check_flat(frame)
                frame.write_csv(part)
            else:
                frame.write_parquet(part)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"A table cannot be written to {path.parent}: {error}") from error


def _check_flat(frame: "pl.DataFrame") -> None:
    """Raises InputError for a column that a .csv file cannot hold."""
    for name, dtype in frame.schema.items():
        if dtype.is_nested():
            raise InputError(
                f"A .csv file has no column of lists or structs, got {name!r}: give "
                "a .parquet file."
            )
