"""Vectors to and from files, by the file's ending.

Axis letters: V keys, D dimensions.
"""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from embedder.disk.arrays import pack_strings, read_stored_array, unpack_strings
from embedder.disk.files import atomic_file, check_utf8_path, short_reason
from embedder.errors import InputError, InputNotFoundError
from embedder.threads import use_threads
from embedder.vectors import word2vec
from embedder.vectors.vectors import Vectors

ENDINGS = (
    ".txt",
    ".vec",
    ".txt.gz",
    ".vec.gz",
    ".bin",
    ".safetensors",
    ".npz",
    ".parquet",
)
ARRAY_NAMES = ("vectors", "tokens", "token_ends", "counts")
_DIGEST = "sha256"  # in the metadata of formats without a checksum


def write_vectors(
    vectors: Vectors,
    path: str | os.PathLike[str],
    before: Callable[[Path], None] = lambda part: None,
) -> None:
    """Writes `vectors` in the format of the ending of `path`, whole or not at all.

    .txt and .vec, also with .gz, and .bin are word2vec's: float32, no counts, no keys
    with white space. .safetensors and .npz hold `vectors` [V, D], `tokens` u8 (the
    keys in UTF-8, end to end), `token_ends` i64[V] and perhaps `counts` i64[V];
    .parquet the columns key, vector and perhaps count. These three tell of damage.

    Args:
      before: called with the whole file before it gets its name.

    Raises:
      ValueError: the ending is another, or the format cannot carry a key or value.
      OSError: the disk does not take the file; a file that was there is as before.
    """
    ending = _ending(path)
    with atomic_file(Path(path)) as temporary:
        _writer(ending)(vectors, temporary)
        before(temporary)


def read_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Vectors of a file that `write_vectors`, gensim or word2vec.c wrote.

    Raises:
      FileNotFoundError: there is no such file.
      EOFError: a word2vec file ends early.
      ValueError: the ending is not known, or the file is damaged.
    """
    ending = _ending(path)
    path = Path(path)
    if not path.is_file():
        raise InputNotFoundError(f"Vectors file {path} does not exist.")
    return _reader(ending)(path)


def _ending(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path).lower()
    for ending in ENDINGS:
        if name.endswith(ending):
            if ending == ".parquet":
                check_utf8_path(path, "A parquet file")
            return ending
    endings = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    raise InputError(f"`path` must end in {endings}, got {os.fspath(path)!r}.")


def _writer(ending: str) -> Callable[[Vectors, Path], None]:
    match ending:
        case ".bin":
            return word2vec.write_binary
        case ".safetensors":
            return _write_safetensors
        case ".npz":
            return _write_npz
        case ".parquet":
            return _write_parquet
        case ".txt.gz" | ".vec.gz":
            return word2vec.write_gzip_text
    return word2vec.write_text


def _reader(ending: str) -> Callable[[Path], Vectors]:
    match ending:
        case ".bin":
            return word2vec.read_binary
        case ".safetensors":
            return _read_safetensors
        case ".npz":
            return _read_npz
        case ".parquet":
            return _read_parquet
        case ".txt.gz" | ".vec.gz":
            return word2vec.read_gzip_text
    return word2vec.read_text


def _arrays(vectors: Vectors) -> dict[str, np.ndarray]:
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
    """Refuses vectors that are not those that were written."""
    expected = (metadata or {}).get(_DIGEST)  # other programs write none
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
def _damage_named(path: Path, *errors: type[BaseException]) -> Iterator[None]:
    """Turns what a reader raises at a damaged file into one ValueError."""
    try:
        yield
    except (ValueError, TypeError, *errors) as error:
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole vectors file: {reason}.") from error


def _write_safetensors(vectors: Vectors, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(_arrays(vectors), path, {_DIGEST: _digest(vectors)})
    except SafetensorError as error:
        raise OSError(f"Vectors cannot be written to {path.parent}: {error}") from error


def _read_safetensors(path: Path) -> Vectors:
    from safetensors import SafetensorError, safe_open

    with _damage_named(path, SafetensorError, AttributeError):  # of a dtype
        with safe_open(path, framework="numpy") as file:
            wanted = [name for name in ARRAY_NAMES if name in file.keys()]
            vectors = _from_arrays({name: file.get_tensor(name) for name in wanted})
            return _checked(vectors, file.metadata())


def _write_npz(vectors: Vectors, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, **_arrays(vectors))


def _read_npz(path: Path) -> Vectors:
    faults = zipfile.BadZipFile, OSError, EOFError, NotImplementedError
    with open(path, "rb") as file, _damage_named(path, *faults):
        with zipfile.ZipFile(file) as archive:
            wanted = [n for n in ARRAY_NAMES if f"{n}.npy" in archive.namelist()]
            return _from_arrays(
                {name: read_stored_array(archive, name) for name in wanted}
            )


def _write_parquet(vectors: Vectors, path: Path) -> None:
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


def _read_parquet(path: Path) -> Vectors:
    import polars as pl

    from embedder.disk.parquet import read_table

    use_threads()
    with _damage_named(path, pl.exceptions.PolarsError):
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
