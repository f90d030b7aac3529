"""File formats that keep any key, the dtype and the counts: safetensors, npz, Parquet.

Axis letters: V keys, D dimensions.
"""

import contextlib
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embedder.disk.arrays import pack_strings, read_stored_array, unpack_strings
from embedder.disk.files import short_reason
from embedder.errors import InputError
from embedder.threads import use_threads
from embedder.vectors.vectors import Vectors

ARRAY_NAMES = ("vectors", "tokens", "token_ends", "counts")
_DIGEST = "sha256"  # key in the metadata of formats without a checksum


def _arrays(vectors: Vectors) -> dict[str, np.ndarray]:
    """The arrays of a file by name."""
    tokens, token_ends = pack_strings(vectors.keys)
    arrays = {"vectors": vectors.matrix, "tokens": tokens, "token_ends": token_ends}
    if vectors.counts is not None:
        arrays["counts"] = vectors.counts
    return arrays


def _digest(vectors: Vectors) -> str:
    """SHA-256 of keys, vectors and counts, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, array in _arrays(vectors).items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _checked(vectors: Vectors, metadata: dict[str, str] | None) -> Vectors:
    """`vectors`; InputError if they do not have the digest that the metadata names."""
    expected = (metadata or {}).get(_DIGEST)  # other programs write no digest
    if expected is not None and expected != _digest(vectors):
        raise InputError("its keys or numbers are not those that were written")
    return vectors


def _from_arrays(arrays: dict[str, np.ndarray]) -> Vectors:
    for name in ("vectors", "tokens", "token_ends"):
        if name not in arrays:
            raise InputError(f"it has no `{name}`")
    keys = unpack_strings(arrays["tokens"], arrays["token_ends"])
    return Vectors(keys, arrays["vectors"], arrays.get("counts"))


@contextlib.contextmanager
def _name_damaged_file(path: Path, *errors: type[BaseException]) -> Iterator[None]:
    """Turns ValueError, TypeError and `errors` of a reader into one InputError."""
    damage: tuple[type[BaseException], ...] = (ValueError, TypeError, *errors)
    try:
        yield
    except damage as error:
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole vectors file: {reason}.") from error


def write_safetensors(vectors: Vectors, path: Path) -> None:
    """Writes the arrays, and their SHA-256 as metadata."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(_arrays(vectors), path, {_DIGEST: _digest(vectors)})
    except SafetensorError as error:
        raise OSError(f"Vectors cannot be written to {path.parent}: {error}") from error


def read_safetensors(path: Path) -> Vectors:
    """The vectors of a .safetensors file; InputError if it is damaged."""
    from safetensors import SafetensorError, safe_open

    with _name_damaged_file(path, SafetensorError, AttributeError):  # a dtype
        with safe_open(path, framework="numpy") as file:
            wanted = [name for name in ARRAY_NAMES if name in file.keys()]
            vectors = _from_arrays({name: file.get_tensor(name) for name in wanted})
            return _checked(vectors, file.metadata())


def write_npz(vectors: Vectors, path: Path) -> None:
    """Writes the arrays without compression; the ZIP format has checksums."""
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **_arrays(vectors))


def read_npz(path: Path) -> Vectors:
    """The vectors of an .npz file; InputError if it is damaged or compressed."""
    errors = zipfile.BadZipFile, OSError, EOFError, NotImplementedError
    with open(path, "rb") as file, _name_damaged_file(path, *errors):
        with zipfile.ZipFile(file) as archive:
            wanted = [n for n in ARRAY_NAMES if f"{n}.npy" in archive.namelist()]
            return _from_arrays(
                {name: read_stored_array(archive, name) for name in wanted}
            )


def write_parquet(vectors: Vectors, path: Path) -> None:
    """Writes the columns key, count and vector, and their SHA-256 as metadata."""
    import polars as pl

    use_threads()
    columns = {"key": pl.Series(vectors.keys, dtype=pl.String)}
    if vectors.counts is not None:
        columns["count"] = pl.Series(vectors.counts)
    columns["vector"] = pl.Series(vectors.matrix)
    try:
        digest = {_DIGEST: _digest(vectors)}
        pl.DataFrame(columns).write_parquet(path, metadata=digest)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"Vectors cannot be written to {path.parent}: {error}") from error


def read_parquet(path: Path) -> Vectors:
    """The vectors of a Parquet file; InputError if it is damaged."""
    import polars as pl

    from embedder.disk.parquet import read_table

    use_threads()
    with _name_damaged_file(path, pl.exceptions.PolarsError):
        table = read_table(path)
        schema = table.schema
        if schema.get("key") != pl.String or not isinstance(
            schema.get("vector"), pl.Array
        ):
            columns = ", ".join(f"{name} {dtype}" for name, dtype in schema.items())
            raise InputError(
                f"it has no columns key String and vector Array: {columns}"
            )
        counts = table["count"].to_numpy() if "count" in schema else None
        vectors = Vectors(table["key"].to_list(), table["vector"].to_numpy(), counts)
        return _checked(vectors, pl.read_parquet_metadata(path))
