"""The text format of GloVe: a line `key v1 ... vD` for each key, and no header.

A key may have blanks: the last D fields are its vector (Pennington et al. 2014).
"""

import gzip
import math
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from embedder.errors import InputError
from embedder.vectors import word2vec
from embedder.vectors.vectors import Vectors

_LEAST = 2  # numbers of a vector: with fewer, any line of two fields would be one
_KIND = "a GloVe file"


def write_text(vectors: Vectors, path: Path) -> None:
    """Writes lines `key v1 ... vD`; values as `word2vec.write_text`.

    Raises:
      InputError: a key has white space or is too long, a value overflows float32, or
        the vectors have one dimension, so that a line would look like a header.
    """
    matrix = _checked(vectors)
    with open(path, "wb") as file:
        word2vec.write_rows(vectors.keys, matrix, file)


def write_gzip_text(vectors: Vectors, path: Path) -> None:
    """Writes gzip of what `write_text` writes; equal vectors give equal bytes."""
    matrix = _checked(vectors)
    with word2vec.gzip_file(path) as file:
        word2vec.write_rows(vectors.keys, matrix, file)


def _checked(vectors: Vectors) -> np.ndarray:
    """The matrix in float32, if GloVe text can hold the vectors."""
    if vectors.matrix.shape[1] < _LEAST:
        raise InputError(
            f"`vectors.matrix` must have {_LEAST} dimensions or more in {_KIND}, got 1."
        )
    word2vec.check_plain_keys(vectors.keys, _KIND)
    return word2vec.float32(vectors.matrix, _KIND)


def read_text(path: Path) -> Vectors:
    """The vectors of a text file of word2vec or, without a header, of GloVe.

    Raises:
      InputEndError, InputError: as `word2vec.read_text`.
    """
    with open(path, "rb") as file:
        size = _size(file.readline(word2vec.CHUNK_BYTES))
        if size is None:
            return word2vec.read_text(path)
        file.seek(0)
        return _read(file, size, path)


def read_gzip_text(path: Path) -> Vectors:
    """As `read_text`, of a gzip of such a file."""
    try:
        with gzip.open(path, "rb") as file:
            size = _size(file.readline(word2vec.CHUNK_BYTES))
    except (OSError, EOFError, zlib.error):
        size = None  # the reader of word2vec tells what is wrong
    if size is None:
        return word2vec.read_gzip_text(path)
    with word2vec.whole_gzip(path), gzip.open(path, "rb") as file:
        return _read(file, size, path)


def _size(line: bytes) -> int | None:
    """Numbers of a vector by the first line; None: it is no line of GloVe."""
    values = line.split()[1:]
    if len(values) < _LEAST or not all(map(_is_number, values)):
        return None
    return len(values)


def _is_number(field: bytes) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def _read(file: BufferedIOBase, size: int, path: Path) -> Vectors:
    keys: list[str] = []
    chunks = []
    most = max(1, word2vec.CHUNK_VALUES // size)
    while lines := word2vec.next_lines(file, most):
        rows = word2vec.parse_fast(lines, size)
        if rows is None:
            rows = _parse_strictly(lines, size, path, len(keys) + 1)
        keys += rows[0]
        chunks.append(rows[1])
    word2vec.check_unique(keys, path, first_line=1)
    return word2vec.make_vectors(keys, np.concatenate(chunks), path)


def _parse_strictly(
    lines: list[bytes], size: int, path: Path, first_number: int
) -> tuple[list[str], np.ndarray]:
    """Keys, which may have blanks, and f32[rows, D]; InputError names the line."""
    keys, rows = [], []
    for number, line in enumerate(lines, start=first_number):
        where = f"{path} line {number}"
        found = line.strip().rsplit(None, size)
        if len(found) != size + 1:
            raise InputError(
                f"{where}: must be a key and {size} values, as on line 1, got "
                f"{len(found)} columns: {word2vec.short(line)}."
            )
        key, *fields = found
        keys.append(word2vec.key_of(key, where))
        columns = enumerate(fields, start=2)
        rows.append([word2vec.value_of(x, f"{where}: column {i}") for i, x in columns])
    return keys, np.array(rows, np.float32)
