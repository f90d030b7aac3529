"""embedder.gensim.KeyedVectors beside gensim's, on the same vectors."""

from pathlib import Path

import gensim.models
import numpy as np
import pytest

import embedder
from embedder.gensim import KeyedVectors, LineSentence

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


NEAREST = {
    "one": lambda v: v.most_similar("k299", topn=1),
    "clip": lambda v: v.most_similar("k299", topn=1, clip_start=0, clip_end=299),
    "by vector": lambda v: v.similar_by_vector(MATRIX[7], 2),
    "cosmul": lambda v: v.most_similar_cosmul("k299", topn=1),
    "relative": lambda v: v.relative_cosine_similarity("k298", "k299", 1),
}


@OLD
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("value", [0, np.nan])
@pytest.mark.parametrize("num", [1, 12, 290])
def test_rows_without_a_direction_come_last(tmp_path, value, num):
    pair = both()
    for vectors in pair:
        vectors.vectors[:num] = value
    for query in NEAREST.values():
        near(*map(query, pair))
    questions = tmp_path / "questions.txt"
    best = pair[1].most_similar(["k298", "k299"], ["k297"], topn=1)[0][0]
    questions.write_text(f": all\nk297 k298 k299 {best}\n")
    for vectors in pair:
        assert vectors.evaluate_word_analogies(str(questions))[0] == 1.0
    questions.write_text(": all\nk0 k298 k299 k1\n")  # the best of none
    assert pair[0].evaluate_word_analogies(str(questions))[0] == 0.0
    # Rows that `add_vector` has yet to fill are such rows, too.
    for vectors in (free := (KeyedVectors(12, count=100), REAL(12, count=100))):
        for key, row in zip(KEYS[:12], MATRIX, strict=False):
            vectors.add_vector(key, row)
    near(*(vectors.most_similar("k3", topn=5) for vectors in free))


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
        vectors.fill_norms(force=True)
    same(*pair)
    ours, theirs = pair
    assert ours.get_vecattr("k1", "colour") == "red"
    assert ours.get_vecattr("k1", "weight") == 0.5
    near(ours.most_similar("other"), theirs.most_similar("other"))
    extras = {"count": np.array([77, 78])}
    ours.add_vectors(["newer", "k1"], MATRIX[:2], extras=extras, replace=True)
    assert [ours.get_vecattr(key, "count") for key in ("newer", "k1")] == [77, 78]
    found = KeyedVectors(2, count=2)
    assert [found.add_vector(key, [row, 1]) for row, key in enumerate("ab")] == [0, 1]
    assert found.vectors.tolist() == [[0, 1], [1, 1]]


def same(ours, theirs) -> None:
    assert ours.index_to_key == theirs.index_to_key
    assert ours.key_to_index == theirs.key_to_index
    np.testing.assert_array_equal(ours.vectors, theirs.vectors)


def test_sorting_and_choosing_have_the_order_of_gensim():
    for copied in (True, False):
        pair = [
            v.vectors_for_all(["k9", "no", "k2", "k9"], copy_vecattrs=copied)
            for v in both()
        ]
        same(*pair)
        assert pair[0].index_to_key == ["k9", "k2"]
        np.testing.assert_array_equal(*(each.expandos["count"] for each in pair))
    for vectors in (pair := both()):
        vectors.sort_by_descending_frequency()
    same(*pair)


@pytest.mark.parametrize("options", [{}, {"case_insensitive": False}])
@pytest.mark.parametrize("unknown", [True, False])
def test_evaluations_score_as_gensim_does(tmp_path, options, unknown):
    ours, theirs = both()
    lines = [": first"]
    for number in range(60):
        a, b, c, d = RNG.integers(0, 330, 4)  # some are unknown
        lines += [f"K{a} k{b} k{c} k{d}"] + [": second"] * (number == 30)
    # A right answer: the fourth is the best for the first three.
    best = theirs.most_similar(["k2", "k3"], ["k1"], topn=1)[0][0]
    lines += [f"k1 k2 k3 {best}", "k1 k2 k3"]
    questions, pairs = tmp_path / "questions.txt", tmp_path / "pairs.tsv"
    questions.write_text("\n".join(lines) + "\n")
    values = [*enumerate(RNG.random(80))]
    rows = [f"k{i}\tK{2 * i + 200}\t{x}" for i, x in values]
    rows += [f"k{i}\tk{i + 1}\t{x}" for i, x in values]
    pairs.write_text("# comment\n" + "\n".join(rows) + "\nno line\n")
    options = options | {"dummy4unknown": unknown}
    (score, sections), expected = (
        v.evaluate_word_analogies(str(questions), **options) for v in (ours, theirs)
    )
    assert score == expected[0] > 0 and sections == expected[1]
    options["restrict_vocab"] = 290
    near(*(v.evaluate_word_pairs(str(pairs), **options) for v in (ours, theirs)))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["v", "v.gz"])
