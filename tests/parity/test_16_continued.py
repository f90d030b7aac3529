"""Trainings that start from vectors or from a model, in all ways to apply an update."""

import numpy as np
import pytest

from embedder.config import Config, with_options
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
