"""Vectors, replicas and their files: damaged, or not to be written."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors.numpy

from embedder import (
    Vectors,
    evaluate_analogies,
    evaluate_pairs,
    read_ensemble,
    read_vectors,
    write_vectors,
)
from embedder.disk.arrays import pack_strings
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble, write_stability
from tests.refusals.rows import Content, calls_of, write

TWO = Vectors(["a", "b"], np.eye(2), np.array([2, 1]))
BLANK = Vectors(["fine", "a b"], np.eye(2))
LARGE = Vectors(["a"], np.array([[1.0, 1e60]]))
MODELS = Ensemble(["a", "b"], np.stack([np.eye(2)] * 2), np.array([2, 1]))
NAMES = pl.DataFrame({"name": ["x", "y"]})


def file(content: Content, name: str = "f.txt") -> Path:
    write(Path(name), content)
    return Path(name)


def read(name: str, content: Content) -> Vectors:
    return read_vectors(file(content, name))


def parts(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Of a file of the keys `a` and `bc`."""
    tokens, ends = pack_strings(["a", "bc"])
    whole = {"vectors": np.eye(2), "tokens": tokens, "token_ends": ends} | changes
    return {name: array for name, array in whole.items() if array is not None}


def npz(is_packed: bool = False, **changes: Any) -> Vectors:
    made = io.BytesIO()
    (np.savez_compressed if is_packed else np.savez)(made, **parts(changes))
    return read("v.npz", made.getvalue())


def table(columns: Mapping[str, Any]) -> Vectors:
    return read("v.parquet", pl.DataFrame(columns))


def saved(**changes: Any) -> Path:
    return file(safetensors.numpy.save(parts(changes)), "v.safetensors")


def tensors(**changes: Any) -> Vectors:
    return read_vectors(saved(**changes))


