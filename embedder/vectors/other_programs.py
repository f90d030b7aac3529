"""Vectors for other programs: an index of faiss, SQL of pgvector, static models.

faiss: unit vectors by their inner product, which is the cosine. The number of a vector
in the index is its row; the keys are in a table beside it.

pgvector: one file creates the table of PostgreSQL and loads its rows, which follow in
COPY's text format as in files of pg_dump; psql runs it, in one transaction. A table
that exists is an error, or by a variable gets the rows of the file: those of keys that
are in both are updated, so that their other columns stay.
https://www.postgresql.org/docs/current/sql-copy.html

sentence-transformers and model2vec: a folder of vectors with a tokenizer, which splits
a text at ASCII white space, as corpora are read, and looks each token up as it is. A
text is the mean of the vectors of its tokens. The last row of the vectors is zero and
stands for unknown tokens. tokenizer.json is the format of the library `tokenizers`,
with the model WordLevel.
"""

import json
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.base.threads import use_threads
from embedder.errors import InputError, check_installed
from embedder.vectors.array_formats import key_table, save_arrays, with_columns
from embedder.vectors.reduce import Dtype, pack, unpack
from embedder.vectors.vectors import Vectors, short_repr
from embedder.vectors.word2vec import CHUNK_VALUES, check_plain_keys, float32

if TYPE_CHECKING:
    import polars as pl

MAX_DIMENSIONS = 16_000  # of pgvector's types vector and halfvec
MAX_KEY_BYTES = 2_600  # a primary key must fit a third of a page of 8 KiB
_PGVECTOR = "a table of pgvector"
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_SQL_START = r"""-- psql -v table=NAME -f FILE; -v replace=yes: also if it exists.
\set ON_ERROR_STOP on
\if :{{?table}}
\else
  \set table embeddings
\endif
\if :{{?replace}}
  \set created 'IF NOT EXISTS'
\else
  \set created ''
\endif
SET client_encoding = 'UTF8';
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE :created :"table" (
  {defined},
  PRIMARY KEY (key)
);
CREATE TEMPORARY TABLE "rows of embedder" (
  {defined}
) ON COMMIT DROP;
COPY "rows of embedder" ({columns}) FROM STDIN;
"""
_SQL_END = r"""\.
ANALYZE "rows of embedder";
DELETE FROM :"table" AS old
  WHERE NOT EXISTS (SELECT FROM "rows of embedder" AS new WHERE new.key = old.key);
INSERT INTO :"table" ({columns}) SELECT {columns} FROM "rows of embedder"
  ON CONFLICT (key) DO UPDATE SET {updated};
COMMIT;
-- The nearest of a vector v by cosine: ORDER BY vector <=> v LIMIT 10, exact. Faster,
-- not exact: CREATE INDEX ON embeddings USING hnsw (vector {type}_cosine_ops);
"""
_WHITE_SPACE = "[ \t\n\v\f\r]+"
_STATIC = "sentence_transformers.models.StaticEmbedding"
_SUBFOLDER = "0_StaticEmbedding"
_UNLIMITED = 1_000_000  # tokens of a text