def test_word2vec_files_are_those_of_gensim(tmp_path, binary, name):
    files = {}
    for kind, vectors in zip(("ours", "theirs"), both(), strict=True):
        folder = tmp_path / kind
        folder.mkdir()
        path, vocab = str(folder / name), str(folder / "vocab")
        vectors.save_word2vec_format(path, vocab, binary=binary, prefix="*")
        files[kind] = Path(path).read_bytes(), Path(vocab).read_bytes()
        again = KeyedVectors.load_word2vec_format(path, vocab, binary=binary)
        assert again.index_to_key[0] == f"*{KEYS[int(np.argmax(COUNTS))]}"
        assert again.get_vecattr("*k3", "count") == COUNTS[3]
        np.testing.assert_array_equal(again["*k3"], MATRIX[3])
    assert files["ours"][1] == files["theirs"][1]
    assert name != "v" or files["ours"] == files["theirs"]


def test_word2vec_files_go_to_and_from_the_house(tmp_path, caplog):
    ours, path, load = both()[0], tmp_path / "v.txt", KeyedVectors.load_word2vec_format
    ours.save_word2vec_format(path)
    np.testing.assert_array_equal(embedder.read_vectors(path)["k3"], MATRIX[3])
    embedder.write_vectors(embedder.Vectors(KEYS, MATRIX), tmp_path / "v.bin")
    again = load(tmp_path / "v.bin", binary=True, limit=9)
    assert again.index_to_key == KEYS[:9]
    np.testing.assert_array_equal(again.vectors, MATRIX[:9])
    ours.save_word2vec_format(path, write_header=False)
    ours.save_word2vec_format(path, write_header=False, append=True, prefix="b")
    assert load(path, no_header=True).vectors.shape == (600, 12)
    assert len(load(path, no_header=True, limit=5)) == 5
    path.write_text("3 2\na 1 2\na 3 4\nb 5 6\n")
    found = load(path)
    assert found.index_to_key == ["a", "b"] and found["a"].tolist() == [1, 2]
    assert "duplicate word 'a'" in caplog.text


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


@pytest.mark.parametrize("prefix", ["{}/v", "file://{}/v", "~/v", "file://~/v"])
def test_paths_are_those_of_gensim(tmp_path, monkeypatch, prefix):
    monkeypatch.setenv("HOME", str(tmp_path))
    path, (ours, theirs) = prefix.format(tmp_path), both()
    theirs.save_word2vec_format(f"{path}.txt")
    assert KeyedVectors.load_word2vec_format(f"{path}.txt").vectors.shape == (300, 12)
    assert len([*LineSentence(f"{path}.txt")]) == 301
    ours.save(path)
    assert (tmp_path / "v").is_file()
    np.testing.assert_array_equal(KeyedVectors.load(path).vectors, MATRIX)


def test_keys_have_white_space_that_is_not_ascii(tmp_path):
    ours, path = KeyedVectors(2), tmp_path / "v"
    ours.add_vectors(keys := ["a\u00a0b", "km\u00a0", "\u3000"], np.eye(3, 2))
    ours.expandos["count"] = np.array([3, 2, 1])
    ours.save_word2vec_format(path, tmp_path / "counts", write_header=False)
    load = KeyedVectors.load_word2vec_format
    again = load(path, tmp_path / "counts", no_header=True)
    assert again.index_to_key == keys
    assert again.expandos["count"].tolist() == [3, 2, 1]
    np.testing.assert_array_equal(again.vectors, ours.vectors)


def test_rows_that_are_refused_leave_the_vectors():
    vectors = KeyedVectors(3, count=1)
    for add in (
        lambda: vectors.add_vector("a", [1]),
        lambda: vectors.add_vectors(["a", "b"], np.ones((2, 2))),
        lambda: vectors.add_vectors(["a"], np.ones((1, 3)), {"x": np.ones(2)}),
    ):
        with pytest.raises(ValueError, match="must"):
            add()
    assert vectors.index_to_key == [None] and vectors.key_to_index == {}
    assert vectors.add_vector("a", [1, 2, 3]) == 0
    assert vectors["a"].tolist() == [1, 2, 3]
