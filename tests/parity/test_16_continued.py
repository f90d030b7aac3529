"""Trainings that start from vectors or from a model, in all ways to apply an update."""

import numpy as np
import pytest

import legacy.vocabulary
from embedder.config import Config, with_options
from migration.parity import updating
from migration.parity.continued import frozen_rows_stage, update_stage
from migration.parity.short import split_words
from tests.parity.cases import UPDATES, assert_pass

SMALL = {"loader": "memory", "vector_size": 8, "block": 32, "blocks_per_update": 2}
DRIFT = [
    [f"w{i + n // 8}" for i in np.random.default_rng(n).geometric(0.15, size=n % 41)]
    for n in range(400)
]
"""Sequences whose tokens change over time: each text has tokens of its own."""
WAYS = [
    {"update": "rows"},
    {"update": "kernel", "optimizer": "adagrad", "architecture": "cbow"},
    pytest.param({"update": "kernel", "sample": 0}, marks=pytest.mark.slow),
    pytest.param({"update": "rows", "ns_exponent": -0.5}, marks=pytest.mark.slow),
    pytest.param({"update": "dense", "architecture": "cbow"}, marks=pytest.mark.slow),
    pytest.param({"update": "rows", "optimizer": "adagrad"}, marks=pytest.mark.slow),
    pytest.param(
        {"update": "rows", "max_pairs_per_row": 2.0, "seed": 2**64 - 1},
        marks=pytest.mark.slow,
    ),
]


def lines(stage, sequences=DRIFT, *, update="rows", **options) -> list:
    options = SMALL | UPDATES[update] | options
    return list(stage(with_options(Config(), **options), sequences))


def quantities(found: list) -> set[str]:
    assert_pass(found)
    return {line.quantity for line in found}


@pytest.mark.spread(2)
@pytest.mark.parametrize("options", WAYS, ids=lambda x: " ".join(map(str, x.values())))
def test_frozen_rows_are_those_of_the_oracle(options):
    found = quantities(lines(frozen_rows_stage, dtype="float64", **options))
    assert {"input", "output", "input at the start", "frozen rows"} <= found
    assert ("input accumulator" in found) == ("optimizer" in options)


@pytest.mark.spread(2)
@pytest.mark.parametrize("options", WAYS, ids=lambda x: " ".join(map(str, x.values())))
def test_updates_of_a_model_are_those_of_the_oracle(options):
    found = quantities(lines(update_stage, dtype="float64", **options))
    for name in ("tokens", "ids", "input", "output", "rows that the text lacks"):
        assert {name, f"{name}, replay"} <= found
    assert ("output accumulator, replay" in found) == ("optimizer" in options)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [frozen_rows_stage, update_stage])
def test_both_stages_are_those_of_the_oracle_in_float32(stage):
    assert_pass(lines(stage, dtype="float32"))


@pytest.mark.slow
@pytest.mark.parametrize("stage", [frozen_rows_stage, update_stage])
def test_several_shards_are_those_of_the_oracle(stage, monkeypatch):
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 500)
    found = lines(stage, dtype="float64")
    assert_pass(found)
    sizes = [line.size for line in found if line.quantity.startswith("tokens of shard")]
    assert all(size > 2 for size in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [frozen_rows_stage, update_stage])
def test_one_long_sequence_is_cut(stage):
    words = [word for sequence in DRIFT for word in sequence]
    assert_pass(lines(stage, [words], dtype="float64"))


def test_words_are_split_within_a_sequence():
    given = [["a", "b"], ["c"], [], ["d", "e", "f"], ["g"]]
    assert split_words(given, 4) == ([["a", "b"], ["c"], ["d"]], [["e", "f"], ["g"]])
    assert split_words(given, 99) == ([x for x in given if x], [])


# --- the oracle, by hand


def text(*lines_: str) -> legacy.vocabulary.Text:
    return legacy.vocabulary.read_text([line.split() for line in lines_])


KNOWN = legacy.vocabulary.Vocabulary(["a", "b", "c"], np.array([9, 5, 2]))


def test_a_grown_vocabulary_by_hand():
    """`m` occurs twice in each text, `n` three times in the new one; `o` too seldom."""
    new, earlier = text("a n m", "n o m a n"), text("m a m", "o b")
    grown = updating.grown_vocabulary(KNOWN, new, [earlier], 3)
    assert grown.tokens == ["a", "b", "c", "n", "m"]
    assert grown.counts.tolist() == [11, 5, 2, 3, 4]
    assert grown.text_counts.tolist() == [2, 0, 0, 3, 2]
    expected = [2 / 92, 0, 0, 1, 1]
    np.testing.assert_allclose(updating.factors(grown), expected, rtol=1e-7)
    alone = updating.grown_vocabulary(KNOWN, new, [], 3)
    assert alone.tokens == ["a", "b", "c", "n"] and alone.counts[3] == 3


def test_replay_by_hand():
    """Of the earlier sequences the one with `n`, of id 3, is always there."""
    tokens = ["a", "b", "c", "n"]
    new, earlier = text("a n"), text(*["a b"] * 400, "n b b")
    cuts = [updating.encoded(each, tokens, 10_000) for each in (new, earlier)]
    source = updating.Replayed(cuts[0], cuts[1:], 0.25, num_old=3, seed=1)
    assert source.shard_tokens().tolist() == [2 + 200 + 3]
    text_counts = np.array([1, 0, 0, 1])
    assert source.counts(text_counts).tolist() == [101, 102, 0, 2]
    parts = [source.shard(epoch, 0) for epoch in (0, 0, 1)]
    assert parts[0][1].tolist() == parts[1][1].tolist() != parts[2][1].tolist()
    for ids, lengths in parts:
        assert lengths[0] == 2 and lengths[-1] == 3 and {*lengths[1:-1]} == {2}
        assert ids[:2].tolist() == [0, 3] and ids[-3:].tolist() == [3, 1, 1]
        assert abs(len(lengths) - 2 - 100) < 40


def test_new_rows_start_at_the_mean_of_output_rows():
    first, model = np.zeros((2, 3, 2)), np.arange(8.0).reshape(2, 2, 2)
    first[0] = 7
    found = updating.grown_tables(first, model)
    assert found[0].tolist() == [[0, 1], [2, 3], [7, 7]]
    assert found[1].tolist() == [[4, 5], [6, 7], [5, 6]]


@pytest.mark.parametrize("exponent", [0.75, 0, -1])
def test_tokens_that_are_not_there_are_never_drawn(exponent):
    counts = np.array([3, 0, 1, 0])
    table = updating.noise_table(counts, exponent)
    rng = np.random.default_rng(0)
    drawn = legacy.noise.draw_noise(table, rng, 2000)
    shares = np.bincount(drawn, minlength=4)[[0, 2]] / 2000
    weights = np.array([3.0, 1.0]) ** exponent
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.04)
    kept = updating.keep_limit(counts, 0.1)
    assert (kept[[0, 2]] == legacy.vocabulary.keep_limit(counts[[0, 2]], 0.1)).all()
