"""Word similarities and analogies: by hand, and as in gensim on equal vectors."""

import os
from pathlib import Path

import numpy as np
import pytest

from embedder.vectors import evaluate
from embedder.vectors.evaluate import (
    AnalogyScore,
    PairsResult,
    analogy_answers,
    evaluate_analogies,
    evaluate_pairs,
)
from embedder.vectors.vectors import Vectors

ROOT_HALF = 0.5**0.5
ROYAL = Vectors(
    ["man", "woman", "king", "queen", "apple"],
    # fmt: off
    np.array(
        [
            [1, 0, 0],
            [0, 1, 0],
            [2, 0, 2],
            [0, 3, 3],
            [0, 0, 1],
        ],
        np.float32,
    ),
    # fmt: on
)


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "words.txt"
        path.write_bytes(text.encode())
        return path

    return write


@pytest.fixture(scope="session")
def word_eval() -> Path:
    if "EMBEDDER_DATA" not in os.environ:
        pytest.skip("the environment variable EMBEDDER_DATA names no data folder")
    return Path(os.environ["EMBEDDER_DATA"]) / "word-eval"


def gensim_vectors(vectors: Vectors):
    keyed = pytest.importorskip("gensim.models").KeyedVectors(vectors.matrix.shape[1])
    keyed.add_vectors(vectors.keys, vectors.matrix)
    return keyed


# --- pairs


def test_pairs_by_hand(write):
    # Cosines: man-king .707, man-woman 0, king-queen .5, apple-apple 1.
    path = write(
        "word1\tword2\tscore\n# a comment\n\nMAN\tking\t3\nman\twoman\t1\r\n"
        "king\tqueen\t4\nApple\tapple\t9.5\nman\tprince\t5\n"
    )
    scores, cosines = np.array([3, 1, 4, 9.5]), np.array([ROOT_HALF, 0, 0.5, 1])
    # Ranks 2 1 3 4 against 3 1 2 4: 1 - 6 * (1 + 1) / (4 * 15) = .8
    centred = scores - scores.mean(), cosines - cosines.mean()
    pearson = (
        centred[0]
        @ centred[1]
        / np.sqrt((centred[0] @ centred[0]) * (centred[1] @ centred[1]))
    )
    result = evaluate_pairs(ROYAL, path)
    assert result.spearman == pytest.approx(0.8, abs=1e-12)
    assert result.pearson == pytest.approx(pearson, rel=1e-6)
    assert (result.num_pairs, result.num_used, result.num_unknown) == (5, 4, 1)


def test_pairs_use_the_first_spelling(write):
    vectors = Vectors(
        ["us", "US", "them", "me"],
        np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32),
    )
    path = write("US\tthem\t1\nUS\tMe\t0\nthem\tme\t0.5\n")
    # Cosines 1, 0, 0: ranks 3 1.5 1.5 against 3 1 2. "US" alone would give 0, 1, 0.
    assert evaluate_pairs(vectors, path).spearman == pytest.approx(0.75**0.5)


def test_a_constant_cosine_has_correlation_0(write):
    path = write("man\twoman\t1\nman\tapple\t2\nwoman\tapple\t3\n")
    assert evaluate_pairs(ROYAL, path) == PairsResult(0.0, 0.0, 3, 3, 0)


def test_pairs_may_be_separated_by_blanks(write):
    path = write("man king 3\nman woman 1\nking queen 2\n")
    assert evaluate_pairs(ROYAL, path).spearman == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a\tb\t1\na\tb\tc\n", r"words.txt line 2: must be two words.*'a\\tb\\tc'"),
        ("w1\tw2\tscore\nw1\tw2\tscore\n", "line 2: must be two words"),
        ("# c\n\nman\tking\t1\nman\tking\n", "line 4: must be two words"),
        ("man\tking\t1\t2\n", "line 1: must be two words"),
        ("man\tking\t1\nman\tking\tnan\n", "line 2: .* finite score"),
        ("man\tking\t1\nman\tking\t1,5\n", "line 2: .* finite score"),
        ("man\tking\t1\nman\tprince\t2\n", "must have 2 pairs or more .* got 1 of 2"),
        ("", "got 0 of 0"),
    ],
)
def test_bad_pairs_are_refused(write, text, match):
    with pytest.raises(ValueError, match=match):
        evaluate_pairs(ROYAL, write(text))


def test_missing_file():
    with pytest.raises(FileNotFoundError, match="nowhere.tsv"):
        evaluate_pairs(ROYAL, "nowhere.tsv")


