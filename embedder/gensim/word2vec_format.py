"""Methods of `KeyedVectors` for word2vec.c's formats, with the options of gensim.

`embedder.read_vectors` reads them faster, and refuses damaged lines by their number.
"""

import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from embedder.gensim.corpora import COMPRESSED, local_path, open_file, to_unicode
from embedder.gensim.rows import row_factors

_ROWS = 4096  # of text that are formatted at once
_TOO_SHORT = "unexpected end of input; is count incorrect or file otherwise damaged?"
_log = logging.getLogger("gensim.models.keyedvectors")


def load_word2vec_format(
    cls: Any,
    fname: Any,
    fvocab: Any = None,
    binary: bool = False,
    encoding: str = "utf8",
    unicode_errors: str = "strict",
    limit: int | None = None,
    datatype: Any = np.float32,
    no_header: bool = False,
    binary_chunk_size: int = 100 * 1024,
) -> Any:
    """Reads the format of word2vec.c.

    Args:
      fvocab: a file with a line `key count` for each key; None: counts are made up.
      encoding, unicode_errors: of keys, as of `bytes.decode`.
      limit: read only the first rows.
      datatype: of the vectors.
      no_header: the file is text and begins with its first row, as of GloVe.
      binary_chunk_size: bytes of a binary file that are read at a time.

    Raises:
      EOFError: the file is too short.
      UnicodeDecodeError: a key is not in `encoding`.
      ValueError: the first line has not two numbers, or a row another size.
    """
    counts = None if fvocab is None else _read_counts(fvocab, unicode_errors)
    _log.info("loading projection weights from %s", fname)
    decoding = encoding, unicode_errors
    if no_header:
        if binary:
            raise NotImplementedError("no_header only available for text-format files")
        num_rows, size = _sizes(fname, limit, decoding)
    with open_file(fname) as file:
        if not no_header:
            num_rows, size = _header(file, encoding)
            num_rows = min(num_rows, limit or num_rows)
            _check_length(fname, num_rows, size, binary)
        vectors = cls(size, num_rows, dtype=datatype)
        if binary:
            rows = _binary_rows(file, num_rows, size, decoding, binary_chunk_size)
        else:
            first = 1 if no_header else 2
            rows = _text_rows(file, num_rows, size, decoding, first, datatype)
        _fill(vectors, rows, counts, num_rows)
    vectors.add_lifecycle_event(
        "load_word2vec_format",
        msg=f"loaded {vectors.vectors.shape} matrix of type {vectors.vectors.dtype} "
        f"from {fname}",
        binary=binary,
        encoding=encoding,
    )
    return vectors


def save_word2vec_format(
    self: Any,
    fname: Any,
    fvocab: Any = None,
    binary: bool = False,
    total_vec: int | None = None,
    write_header: bool = True,
    prefix: str = "",
    append: bool = False,
    sort_attr: str = "count",
) -> None:
    """Writes the format of word2vec.c.

    Args:
      fvocab: also write a line `key count` for each key to this file.
      total_vec: the number of rows that the first line says; None: that of keys.
      write_header: write the first line.
      prefix: of each key in the file.
      append: append to the file.
      sort_attr: the attribute by which rows are sorted, highest first.

    Raises:
      ValueError: `fvocab` is given, and keys have no attribute `sort_attr`.
    """
    mode = "ab" if append else "wb"
    order = np.arange(len(self))
    if sort_attr in self.expandos:
        order = np.argsort(-self.expandos[sort_attr], kind="stable")
    elif fvocab is not None:
        raise ValueError(
            f"Cannot store vocabulary with '{sort_attr}' because that attribute "
            "does not exist"
        )
    else:
        _log.warning(
            "attribute %s not present in %s; will store in internal index_to_key order",
            *(sort_attr, self),
        )
    keys = [f"{prefix}{self.index_to_key[row]}" for row in order.tolist()]
    if fvocab is not None:
        _log.info("storing vocabulary in %s", fvocab)
        counts = self.expandos[sort_attr][order].tolist()
        with open_file(fvocab, mode) as file:
            for key, count in zip(keys, counts, strict=True):
                file.write(f"{key} {count}\n".encode())
    said = len(keys) if total_vec is None or not write_header else total_vec
    size, matrix = self.vector_size, self.vectors[order]
    _log.info("storing %sx%s projection weights into %s", said, size, fname)
    with open_file(fname, mode) as file:
        file.write(f"{said} {size}\n".encode() if write_header else b"")
        for start in range(0, len(keys), _ROWS):
            chunk = matrix[start : start + _ROWS]
            if binary:
                rows = (b" " + row.tobytes() for row in chunk.astype(np.float32))
            else:  # the fewest digits that give each value
                texts = chunk.astype("U32").tolist()
                rows = (f" {' '.join(row)}\n".encode() for row in texts)
            for key, row in zip(keys[start : start + _ROWS], rows, strict=True):
                file.write(key.encode() + row)


