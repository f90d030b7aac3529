"""The formats of word2vec.c, text and binary, with the options that gensim has.

`embedder.read_vectors` reads them faster, and refuses damaged lines by their number.
"""

import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from embedder.gensim.corpora import COMPRESSED, open_file, to_unicode

_ROWS = 4096  # of text that are formatted at once
_TOO_SHORT = "unexpected end of input; is count incorrect or file otherwise damaged?"
_log = logging.getLogger("gensim.models.keyedvectors")


def load(
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
    """Vectors of a file, as a new `cls`; see `KeyedVectors.load_word2vec_format`."""
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
            rows = _text_rows(file, num_rows, datatype, decoding)
        _fill(vectors, rows, counts, num_rows)
    vectors.add_lifecycle_event(
        "load_word2vec_format",
        msg=f"loaded {vectors.vectors.shape} matrix of type {vectors.vectors.dtype} "
        f"from {fname}",
        binary=binary,
        encoding=encoding,
    )
    return vectors


def save(
    vectors: Any,
    fname: Any,
    fvocab: Any,
    binary: bool,
    total: int | None,
    prefix: str,
    mode: str,
    sort_attr: str,
) -> None:
    """Writes `vectors`; see `KeyedVectors.save_word2vec_format`.

    Args:
      total: the number of rows that the first line says; None: there is no such line.
      mode: of the files, "wb" or "ab".
    """
    order = np.arange(len(vectors))
    if sort_attr in vectors.expandos:
        order = np.argsort(-vectors.expandos[sort_attr], kind="stable")
    elif fvocab is not None:
        raise ValueError(
            f"Cannot store vocabulary with '{sort_attr}' because that attribute "
            "does not exist"
        )
    else:
        _log.warning(
            "attribute %s not present in %s; will store in internal index_to_key order",
            *(sort_attr, vectors),
        )
    keys = [f"{prefix}{vectors.index_to_key[row]}" for row in order.tolist()]
    if fvocab is not None:
        _log.info("storing vocabulary in %s", fvocab)
        counts = vectors.expandos[sort_attr][order].tolist()
        with open_file(fvocab, mode) as file:
            for key, count in zip(keys, counts, strict=True):
                file.write(f"{key} {count}\n".encode())
    size = vectors.vector_size
    said = len(keys) if total is None else total
    _log.info("storing %sx%s projection weights into %s", said, size, fname)
    header = "" if total is None else f"{total} {size}\n"
    write(fname, mode, keys, vectors.vectors[order], header, binary)


def merge(
    vectors: Any,
    fname: Any,
    factors: np.ndarray,
    lockf: float,
    binary: bool,
    decoding: tuple[str, str],
) -> int:
    """Replaces the vectors of known keys, and their `factors` [V] by `lockf`.

    Returns how many; see `KeyedVectors.intersect_word2vec_format`.
    """
    _log.info("loading projection weights from %s", fname)
    num = 0
    for key, vector in rows_to_merge(fname, vectors.vector_size, binary, decoding):
        if key in vectors.key_to_index:
            num += 1
            vectors.vectors[vectors.get_index(key)] = vector
            factors[vectors.get_index(key)] = lockf
    return num


def rows_to_merge(
    fname: Any, vector_size: int, binary: bool, decoding: tuple[str, str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Keys and vectors of a file whose vectors have `vector_size` numbers."""
    with open_file(fname) as file:
        num_rows, size = _header(file, decoding[0])
        if size != vector_size:
            raise ValueError(f"incompatible vector size {size} in file {fname}")
        if binary:
            yield from _binary_rows(file, num_rows, size, decoding, 100 * 1024)
            return
        for number, row in enumerate(_text_rows(file, num_rows, np.float32, decoding)):
            if len(row[1]) != size:
                raise ValueError(
                    f"invalid vector on line {number} (is this really the text format?)"
                )
            yield row


def write(
    path: Any,
    mode: str,
    keys: Iterable[Any],
    vectors: np.ndarray,
    header: str,
    binary: bool,
) -> None:
    """Writes a row for each key; text has the fewest digits that give each value."""
    with open_file(path, mode) as file:
        file.write(header.encode())
        named = iter(keys)
        for start in range(0, len(vectors), _ROWS):
            chunk = vectors[start : start + _ROWS]
            if binary:
                rows = (b" " + row.tobytes() for row in chunk.astype(np.float32))
            else:
                texts = chunk.astype("U32").tolist()
                rows = (f" {' '.join(row)}\n".encode() for row in texts)
            for key, row in zip(itertools.islice(named, len(chunk)), rows, strict=True):
                file.write(f"{key}".encode() + row)


def _read_counts(path: Any, unicode_errors: str) -> dict[str, int]:
    _log.info("loading word counts from %s", path)
    with open_file(path) as file:
        lines = (to_unicode(line, errors=unicode_errors).split() for line in file)
        return {word: int(count) for word, count in lines}


def _header(file: IO, encoding: str) -> tuple[int, int]:
    num_rows, size = map(int, to_unicode(file.readline(), encoding).split())
    return num_rows, size


def _check_length(path: Any, num_rows: int, size: int, binary: bool) -> None:
    """Raises EOFError if a file is too short for its header, before memory is taken."""
    smallest = 2 + size * (4 if binary else 2)  # a key, a blank, values
    plain = Path(path).suffix.lower() not in COMPRESSED
    if plain and num_rows * smallest > os.path.getsize(path) + num_rows:
        raise EOFError(_TOO_SHORT)


def _sizes(path: Any, limit: int | None, decoding: tuple[str, str]) -> tuple[int, int]:
    """Rows and dimensions of a text file without a header."""
    with open_file(path) as file:
        first = to_unicode(file.readline(), *decoding).split()
        rest = itertools.islice(file, None if limit is None else limit - 1)
        return 1 + sum(1 for _ in rest), len(first) - 1


def _text_rows(
    file: IO, num_rows: int, datatype: Any, decoding: tuple[str, str]
) -> Iterator[tuple[str, np.ndarray]]:
    for _ in range(num_rows):
        line = file.readline()
        if not line:
            raise EOFError(_TOO_SHORT)
        key, *values = to_unicode(line.rstrip(), *decoding).split(" ")
        yield key, np.array(values, dtype=datatype)


def _binary_rows(
    file: IO, num_rows: int, size: int, decoding: tuple[str, str], chunk_size: int
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
    found = []
    for key, row in rows:
        if key in vectors.key_to_index:
            _log.warning(
                "duplicate word '%s' in word2vec file, ignoring all but first", key
            )
            continue
        index = vectors.add_vector(key, row)
        if counts is not None and key not in counts:
            _log.warning("vocabulary file is incomplete: '%s' is missing", key)
        found.append(num_rows - index if counts is None else counts.get(key, 0))
    if len(found) < num_rows:
        _log.info(
            "duplicate words detected, shrinking matrix size from %i to %i",
            *(num_rows, len(found)),
        )
        vectors.index_to_key = vectors.index_to_key[: len(found)]
        vectors.vectors = np.ascontiguousarray(vectors.vectors[: len(found)])
    vectors.expandos["count"] = np.array(found, np.int64)