# --- analogies


def analogies(write, text: str, vectors: Vectors = ROYAL, **options):
    return evaluate_analogies(vectors, write(text), **options)


def test_analogies_by_hand(write):
    # woman - man + king = (-.29, 1, .71): queen 1.21, apple .71 (woman 1, left out)
    text = (
        ": family\nman woman king queen\nMan king Woman QUEEN\n"
        ": none here\nman woman king prince\n"
        ": wrong\nman woman king apple\nman woman king man\nman woman uncle aunt\n"
    )
    result = analogies(write, text)
    assert result.sections == (
        AnalogyScore("family", num_correct=2, num_used=2, num_unknown=0),
        AnalogyScore("none here", num_correct=0, num_used=0, num_unknown=1),
        AnalogyScore("wrong", num_correct=0, num_used=2, num_unknown=1),
    )
    assert result.total == AnalogyScore("total", 2, 4, 2)
    assert result.total.accuracy == 0.5
    assert result.sections[1].accuracy == 0.0


@pytest.mark.parametrize(("restrict_vocab", "used"), [(3, 0), (4, 1), (5, 1), (99, 1)])
def test_analogies_use_the_first_keys_only(write, restrict_vocab, used):
    text = ": s\nman woman king queen\n"
    score = analogies(write, text, restrict_vocab=restrict_vocab).total
    assert (score.num_correct, score.num_used) == (used, used)
    assert score.num_unknown == 1 - used


def test_a_question_with_an_answer_outside_the_vocabulary_is_not_used(write):
    better = Vectors(
        [*ROYAL.keys, "empress"],
        np.vstack([ROYAL.matrix, [[-0.29, 1, 0.71]]]).astype(np.float32),
    )
    text = ": s\nman woman king queen\n"
    assert analogies(write, text, better, restrict_vocab=5).total.num_correct == 1
    assert analogies(write, text, better, restrict_vocab=6).total.num_correct == 0


def test_no_spelling_of_a_question_word_is_an_answer(write):
    spelled = Vectors(
        [*ROYAL.keys, "Woman", "WOMAN"],
        np.vstack([ROYAL.matrix, [[-0.29, 1, 0.71]], [[-0.3, 1, 0.7]]]).astype("f4"),
    )
    assert analogies(write, ": s\nman woman king queen\n", spelled).total.accuracy == 1


def test_any_spelling_of_the_answer_is_right(write):
    spelled = Vectors(
        ["man", "woman", "king", "queen", "Queen"],
        np.array([[1, 0, 0], [0, 1, 0], [2, 0, 2], [-1, 0, 0], [0, 3, 3]], np.float32),
    )
    assert analogies(write, ": s\nman woman king queen\n", spelled).total.accuracy == 1


def test_a_vocabulary_of_question_words_alone_has_no_answer(write):
    score = analogies(write, ": s\nman woman king man\n", restrict_vocab=3).total
    assert (score.num_correct, score.num_used) == (0, 1)


def test_analogies_do_not_depend_on_the_chunk_size(write, monkeypatch):
    vectors, text = related_words()
    whole = analogies(write, text, vectors)
    monkeypatch.setattr(evaluate, "CHUNK_VALUES", 5000)
    assert analogies(write, text, vectors) == whole


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("man woman king queen\n", r"words.txt line 1: must be `: NAME` of a section"),
        (": s\n\nman woman king\n", "line 3: must be four words, got 'man woman king'"),
        (": s\na b c d e\n", "line 2: must be four words"),
    ],
)
def test_bad_analogies_are_refused(write, text, match):
    with pytest.raises(ValueError, match=match):
        analogies(write, text)


def test_no_questions(write):
    assert analogies(write, "").total == AnalogyScore("total", 0, 0, 0)


def test_the_nearest_neighbour_of_c_ignores_the_analogy(write):
    """king is at .707 from man, at .5 from queen: of the others of king man queen."""
    text = ": s\nwoman apple king man\nman woman king queen\nman woman uncle aunt\n"
    answers = analogy_answers(ROYAL, write(text))
    assert answers.is_known.tolist() == [True, True, False]
    assert answers.is_nearest.tolist() == [True, False, False]
    assert answers.is_right[1] and not answers.is_right[2]


def test_restrict_vocab_is_checked(write):
    with pytest.raises(ValueError, match="`restrict_vocab` must be an integer >= 1"):
        analogies(write, "", restrict_vocab=0)


# --- compared with gensim