def write_faiss(vectors: Vectors, path: Path, *, dtype: Dtype | None = None) -> None:
    """Writes an exact index, of float32 or float16.

    Raises:
      InputError: faiss is not installed.
    """
    check_installed("faiss", "`format` faiss")
    import faiss

    unit = np.ascontiguousarray(vectors.unit, np.float32)
    size = unit.shape[1]
    index: faiss.Index = faiss.IndexFlatIP(size)
    if dtype is not None:
        index = faiss.IndexScalarQuantizer(
            size, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
    index.train(unit)
    index.add(unit)
    with open(path, "wb") as file:  # faiss has no error for a full disk
        file.write(faiss.serialize_index(index).data)


def write_keys(vectors: Vectors, path: Path) -> None:
    """Writes the columns key and, if there are counts, count, a row for each vector."""
    with open(path, "wb") as file:
        key_table(vectors).write_parquet(file)


def write_sql(
    vectors: Vectors,
    path: Path,
    *,
    columns: "pl.DataFrame | None" = None,
    dtype: Dtype | None = None,
) -> None:
    """Writes the columns key, those of `columns`, count if known, and vector.

    Vectors are of the type vector (float32), or of float16 halfvec (pgvector 0.7). Keys
    are bigint, or numeric above 2^63, if they were integers in the data, else text.

    Raises:
      InputError: there are too many dimensions, a key is too long or has U+0000, or a
        value overflows float32.
    """
    use_threads()
    _check_sql(vectors)
    matrix = float32(unpack(pack(vectors.matrix, dtype)), _PGVECTOR)
    kind = "vector" if dtype is None else "halfvec"
    table = key_table(vectors)
    if columns is not None:
        table = with_columns(table, columns)
    if "vector" in table.columns:
        raise InputError(
            "Columns of names must have other names than vector: rename it."
        )
    names = [_quoted(name) for name in table.columns]
    types = [
        _sql_type(dtype) + " NOT NULL" * (name in ("key", "count"))
        for name, dtype in table.schema.items()
    ]
    defined = [*map(" ".join, zip(names, types, strict=True))]
    defined.append(f"vector {kind}({matrix.shape[1]}) NOT NULL")
    listed = ", ".join([*names, "vector"])
    with open(path, "wb") as file:
        start = _SQL_START.format(defined=",\n  ".join(defined), columns=listed)
        file.write(start.encode())
        _write_rows(table, matrix, file)
        updated = ", ".join(f"{x} = EXCLUDED.{x}" for x in [*names[1:], "vector"])
        end = _SQL_END.format(columns=listed, updated=updated, type=kind)
        file.write(end.encode())


def _quoted(name: str) -> str:
    """The name of a column in SQL."""
    if name in ("key", "count"):
        return name
    return '"' + name.replace('"', '""') + '"'


def _sql_type(dtype: "pl.DataType") -> str:
    """The type of PostgreSQL for a column."""
    import polars as pl

    if dtype == pl.UInt64:
        return "numeric"
    if dtype.is_integer():
        return "bigint"
    if dtype == pl.Boolean:
        return "boolean"
    return "double precision" if dtype.is_float() else "text"


def _check_sql(vectors: Vectors) -> None:
    size = vectors.matrix.shape[1]
    if size > MAX_DIMENSIONS:
        raise InputError(
            f"`vectors.matrix` must have at most {MAX_DIMENSIONS} dimensions in "
            f"{_PGVECTOR}, got {size}."
        )
    for key in vectors.keys:
        if "\0" in key or len(key.encode()) > MAX_KEY_BYTES:
            raise InputError(
                f"`vectors.keys` must have at most {MAX_KEY_BYTES} bytes and no U+0000 "
                f"in {_PGVECTOR}, got {short_repr(key)}."
            )


def _write_rows(
    table: "pl.DataFrame", matrix: np.ndarray, file: BufferedIOBase
) -> None:
    """Writes a line for each row and its vector, in COPY's text format."""
    import polars as pl

    num_rows = max(1, CHUNK_VALUES // matrix.shape[1])
    for start in range(0, len(table), num_rows):
        rows = pl.DataFrame(matrix[start : start + num_rows])
        vectors = rows.write_csv(include_header=False).split("\n")[:-1]
        fields = [
            [r"\N" if x is None else str(x).translate(_ESCAPES) for x in column]
            for column in table[start : start + num_rows].iter_columns()
        ]
        fields.append([f"[{row}]" for row in vectors])
        lines = "".join("\t".join(line) + "\n" for line in zip(*fields, strict=True))
        file.write(lines.encode())


def write_sentence_transformers(
    vectors: Vectors, folder: Path, *, dtype: Dtype | None = None, card: str = ""
) -> None:
    """Writes a SentenceTransformer of one module, StaticEmbedding, into `folder`.

    Raises:
      InputError: a key has white space or is too long.
    """
    check_plain_keys(vectors.keys, "a tokenizer")
    arrays = {"embedding.weight": _with_zero_row(pack(vectors.matrix, dtype).values)}
    settings: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    (folder / _SUBFOLDER).mkdir()
    _write_model(folder, _SUBFOLDER, vectors.keys, arrays, card)
    _write_json(folder / "config_sentence_transformers.json", settings)


def write_model2vec(
    vectors: Vectors, folder: Path, *, dtype: Dtype | None = None, card: str = ""
) -> None:
    """Writes a StaticModel into `folder`; the scales of int8 are its weights.

    Raises:
      InputError: a key has white space or is too long.
    """
    check_plain_keys(vectors.keys, "a tokenizer")
    packed = pack(vectors.matrix, dtype)
    arrays = {"embeddings": _with_zero_row(packed.values)}
    if packed.scales is not None:
        arrays["weights"] = np.append(packed.scales, np.float32(1))
    settings = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": vectors.matrix.shape[1],
        "seq_length": _UNLIMITED,
        "normalize": False,
        "embedding_dtype": packed.values.dtype.name,
    }
    _write_model(folder, ".", vectors.keys, arrays, card)
    _write_json(folder / "config.json", settings)


def _write_model(
    folder: Path, inner: str, keys: list[str], arrays: dict[str, np.ndarray], card: str
) -> None:
    """Writes the tokenizer and `arrays` into the folder `inner`, and what names it."""
    save_arrays(arrays, folder / inner / "model.safetensors")
    _write_json(folder / inner / "tokenizer.json", tokenizer(keys))
    modules = [{"idx": 0, "name": "0", "path": inner, "type": _STATIC}]
    _write_json(folder / "modules.json", modules)
    if card:
        (folder / "README.md").write_text(card, encoding="utf-8")


def tokenizer(keys: list[str]) -> dict[str, Any]:
    """tokenizer.json: the id of a key is its row, and unknown tokens have the id V."""
    unknown = "[UNK]"
    known = {key: row for row, key in enumerate(keys)}
    while unknown in known:
        unknown = f"[{unknown}]"
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": _WHITE_SPACE},
            "behavior": "Removed",
            "invert": False,
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": known | {unknown: len(known)},
            "unk_token": unknown,
        },
    }


def _with_zero_row(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, np.zeros_like(values[:1])])


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
