"""Vectors: lookup, neighbours by hand, ties, scale, validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedder.vectors import search
from embedder.vectors import vectors as module
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors

# Cosines: east-south .6, north-south .8, east-north 0, twin = east.
HAND = Vectors(
    ["east", "north", "south", "zero", "twin"],
    np.array([[1, 0], [0, 2], [3, 4], [0, 0], [5, 0]], np.float32),
    np.array([9, 7, 7, 2, 1]),
)


MANY = Vectors(
    [f"k{i}" for i in range(200)],
    np.random.default_rng(0).standard_normal((200, 9)).astype(np.float32),
)
HALF, LENGTH = 2**0.5, 0.8**0.5  # of (1, 1), of (-.4, .8)
QUERIES = [
    ("east", None, 10, {"twin": 1.0, "south": 0.6, "north": 0.0, "zero": 0.0}),
    # (1, 1) / sqrt 2 . (.6, .8)
    (["east", "north"], None, 2, {"south": 1.4 / HALF, "twin": 1 / HALF}),
    # (.6, .8) - (1, 0)
    ("south", "east", 9, {"north": 0.8 / LENGTH, "zero": 0.0, "twin": -0.4 / LENGTH}),
    (None, ["east"], 3, {"north": 0.0, "zero": 0.0, "south": -0.6}),
    (["east", "north", "north"], None, 1, {"south": 2.2 / 5**0.5}),
    # nothing is near to nothing: by id
    ("east", "twin", 10, {"north": 0.0, "south": 0.0, "zero": 0.0}),
    ("zero", [], 2, {"east": 0.0, "north": 0.0}),
    (["south"] * 2, [], 9, {"north": 0.8, "east": 0.6, "twin": 0.6, "zero": 0.0}),
    (["east", "north", "south", "zero", "twin"], [], 10, {}),
]


@pytest.mark.parametrize(("positive", "negative", "topn", "expected"), QUERIES)
def test_most_similar_by_hand(positive, negative, topn, expected):
    found = HAND.most_similar(positive, negative, topn=topn)
    assert [key for key, _ in found] == [*expected]
    assert [s for _, s in found] == pytest.approx([*expected.values()], abs=1e-15)
    assert all(type(score) is float for _, score in found)


@pytest.mark.parametrize("topn", [1, 5, 300])
def test_neighbors_among_keys_are_the_best_of_these(topn):
    among = {f"k{i}" for i in range(0, 200, 7)} | {"unsold"}
    whole = MANY.most_similar("k7", topn=199)
    expected = [x for x in whole if x[0] in among][:topn]
    assert MANY.most_similar("k7", topn=topn, among=among) == expected
    whole = MANY.analogy("k7", "k0", "k1", topn=199)
    assert whole == MANY.most_similar(["k0", "k1"], ["k7"], 199)
    expected = [x for x in whole if x[0] in among][:topn]
    assert MANY.analogy("k7", "k0", "k1", topn=topn, among=among) == expected
    assert MANY.most_similar("k1", among=["k1"]) == []
    ids, scores = MANY.neighbors(["k7", "k8"], topn, among=among)
    assert ids.shape == (2, min(topn, 29))
    for row, key in enumerate(["k7", "k8"]):
        expected = MANY.most_similar(key, topn=topn, among=among)
        num = len(expected)
        found = [MANY.keys[i] for i in ids[row, :num]]
        assert [*zip(found, scores[row, :num], strict=True)] == expected
        assert (ids[row, num:] == -1).all() and np.isnan(scores[row, num:]).all()


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 5)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_any_finite_matrix_has_cosines(matrix):
    vectors = Vectors([str(i) for i in range(len(matrix))], matrix)
    lengths = np.linalg.norm(vectors.unit, axis=1)
    np.testing.assert_allclose(lengths, matrix.any(axis=1), atol=1e-6)
    for i in range(len(matrix)):
        assert vectors.similarity(str(i), str(i)) == pytest.approx(
            float(matrix[i].any())
        )
        found = vectors.most_similar(str(i))
        assert len(found) == len(matrix) - 1
        assert all(-1 <= score <= 1 for _, score in found)
        for key, score in found:
            assert score == pytest.approx(vectors.similarity(str(i), key), abs=1e-15)


def test_lookup():
    assert len(HAND) == 5
    assert "north" in HAND and "up" not in HAND
    assert HAND.key_to_index == {key: row for row, key in enumerate(HAND.keys)}
    np.testing.assert_array_equal(HAND["south"], np.float32([3, 4]))
    assert list(HAND) == HAND.keys
    assert repr(HAND) == "Vectors(5 keys, 2 dimensions)"
    assert HAND.near_spellings("sowth") == ["south"]
    assert HAND.near_spellings("qqq") == []
    with pytest.raises(ValueError, match="read-only"):
        HAND["east"][0] = 2
    with pytest.raises(AttributeError):
        HAND.keys = []


def test_similarity_by_hand():
    for a, b, cosine in (
        *(("east", "south", 0.6), ("south", "north", 0.8), ("east", "north", 0.0)),
        *(("east", "twin", 1.0), ("south", "south", 1.0), ("zero", "east", 0.0)),
    ):
        assert HAND.similarity(a, b) == pytest.approx(cosine, abs=1e-15)
        assert type(HAND.similarity(a, b)) is float
    for scale in (1e-300, 1e-160, 1e160, 1e300):
        unit = unit_rows(scale * np.array([[3.0, 4.0], [0.0, 0.0]]))
        np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0]])


@pytest.mark.parametrize("chunk", [1, 700, 2**24])
def test_neighbors_are_those_of_most_similar(monkeypatch, chunk):
    monkeypatch.setattr(module, "_KEYS", max(1, chunk // 2**9))
    monkeypatch.setattr(search, "_SCORES", chunk)
    keys = ["k7", "k0", "k199", "k7"]
    ids, scores = MANY.neighbors(keys, topn=5)
    assert ids.dtype == np.int64 and scores.dtype == np.float64
    for place, key in enumerate(keys):
        found = [MANY.keys[i] for i in ids[place]], scores[place].tolist()
        assert list(zip(*found, strict=True)) == MANY.most_similar(key, topn=5)
    assert HAND.neighbors("east", topn=99)[0].tolist() == [[4, 2, 1, 3]]
    assert HAND.neighbors([], topn=3)[0].shape == (0, 3)
    assert Vectors(["one"], np.ones((1, 2))).neighbors("one")[1].shape == (1, 0)


@pytest.mark.parametrize(
    ("given_dtype", "order", "kept"),
    [("<f2", "C", "f4"), (">f4", "C", "f4"), ("<f4", "F", "f4"), (">f8", "F", "f8")],
)
def test_other_floats_and_orders_are_converted(given_dtype, order, kept):
    matrix = np.array([[1, 2], [3, 4]], given_dtype, order=order)
    counts = np.array([2, 1])
    Vectors(["a", "b"], matrix, counts)
    assert counts.flags.writeable
    vectors = Vectors(["a", "b"], matrix, np.array([2, 1], np.uint16))
    assert vectors.matrix.dtype == np.dtype(kept) and vectors.matrix.flags.c_contiguous
    np.testing.assert_array_equal(vectors.matrix, [[1, 2], [3, 4]])
    assert vectors.counts.dtype == np.int64
    assert np.shares_memory(Vectors(["a", "b"], vectors.matrix).matrix, vectors.matrix)
    assert matrix.flags.writeable
