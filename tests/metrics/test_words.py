"""Word similarities and analogies: by hand, and as in gensim on equal vectors."""

from pathlib import Path

import numpy as np
import pytest

from embedder import evaluate_analogies, evaluate_pairs
from embedder.api.word_scores import analogy_answers
from embedder.metrics import words as evaluate
from embedder.metrics.words import AnalogyScore, PairsResult
from embedder.vectors.subwords import NgramRule, Ngrams, ngram_buckets
from embedder.vectors.vectors import Vectors

ROOT_HALF = 0.5**0.5
ROYAL = Vectors(
    ["man", "woman", "king", "queen", "apple"],
    np.array([[1, 0, 0], [0, 1, 0], [2, 0, 2], [0, 3, 3], [0, 0, 1]], np.float32),
)
ROYAL_QUESTION = ": s\nman woman king queen\n"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "words.txt"
        path.write_bytes(text.encode())
        return path

    return write


@pytest.fixture(scope="session")
def word_eval(data_folder) -> Path:
    return data_folder / "word-eval"


def gensim_vectors(vectors: Vectors):
    keyed = pytest.importorskip("gensim.models").KeyedVectors(vectors.matrix.shape[1])
    keyed.add_vectors(vectors.keys, vectors.matrix)
    return keyed


def test_pairs_by_hand(write):
    # Cosines: man-king .707, man-woman 0, king-queen .5, apple-apple 1.
    path = write(
        "word1\tword2\tscore\n# a comment\n\nMAN\tking\t3\nman\twoman\t1\r\n"
        "king\tqueen\t4\nApple\tapple\t9.5\nman\tprince\t5\n"
    )
    scores, cosines = np.array([3, 1, 4, 9.5]), np.array([ROOT_HALF, 0, 0.5, 1])
    # Ranks 2 1 3 4 against 3 1 2 4: 1 - 6 * (1 + 1) / (4 * 15) = .8
    pearson = np.corrcoef(scores, cosines)[0, 1]
    result = evaluate_pairs(ROYAL, path)
    assert result.spearman == pytest.approx(0.8, abs=1e-12)
    assert result.pearson == pytest.approx(pearson, rel=1e-6)
    assert (result.num_pairs, result.num_used, result.num_unknown) == (5, 4, 1)


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


def test_the_nearest_neighbour_of_c_ignores_the_analogy(write):
    """king is at .707 from man, at .5 from queen: of the others of king man queen."""
    text = ": s\nwoman apple king man\nman woman king queen\nman woman uncle aunt\n"
    answers = analogy_answers(ROYAL, write(text))
    assert answers.is_known.tolist() == [True, True, False]
    assert answers.is_nearest.tolist() == [True, False, False]
    assert answers.is_right[1] and not answers.is_right[2]


def related_words(seed: int = 0) -> tuple[Vectors, str]:
    """Vectors in which about half of the questions of three relations come out, with
    words of several spellings, and the questions, in spellings that are no keys."""
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
            lines.append(" ".join(map(str.capitalize, pairs[i] + pairs[j])))
    order = rng.permutation(len(keys))
    matrix = np.array(rows, np.float32)[order]
    return Vectors([keys[i] for i in order], matrix), "\n".join(lines) + "\n"


@pytest.mark.parametrize("restrict_vocab", [30_000, 120])
def test_analogies_agree_with_gensim(write, monkeypatch, restrict_vocab):
    """In chunks of few questions."""
    monkeypatch.setattr(evaluate, "CHUNK_VALUES", 5000)
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


@pytest.mark.parametrize("name", ["wordsim353.tsv", "simlex999.tsv"])
def test_real_pairs_agree_with_gensim(word_eval, name):
    """Of ten of its words one is unknown."""
    path = word_eval / name
    found = filter(str.isalpha, path.read_text("utf-8").lower().split())
    words = [word for i, word in enumerate(dict.fromkeys(found)) if i % 10]
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


def test_pairs_of_spellings_blanks_and_constant_cosines(write):
    vectors = Vectors(["us", "US", "them", "me"], np.eye(2, dtype="f4")[[0, 1, 0, 1]])
    path = write("Us\tthem\t1\nuS\tMe\t0\nthem\tme\t0.5\n")
    # Cosines 1, 0, 0: ranks 3 1.5 1.5 against 3 1 2. "US" alone would give 0, 1, 0.
    assert evaluate_pairs(vectors, path).spearman == pytest.approx(0.75**0.5)
    path = write("US\tthem\t1\nUS\tMe\t0\nthem\tme\t0.5\n")  # a key itself
    assert evaluate_pairs(vectors, path).spearman == pytest.approx(-(0.75**0.5))
    path = write("man king 3\nman woman 1\nking queen 2\n")
    assert evaluate_pairs(ROYAL, path).spearman == pytest.approx(1.0)
    path = write("man\twoman\t1\nman\tapple\t2\nwoman\tapple\t3\n")
    assert evaluate_pairs(ROYAL, path) == PairsResult(0.0, 0.0, 3, 3, 0)


