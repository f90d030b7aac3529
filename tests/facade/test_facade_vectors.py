"""embedder.gensim.KeyedVectors beside gensim's, on the same vectors."""

import copy
import pickle
import warnings
from pathlib import Path

import gensim.models
import numpy as np
import pytest

import embedder
from embedder.gensim import KeyedVectors

REAL = gensim.models.KeyedVectors
RNG = np.random.default_rng(0)
OLD = pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`")  # by gensim
KEYS = [f"k{i}" for i in range(300)]
MATRIX = RNG.normal(size=(300, 12)).astype(np.float32)
COUNTS = RNG.integers(1, 9, 300)


def both() -> tuple[KeyedVectors, REAL]:
    """The same vectors, ours and gensim's."""
    found = KeyedVectors(12), REAL(12)
    for each in found:
        each.add_vectors(KEYS, MATRIX)
        each.expandos["count"] = COUNTS.copy()
    return found


def near(found, expected) -> None:
    """Equal up to rounding, whatever the type."""
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            near(a, b)
    elif isinstance(expected, str | dict | int):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


QUERIES = {
    "one": lambda v: v.most_similar("k3"),
    "sum": lambda v: v.most_similar(["k3", "k4"], ["k5"], topn=4),
    "weights": lambda v: v.most_similar([("k3", 2.0), "k4"], [("k5", -0.5)]),
    "vector": lambda v: v.most_similar([MATRIX[7]], topn=5),
    "matrix": lambda v: v.most_similar(MATRIX[7:9], topn=5),
    "all": lambda v: v.most_similar("k3", topn=None),
    "none": lambda v: v.most_similar("k3", topn=0),
    "clip": lambda v: v.most_similar("k3", clip_start=100, clip_end=150),
    "restrict": lambda v: v.most_similar("k3", restrict_vocab=20),
    "by key": lambda v: v.similar_by_key("k3", 5, 50),
    "by word": lambda v: v.similar_by_word("k3", 5),
    "by vector": lambda v: v.similar_by_vector(MATRIX[2], 5, 50),
    "cosmul": lambda v: v.most_similar_cosmul(["k3", "k4"], ["k5"]),
    "cosmul all": lambda v: v.most_similar_cosmul("k3", topn=None),
    "given": lambda v: v.most_similar_to_given("k3", KEYS[4:30]),
    "closer": lambda v: v.closer_than("k3", "k9"),
    "rank": lambda v: v.rank("k3", "k9"),
    "centrality": lambda v: v.rank_by_centrality(["k1", "k2", "k3", "no"]),
    "raw centrality": lambda v: v.rank_by_centrality(KEYS[:5], use_norm=False),
    "odd": lambda v: v.doesnt_match(KEYS[:6]),
    "distances": lambda v: v.distances("k3"),
    "some distances": lambda v: v.distances(MATRIX[3], ["k5", "k6"]),
    "distance": lambda v: v.distance("k3", "k4"),
    "similarity": lambda v: v.similarity("k3", "k4"),
    "sets": lambda v: v.n_similarity(KEYS[:3], KEYS[3:9]),
    "relative": lambda v: v.relative_cosine_similarity("k3", "k4"),
    "mean": lambda v: v.get_mean_vector(["k1", "k2", "no"], [1, 2, 3]),
    "raw mean": lambda v: v.get_mean_vector(["k1", MATRIX[5]], pre_normalize=False),
    "unit mean": lambda v: v.get_mean_vector(["k1", "k2"], post_normalize=True),
    "norm": lambda v: v.get_vector("k3", norm=True),
    "several": lambda v: v[["k3", "k4", 5]],
    "normed": lambda v: v.get_normed_vectors(),
    "movers": lambda v: v.wmdistance(KEYS[:4] + ["no"], KEYS[2:9]),
    "raw movers": lambda v: v.wmdistance(KEYS[:4], KEYS[2:9], norm=False),
    "same text": lambda v: v.wmdistance(["k1"], ["k1", "k1"]),
    "no text": lambda v: v.wmdistance(["no"], ["k1"]),
    "index": lambda v: (v.get_index("k5"), v.get_index(5), v.get_index("no", 7)),
    "has": lambda v: ("k5" in v, "no" in v, 299 in v, 300 in v),
    "text": str,
}


@OLD
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_queries_answer_as_gensim_does(query):
    ours, theirs = map(query, both())
    near(ours, theirs)


FAULTS = {
    "unknown": lambda v: v["no"],
    "unknown mean": lambda v: v.get_mean_vector(["no"], ignore_missing=False),
    "no mean": lambda v: v.get_mean_vector([]),
    "weights": lambda v: v.get_mean_vector(["k1"], [1, 2]),
    "no positive": lambda v: v.most_similar_cosmul(negative=["k1"]),
    "nothing known": lambda v: v.doesnt_match(["no"]),
    "empty": lambda v: v.n_similarity([], ["k1"]),
    "no relatives": lambda v: v.relative_cosine_similarity("k1", "k2", 0),
    "type": lambda v: v.set_vecattr("k1", "count", "many"),
    "read-only": lambda v: v["k1"].__setitem__(0, 1.0),
    "norm": lambda v: v.vectors_norm,
    "entity": lambda v: v.index2entity,
    "word": lambda v: v.index2word,
    "vocab": lambda v: v.vocab,
    "docs": lambda v: v.similarity_unseen_docs(),
}


@OLD
@pytest.mark.parametrize("call", FAULTS.values(), ids=FAULTS)
def test_errors_are_those_of_gensim(call):
    raised = []
    for vectors in both():
        with pytest.raises(Exception) as found:  # noqa: B017, PT011 - compared below
            call(vectors)
        raised.append((found.type, str(found.value)))
    assert raised[0] == raised[1]


def test_changes_are_those_of_gensim():
    for vectors in (pair := both()):
        vectors.add_vectors(["new", "k1"], MATRIX[:2] + 1, replace=True)
        vectors["k5"] = MATRIX[0]
        vectors[["k6", "other"]] = list(MATRIX[:2])
        with pytest.warns(UserWarning, match="Adding single vectors"):
            assert vectors.add_vector("single", MATRIX[9]) == 302
        vectors.set_vecattr("k1", "colour", "red")
        vectors.set_vecattr("k1", "weight", 0.5)
    ours, theirs = pair
    assert ours.index_to_key == theirs.index_to_key
    assert ours.key_to_index == theirs.key_to_index
    np.testing.assert_array_equal(ours.vectors, theirs.vectors)
    assert ours.get_vecattr("k1", "colour") == "red"
    assert ours.get_vecattr("k1", "weight") == 0.5
    near(ours.most_similar("other"), _fresh(theirs).most_similar("other"))


def _fresh(vectors):
    vectors.fill_norms(force=True)
    return vectors


def test_extras_of_added_vectors():
    vectors = both()[0]
    vectors.add_vectors(
        ["new", "k1"], MATRIX[:2], extras={"count": np.array([77, 78])}, replace=True
    )
    assert vectors.get_vecattr("new", "count") == 77
    assert vectors.get_vecattr("k1", "count") == 78


def test_preallocated_rows_are_filled():
    vectors = KeyedVectors(2, count=2)
    assert [vectors.add_vector(key, [row, 1]) for row, key in enumerate("ab")] == [0, 1]
    assert vectors.vectors.tolist() == [[0, 1], [1, 1]]


def test_sorting_has_the_order_of_gensim():
    for vectors in (pair := both()):
        vectors.sort_by_descending_frequency()
    assert pair[0].index_to_key == pair[1].index_to_key
    np.testing.assert_array_equal(pair[0].vectors, pair[1].vectors)


@pytest.mark.parametrize("copied", [True, False])
def test_vectors_for_all(copied):
    ours, theirs = (
        v.vectors_for_all(["k9", "no", "k2", "k9"], copy_vecattrs=copied)
        for v in both()
    )
    assert ours.index_to_key == theirs.index_to_key == ["k9", "k2"]
    np.testing.assert_array_equal(ours.vectors, theirs.vectors)
    np.testing.assert_array_equal(ours.expandos["count"], theirs.expandos["count"])


@pytest.mark.parametrize("options", [{}, {"case_insensitive": False}])
@pytest.mark.parametrize("unknown", [True, False])
def test_evaluations_score_as_gensim_does(tmp_path, options, unknown):
    lines = [": first"]
    for number in range(60):
        a, b, c, d = RNG.integers(0, 330, 4)  # some are unknown
        lines += [f"K{a} k{b} k{c} k{d}"] + [": second"] * (number == 30)
    # A right answer: the fourth is the best for the first three.
    _, theirs = both()
    best = theirs.most_similar(["k2", "k3"], ["k1"], topn=1)[0][0]
    lines += [f"k1 k2 k3 {best}", "k1 k2 k3"]
    questions = tmp_path / "questions.txt"
    questions.write_text("\n".join(lines) + "\n")
    pairs = tmp_path / "pairs.tsv"
    values = RNG.random(80)
    rows = [f"k{i}\tK{2 * i + 200}\t{x}" for i, x in enumerate(values)]
    rows += [f"k{i}\tk{i + 1}\t{x}" for i, x in enumerate(values)]
    pairs.write_text("# comment\n" + "\n".join(rows) + "\nno line\n")
    ours, theirs = both()
    options = options | {"dummy4unknown": unknown}
    score, sections = ours.evaluate_word_analogies(str(questions), **options)
    expected, expected_sections = theirs.evaluate_word_analogies(
        str(questions), **options
    )
    assert score == expected > 0
    assert sections == expected_sections
    near(
        ours.evaluate_word_pairs(str(pairs), restrict_vocab=290, **options),
        theirs.evaluate_word_pairs(str(pairs), restrict_vocab=290, **options),
    )


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["v", "v.gz"])
def test_word2vec_files_are_those_of_gensim(tmp_path, binary, name):
    ours, theirs = both()
    files = []
    for kind, vectors in (("ours", ours), ("theirs", theirs)):
        folder = tmp_path / kind
        folder.mkdir()
        target, vocab = str(folder / name), str(folder / "vocab")
        vectors.save_word2vec_format(target, vocab, binary=binary, prefix="*")
        files.append((target, vocab))
    (own, own_vocab), (other, other_vocab) = files
    assert Path(own_vocab).read_text() == Path(other_vocab).read_text()
    if name == "v":
        assert Path(own).read_bytes() == Path(other).read_bytes()
    for path in (own, other):
        again = KeyedVectors.load_word2vec_format(path, own_vocab, binary=binary)
        assert again.index_to_key[0] == f"*{KEYS[int(np.argmax(COUNTS))]}"
        assert again.get_vecattr("*k3", "count") == COUNTS[3]
        np.testing.assert_array_equal(again["*k3"], MATRIX[3])


def test_word2vec_files_go_to_and_from_the_house(tmp_path):
    ours = both()[0]
    path = tmp_path / "v.txt"
    ours.save_word2vec_format(path)
    np.testing.assert_array_equal(embedder.read_vectors(path)["k3"], MATRIX[3])
    house = embedder.Vectors(KEYS, MATRIX)
    embedder.write_vectors(house, tmp_path / "v.bin")
    again = KeyedVectors.load_word2vec_format(tmp_path / "v.bin", binary=True, limit=9)
    assert again.index_to_key == KEYS[:9]
    np.testing.assert_array_equal(again.vectors, MATRIX[:9])


def test_parts_are_appended_and_read_without_a_header(tmp_path):
    path = tmp_path / "v.txt"
    ours = both()[0]
    ours.save_word2vec_format(path, write_header=False)
    ours.save_word2vec_format(path, write_header=False, append=True, prefix="b")
    found = KeyedVectors.load_word2vec_format(path, no_header=True)
    assert found.vectors.shape == (600, 12)
    again = KeyedVectors.load_word2vec_format(path, no_header=True, limit=5)
    assert len(again) == 5


@pytest.mark.parametrize("binary", [True, False])
def test_merging_a_file_locks_its_rows(tmp_path, binary):
    path = str(tmp_path / "v")
    other = KeyedVectors(12)
    other.add_vectors(["k3", "no"], np.ones((2, 12)))
    other.save_word2vec_format(path, binary=binary)
    ours = both()[0]
    ours.intersect_word2vec_format(path, lockf=0.25, binary=binary)
    assert (ours["k3"] == 1).all() and len(ours) == 300
    assert ours.vectors_lockf[3] == 0.25 and (ours.vectors_lockf == 1).sum() == 299
    wrong = KeyedVectors(3)
    with pytest.raises(ValueError, match="incompatible vector size 12 in file"):
        wrong.intersect_word2vec_format(path, binary=binary)


def test_repeated_keys_of_a_file_are_dropped(tmp_path, caplog):
    path = tmp_path / "v.txt"
    path.write_text("3 2\na 1 2\na 3 4\nb 5 6\n")
    found = KeyedVectors.load_word2vec_format(path)
    assert found.index_to_key == ["a", "b"] and found["a"].tolist() == [1, 2]
    assert "duplicate word 'a'" in caplog.text


WRONG = {
    "short": (b"2 2\na 1 2\n", {}, EOFError, "unexpected end of input"),
    "cut": (b"2 2\na " + bytes(8) + b"b 12", {"binary": True}, EOFError, "unexpected"),
    "huge": (b"1000000000000 100\na 1 2\n", {}, EOFError, "unexpected end of input"),
    "huge binary": (b"9999999999 9\n", {"binary": True}, EOFError, "unexpected end"),
    "no header": (b"a 1 2\n", {}, ValueError, None),
    "row": (b"1 2\na 1 2 3\n", {}, ValueError, None),
    "number": (b"1 2\na 1 x\n", {}, ValueError, None),
    "bytes": (b"1 2\n\xff 1 2\n", {}, UnicodeDecodeError, None),
}


@pytest.mark.parametrize(
    ("data", "options", "kind", "message"), WRONG.values(), ids=WRONG
)
@pytest.mark.row("B76")
def test_wrong_word2vec_files_are_errors_of_gensim(
    tmp_path, data, options, kind, message
):
    path = tmp_path / "v"
    path.write_bytes(data)
    with pytest.raises(kind, match=message):
        KeyedVectors.load_word2vec_format(path, **options)
    if b"0000" not in data and b"9999" not in data:  # gensim would take the memory
        with pytest.raises(kind), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            REAL.load_word2vec_format(str(path), **options)


def test_vectors_can_be_pickled_and_copied():
    ours = both()[0]
    for again in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        again["k1"] = MATRIX[0]
        np.testing.assert_array_equal(ours["k1"], MATRIX[1])