def intersect_word2vec_format(
    self: Any,
    fname: Any,
    lockf: float = 0.0,
    binary: bool = False,
    encoding: str = "utf8",
    unicode_errors: str = "strict",
) -> None:
    """Replaces the vectors of those keys that a file of word2vec.c has, too.

    Args:
      lockf: the factor of their rates from then on; 0.0: they stay as they are.

    Raises:
      ValueError: the file has vectors of another size.
    """
    _log.info("loading projection weights from %s", fname)
    factors, num, decoding = row_factors(self), 0, (encoding, unicode_errors)
    with open_file(fname) as file:
        num_rows, size = _header(file, encoding)
        if size != self.vector_size:
            raise ValueError(f"incompatible vector size {size} in file {fname}")
        read_rows = _binary_rows if binary else _text_rows
        for key, vector in read_rows(file, num_rows, size, decoding):
            if key in self.key_to_index:
                num += 1
                self.vectors[self.get_index(key)] = vector
                factors[self.get_index(key)] = lockf
    self.vectors_lockf, self.norms = factors, None
    self.add_lifecycle_event(
        "intersect_word2vec_format",
        msg=f"merged {num} vectors into {self.vectors.shape} matrix from {fname}",
    )


def _read_counts(path: Any, unicode_errors: str) -> dict[str, int]:
    _log.info("loading word counts from %s", path)
    with open_file(path) as file:
        lines = (line.strip().rsplit(None, 1) for line in file)
        return {to_unicode(x, errors=unicode_errors): int(count) for x, count in lines}


def _header(file: IO, encoding: str) -> tuple[int, int]:
    num_rows, size = map(int, to_unicode(file.readline(), encoding).split())
    return num_rows, size


def _check_length(path: Any, num_rows: int, size: int, binary: bool) -> None:
    """Raises EOFError if a file is too short for its header, before memory is taken."""
    smallest = 2 + size * (4 if binary else 2)  # a key, a blank, values
    path = local_path(path)
    plain = Path(path).suffix.lower() not in COMPRESSED
    if plain and num_rows * smallest > os.path.getsize(path) + num_rows:
        raise EOFError(_TOO_SHORT)


def _sizes(path: Any, limit: int | None, decoding: tuple[str, str]) -> tuple[int, int]:
    """Rows and dimensions of a text file without a header."""
    with open_file(path) as file:
        first = to_unicode(file.readline().rstrip(), *decoding).split(" ")
        rest = itertools.islice(file, None if limit is None else limit - 1)
        return 1 + sum(1 for _ in rest), len(first) - 1


def _text_rows(
    file: IO,
    num_rows: int,
    size: int,
    decoding: tuple[str, str],
    first: int = 2,
    datatype: Any = np.float32,
) -> Iterator[tuple[str, np.ndarray]]:
    """Rows of a text file, of which the first is on the line `first`."""
    for number in range(first, first + num_rows):
        line = file.readline()
        if not line:
            raise EOFError(_TOO_SHORT)
        key, *values = to_unicode(line.rstrip(), *decoding).split(" ")
        if len(values) != max(size, 1):
            raise ValueError(
                f"invalid vector on line {number}: it has {len(values)} values, not "
                f"{max(size, 1)} (is this really the text format?)"
            )
        yield key, np.array(values, dtype=datatype)


def _binary_rows(
    file: IO,
    num_rows: int,
    size: int,
    decoding: tuple[str, str],
    chunk_size: int = 100 * 1024,
) -> Iterator[tuple[str, np.ndarray]]:
    """Rows of a binary file, of which `chunk_size` bytes are read at a time."""
    data, at, num_bytes = b"", 0, 4 * size
    for _ in range(num_rows):
        while (blank := data.find(b" ", at)) < 0 or len(data) <= blank + num_bytes:
            more = file.read(chunk_size)
            if not more:
                raise EOFError(_TOO_SHORT)
            data, at = data[at:] + more, 0
        key = data[at:blank].decode(*decoding).lstrip("\n")
        yield key, np.frombuffer(data, "<f4", size, blank + 1)
        at = blank + 1 + num_bytes


def _fill(
    vectors: Any,
    rows: Iterable[tuple[str, np.ndarray]],
    counts: dict[str, int] | None,
    num_rows: int,
) -> None:
    """Fills new `vectors` with rows, the first of each key, and with counts.

    Without counts they are made up: descending, as the order of rows.
    """
    row_counts = []
    for key, row in rows:
        if key in vectors.key_to_index:
            _log.warning(
                "duplicate word '%s' in word2vec file, ignoring all but first", key
            )
            continue
        index = vectors.add_vector(key, row)
        if counts is not None and key not in counts:
            _log.warning("vocabulary file is incomplete: '%s' is missing", key)
        row_counts.append(num_rows - index if counts is None else counts.get(key, 0))
    if len(row_counts) < num_rows:
        _log.info(
            "duplicate words detected, shrinking matrix size from %i to %i",
            *(num_rows, len(row_counts)),
        )
        vectors.index_to_key = vectors.index_to_key[: len(row_counts)]
        vectors.vectors = np.ascontiguousarray(vectors.vectors[: len(row_counts)])
    vectors.expandos["count"] = np.array(row_counts, np.int64)
