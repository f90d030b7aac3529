"""Subwords of the oracle against known values, loops and finite differences."""

import math

import numpy as np
import pytest

import legacy
from legacy import objective, subwords
from legacy.blocks import Blocks
from legacy.objective import Rows, pairs
from legacy.update import State, apply_update

WORDS = ["ababab", "abc", "ä", "b", "</s>"]
COUNTS = np.array([7, 4, 3, 1, 1])
BOUNDS, BUCKETS = (1, 3), 11  # few buckets: n-grams of a word and of others share them
DIMENSIONS, WINDOW, NEGATIVE, TILE = 3, 2, 4, 4
ARCHITECTURES = ["skipgram", "cbow"]
architectures = pytest.mark.parametrize("architecture", ARCHITECTURES)


def found() -> subwords.Subwords:
    return subwords.subwords(WORDS, COUNTS, BOUNDS, BUCKETS)


def rows_by_word() -> list[list[int]]:
    """S_w, from the n-grams and their buckets alone; a row may be listed twice."""
    hashed = [
        [subwords.bucket(x, BUCKETS) for x in subwords.ngrams(word, *BOUNDS)]
        for word in WORDS
    ]
    known = sorted({number for each in hashed for number in each})
    return [
        [word, *(len(WORDS) + known.index(number) for number in each)]
        for word, each in enumerate(hashed)
    ]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def num_rows() -> int:
    return len(WORDS) + len(found().buckets)


@pytest.mark.parametrize(
    ("word", "bounds", "expected"),
    [
        ("where", (3, 3), ["<wh", "whe", "her", "ere", "re>"]),  # of the paper
        ("ab", (1, 2), ["<a", "a", "ab", "b", "b>"]),  # neither "<" nor ">"
        ("ab", (4, 6), ["<ab>"]),
        ("ab", (5, 6), []),
        ("é", (2, 3), ["<é", "<é>", "é>"]),  # by characters, not bytes
        ("</s>", (1, 6), []),  # fastText's end of a sentence
    ],
)
def test_ngrams_are_those_worked_by_hand(word, bounds, expected):
    assert subwords.ngrams(word, *bounds) == expected


@pytest.mark.parametrize(
    ("ngram", "value"),
    [
        ("", 0x811C9DC5),  # these three: published values of FNV-1a
        ("a", 0xE40C292C),
        ("foobar", 0xBF9CF968),
        ("<wh", 1048167652),  # the others: what gensim's `ft_hash_bytes` returns
        ("ä", 939155682),
        ("тест", 1643354476),
        ("日本語", 308035559),
    ],
)
def test_hashes_are_known_values(ngram, value):
    assert subwords.bucket(ngram, 2**32) == value
    assert subwords.bucket(ngram, 1000) == value % 1000


def test_bytes_above_127_have_their_sign():
    """FNV-1a itself has another value."""
    plain = 0x811C9DC5
    for byte in "ä".encode():
        plain = (plain ^ byte) * 0x01000193 % 2**32
    assert plain != subwords.bucket("ä", 2**32)


def test_mixing_is_that_of_splitmix64():
    """The first outputs from the state 1234567, as they are published."""
    step = 0x9E3779B97F4A7C15
    outputs = [subwords._mix(1234567 + n * step) for n in (1, 2)]
    assert outputs == [6457827717110365317, 3203168211198807973]


def test_rows_of_words_are_those_of_a_loop():
    table, expected = found(), rows_by_word()
    for word, rows in enumerate(expected):
        is_own = table.words == word
        assert table.rows[is_own].tolist() == rows
        np.testing.assert_allclose(table.shares[is_own], 1 / len(rows))
    assert any(len({*rows}) < len(rows) for rows in expected)  # m_sw above 1
    assert expected[-1] == [len(WORDS) - 1]  # no n-grams
    sizes = [len(rows) for rows in expected]
    assert table.scale == pytest.approx(np.average(sizes, weights=COUNTS))


def test_vectors_are_means_over_rows():
    rows = random(num_rows(), DIMENSIONS)
    expected = [rows[own].mean(axis=0) for own in rows_by_word()]
    np.testing.assert_allclose(subwords.compose(found(), rows), expected, rtol=1e-13)


@pytest.mark.parametrize("seed", [1, 2**64 - 1])
def test_rows_of_buckets_start_by_the_seed_and_their_number(seed):
    """Whatever other buckets there are; uniform on (-.5, .5) / D."""
    many = subwords.subwords([f"w{n}" for n in range(300)], np.ones(300), (2, 4), 10**6)
    few = subwords.subwords(["w1", "w299"], np.ones(2), (2, 4), 10**6)
    tables = np.zeros((300, 50), np.float32), np.zeros((2, 50), np.float32)
    first, second = (
        subwords.initial_rows(each, table, seed)[len(table) :]
        for each, table in zip((many, few), tables, strict=True)
    )
    places = np.searchsorted(many.buckets, few.buckets)
    np.testing.assert_array_equal(first[places], second)
    values = first.astype(np.float64) * 50
    assert -0.5 <= values.min() < -0.499 and 0.499 < values.max() < 0.5
    assert abs(values.mean()) < 4 / math.sqrt(12 * values.size)
    assert abs(values.var() - 1 / 12) < 0.005
    assert not np.array_equal(first, subwords.initial_rows(many, tables[0], 7)[300:])


