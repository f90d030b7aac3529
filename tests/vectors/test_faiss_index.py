"""An index of faiss, with its keys beside it."""

import os
import sys

import numpy as np
import polars as pl
import pytest

from embedder.errors import InputError, InputExistsError
from embedder.vectors.export import keys_path, write_vectors
from embedder.vectors.vectors import Vectors

RNG = np.random.default_rng(0)
KEYS = [*(f"k{i}" for i in range(199)), "a\n'b"]
VECTORS = Vectors(KEYS, RNG.normal(size=(200, 16)), np.arange(200)[::-1])


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_faiss_finds_the_neighbours(tmp_path, dtype):
    faiss = pytest.importorskip("faiss")
    path = tmp_path / "v.faiss"
    write_vectors(VECTORS, path, dtype=dtype)
    index = faiss.read_index(str(path))
    assert (index.ntotal, index.d) == (200, 16)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    table = pl.read_parquet(keys_path(path))
    assert table["key"].to_list() == KEYS
    assert table["count"].to_list() == VECTORS.counts.tolist()
    scores, rows = index.search(VECTORS.unit[[5, 199]].astype(np.float32), 6)
    for query, row, found in zip((5, 199), rows, scores, strict=True):
        expected = VECTORS.most_similar(KEYS[query], topn=5)
        assert [KEYS[i] for i in row] == [KEYS[query], *(key for key, _ in expected)]
        cosines = [1.0, *(cosine for _, cosine in expected)]
        np.testing.assert_allclose(found, cosines, atol=1e-6 if dtype is None else 2e-3)


@pytest.mark.row("B55")
def test_an_index_is_not_written_over(tmp_path):
    path = tmp_path / "v.faiss"
    path.write_bytes(b"old")
    with pytest.raises(InputExistsError, match="must be new with `format` faiss, got"):
        write_vectors(VECTORS, path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["v.faiss"]


@pytest.mark.row("B55")
def test_without_faiss_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"needs faiss-cpu, .*\[faiss\]"):
        write_vectors(VECTORS, tmp_path / "v.faiss")
    assert os.listdir(tmp_path) == []


@pytest.mark.row("F49")
def test_a_full_disk_leaves_no_index(tmp_path):
    pytest.importorskip("faiss")
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_vectors(VECTORS, tmp_path / "v.faiss")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []
