"""Vectors for other programs: an index of faiss, SQL of pgvector, static models.

faiss: unit vectors by their inner product, which is the cosine. The number of a vector
in the index is its row; the keys are in a table beside it.

pgvector: one file creates the table of PostgreSQL and loads it by COPY, whose rows
follow in COPY's text format as in files of pg_dump; psql runs it.
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
from typing import Any

import numpy as np

from embedder.base.threads import use_threads
from embedder.errors import InputError, check_installed
from embedder.vectors.array_formats import key_column, key_table, save_arrays
from embedder.vectors.reduce import Dtype, pack, unpack
from embedder.vectors.vectors import Vectors, short_repr
from embedder.vectors.word2vec import CHUNK_VALUES, check_plain_keys, float32

MAX_DIMENSIONS = 16_000  # of pgvector's types vector and halfvec
MAX_KEY_BYTES = 2_600  # a primary key must fit a third of a page of 8 KiB
_PGVECTOR = "a table of pgvector"
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_SQL_START = r"""\set ON_ERROR_STOP on
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
_SQL_END = r"""\.
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
    _check_sql(vectors)
    matrix = float32(unpack(pack(vectors.matrix, dtype)), _PGVECTOR)
    kind = "vector" if dtype is None else "halfvec"
    is_integer = key_column(vectors.keys, vectors.key_type).dtype == pl.Int64
    counts = vectors.counts
    with open(path, "wb") as file:
        start = _SQL_START.format(
            key_type="bigint" if is_integer else "text",
            count="" if counts is None else "  count bigint NOT NULL,\n",
            type=kind,
            size=matrix.shape[1],
            columns="key, vector" if counts is None else "key, count, vector",
        )
        file.write(start.encode())
        _write_rows(vectors.keys, counts, matrix, file)
        file.write(_SQL_END.format(type=kind).encode())


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
    keys: list[str], counts: np.ndarray | None, matrix: np.ndarray, file: BufferedIOBase
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
