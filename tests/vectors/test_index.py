"""The index: its neighbours beside exact ones, its freshness, and its damage."""

import dataclasses
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from embedder.errors import InputError
from embedder.vectors import index as module
from embedder.vectors.index import IndexOptions, build_index, index_folder, read_about
from embedder.vectors.vectors import Vectors

pytest.importorskip("usearch")
COSINE = IndexOptions()


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60, 24))[rng.integers(60, size=3000)]
    matrix += 0.4 * rng.standard_normal((3000, 24))
    return Vectors([f"k{i}" for i in range(3000)], matrix.astype(np.float32))


@pytest.fixture(scope="module")
def built(vectors, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build_index(vectors, folder, COSINE)
    return folder


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return shutil.copytree(built, tmp_path / "copy")


def again(vectors: Vectors) -> Vectors:
    """The same vectors in another object."""
    return Vectors(vectors.keys, vectors.matrix)


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_the_index_finds_what_exact_search_finds(vectors, tmp_path, metric):
    about = build_index(vectors, tmp_path, IndexOptions(metric=metric))
    fresh = again(vectors)
    assert fresh.use_index(tmp_path).about == about
    keys = vectors.keys[::7]
    ids, scores = fresh.neighbors(keys, 10, metric=metric)
    exact = fresh.neighbors(keys, 10, metric=metric, method="exact")
    shared = (ids[:, :, None] == exact[0][:, None, :]).any(axis=2)
    assert about.recall >= 0.95 and shared.mean() > 0.93
    # Scores are those of exact search, to the last bit, and sorted.
    for found, score, row, all_exact in zip(ids, scores, *exact, strict=True):
        known = dict(zip(row.tolist(), all_exact.tolist(), strict=True))
        assert all(known.get(i, s) == s for i, s in zip(found, score, strict=True))
    assert (np.diff(scores, axis=1) <= 0).all()
    other = "dot" if metric == "cosine" else "cosine"
    exact, _ = fresh.neighbors(keys, 5, metric=other, method="exact")
    np.testing.assert_array_equal(fresh.neighbors(keys, 5, metric=other)[0], exact)


@pytest.mark.slow
def test_the_least_expansion_that_reaches_the_recall_is_taken(tmp_path):
    """Of one cloud: of groups, some graphs have a recall of .97 at any expansion."""
    matrix = np.random.default_rng(0).standard_normal((3000, 8)).astype(np.float32)
    cloud = Vectors([f"k{i}" for i in range(3000)], matrix)
    least, most = (
        build_index(cloud, tmp_path, IndexOptions(recall=recall))
        for recall in (0.5, 1.0)
    )
    assert least.expansion <= most.expansion
    assert 0.5 <= least.recall <= 1 and most.recall > 0.99


def test_the_folder_has_one_graph_and_what_is_known_of_it(vectors, folder):
    for _ in range(2):  # the second replaces the first
        about = build_index(vectors, folder, COSINE)
        names = sorted(path.name for path in index_folder(folder).iterdir())
        assert names == sorted(["about.json", about.file])
        assert read_about(index_folder(folder)) == about
    graph = index_folder(folder) / about.file
    assert about.num_bytes == graph.stat().st_size
    assert 24 * 2 * 3000 < about.num_bytes < (24 * 2 + 220) * 3000  # and edges
    assert (about.rows, about.size, about.dtype) == (3000, 24, "bf16")


def one_line(caplog) -> str:
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert "\n" not in text
    return text


@pytest.mark.row("B92")
def test_without_the_library_search_is_exact(vectors, folder, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch", None)
    assert again(vectors).use_index(folder) is None
    assert "is not used: An index needs usearch, which is not" in one_line(caplog)
    with pytest.raises(InputError, match="An index needs usearch"):
        build_index(vectors, folder, COSINE)


def test_most_similar_uses_the_index_and_filters_do_not(vectors, folder, monkeypatch):
    """An opened index makes no unit rows: they would take as much memory again."""
    fresh, used = again(vectors), []
    index = fresh.use_index(folder)
    nearest = index.nearest_rows
    monkeypatch.setattr(
        index, "nearest_rows", lambda *a: used.append(len(a[0])) or nearest(*a)
    )
    found = fresh.most_similar(["k1", "k2"], ["k3"], topn=4)
    assert used == [1] and not {"k1", "k2", "k3"} & {key for key, _ in found}
    assert [len(x) for x in fresh.nearest_to(vectors.matrix[:3], 2)] == [2, 2, 2]
    assert used == [1, 3] and "unit" not in vars(fresh)
    fresh.most_similar("k1", among=["k5", "k6"])
    fresh.neighbors(["k1"], method="exact")
    assert used == [1, 3]
    ids, _ = fresh.neighbors(["k0"], 2990)
    assert 2000 < len({*ids[0]} - {-1}) and 0 not in ids[0]


@pytest.mark.row("F52")
@pytest.mark.parametrize("what", ["number", "key", "order", "dtype"])
def test_an_index_of_other_vectors_is_not_used(vectors, folder, caplog, what):
    matrix, keys = vectors.matrix.copy(), [*vectors.keys]
    if what == "number":
        matrix[2000, 3] = np.nextafter(matrix[2000, 3], 9)
    elif what == "dtype":
        matrix = matrix.astype(np.float64)
    else:
        keys[3:5] = ["k3", "other"] if what == "key" else ["k4", "k3"]
    assert Vectors(keys, matrix).use_index(folder) is None
    text = one_line(caplog)
    assert text.startswith(f"Index {folder}/index is stale: it is of other vectors;")
    assert text.endswith("`embedder index` writes it anew. Exact search is used.")


@pytest.mark.row("F50")
def test_a_damaged_index_is_named_and_not_used(vectors, folder, caplog):
    """A flipped bit of the graph, of any byte of about.json, a file that is cut, empty
    or missing, and a name outside of the folder, which is not opened."""
    place = index_folder(folder)
    about = read_about(place)
    graph, text = place / about.file, place / "about.json"
    whole = {path: path.read_bytes() for path in (graph, text)}
    rng = np.random.default_rng(0)
    size = len(whole[graph])
    damages = [
        *((text, data) for data in (b"", b"1" * 10**6, b"[" * 60_000)),
        *((graph, data) for data in (None, b"", whole[graph][:-10])),
    ]
    for name in ("../../x.usearch", "/tmp/x.usearch", "about.json"):
        module._write_about(place, dataclasses.replace(about, file=name))
        damages.append((text, text.read_bytes()))
    for path, places in (
        (graph, [0, 64, size - 1, *rng.integers(size, size=5)]),
        (text, [i for i, x in enumerate(whole[text]) if not chr(x).isspace()]),
    ):
        for at in places:
            data = bytearray(whole[path])
            data[at] ^= 4
            damages.append((path, bytes(data)))
    for path, data in damages:
        text.write_bytes(whole[text])
        graph.write_bytes(whole[graph])
        path.unlink() if data is None else path.write_bytes(data)
        caplog.clear()
        assert again(vectors).use_index(folder) is None
        assert f"Index {place} is damaged (" in one_line(caplog)


def test_one_and_two_vectors(tmp_path, caplog):
    for num in (1, 2):
        few = Vectors([*"ab"][:num], np.eye(2, dtype=np.float32)[:num])
        assert few.use_index(tmp_path / "none") is None and not caplog.records
        assert build_index(few, tmp_path, COSINE).rows == num
        assert few.use_index(tmp_path) is not None
        assert few.neighbors(["a"])[0].tolist() == ([[1]] if num == 2 else [[]])
