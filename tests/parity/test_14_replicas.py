"""Replicas, and resamples, of tables: each is the oracle's model of its seed."""

import numpy as np
import pytest

from embedder.config import Config, with_options
from embedder.data.bootstrap import draws_of_shards, multiplicities
from migration.parity.equations import resample
from migration.parity.replicas import bootstrap_stage, replicas_stage
from tests.parity.cases import assert_pass

SMALL = {"loader": "memory", "vector_size": 8, "block": 32, "blocks_per_update": 2}
STAGES = pytest.mark.parametrize("stage", [replicas_stage, bootstrap_stage])


def lines(stage, sequences, **options) -> list:
    return list(stage(with_options(Config(), **SMALL | options), sequences))


@pytest.mark.spread(2)
@STAGES
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "xla"},
        {"backend": "numba", "optimizer": "adagrad", "architecture": "cbow"},
        pytest.param({"backend": "numba", "sample": 0}, marks=pytest.mark.slow),
        pytest.param(
            {"backend": "xla", "architecture": "cbow", "update": "dense"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"backend": "xla", "optimizer": "adagrad"}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"max_pairs_per_row": 2.0, "seed": 2**64 - 1}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_replicas_are_the_models_of_the_oracle(sequences, stage, options):
    found = lines(stage, sequences, dtype="float64", **options)
    arrays = 4 if options.get("optimizer") == "adagrad" else 2
    assert len(found) == arrays
    assert_pass(found)


@pytest.mark.slow
@STAGES
def test_replicas_are_the_models_of_the_oracle_in_float32(sequences, stage):
    assert_pass(lines(stage, sequences, dtype="float32"))


@pytest.mark.slow
@STAGES
def test_one_long_sequence_is_cut(stage):
    """A resample has it once."""
    words = [f"w{i}" for i in np.random.default_rng(0).integers(30, size=9000)]
    assert_pass(lines(stage, [words], dtype="float64"))


@pytest.mark.slow
def test_resamples_of_several_shards_are_those_of_the_oracle(sequences, monkeypatch):
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 1000)
    assert_pass(lines(bootstrap_stage, sequences, dtype="float64"))


def test_multiplicities_are_those_of_the_equation():
    sizes = np.array([7, 1, 30, 400])
    for seed in (0, 9, 2**64 - 1):
        draws = draws_of_shards(sizes, seed)
        for shard, times in enumerate(resample(sizes, seed)):
            size, num = int(sizes[shard]), int(draws[shard])
            found = multiplicities(shard, size, num, seed)
            np.testing.assert_array_equal(found, times)
