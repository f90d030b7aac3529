"""Formats by name: GloVe, fewer bits and dimensions, tables, targets, faiss."""

import gc
import gzip
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedder.errors import InputError
from embedder.vectors import reduce
from embedder.vectors.export import (
    FORMATS,
    format_names,
    format_of,
    keys_path,
    read_vectors,
    write_vectors,
)
from embedder.vectors.reduce import kept_neighbors, pack, principal, rounded, unpack
from embedder.vectors.vectors import Vectors
from tests.commands import flip

RNG = np.random.default_rng(0)
COUNTS = np.arange(300)[::-1]
MANY = Vectors(
    [f"k{i}" for i in range(300)], RNG.normal(size=(300, 20)).astype(np.float32), COUNTS
)
FOLDERS = [each.name for each in FORMATS if each.is_folder]


@given(arrays(np.float32, (3, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_int8_is_within_half_a_step(matrix):
    packed = pack(matrix, "int8")
    assert packed.values.dtype == np.int8 and packed.scales is not None
    step = np.abs(matrix).max(axis=1) / 127
    error = np.abs(unpack(packed).astype(np.float64) - matrix)
    assert (error <= 0.5001 * step[:, None] + 1e-42).all()


def test_formats_have_names_which_the_chapter_has():
    chapter = Path(__file__).parents[2] / "docs/reference/formats.md"
    text = chapter.read_text(encoding="utf-8")
    assert [name for name in format_names() if f"`{name}`" not in text] == []
    for each in FORMATS:
        for ending in each.endings:
            assert format_of(f"v{ending}").name == each.name
            assert format_of(f"v{ending}", each.name) is format_of(f"v{ending}")


def test_glove_and_fasttext_are_text(tmp_path):
    """GloVe has no header, fastText that of word2vec."""
    path = tmp_path / "v.txt"
    write_vectors(MANY, path, format="glove")
    lines = path.read_text().splitlines()
    assert len(lines) == 300 and lines[0].split(" ")[0] == "k0"
    assert len(lines[0].split(" ")) == 21
    found = read_vectors(path)
    assert found.keys == MANY.keys
    np.testing.assert_array_equal(found.matrix, MANY.matrix)
    write_vectors(MANY, tmp_path / "v.txt.gz", format="glove")
    assert gzip.decompress((tmp_path / "v.txt.gz").read_bytes()) == path.read_bytes()
    write_vectors(MANY, tmp_path / "a.vec", format="fasttext")
    write_vectors(MANY, tmp_path / "b.txt")
    assert (tmp_path / "a.vec").read_bytes() == (tmp_path / "b.txt").read_bytes()
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # gensim leaves a file open
        found = keyed.load_word2vec_format(str(path), no_header=True)
        gc.collect()
    assert found.index_to_key == MANY.keys
    np.testing.assert_array_equal(found.vectors, MANY.matrix)


@pytest.mark.row("F13")
@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".parquet"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_small_files_give_the_rounded_vectors(tmp_path, ending, dtype):
    path = tmp_path / f"v{ending}"
    write_vectors(MANY, path, dtype=dtype)
    found, expected = read_vectors(path), rounded(MANY, dtype)
    assert found.keys == MANY.keys and found.matrix.dtype == np.float32
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    if dtype == "float16":
        np.testing.assert_array_equal(found.matrix, MANY.matrix.astype(np.float16))
    np.testing.assert_array_equal(found.counts, COUNTS)
    write_vectors(MANY, tmp_path / f"w{ending}")
    assert path.stat().st_size < 0.8 * (tmp_path / f"w{ending}").stat().st_size
    if ending == ".safetensors":
        flip(path)
        with pytest.raises(InputError, match="not those that were written"):
            read_vectors(path)


def test_principal_components_are_those_of_a_singular_value_decomposition(monkeypatch):
    """Those of a flat cloud keep all products; chunks change nothing."""
    flat = RNG.normal(size=(50, 3)) @ RNG.normal(size=(3, 20))
    found = principal(Vectors([f"k{i}" for i in range(50)], flat), 3)
    assert found.matrix.shape == (50, 3) and found.matrix.dtype == np.float64
    np.testing.assert_allclose(found.matrix @ found.matrix.T, flat @ flat.T, atol=1e-9)
    u, s, _ = np.linalg.svd(MANY.matrix.astype(np.float64), full_matrices=False)
    expected, whole = u[:, :4] * s[:4], principal(MANY, 4).matrix
    signs = np.sign((expected * whole).sum(axis=0))
    np.testing.assert_allclose(whole, expected * signs, rtol=1e-4, atol=1e-4)
    large = Vectors(["a", "b"], np.array([[1e200, 0.0], [0.0, 3e200]]))
    np.testing.assert_allclose(principal(large, 1).matrix, [[0], [3e200]], atol=1e190)
    monkeypatch.setattr(reduce, "CHUNK_VALUES", 100)
    np.testing.assert_allclose(principal(MANY, 4).matrix, whole, rtol=1e-5, atol=1e-6)


def test_equal_vectors_keep_all_and_one_has_none():
    assert kept_neighbors(MANY, MANY) == (1.0, 10, 300)
    one, three = Vectors(["a"], np.ones((1, 2))), Vectors([*"abc"], np.eye(3))
    assert kept_neighbors(one, one) is None
    assert kept_neighbors(three, three) == (1.0, 2, 3)


@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
def test_duckdb_and_arrow_read_parquet(tmp_path, dtype):
    duckdb, pa = map(pytest.importorskip, ("duckdb", "pyarrow"))
    path = tmp_path / "v.parquet"
    columns = pl.DataFrame({"name": [f"N{i}" for i in range(300)]})
    write_vectors(MANY, path, columns=columns, dtype=dtype)
    rows = duckdb.execute(f"SELECT key, name, count, vector FROM '{path}'").fetchall()
    assert [row[:3] for row in rows[:2]] == [("k0", "N0", 299), ("k1", "N1", 298)]
    expected = pack(MANY.matrix, dtype).values
    np.testing.assert_array_equal(np.array([row[3] for row in rows]), expected)
    if dtype is None:
        query = (
            f"WITH q AS (SELECT vector::FLOAT[20] AS v FROM '{path}' WHERE key = 'k7') "
            f"SELECT key FROM '{path}', q WHERE key <> 'k7' "
            "ORDER BY array_cosine_similarity(vector::FLOAT[20], v) DESC LIMIT 5"
        )
        found = [key for (key,) in duckdb.execute(query).fetchall()]
        assert found == [key for key, _ in MANY.most_similar("k7", topn=5)]
        schema = pytest.importorskip("pyarrow.parquet").read_schema(path)
        assert schema.field("vector").type == pa.list_(pa.float32(), 20)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("mask", [0, 0o22, 0o77])
def test_folders_have_the_usual_modes(tmp_path, name, mask):
    old = os.umask(mask)
    try:
        write_vectors(MANY, tmp_path / "v", format=name, card="text")
        (tmp_path / "usual").mkdir()
        (tmp_path / "file").touch()
    finally:
        os.umask(old)
    for path in (tmp_path / "v").rglob("*"):
        usual = tmp_path / ("usual" if path.is_dir() else "file")
        assert path.stat().st_mode == usual.stat().st_mode, path


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_faiss_finds_the_neighbours(tmp_path, dtype):
    faiss = pytest.importorskip("faiss")
    path, keys = tmp_path / "v.faiss", [*MANY.keys[:-1], "a\n'b"]
    vectors = Vectors(keys, MANY.matrix, COUNTS)
    write_vectors(vectors, path, dtype=dtype)
    index = faiss.read_index(str(path))
    assert (index.ntotal, index.d) == (300, 20)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    assert keys_path(path) == tmp_path / "v.faiss.keys.parquet"
    table = pl.read_parquet(keys_path(path))
    assert table["key"].to_list() == keys
    assert table["count"].to_list() == COUNTS.tolist()
    scores, rows = index.search(vectors.unit[[5, 299]].astype(np.float32), 6)
    for query, row, found in zip((5, 299), rows, scores, strict=True):
        expected = [(keys[query], 1.0), *vectors.most_similar(keys[query], topn=5)]
        assert [keys[i] for i in row] == [key for key, _ in expected]
        cosines = [cosine for _, cosine in expected]
        np.testing.assert_allclose(found, cosines, atol=2e-3 if dtype else 1e-6)


@pytest.mark.row("B55")
def test_without_faiss_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"needs faiss-cpu, .*\[faiss\]"):
        write_vectors(MANY, tmp_path / "v.faiss")
    assert os.listdir(tmp_path) == []
