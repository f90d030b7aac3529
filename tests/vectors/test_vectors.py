"""Vectors: lookup, neighbours by hand and as in gensim, ties, scale, validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedder.errors import InputError, InputTypeError
from embedder.vectors import search
from embedder.vectors import vectors as module
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors
from tests.commands import run_python

# Cosines: east-south .6, north-south .8, east-north 0, twin = east.
HAND = Vectors(
    ["east", "north", "south", "zero", "twin"],
    np.array([[1, 0], [0, 2], [3, 4], [0, 0], [5, 0]], np.float32),
    np.array([9, 7, 7, 2, 1]),
)


def random_vectors(num: int, size: int, seed: int = 0, dtype=np.float32) -> Vectors:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((num, size)).astype(dtype)
    return Vectors([f"k{i}" for i in range(num)], matrix)


def test_lookup():
    assert len(HAND) == 5
    assert "north" in HAND and "up" not in HAND
    assert HAND.key_to_index == {key: row for row, key in enumerate(HAND.keys)}
    np.testing.assert_array_equal(HAND["south"], np.float32([3, 4]))
    assert list(HAND) == HAND.keys
    assert repr(HAND) == "Vectors(5 keys, 2 dimensions)"


def test_vectors_cannot_be_changed_by_mistake():
    with pytest.raises(ValueError, match="read-only"):
        HAND["east"][0] = 2
    with pytest.raises(AttributeError):
        HAND.keys = []


@pytest.mark.parametrize(
    ("a", "b", "cosine"),
    [
        ("east", "south", 0.6),
        ("south", "north", 0.8),
        ("east", "north", 0.0),
        ("east", "twin", 1.0),
        ("south", "south", 1.0),
        ("zero", "east", 0.0),
        ("zero", "zero", 0.0),
    ],
)
def test_similarity_by_hand(a, b, cosine):
    assert HAND.similarity(a, b) == pytest.approx(cosine, abs=1e-15)
    assert type(HAND.similarity(a, b)) is float


HALF, LENGTH = 2**0.5, 0.8**0.5  # of (1, 1), of (-.4, .8)
QUERIES = {
    "one": (
        {"positive": "east"},
        {"twin": 1.0, "south": 0.6, "north": 0.0, "zero": 0.0},
    ),
    "mean": (  # (1, 1) / sqrt 2 . (.6, .8)
        {"positive": ["east", "north"], "topn": 2},
        {"south": 1.4 / HALF, "twin": 1 / HALF},
    ),
    "minus": (  # (.6, .8) - (1, 0)
        {"positive": ["south"], "negative": "east"},
        {"north": 0.8 / LENGTH, "zero": 0.0, "twin": -0.4 / LENGTH},
    ),
    "only-minus": (
        {"negative": ["east"], "topn": 3},
        {"north": 0.0, "zero": 0.0, "south": -0.6},
    ),
    "weighted": (
        {"positive": ["east", "north", "north"], "topn": 1},
        {"south": 2.2 / 5**0.5},
    ),
    "cancels": (  # nothing is near to nothing: by id
        {"positive": "east", "negative": "twin"},
        {"north": 0.0, "south": 0.0, "zero": 0.0},
    ),
    "zero": ({"positive": "zero", "topn": 2}, {"east": 0.0, "north": 0.0}),
    "repeated": (
        {"positive": ["south", "south"], "topn": 9},
        {"north": 0.8, "east": 0.6, "twin": 0.6, "zero": 0.0},
    ),
    "all": ({"positive": ["east", "north", "south", "zero", "twin"]}, {}),
}


@pytest.mark.parametrize(("query", "expected"), QUERIES.values(), ids=QUERIES)
def test_most_similar_by_hand(query, expected):
    found = HAND.most_similar(**query)
    assert [key for key, _ in found] == [*expected]
    assert [s for _, s in found] == pytest.approx([*expected.values()], abs=1e-15)
    assert all(type(score) is float for _, score in found)


def test_analogy_is_b_minus_a_plus_c():
    vectors = random_vectors(50, 8)
    expected = vectors.most_similar(["k2", "k3"], ["k1"], 4)
    assert vectors.analogy("k1", "k2", "k3", topn=4) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_most_similar_agrees_with_gensim(dtype):
    keyed = pytest.importorskip("gensim.models").KeyedVectors(12, dtype=dtype)
    vectors = random_vectors(300, 12, dtype=dtype)
    keyed.add_vectors(vectors.keys, vectors.matrix)
    for query in [
        (["k0"], []),
        (["k1", "k2"], ["k3"]),
        (["k4"], ["k5", "k6", "k7"]),
        (["k8", "k8", "k9"], []),
    ]:
        found = vectors.most_similar(*query, topn=290)
        expected = keyed.most_similar(*query, topn=290)
        assert [key for key, _ in found] == [key for key, _ in expected]
        np.testing.assert_allclose(
            [score for _, score in found], [score for _, score in expected], atol=1e-6
        )
    assert vectors.similarity("k1", "k2") == pytest.approx(
        keyed.similarity("k1", "k2"), abs=1e-6
    )


@pytest.mark.parametrize("topn", [1, 3, 50, 199, 996])
def test_equal_rows_tie_by_id_at_any_position(topn):
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((997, 37)).astype(np.float32)
    twins = rng.permutation(997)[:200].tolist()
    matrix[twins] = matrix[twins[0]] * np.float32(2) ** rng.integers(-3, 4, (200, 1))
    vectors = Vectors([str(i) for i in range(997)], matrix.astype(np.float32))
    # Products round a block's rows and those at its edge differently: more so here.
    noise = rng.uniform(1 - 1e-6, 1 + 1e-6, (997, 1))
    vectors.__dict__["unit"] = (vectors.unit * noise).astype(np.float32)
    found = vectors.most_similar(str(twins[0]), topn=topn)
    expected = sorted(set(twins) - {twins[0]})
    assert [int(key) for key, _ in found[:199]] == expected[:topn]
    assert len({score for _, score in found[:199]}) == 1


@pytest.mark.parametrize("chunk", [1, 700, 2**24])
def test_neighbors_are_those_of_most_similar(monkeypatch, chunk):
    monkeypatch.setattr(module, "_KEYS", max(1, chunk // 2**9))
    monkeypatch.setattr(search, "_SCORES", chunk)
    vectors = random_vectors(200, 9)
    keys = ["k7", "k0", "k199", "k7"]
    ids, scores = vectors.neighbors(keys, topn=5)
    assert ids.dtype == np.int64 and scores.dtype == np.float64
    for place, key in enumerate(keys):
        found = [vectors.keys[i] for i in ids[place]], scores[place].tolist()
        assert list(zip(*found, strict=True)) == vectors.most_similar(key, topn=5)


def test_neighbors_of_few_or_no_keys():
    assert HAND.neighbors("east", topn=99)[0].tolist() == [[4, 2, 1, 3]]
    assert HAND.neighbors([], topn=3)[0].shape == (0, 3)
    assert Vectors(["one"], np.ones((1, 2))).neighbors("one")[1].shape == (1, 0)


@pytest.mark.parametrize("topn", [1, 5, 300])
def test_neighbors_among_keys_are_the_best_of_these(topn):
    vectors = random_vectors(200, 9)
    among = {f"k{i}" for i in range(0, 200, 7)} | {"unsold"}
    whole = vectors.most_similar("k7", topn=199)
    expected = [x for x in whole if x[0] in among][:topn]
    assert vectors.most_similar("k7", topn=topn, among=among) == expected
    whole = vectors.analogy("k7", "k0", "k1", topn=199)
    expected = [x for x in whole if x[0] in among][:topn]
    assert vectors.analogy("k7", "k0", "k1", topn=topn, among=among) == expected
    ids, scores = vectors.neighbors(["k7", "k8"], topn, among=among)
    assert ids.shape == (2, min(topn, 29))
    for row, key in enumerate(["k7", "k8"]):
        expected = vectors.most_similar(key, topn=topn, among=among)
        num = len(expected)
        found = [vectors.keys[i] for i in ids[row, :num]]
        assert [*zip(found, scores[row, :num], strict=True)] == expected
        assert (ids[row, num:] == -1).all() and np.isnan(scores[row, num:]).all()


def test_no_key_is_left_among_the_query_alone():
    vectors = random_vectors(5, 3)
    assert vectors.most_similar("k1", among=["k1"]) == []


@pytest.mark.row("B33")
def test_unknown_keys_alone_are_refused():
    vectors = random_vectors(5, 3)
    with pytest.raises(InputError, match="`among` must have a key of the vocabulary"):
        vectors.most_similar("k1", among=["x"])
    with pytest.raises(InputTypeError, match="`among` must be keys, got 'k2'"):
        vectors.most_similar("k1", among="k2")


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


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_length_one_at_any_scale(scale):
    np.testing.assert_allclose(
        unit_rows(scale * np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0, 0]]
    )


def test_unknown_key():
    for ask in (
        lambda: HAND["x"],
        lambda: HAND.similarity("east", "x"),
        lambda: HAND.most_similar("x"),
        lambda: HAND.most_similar("east", ["x"]),
        lambda: HAND.neighbors(["east", "x"]),
    ):
        with pytest.raises(KeyError) as error:
            ask()
        assert error.value.args == ("Token 'x' is not in the vocabulary.",)


def test_near_spellings():
    assert HAND.near_spellings("sowth") == ["south"]
    assert HAND.near_spellings("qqq") == []


@pytest.mark.parametrize(
    ("topn", "error"), [(0, ValueError), (-1, ValueError), (1.0, TypeError)]
)
def test_topn_is_checked(topn, error):
    match = rf"`topn` must be an integer >= 1, got {topn}\."
    with pytest.raises(error, match=match):
        HAND.most_similar("east", topn=topn)
    with pytest.raises(error, match=match):
        HAND.neighbors(["east"], topn=topn)
    with pytest.raises(TypeError, match="got True"):
        HAND.most_similar("east", topn=True)


def test_a_query_must_have_a_token():
    with pytest.raises(ValueError, match="`positive` or `negative` must have a token"):
        HAND.most_similar([], [])


@pytest.mark.parametrize(
    ("keys", "matrix", "counts", "error", "match"),
    [
        (["a", "b", "a"], np.ones((3, 1)), None, ValueError, "'a' at rows 0 and 2"),
        (["a", ""], np.ones((2, 1)), None, ValueError, "empty, got '' at row 1"),
        (["a", "\ud800"], np.ones((2, 1)), None, ValueError, "ud800' at row 1"),
        (["a", 2], np.ones((2, 1)), None, TypeError, "`keys` must be a list of str"),
        ("ab", np.ones((2, 1)), None, TypeError, "`keys` must be a list of str"),
        (["a"], np.ones((2, 1)), None, ValueError, r"V = 1 .*got \(2, 1\)"),
        (["a"], np.ones(1), None, ValueError, r"got \(1,\)"),
        (["a"], np.ones((1, 0)), None, ValueError, r"got \(1, 0\)"),
        ([], np.ones((0, 3)), None, ValueError, r"got \(0, 3\)"),
        (["a"], np.ones((1, 1), int), None, TypeError, "got int64"),
        (["a"], np.array([["1"]], object), None, TypeError, "got object"),
        (["a", "b"], np.array([[0, 0], [0, np.nan]]), None, ValueError, "got nan at "),
        (["a", "b"], np.array([[0], [-np.inf]]), None, ValueError, r"row 1 \('b'\), c"),
        (["a"], np.ones((1, 1)), [1, 2], ValueError, r"shape \(1,\), got \(2,\)"),
        (["a"], np.ones((1, 1)), [-1], ValueError, "`counts` must be >= 0, got -1"),
        (["a"], np.ones((1, 1)), [1.0], TypeError, "`counts` must hold integers"),
    ],
)
def test_bad_parts_are_refused(keys, matrix, counts, error, match):
    with pytest.raises(error, match=match):
        Vectors(keys, matrix, counts)


@pytest.mark.parametrize(
    ("given_dtype", "order", "kept"),
    [("<f2", "C", "f4"), (">f4", "C", "f4"), ("<f4", "F", "f4"), (">f8", "F", "f8")],
)
def test_other_floats_and_orders_are_converted(given_dtype, order, kept):
    matrix = np.array([[1, 2], [3, 4]], given_dtype, order=order)
    vectors = Vectors(["a", "b"], matrix, np.array([2, 1], np.uint16))
    assert vectors.matrix.dtype == np.dtype(kept) and vectors.matrix.flags.c_contiguous
    np.testing.assert_array_equal(vectors.matrix, [[1, 2], [3, 4]])
    assert vectors.counts.dtype == np.int64


def test_the_matrix_is_not_copied_and_stays_writable_for_its_owner():
    matrix = np.ones((2, 3), np.float32)
    assert np.shares_memory(Vectors(["a", "b"], matrix).matrix, matrix)
    assert matrix.flags.writeable


def test_import_is_light():
    code = (
        "import sys, embedder.vectors.evaluate, embedder.vectors.export\n"
        "print(sorted({'jax', 'polars', 'scipy', 'safetensors'} & set(sys.modules)))"
    )
    assert run_python("-c", code).stdout == "[]\n"


@pytest.mark.row("B90")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_queries_must_be_finite(value):
    vectors = Vectors(["a", "b"], np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match="Queries must be finite, got a NaN or an inf"):
        vectors.nearest_to(np.array([[1, value]]))