def related_words(seed: int = 0) -> tuple[Vectors, str]:
    """Vectors in which about half of the questions of three relations come out, with
    words of several spellings, and the questions."""
    rng = np.random.default_rng(seed)
    keys, rows, lines = [], [], []
    for relation in range(3):
        offset = rng.standard_normal(16)
        pairs = [(f"a{relation}x{i}", f"b{relation}x{i}") for i in range(20)]
        for a, b in pairs:
            base = rng.standard_normal(16)
            noise = 0.7 * rng.standard_normal((3, 16))
            rows += [base + noise[0], base + offset + noise[1], base + noise[2]]
            keys += [a, b.title() if rng.random() < 0.5 else b, a.upper()]
        lines.append(f": relation {relation}")
        for i, j in rng.integers(0, 20, (60, 2)):
            lines.append(" ".join(pairs[i] + pairs[j]))
    order = rng.permutation(len(keys))
    matrix = np.array(rows, np.float32)[order]
    return Vectors([keys[i] for i in order], matrix), "\n".join(lines) + "\n"


@pytest.mark.parametrize("restrict_vocab", [30_000, 120])
def test_analogies_agree_with_gensim(write, restrict_vocab):
    vectors, text = related_words()
    path = write(text)
    expected = gensim_vectors(vectors).evaluate_word_analogies(
        str(path), restrict_vocab=restrict_vocab
    )[1]
    result = evaluate_analogies(vectors, path, restrict_vocab=restrict_vocab)
    actual = [*result.sections, result.total]
    assert [(s.num_correct, s.num_used) for s in actual] == [
        (len(s["correct"]), len(s["correct"]) + len(s["incorrect"])) for s in expected
    ]
    assert 0 < result.total.num_correct < result.total.num_used
    assert (result.total.num_unknown > 0) == (restrict_vocab == 120)


def words_of(path: Path) -> list[str]:
    """The words of a file, lower-case, by first appearance, one in ten left out."""
    text = path.read_text("utf-8").lower()
    words = [word for word in text.split() if word.isalpha()]
    return [word for i, word in enumerate(dict.fromkeys(words)) if i % 10]


@pytest.mark.parametrize("name", ["wordsim353.tsv", "simlex999.tsv"])
def test_real_pairs_agree_with_gensim(word_eval, name):
    path = word_eval / name
    words = words_of(path)
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((len(words), 10)).astype(np.float32)
    vectors = Vectors(words, matrix)
    result = evaluate_pairs(vectors, path)
    pearson, spearman, unknown = gensim_vectors(vectors).evaluate_word_pairs(str(path))
    assert result.pearson == pytest.approx(pearson.statistic, abs=1e-6)
    assert result.spearman == pytest.approx(spearman.statistic, abs=1e-5)
    assert result.num_pairs == {"wordsim353.tsv": 353, "simlex999.tsv": 999}[name]
    assert 100 * result.num_unknown / result.num_pairs == pytest.approx(unknown)
    assert result.num_used == result.num_pairs - result.num_unknown > 200


def test_real_analogies(word_eval):
    path = word_eval / "questions-words.txt"
    words = words_of(path)
    rng = np.random.default_rng(2)
    vectors = Vectors(words, rng.standard_normal((len(words), 20)).astype(np.float32))
    result = evaluate_analogies(vectors, path)
    names = [score.name for score in result.sections]
    assert names[0] == "capital-common-countries" and len(names) == 14
    assert result.total.num_used + result.total.num_unknown == 19_544
    assert result.sections[0].num_used + result.sections[0].num_unknown == 506
    for field in ("num_correct", "num_used", "num_unknown"):
        by_section = sum(getattr(score, field) for score in result.sections)
        assert by_section == getattr(result.total, field)
    assert result.total.num_unknown > 1000


def test_some_real_analogies_agree_with_gensim(word_eval, tmp_path):
    lines = (word_eval / "questions-words.txt").read_text("utf-8").splitlines()
    path = tmp_path / "some.txt"
    path.write_text("\n".join(lines[:507:8]) + "\n" + "\n".join(lines[8367:8873:8]))
    words = words_of(path)
    rng = np.random.default_rng(4)
    matrix = rng.standard_normal((len(words), 3)).astype(np.float32)
    vectors = Vectors(words, matrix)
    expected = gensim_vectors(vectors).evaluate_word_analogies(str(path))[1]
    result = evaluate_analogies(vectors, path)
    assert [s.num_correct for s in result.sections] == [
        len(s["correct"]) for s in expected[:-1]
    ]
    assert result.total.num_correct == len(expected[-1]["correct"]) > 0
