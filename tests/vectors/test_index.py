"""The index: its neighbours beside exact ones, its freshness, and its damage."""

import dataclasses
import json
import logging
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
    centres = rng.standard_normal((60, 24))
    matrix = centres[rng.integers(60, size=3000)] + 0.4 * rng.standard_normal(
        (3000, 24)
    )
    return Vectors([f"k{i}" for i in range(3000)], matrix.astype(np.float32))


@pytest.fixture
def folder(vectors, tmp_path) -> Path:
    build_index(vectors, tmp_path, COSINE)
    return tmp_path


def again(vectors: Vectors, **changed) -> Vectors:
    """The same vectors in another object."""
    parts = {"keys": vectors.keys, "matrix": vectors.matrix} | changed
    return Vectors(**parts)


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
    found = fresh.neighbors(keys, 5, metric=other)
    np.testing.assert_array_equal(
        found[0], fresh.neighbors(keys, 5, metric=other, method="exact")[0]
    )


def test_most_similar_uses_the_index_and_filters_do_not(vectors, folder, monkeypatch):
    fresh = again(vectors)
    used = []
    index = fresh.use_index(folder)
    nearest = index.nearest_rows
    monkeypatch.setattr(
        index, "nearest_rows", lambda *a: used.append(len(a[0])) or nearest(*a)
    )
    found = fresh.most_similar(["k1", "k2"], ["k3"], topn=4)
    assert used == [1] and not {"k1", "k2", "k3"} & {key for key, _ in found}
    assert [len(x) for x in fresh.nearest_to(vectors.matrix[:3], 2)] == [2, 2, 2]
    assert used == [1, 3]
    fresh.most_similar("k1", among=["k5", "k6"])
    fresh.most_similar("k1", method="exact")
    fresh.neighbors(["k1"], method="exact")
    assert used == [1, 3]


def test_more_neighbours_than_there_are(folder, vectors):
    fresh = again(vectors)
    fresh.use_index(folder)
    ids, _ = fresh.neighbors(["k0"], 2990)
    assert 2000 < len({*ids[0]} - {-1}) and 0 not in ids[0]


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


def test_an_index_of_a_file_is_beside_it(vectors, tmp_path):
    build_index(vectors, tmp_path / "v.bin", COSINE)
    assert (tmp_path / "v.bin.index" / "about.json").exists()
    assert again(vectors).use_index(tmp_path / "v.bin") is not None


def one_line(caplog) -> str:
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert "\n" not in text
    return text


def test_no_index_is_no_warning(vectors, tmp_path, caplog):
    assert again(vectors).use_index(tmp_path) is None
    assert not caplog.records


@pytest.mark.row("F52")
@pytest.mark.parametrize("what", ["number", "key", "order", "dtype"])
def test_an_index_of_other_vectors_is_not_used(vectors, folder, caplog, what):
    matrix, keys = vectors.matrix.copy(), [*vectors.keys]
    if what == "number":
        matrix[2000, 3] = np.nextafter(matrix[2000, 3], 9)
    elif what == "key":
        keys[7] = "other"
    elif what == "order":
        keys[3], keys[4] = keys[4], keys[3]
    else:
        matrix = matrix.astype(np.float64)
    other = Vectors(keys, matrix)
    assert other.use_index(folder) is None
    text = one_line(caplog)
    assert text.startswith(f"Index {folder}/index is stale: it is of other vectors;")
    assert text.endswith("`embedder index` writes it anew. Exact search is used.")
    exact = other.neighbors(["k9"], method="exact")[0]
    np.testing.assert_array_equal(other.neighbors(["k9"])[0], exact)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.mark.row("F50")
def test_a_flipped_bit_anywhere_is_damage(vectors, folder, caplog):
    """Of the graph, and of each byte of about.json."""
    about = read_about(index_folder(folder))
    graph, text = (index_folder(folder) / name for name in (about.file, "about.json"))
    rng = np.random.default_rng(0)
    size = graph.stat().st_size
    for path, places in (
        (graph, [0, 64, size - 1, *rng.integers(size, size=5)]),
        (text, range(text.stat().st_size)),
    ):
        before = path.read_bytes()
        for at in places:
            caplog.clear()
            flip(path, at)
            if path == text and _same_json(before, path.read_bytes()):
                continue  # white space
            assert again(vectors).use_index(folder) is None, at
            assert "is damaged (" in one_line(caplog)
        path.write_bytes(before)
    assert again(vectors).use_index(folder) is not None


def _same_json(first: bytes, second: bytes) -> bool:
    try:
        return json.loads(first) == json.loads(second)
    except ValueError:
        return False


