"""File formats that keep any key, the dtype and the counts: safetensors, npz, Parquet.

Axis letters: V keys, D dimensions.
"""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from embedder.base.threads import use_threads
from embedder.disk.arrays import pack_strings, read_stored_array, unpack_strings
from embedder.disk.files import short_reason
from embedder.errors import InputError
from embedder.vectors.reduce import Dtype, Packed, pack, unpack
from embedder.vectors.vectors import KeyType, Vectors

if TYPE_CHECKING:
    import polars as pl
    from safetensors import safe_open

ARRAY_NAMES = ("vectors", "tokens", "token_ends", "counts")
_NAMES = (*ARRAY_NAMES, "scales")  # the last: of vectors in int8
DIGEST = "sha256"  # key in the metadata of formats without a checksum


def named_arrays(
    keys: list[str], packed: Packed, counts: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The arrays of a file by name, in the order of _NAMES."""
    tokens, token_ends = pack_strings(keys)
    arrays = {"vectors": packed.values, "tokens": tokens, "token_ends": token_ends}
    if counts is not None:
        arrays["counts"] = counts
    if packed.scales is not None:
        arrays["scales"] = packed.scales
    return arrays


def _arrays_of(vectors: Vectors, dtype: Dtype | None) -> dict[str, np.ndarray]:
    return named_arrays(vectors.keys, pack(vectors.matrix, dtype), vectors.counts)


def digest_of(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of arrays and their names, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def check_arrays(
    arrays: dict[str, np.ndarray], metadata: dict[str, str] | None
) -> None:
    """Raises InputError unless `arrays` have the digest that the metadata names."""
    expected = (metadata or {}).get(DIGEST)  # other programs write no digest
    if expected is not None and expected != digest_of(arrays):
        raise InputError("its keys or numbers are not those that were written")


def _from_arrays(arrays: dict[str, np.ndarray]) -> Vectors:
    check_names(arrays, ("vectors", "tokens", "token_ends"))
    keys = unpack_strings(arrays["tokens"], arrays["token_ends"])
    matrix = _unpacked(arrays["vectors"], arrays.get("scales"))
    return Vectors(keys, matrix, arrays.get("counts"))


def _unpacked(values: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """The vectors f[V, D]; InputError if their scales do not fit."""
    if scales is None:
        return values
    if (
        values.dtype != np.int8
        or scales.dtype != np.float32
        or scales.shape != values.shape[:1]
    ):
        raise InputError(
            f"`scales` {scales.dtype}{scales.shape} do not fit `vectors` "
            f"{values.dtype}{values.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # refused as not finite
        return unpack(Packed(values, scales))


def check_names(available: Container[str], names: Iterable[str]) -> None:
    """Raises InputError unless all `names` are `available` in a file."""
    for name in names:
        if name not in available:
            raise InputError(f"it has no `{name}`")


@contextlib.contextmanager
def name_damaged_file(
    path: Path, kind: str, *errors: type[BaseException]
) -> Iterator[None]:
    """Turns ValueError, TypeError and `errors` of a reader into one InputError.

    Args:
      kind: of the file, for the message.
    """
    damage: tuple[type[BaseException], ...] = (ValueError, TypeError, *errors)
    try:
        yield
    except damage as error:
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole {kind} file: {reason}.") from error


def write_safetensors(
    vectors: Vectors, path: Path, *, dtype: Dtype | None = None
) -> None:
    """Writes the arrays, and their SHA-256 as metadata."""
    save_arrays(_arrays_of(vectors, dtype), path)


def save_arrays(
    arrays: dict[str, np.ndarray], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a .safetensors file of arrays, with their SHA-256 and other metadata."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(arrays, path, {**(metadata or {}), DIGEST: digest_of(arrays)})
        path.chmod(mode)  # safetensors ignores the umask: 0600
    except SafetensorError as error:
        raise OSError(f"Vectors cannot be written to {path.parent}: {error}") from error


def read_safetensors(path: Path) -> Vectors:
    """The vectors of a .safetensors file; InputError if it is damaged."""
    from safetensors import SafetensorError, safe_open

    with name_damaged_file(path, "vectors", SafetensorError):
        with safe_open(path, framework="numpy") as file:
            wanted = [name for name in _NAMES if name in file.keys()]
            arrays = {name: tensor(file, name) for name in wanted}
            vectors = _from_arrays(arrays)
            check_arrays(arrays, file.metadata())
            return vectors


def tensor(file: "safe_open", name: str) -> np.ndarray:
    """An array of a .safetensors file; InputError if NumPy has no such dtype."""
    try:
        return file.get_tensor(name)
    except AttributeError:
        dtype = file.get_slice(name).get_dtype()
        raise InputError(f"`{name}` is of {dtype}: write float32") from None


def write_npz(vectors: Vectors, path: Path, *, dtype: Dtype | None = None) -> None:
    """Writes the arrays without compression; the ZIP format has checksums."""
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **_arrays_of(vectors, dtype))


def read_npz(path: Path) -> Vectors:
    """The vectors of an .npz file; InputError if it is damaged or compressed."""
    errors = zipfile.BadZipFile, OSError, EOFError, NotImplementedError
    with open(path, "rb") as file, name_damaged_file(path, "vectors", *errors):
        with zipfile.ZipFile(file) as archive:
            wanted = [n for n in _NAMES if f"{n}.npy" in archive.namelist()]
            return _from_arrays(
                {name: read_stored_array(archive, name) for name in wanted}
            )


def write_parquet(
    vectors: Vectors,
    path: Path,
    *,
    columns: "pl.DataFrame | None" = None,
    dtype: Dtype | None = None,
) -> None:
    """Writes the columns key, those of `columns`, count, vector and, of int8, scale,
    and the SHA-256 of all but `columns` as metadata."""
    import polars as pl

    packed = pack(vectors.matrix, dtype)
    table = key_table(vectors).with_columns(pl.Series("vector", packed.values))
    if packed.scales is not None:
        table = table.with_columns(pl.Series("scale", packed.scales))
    if columns is not None:
        table = with_columns(table, columns)
    try:
        arrays = named_arrays(vectors.keys, packed, vectors.counts)
        digest = {DIGEST: digest_of(arrays)}
        table.write_parquet(path, metadata=digest)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"Vectors cannot be written to {path.parent}: {error}") from error


def key_table(vectors: Vectors) -> "pl.DataFrame":
    """The columns key and, if there are counts, count."""
    import polars as pl

    use_threads()
    table = pl.DataFrame({"key": key_column(vectors.keys, vectors.key_type)})
    if vectors.counts is not None:
        table = table.with_columns(pl.Series("count", vectors.counts))
    return table


def with_columns(table: "pl.DataFrame", columns: "pl.DataFrame") -> "pl.DataFrame":
    """`table` with more columns after its first.

    Raises:
      InputError: a column is in both, or the numbers of rows differ.
    """
    if len(columns) != len(table):
        raise InputError(
            f"`columns` must have a row for each of {len(table)} keys, got "
            f"{len(columns)}."
        )
    for name in columns.columns:
        if name in table.columns:
            raise InputError(
                "Columns of names must have other names than "
                f"{', '.join(table.columns)}, got {name!r}: rename it."
            )
    first, *others = table.columns
    return table.select(first).hstack(columns).hstack(table.select(others))


def no_columns(path: str | os.PathLike[str], endings: Iterable[str]) -> str:
    """The message about a file that cannot hold the columns of names."""
    return (
        f"Names can be written only to {' or '.join(endings)}, got {os.fspath(path)!r}."
    )


def key_column(keys: list[str], key_type: KeyType) -> "pl.Series":
    """Keys as text, or as integers of 64 bits if all are the text of such ones."""
    import polars as pl

    texts = pl.Series(keys, dtype=pl.String)
    if key_type == "text":
        return texts
    for dtype in (pl.Int64, pl.UInt64):
        integers = texts.cast(dtype, strict=False)
        if not integers.null_count() and (integers.cast(pl.String) == texts).all():
            return integers
    return texts


def read_parquet(path: Path) -> Vectors:
    """The vectors of a Parquet file; InputError if it is damaged."""
    import polars as pl

    from embedder.disk.untrusted import read_table

    use_threads()
    with name_damaged_file(path, "vectors", pl.exceptions.PolarsError):
        table = read_table(path)
        schema = table.schema
        key = schema.get("key")
        if key not in (pl.String, pl.Int64, pl.UInt64) or not isinstance(
            schema.get("vector"), pl.Array
        ):
            columns = ", ".join(f"{name} {dtype}" for name, dtype in schema.items())
            raise InputError(
                f"it has no columns key String and vector Array: {columns}"
            )
        counts = table["count"].to_numpy() if "count" in schema else None
        values, scales = table["vector"].to_numpy(), None
        if values.dtype == np.int8 and "scale" in schema:
            scales = table["scale"].to_numpy()
        packed = Packed(values, scales)
        keys = table["key"].cast(pl.String).to_list()
        key_type: KeyType = "text" if key == pl.String else "integer"
        vectors = Vectors(keys, _unpacked(*packed), counts, key_type)
        arrays = named_arrays(keys, packed, vectors.counts)
        check_arrays(arrays, pl.read_parquet_metadata(path))
        return vectors