WORDS = Vectors(
    [*("strasse", "straße", "haus", "kiz", "kız", "adam"), "km\u00a0", "東京\u3000都"],
    np.eye(2, dtype="f4")[[0, 1, 1, 0, 1, 1, 1, 0]],
)


@pytest.mark.parametrize("separator", ["\t", " "])
def test_words_that_differ_in_more_than_case_are_others(write, separator):
    """Sharp s is no double s, dotless i no i, and U+00A0 and U+3000 are of a word."""
    pairs = [
        *(("Straße", "haus", 3), ("KIZ", "adam", 2), ("kız", "Adam", 3)),
        *(("km\u00a0", "haus", 3), ("東京\u3000都", "haus", 2), ("strasse", "haus", 2)),
    ]
    path = write("".join(f"{a}{separator}{b}{separator}{x}\n" for a, b, x in pairs))
    result = evaluate_pairs(WORDS, path)
    assert (result.num_used, result.pearson) == (6, pytest.approx(1))


def test_answers_differ_from_the_question_in_more_than_case(write):
    """`kiz` is excluded and wrong, where the question has it, and `kız` is not."""
    text = ": s\u3000t \nstrasse Kiz haus kız\nkm\u00a0 haus strasse 東京\u3000都\n"
    rows = [[1, 0], [0, -1], [0, 1], [2, 1], [-1, 2], [1, 1], [1, 0], [0, 0]]
    result = analogies(write, text, Vectors(WORDS.keys, np.array(rows, np.float32)))
    assert result.sections == (AnalogyScore("s\u3000t", 1, 2, 0),)


def test_unknown_words_of_pairs_have_the_vectors_of_their_ngrams(write):
    """A word of fewer characters than an n-gram has none."""
    rule, matrix = NgramRule(4, 4, 1000), np.eye(2, dtype="f4")
    buckets = np.sort(ngram_buckets(["nights"], rule)[0])
    ngrams = Ngrams(rule, buckets, matrix[np.zeros(len(buckets), int)])
    vectors = Vectors(["nights", "day"], matrix, ngrams=lambda: ngrams)
    path = write("nightly\tNights\t2\nnightly\tday\t1\nx\tday\t3\n")
    result = evaluate_pairs(vectors, path)
    assert (result.num_used, result.num_unknown) == (2, 1)
    assert result.pearson == pytest.approx(1)


def more(*rows: tuple[str, list]) -> Vectors:
    """`ROYAL` with more words."""
    matrix = np.vstack([ROYAL.matrix, *(row for _, row in rows)]).astype(np.float32)
    return Vectors([*ROYAL.keys, *(key for key, _ in rows)], matrix)


BETTER = more(("empress", [-0.29, 1, 0.71]))
SPELLED = more(("Woman", [-0.29, 1, 0.71]), ("WOMAN", [-0.3, 1, 0.7]))
TITLED = Vectors([*ROYAL.keys[:4], "Queen"], ROYAL.matrix[[0, 1, 2, 4, 3]])


@pytest.mark.parametrize(
    ("vectors", "restrict_vocab", "correct", "used"),
    [
        # only the first keys are answers, and known
        *((ROYAL, 3, 0, 0), (ROYAL, 4, 1, 1), (ROYAL, 99, 1, 1)),
        *((BETTER, 5, 1, 1), (BETTER, 6, 0, 1)),
        # no spelling of a word of the question is an answer, any of the answer is right
        *((SPELLED, 99, 1, 1), (TITLED, 99, 1, 1)),
    ],
)
def test_which_words_are_answers(write, vectors, restrict_vocab, correct, used):
    score = analogies(write, ROYAL_QUESTION, vectors, restrict_vocab=restrict_vocab)
    assert score.total == AnalogyScore("total", correct, used, 1 - used)


def test_few_questions_and_words(write):
    score = analogies(write, ": s\nman woman king man\n", restrict_vocab=3).total
    assert (score.num_correct, score.num_used) == (0, 1)
