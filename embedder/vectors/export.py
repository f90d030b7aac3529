"""Writes and reads files of vectors, in the format of the file's ending."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from embedder.disk.files import atomic_file, check_utf8_path
from embedder.errors import InputError, InputNotFoundError
from embedder.vectors import array_formats, glove, word2vec
from embedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    import polars as pl


class VectorFormat(NamedTuple):
    """A file format of vectors; one entry in FORMATS is all that a new one needs."""

    endings: tuple[str, ...]  # of file names, in lower case
    write: Callable[[Vectors, Path], None]
    """Writes a new file; InputError if the format cannot hold a key or a value."""
    read: Callable[[Path], Vectors]
    """Reads an untrusted file; InputError if it is damaged."""
    needs_utf8_path: bool = False
    write_columns: Callable[[Vectors, Path, "pl.DataFrame"], None] | None = None
    """Writes a new file with more columns; None: the format has none."""


FORMATS = (
    VectorFormat((".txt", ".vec"), word2vec.write_text, glove.read_text),
    VectorFormat(
        (".txt.gz", ".vec.gz"), word2vec.write_gzip_text, glove.read_gzip_text
    ),
    VectorFormat((".bin",), word2vec.write_binary, word2vec.read_binary),
    VectorFormat(
        (".safetensors",),
        array_formats.write_safetensors,
        array_formats.read_safetensors,
    ),
    VectorFormat((".npz",), array_formats.write_npz, array_formats.read_npz),
    VectorFormat(
        (".parquet",),
        array_formats.write_parquet,
        array_formats.read_parquet,
        needs_utf8_path=True,
        write_columns=array_formats.write_parquet,
    ),
)


def write_vectors(
    vectors: Vectors,
    path: str | os.PathLike[str],
    before_rename: Callable[[Path], None] = lambda temporary: None,
    *,
    columns: "pl.DataFrame | None" = None,
) -> None:
    """Writes `vectors` atomically, in the format of the ending of `path`.

    .txt, .vec (also .gz) and .bin are word2vec's: float32, no counts, no keys with
    white space. .safetensors and .npz hold `vectors` [V, D], `tokens` u8 (the keys in
    UTF-8, concatenated), `token_ends` i64[V] and, if there are counts, `counts` i64[V];
    .parquet the columns key, vector and count. These three detect damage.

    Args:
      before_rename: called with the complete temporary file.
      columns: more columns of a .parquet file, a row for each key; see `Names.rows`.

    Raises:
      InputError: the ending is unknown, or the format cannot hold a key, a value or
        `columns`.
      OSError: the disk is full, say; an existing file at `path` stays.
    """
    found = _format(path)
    if columns is not None:
        check_columns(path)
    with atomic_file(Path(path)) as temporary:
        if columns is not None and found.write_columns is not None:
            found.write_columns(vectors, temporary, columns)
        else:
            found.write(vectors, temporary)
        before_rename(temporary)


def read_vectors(path: str | os.PathLike[str]) -> Vectors:
    """The vectors in a file that `write_vectors`, gensim, word2vec.c or GloVe wrote.

    Raises:
      InputNotFoundError: the file does not exist.
      InputEndError: a word2vec file ends too early.
      InputError: the ending is unknown, or the file is damaged.
    """
    found = _format(path)
    path = Path(path)
    if not path.is_file():
        raise InputNotFoundError(f"Vectors file {path} does not exist.")
    return found.read(path)


def check_columns(path: str | os.PathLike[str]) -> None:
    """Raises InputError unless the format of the ending of `path` has columns."""
    if _format(path).write_columns is None:
        able = [e for each in FORMATS if each.write_columns for e in each.endings]
        raise InputError(array_formats.no_columns(path, able))


def endings() -> list[str]:
    """The endings of all formats."""
    return [ending for each in FORMATS for ending in each.endings]


def _format(path: str | os.PathLike[str]) -> VectorFormat:
    for each in FORMATS:
        if os.fspath(path).lower().endswith(each.endings):
            if each.needs_utf8_path:
                check_utf8_path(path, f"A {each.endings[0][1:]} file")
            return each
    *first, last = endings()
    raise InputError(
        f"`path` must end in {', '.join(first)} or {last}, got {os.fspath(path)!r}."
    )