READERS = read_ensemble, evaluate_pairs, evaluate_analogies
WRITERS = write_vectors, write_ensemble, write_stability
PYTHON = globals() | {f.__name__: f for f in (*READERS, *WRITERS)}
TEXT = r"""
[B13]
read("v.txt", "")
    v.txt line 1: must be the numbers of keys and of dimensions, got ''.
read("v.txt", "-1 2\na 1 2\n")
    v.txt line 1: must be the numbers of keys and of dimensions, got '-1 2'.
read("v.txt", "a 1 2\nb 3\n")
    v.txt line 2: must be a key and 2 values, as line 1 says, got 2 columns: 'b 3'.
read("v.txt", "a 1 2\nb c 3 x\n")
    v.txt line 2: column 3 must be a finite number, got 'x'.
read("v.txt", "999999999999 2\na 1 2\n")
    InputEndError: v.txt line 3: must be one of 999999999999 rows, as line 1 says, got
    the end of the file.
read("v.txt", "1 999999999999\na 1 2\n")
    v.txt line 2: must be a key and 999999999999 values, as line 1 says, got 3 columns:
    'a 1 2'.
read("v.txt", "1 2\na 1 2\nb 3 4\n")
    v.txt line 3: must be the end, after the 1 rows that line 1 says, got 'b 3 4'.
read("v.txt", "2 2\na 1 2\n 3 4\n")
    v.txt line 3: column 1 must be a key, got white space: --key-errors skip leaves such
    rows out.
read("v.txt", "2 2\na 1 2\nb 3\n")
    v.txt line 3: must be a key and 2 values, as line 1 says, got 2 columns: 'b 3'.
read("v.txt", "2 2\na 1 2\nb c 3 4\n")
    v.txt line 3: must be a key and 2 values, as line 1 says, got 4 columns: 'b c 3
    4'; --key-errors skip leaves such rows out.
read("v.txt", "a 1 2\n\t 3 4\n")
    v.txt line 2: column 1 must be a key, got white space: --key-errors skip leaves such
    rows out.
read("v.txt", "2 2\na 1 2\nb -inf 3\n")
    v.txt line 3: column 2 must be a finite number, got '-inf'.
read("v.txt", "2 2\na 1 2\na 3 4\n")
    v.txt line 3: column 1 must be another key than on line 2, got 'a': --key-errors
    skip leaves such rows out.
read("v.txt", b"2 2\na 1 2\n\xe7 3 4\n")
    v.txt line 3: column 1 must be UTF-8, got '�': --key-errors skip leaves such rows
    out, --key-errors replace has U+FFFD in keys.
[B12]
read("v.bin", b"\x00\xff" * 500)
    v.bin line 1: must be the numbers of keys and of dimensions, got '…
read("v.bin", b"2 1\na 1234b 123")
    InputEndError: v.bin must hold 2 rows of 1 values, as line 1 says, got 15 bytes.
read("v.bin", b"2 1\nlong 1234b 123")
    InputEndError: v.bin row 1: must be a key, a blank and 1 float32, got the end of the
    file.
read("v.bin", b"999999999999999 1\na 1234")
    InputEndError: v.bin must hold 999999999999999 rows of 1 values, as line 1 says, got
    24 bytes.
read("v.bin", b"1 1\na 1234\nb 1234")
    v.bin must end after the 1 rows that line 1 says, got 7 more bytes.
read("v.bin", b"2 1\na 1234a 1234")
    v.bin row 1: column 1 must be another key than on row 0, got 'a': --key-errors skip
    leaves such rows out.
read("v.bin", b"2 1\na 1234\n 1234")
    v.bin row 1: column 1 must be a key, got white space: --key-errors skip leaves such
    rows out.
read("v.bin", b"1 1\na \x00\x00\xc0\x7f")
    v.bin: `matrix` must be finite, got nan at row 0 ('a'), column 0.
read("v.bin", b"1 1\n\xe7 1234")
    v.bin row 0: column 1 must be UTF-8, got '�': --key-errors skip leaves such rows
    out, --key-errors replace has U+FFFD in keys.
[B11 B12]
npz(vectors=None)
    v.npz is not a whole vectors file: it has no `vectors`.
tensors(vectors=np.full((2, 1), np.nan))
    v.safetensors is not a whole vectors file: `matrix` must be finite, got nan at row 0
    ('a'), column 0.
tensors(token_ends=np.array([1, 2]))
    v.safetensors is not a whole vectors file: `token_ends` must rise to 3, the size of
    `tokens`, got [2] at the end.
npz(token_ends=np.array([1.0, 3.0]))
    v.npz is not a whole vectors file: `tokens` must be uint8 and `token_ends` int64,
    got uint8 and float64.
tensors(token_ends=np.array([0, 3]))
    v.safetensors is not a whole vectors file: `keys` must not be empty, got '' at row
    0.
npz(tokens=np.frombuffer(b"\xffbc", np.uint8))
    v.npz is not a whole vectors file: 'utf-8' codec can't decode byte 0xff in position
    0: invalid start byte.
npz(vectors=np.eye(2, dtype="i1"), scales=np.ones(3, np.float32))
    v.npz is not a whole vectors file: `scales` float32(3,) do not fit `vectors` int8(2,
    2).
npz(vectors=np.eye(2, dtype="f4"), scales=np.ones(2, np.float32))
    v.npz is not a whole vectors file: `scales` float32(2,) do not fit `vectors`
    float32(2, 2).
tensors(vectors=np.eye(2, dtype="i1"), scales=np.array([1, np.inf], "f4"))
    v.safetensors is not a whole vectors file: `matrix` must be finite, got nan at row 1
    ('bc'), column 0.
npz(vectors=np.array([[{}], [1]], object))
    v.npz is not a whole vectors file: `vectors` holds pickled objects, which are not
    read.
npz(is_packed=True)
    v.npz is not a whole vectors file: `vectors` is compressed.
[]
table({"key": [1.5], "vector": [[1.0]]})
    v.parquet is not a whole vectors file: it has no columns key String and vector
    Array: key Float64, vector List(Float64).
evaluate_pairs(TWO, file("a\tb\tscore\na\tb\tscore\n"))
    f.txt line 2: must be two words and a finite score, got 'a b score'.
evaluate_pairs(TWO, file("# c\n\na\tb\t1\na\tb\n"))
    f.txt line 4: must be two words and a finite score, got 'a b'.
evaluate_pairs(TWO, file("a\tb\t1\na\tb\tnan\n"))
    f.txt line 2: must be two words and a finite score, got 'a b nan'.
evaluate_pairs(TWO, file("a\tb\t1\na\tprince\t2\n"))
    f.txt must have 2 pairs or more with both words in the vocabulary, got 1 of 2.
evaluate_analogies(TWO, file(""), restrict_vocab=0)
    `restrict_vocab` must be an integer >= 1, got 0.
evaluate_analogies(TWO, file("a b w3 w4\n"))
    f.txt line 1: must be `: NAME` of a section, got 'a b w3 w4'.
evaluate_analogies(TWO, file(": s\na b c d e\n"))
    f.txt line 2: must be four words, got 'a b c d e'.
Vectors(["a", "b", "a"], np.ones((3, 1)))
    `keys` must be unique, got 'a' at rows 0 and 2.
Vectors(["a", ""], np.ones((2, 1)))
    `keys` must not be empty, got '' at row 1.
Vectors(["a", "\ud800"], np.ones((2, 1)))
    `keys` must be valid Unicode, got '\ud800' at row 1.
Vectors("ab", np.ones((2, 1)))
    InputTypeError: `keys` must be a list of strings, got 'ab'.
Vectors(["a"], np.ones((2, 1)))
    `matrix` must have shape [V, D], V = 1 the number of keys, neither of them 0, got
    (2, 1).
Vectors([], np.ones((0, 3)))
    `matrix` must have shape [V, D], V = 0 the number of keys, neither of them 0, got
    (0, 3).
Vectors(["a"], np.ones((1, 1), int))
    InputTypeError: `matrix` must hold float16, float32 or float64, got int64.
Vectors(["a", "b"], np.array([[0], [-np.inf]]))
    `matrix` must be finite, got -inf at row 1 ('b'), column 0.
Vectors(["a"], np.ones((1, 1)), [1, 2])
    `counts` must have shape (1,), got (2,).
Vectors(["a"], np.ones((1, 1)), [-1])
    `counts` must be >= 0, got -1.
Vectors(["a"], np.ones((1, 1)), [1.0])
    InputTypeError: `counts` must hold integers, got float64.
TWO["x"]
    InputKeyError: "Token 'x' is not in the vocabulary."
TWO.most_similar([], [])
    `positive` or `negative` must have a token, got none.
TWO.most_similar("a", topn=True)
    InputTypeError: `topn` must be an integer >= 1, got True.
Ensemble(["a", "b"], np.ones((1, 2, 2)), [1, 1])
    `vectors` must have shape [K, V, D] with K >= 2 replicas, got (1, 2, 2).
Ensemble(["a", "b"], np.ones((2, 2, 2), "f2"), [1, 1])
    InputTypeError: `vectors` must be float32 or float64, got float16.
Ensemble(["a", 1], np.ones((2, 2, 2)), [1, 1])
    InputTypeError: `keys` must be a list of strings, got ['a', 1].
MODELS.neighbors(["a"], percent=0)
    `percent` must be in (0, 100], got 0.
MODELS.neighbors(["x"])
    InputKeyError: "Token 'x' is not in the vocabulary."
write_stability(MODELS, 3, "x.safetensors")
    `path` must end in .parquet or .csv, got 'x.safetensors'.
read_vectors("v.csv")
    `path` must end in .txt, .vec, .txt.gz, .vec.gz, .bin, .safetensors, .npz or
    .parquet, got 'v.csv'.
read_vectors("v.npz", key_errors="ignore")
    `key_errors` must be strict, skip or replace, got 'ignore'.
read_vectors("v.npz", index="fast")
    `index` must be 'auto' or 'none', got 'fast'.
[B1]
read_ensemble("none.safetensors")
    InputNotFoundError: Replicas file none.safetensors does not exist: `embedder train
    --replicas` writes one.
read_vectors("none.npz")
    InputNotFoundError: Vectors file none.npz does not exist.
read_vectors("folder")
    InputNotFoundError: `path` must be a file of vectors or a finished run, got the
    folder folder.
[B17]
read_ensemble(saved(counts=np.array([2, 1])))
    v.safetensors is not a whole replicas file: `vectors` must have shape [K, V, D] with
    K >= 2 replicas, got (2, 2).
[B33]
TWO.most_similar("a", among=["x"])
    `among` must have a key of the vocabulary, got 1 others.
TWO.most_similar("a", among="b")
    InputTypeError: `among` must be keys, got 'b'.
MODELS.neighbors(["a"], among=["x"])
    `among` must have a key of the vocabulary, got 1 others.
write_ensemble(MODELS, "x.safetensors", columns=NAMES)
    Names can be written only to .parquet, got 'x.safetensors'.
write_vectors(TWO, "x.parquet", columns=NAMES[:1])
    `columns` must have a row for each of 2 keys, got 1.
write_vectors(TWO, "x.parquet", columns=NAMES.rename({"name": "count"}))
    Columns of names must have other names than key, count, vector, got 'count': rename
    it.
write_vectors(TWO, "x.sql", columns=NAMES.rename({"name": "vector"}))
    Columns of names must have other names than vector: rename it.
[B54]
write_vectors(LARGE, "x.npz", dtype="float16")
    `dtype` float16 cannot hold the value 1e+60.
write_vectors(Vectors(["a"], np.array([[1, -1e60]])), "x.npz", dtype="int8")
    `dtype` int8 cannot hold the value -1e+60.
write_vectors(TWO, "x.txt", dtype="float16")
    `dtype` must fit `format` word2vec, got 'float16': float16 fits safetensors, npz,
    parquet, sentence-transformers, model2vec, faiss or pgvector.
write_vectors(TWO, "x", format="sentence-transformers", dtype="int8")
    `dtype` must fit `format` sentence-transformers, got 'int8': int8 fits safetensors,
    npz, parquet or model2vec.
[B55]
write_vectors(TWO, "nowhere/v", format="model2vec")
    InputNotFoundError: Folder nowhere does not exist.
write_vectors(TWO, file("old", "v"), format="sentence-transformers")
    InputExistsError: `path` must be new with `format` sentence-transformers, got v: …
write_vectors(TWO, file("old", "v.faiss"))
    InputExistsError: `path` must be new with `format` faiss, got v.faiss: …
[B56]
write_vectors(BLANK, "x.bin")
    `vectors.keys` must have no white space in a word2vec file, got 'a b': write
    .safetensors, .npz or .parquet.
write_vectors(BLANK, "x.txt", format="glove")
    `vectors.keys` must have no white space in a GloVe file, got 'a b': write
    .safetensors, .npz or .parquet.
write_vectors(BLANK, "x", format="model2vec")
    `vectors.keys` must have no white space in a tokenizer, got 'a b': write
    .safetensors, .npz or .parquet.
write_vectors(LARGE, "x.txt.gz")
    `vectors.matrix` must fit float32 in a word2vec file, got 1e+60: write .safetensors,
    .npz or .parquet.
write_vectors(Vectors(["3"], np.eye(1)), "x.txt", format="glove")
    `vectors.matrix` must have 2 dimensions or more in a GloVe file, got 1.
write_vectors(Vectors(["a\0b"], np.eye(1)), "x.sql")
    `vectors.keys` must have at most 2600 bytes and no U+0000 in a table of pgvector,
    got 'a\x00b'.
write_vectors(Vectors(["猫" * 900], np.eye(1)), "x.sql")
    `vectors.keys` must have at most 2600 bytes and no U+0000 in a table of pgvector,
    got '猫…
write_vectors(Vectors(["a"], np.ones((1, 16_001))), "x.sql")
    `vectors.matrix` must have at most 16000 dimensions in a table of pgvector, got
    16001.
[B11]
read_ensemble(saved(vectors=np.ones((2, 2, 2), "i4"), counts=np.array([2, 1])))
    v.safetensors is not a whole replicas file: `vectors` must be F32 or F64, got I32.
[B90]
TWO.nearest_to(np.array([[1, np.nan]]))
    Queries must be finite, got a NaN or an infinity.
"""
ROWS = calls_of(TEXT, PYTHON, {"folder/x": b""})
