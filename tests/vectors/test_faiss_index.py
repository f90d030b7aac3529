"""An index of faiss, with its keys beside it."""

import os
import sys

import numpy as np
import polars as pl
import pytest

from embedder.errors import InputError
from embedder.vectors.export import keys_path, write_vectors
from embedder.vectors.vectors import Vectors
from tests.vectors.test_formats import COUNTS, MANY


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
