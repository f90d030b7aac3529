"""Files of ensembles: safetensors to read again, Parquet and CSV for other programs.

Axis letters: K replicas, V tokens, D dimensions.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.disk.arrays import pack_strings, unpack_strings
from embedder.disk.files import atomic_file, check_utf8_path
from embedder.errors import InputError, InputNotFoundError
from embedder.threads import use_threads
from embedder.vectors.array_formats import (
    ARRAY_NAMES,
    check_arrays,
    check_names,
    key_column,
    name_damaged_file,
    no_columns,
    save_arrays,
    with_columns,
)
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.vectors import KeyType, typed_keys

if TYPE_CHECKING:
    import polars as pl

REPLICAS_FILE = "replicas.safetensors"
"""The file of the ensemble in the folder of a run."""
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
    if _ending(path, (".safetensors", ".parquet")) == ".safetensors":
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
    rows = np.tile(np.arange(num_tokens), num_replicas)
    _write_table(table, Path(path), columns, rows)


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
    _ending(path, (".parquet", ".csv"))
    rows = ensemble.frequent(num)
    texts = [ensemble.texts[row] for row in rows]
    table = {
        "token": key_column(texts, ensemble.key_type),
        "count": ensemble.counts[rows],
        "stability": ensemble.stability(texts),
    }
    _write_table(table, Path(path), columns, rows)
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

    with name_damaged_file(path, "replicas", SafetensorError, AttributeError):
        with safe_open(path, framework="numpy") as file:
            check_names(file.keys(), ARRAY_NAMES)
            tokens = file.get_tensor("tokens"), file.get_tensor("token_ends")
            kind = file.get_slice("vectors").get_dtype()
            if kind not in _DTYPES:
                raise InputError(f"`vectors` must be F32 or F64, got {kind}")
            shape = tuple(file.get_slice("vectors").get_shape())
            ensemble = Ensemble(
                typed_keys(unpack_strings(*tokens), key_type),
                np.memmap(
                    path, _DTYPES[kind], "r", _offset(path, "vectors"), shape=shape
                ),
                file.get_tensor("counts"),
            )
            check_arrays(_arrays(ensemble), file.metadata())
            return ensemble


def _arrays(ensemble: Ensemble) -> dict[str, np.ndarray]:
    """The arrays of a file by name."""
    tokens, token_ends = pack_strings(ensemble.texts)
    arrays = ensemble.vectors, tokens, token_ends, ensemble.counts
    return dict(zip(ARRAY_NAMES, arrays, strict=True))


def _offset(path: Path, name: str) -> int:
    """Offset of an array in a .safetensors file that `safe_open` has opened."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return 8 + size + json.loads(file.read(size))[name]["data_offsets"][0]


def _ending(path: str | os.PathLike[str], endings: tuple[str, str]) -> str:
    """The ending of `path`; InputError if it is none of `endings`."""
    found = Path(path).suffix.lower()
    if found not in endings:
        raise InputError(
            f"`path` must end in {' or '.join(endings)}, got {os.fspath(path)!r}."
        )
    return found


def _write_table(
    table: dict[str, Any], path: Path, columns: "pl.DataFrame | None", rows: np.ndarray
) -> None:
    """Writes a .parquet or .csv file, atomically, with `rows` of `columns`."""
    import polars as pl

    use_threads()
    check_utf8_path(path, f"A {path.suffix[1:]} file")
    try:
        with atomic_file(path) as part:
            frame = pl.DataFrame(table)
            if columns is not None:
                frame = with_columns(frame, columns[rows])
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