class Update:
    """Two blocks of tokens of the vocabulary; the last one ends in padding."""

    def __init__(self):
        rng = np.random.default_rng(1)
        shape = 2, 8
        self.blocks = Blocks(
            rng.integers(0, len(WORDS), shape).astype(np.int32),
            np.sort(rng.integers(0, 2, shape)).astype(np.int32),
            rng.integers(1, WINDOW + 1, shape, np.int8),
            rng.integers(0, len(WORDS), (2, 2, 3)).astype(np.int32),
        )
        self.blocks.sequence[-1, -2:], self.blocks.radius[-1, -2:] = -1, 0
        self.rows = random(num_rows(), DIMENSIONS, seed=2)
        self.output = random(len(WORDS), DIMENSIONS, seed=3)
        self.pairs = pairs(
            *(self.blocks.sequence, self.blocks.radius),
            **{"tile": TILE, "window": WINDOW, "dtype": "float64"},
        )

    def terms(self, architecture: str, rows: np.ndarray) -> objective.Terms:
        """Of the words, whose input rows are made of `rows` by a loop."""
        composed = np.array([rows[own].mean(axis=0) for own in rows_by_word()])
        given = Rows(
            *(composed[self.blocks.ids], self.output[self.blocks.ids]),
            self.output[self.blocks.noise],
        )
        compute = getattr(objective, architecture)
        return compute(given, self.pairs, window=WINDOW, negative=NEGATIVE)

    def loss(self, architecture: str, rows: np.ndarray) -> float:
        scores = self.terms(architecture, rows).scores
        loss = getattr(objective, f"{architecture}_loss")
        return loss(scores, self.pairs, negative=NEGATIVE)

    def step(self, architecture: str, rate: float, cap: float) -> np.ndarray:
        """What an update subtracts from the rows."""
        table = np.zeros((2, len(WORDS), DIMENSIONS))
        table[1] = self.output
        state = State(table, subwords=self.rows.copy())
        apply_update(
            *(state, self.blocks),
            **{"rate": rate, "cap": cap, "architecture": architecture},
            **{"window": WINDOW, "negative": NEGATIVE, "subwords": found()},
        )
        np.testing.assert_array_equal(
            state.tables[0], subwords.compose(found(), state.subwords)
        )
        return self.rows - state.subwords


@architectures
def test_a_step_is_the_finite_difference_of_the_loss(architecture):
    """Through the composed vectors, times n, the mean of |S_w| over the tokens."""
    given, h = Update(), 1e-5
    expected = np.empty_like(given.rows)
    for place in np.ndindex(given.rows.shape):
        moved = [given.rows.copy(), given.rows.copy()]
        moved[0][place] += h
        moved[1][place] -= h
        up, down = (given.loss(architecture, rows) for rows in moved)
        expected[place] = (up - down) / (2 * h)
    rate = 0.01
    found_step = given.step(architecture, rate, math.inf)
    np.testing.assert_allclose(
        found_step / rate, found().scale * expected, rtol=1e-6, atol=1e-8
    )


@architectures
def test_weights_limit_rows_as_a_loop_says(architecture):
    """c_s = n sum_w (m_sw / |S_w|) c_w, with m_sw counted anew."""
    given = Update()
    of_tokens = given.terms(architecture, given.rows).weights.input
    weights = np.zeros(len(WORDS))
    np.add.at(weights, given.blocks.ids, of_tokens)
    expected = np.zeros(num_rows())
    for word, rows in enumerate(rows_by_word()):
        for row in {*rows}:
            times = rows.count(row)
            expected[row] += found().scale * times / len(rows) * weights[word]
    free = given.step(architecture, 0.01, math.inf)
    cap = float(np.median(expected))
    factors = np.minimum(1, cap / np.maximum(expected, 1e-300))
    assert (factors < 1).any() and (factors == 1).any()
    found_step = given.step(architecture, 0.01, cap)
    np.testing.assert_allclose(
        found_step, factors[:, np.newaxis] * free, rtol=1e-12, atol=1e-15
    )


def test_rows_that_are_shared_get_what_all_their_words_say():
    """Two words of one n-gram: its row has half of the gradient of each."""
    table = subwords.subwords(["a", "b"], np.ones(2), (1, 1), 1)
    assert table.rows.tolist() == [0, 2, 1, 2]
    rows = np.zeros((3, 1))
    gradients = np.array([[1.0], [10.0]])
    subwords.apply_step(table, rows, gradients, np.ones(2), rate=1.0, cap=math.inf)
    assert table.scale == 2
    np.testing.assert_allclose(rows[:, 0], [-1, -10, -11])


SMALL = {"vector_size": 8, "min_count": 1, "block": 32, "dtype": "float64"}


@architectures
@pytest.mark.parametrize("hs", [False, True])
def test_a_model_learns_and_its_file_goes_on(sequences, tmp_path, architecture, hs):
    options = {"architecture": architecture, "hs": hs, "epochs": 3}
    options |= SMALL | {"subwords": (2, 3), "buckets": 100}
    trained = legacy.EmbeddingTrainer(**options).fit(sequences)
    assert trained.loss_history == sorted(trained.loss_history, reverse=True)
    trained.save(tmp_path / "model.npz")
    loaded = legacy.EmbeddingTrainer.load(tmp_path / "model.npz")
    assert loaded.subwords == (2, 3) and loaded.buckets == 100
    for each in (trained, loaded):
        each.partial_fit(sequences)
    np.testing.assert_array_equal(trained.vectors, loaded.vectors)
