"""Vectors as SQL for PostgreSQL with the extension pgvector, which psql runs.

One file creates the table and loads it by COPY, whose rows follow in COPY's text format
as in files of pg_dump. https://www.postgresql.org/docs/current/sql-copy.html
"""

from io import BufferedIOBase
from pathlib import Path

import numpy as np

from embedder.errors import InputError
from embedder.threads import use_threads
from embedder.vectors.array_formats import key_column
from embedder.vectors.reduce import Dtype, pack, unpack
from embedder.vectors.vectors import Vectors, short_repr
from embedder.vectors.word2vec import CHUNK_VALUES, float32

MAX_DIMENSIONS = 16_000  # of pgvector's types vector and halfvec
MAX_KEY_BYTES = 2_600  # a primary key must fit a third of a page of 8 KiB
_KIND = "a table of pgvector"
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_START = r"""\set ON_ERROR_STOP on
\if :{{?table}}
\else
  \set table embeddings
\endif
SET client_encoding = 'UTF8';
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE :"table" (
  key {key_type} PRIMARY KEY,
{count}  vector {type}({size}) NOT NULL
);
COPY :"table" ({columns}) FROM STDIN;
"""
_END = r"""\.
COMMIT;
-- The nearest of a vector v by cosine: ORDER BY vector <=> v LIMIT 10, exact. Faster,
-- not exact: CREATE INDEX ON embeddings USING hnsw (vector {type}_cosine_ops);
"""


def write_sql(vectors: Vectors, path: Path, *, dtype: Dtype | None = None) -> None:
    """Writes the columns key, count if there are counts, and vector.

    Vectors are of the type vector (float32), or of float16 halfvec (pgvector 0.7). Keys
    are bigint if they were integers in the data, else text.

    Raises:
      InputError: there are too many dimensions, a key is too long or has U+0000, or a
        value overflows float32.
    """
    import polars as pl

    use_threads()
    _check(vectors)
    matrix = float32(unpack(pack(vectors.matrix, dtype)), _KIND)
    kind = "vector" if dtype is None else "halfvec"
    is_integer = key_column(vectors.keys, vectors.key_type).dtype == pl.Int64
    counts = vectors.counts
    with open(path, "wb") as file:
        start = _START.format(
            key_type="bigint" if is_integer else "text",
            count="" if counts is None else "  count bigint NOT NULL,\n",
            type=kind,
            size=matrix.shape[1],
            columns="key, vector" if counts is None else "key, count, vector",
        )
        file.write(start.encode())
        _write_rows(vectors.keys, counts, matrix, file)
        file.write(_END.format(type=kind).encode())


def _check(vectors: Vectors) -> None:
    size = vectors.matrix.shape[1]
    if size > MAX_DIMENSIONS:
        raise InputError(
            f"`vectors.matrix` must have at most {MAX_DIMENSIONS} dimensions in "
            f"{_KIND}, got {size}."
        )
    for key in vectors.keys:
        if "\0" in key or len(key.encode()) > MAX_KEY_BYTES:
            raise InputError(
                f"`vectors.keys` must have at most {MAX_KEY_BYTES} bytes and no U+0000 "
                f"in {_KIND}, got {short_repr(key)}."
            )


def _write_rows(
    keys: list[str],
    counts: np.ndarray | None,
    matrix: np.ndarray,
    file: BufferedIOBase,
) -> None:
    """Writes a line for each key, in COPY's text format."""
    import polars as pl

    num_rows = max(1, CHUNK_VALUES // matrix.shape[1])
    for start in range(0, len(keys), num_rows):
        chunk = slice(start, start + num_rows)
        rows = pl.DataFrame(matrix[chunk]).write_csv(include_header=False)
        fields = [[key.translate(_ESCAPES) for key in keys[chunk]]]
        if counts is not None:
            fields.append([*map(str, counts[chunk].tolist())])
        fields.append([f"[{row}]" for row in rows.split("\n")[:-1]])
        lines = "".join("\t".join(line) + "\n" for line in zip(*fields, strict=True))
        file.write(lines.encode())