@pytest.mark.row("F50")
@pytest.mark.parametrize(
    "damage", ["cut", "missing", "empty", "folder", "long", "deep"]
)
def test_a_damaged_index_is_named_and_not_used(vectors, folder, caplog, damage):
    place = index_folder(folder)
    graph, text = place / read_about(place).file, place / "about.json"
    if damage == "cut":
        graph.write_bytes(graph.read_bytes()[:-10])
    elif damage == "missing":
        graph.unlink()
    elif damage == "empty":
        text.write_text("")
    elif damage == "folder":
        text.unlink()
        text.mkdir()
    elif damage == "long":
        text.write_text("1" * 10**6)
    else:
        text.write_text("[" * 60_000)
    assert again(vectors).use_index(folder) is None
    assert f"Index {place} is damaged (" in one_line(caplog)


@pytest.mark.row("F50")
@pytest.mark.parametrize("name", ["../../x.usearch", "/tmp/x.usearch", "about.json"])
def test_a_graph_outside_of_the_folder_is_not_opened(vectors, folder, caplog, name):
    place = index_folder(folder)
    module._write_about(place, dataclasses.replace(read_about(place), file=name))
    assert again(vectors).use_index(folder) is None
    assert "is damaged (" in one_line(caplog)


@pytest.mark.row("B92")
def test_without_the_library_search_is_exact(vectors, folder, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch", None)
    assert again(vectors).use_index(folder) is None
    assert "is not used: An index needs usearch, which is not" in one_line(caplog)
    with pytest.raises(InputError, match="An index needs usearch"):
        build_index(vectors, folder, COSINE)


@pytest.mark.slow
def test_the_least_expansion_that_reaches_the_recall_is_taken(vectors, tmp_path):
    tried = [
        build_index(vectors, tmp_path, IndexOptions(recall=recall))
        for recall in (0.5, 1.0)
    ]
    assert tried[0].expansion <= tried[1].expansion
    assert 0.5 <= tried[0].recall <= 1 and tried[1].recall > 0.99


@pytest.mark.parametrize("least", [1, 21, 22, 33, 36, 37, 64, 1000, 1024, 2000])
def test_expansions_are_tried_until_one_less_is_too_small(least):
    """Recall is 1 from `least` on; none is tried below what a search gives."""
    tried = []

    def recalls_at(expansion: int) -> np.ndarray:
        tried.append(expansion)
        return np.full(100, 1.0 if expansion >= least else 0.5)

    expansion, recall = module._least_expansion(recalls_at, 0.95, 1000)
    assert expansion == min(max(least, 21), 1024)
    assert recall == (1.0 if least <= 1024 else 0.5)
    assert min(tried) == 21 and len(tried) < 22 and len({*tried}) == len(tried)


def test_the_recall_is_reached_by_two_standard_errors():
    """A query finds all or nothing, so the error is sqrt(p q / 400) of many rows, and 0
    if these are all."""

    def recalls_at(expansion: int) -> np.ndarray:
        return (np.arange(400) >= 20 - (expansion - 32)).astype(float)

    assert module._least_expansion(recalls_at, 0.95, 400) == (32, 0.95)
    expansion, recall = module._least_expansion(recalls_at, 0.95, 10**9)
    assert (expansion, recall) == (40, 0.97)
    misses = np.array([20 - 7, 20 - 8]) / 400  # one expansion less does not do
    reached = 1 - misses - 2 * np.sqrt(misses * (1 - misses) / 400)
    assert reached[0] < 0.95 <= reached[1]


def test_an_opened_index_makes_no_unit_rows(vectors, folder):
    """They would take the memory of the vectors a second time."""
    fresh = again(vectors)
    fresh.use_index(folder)
    fresh.neighbors(["k1", "k2"])
    assert "unit" not in vars(fresh)


def test_equal_rows_are_as_good_as_each_other():
    """Recall counts similarities that reach the least exact one, not rows."""
    exact = np.array([[0.9, 0.8, 0.8], [0.5, np.nan, np.nan], [0.3, 0.2, 0.1]])
    found = np.array([[0.9, 0.8, 0.7], [0.5, np.nan, np.nan], [0.2, 0.1, np.nan]])
    assert np.allclose(module._recalls(found, exact), [2 / 3, 1, 2 / 3])
    assert (module._recalls(exact, exact) == 1).all()
    assert module._recalls(np.full((1, 2), np.nan), np.full((1, 2), np.nan)) == [1]


@pytest.mark.row("B60")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recall": 0.0}, r"`recall` must be in \(0, 1\], got 0.0"),
        ({"recall": 1.5}, "`recall` must be in"),
        ({"recall": float("nan")}, "`recall` must be in"),
        ({"connectivity": 1}, "`connectivity` must be 2 to 512, got 1"),
        ({"expansion_add": 0}, "`expansion_add` must be 1 to 65536, got 0"),
    ],
)
def test_options_out_of_bounds(options, message):
    with pytest.raises(InputError, match=message):
        IndexOptions(**options)


def test_one_and_two_vectors(tmp_path):
    for num in (1, 2):
        few = Vectors([*"ab"][:num], np.eye(2, dtype=np.float32)[:num])
        assert build_index(few, tmp_path, COSINE).rows == num
        assert few.use_index(tmp_path) is not None
        assert few.neighbors(["a"])[0].tolist() == ([[1]] if num == 2 else [[]])
