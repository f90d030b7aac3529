import math

import numpy as np
import pytest

import legacy
from legacy import EmbeddingTrainer
from legacy.trainer import initial_tables

SMALL = {"vector_size": 12, "min_count": 1, "sample": 0, "epochs": 3, "tile": 8}


def cats_and_cars(num_sequences=150) -> list[list[str]]:
    """Two sets of tokens that never meet; within each all are alike."""
    rng = np.random.default_rng(3)
    kinds = [["cat", "purr", "fur", "paw"], ["car", "road", "fuel", "tyre"]]
    return [list(rng.choice(kinds[i % 2], 12)) for i in range(num_sequences)]


@pytest.fixture
def corpus() -> list[list[str]]:
    return [[str(token) for token in sequence] for sequence in cats_and_cars()]


@pytest.fixture(params=["skipgram", "cbow"])
def architecture(request) -> str:
    return request.param


def same(a: EmbeddingTrainer, b: EmbeddingTrainer) -> bool:
    return (
        np.array_equal(a._model.tables, b._model.tables)
        and np.array_equal(a._model.accumulators, b._model.accumulators)
        and a.index_to_key == b.index_to_key
        and a.loss_history == b.loss_history
    )


def test_public_names():
    assert legacy.__all__ == ["EmbeddingTrainer", "FeatureEncoder"]


@pytest.mark.parametrize(
    "changes",
    [
        {"tile": 1, "noise": 5},
        {"window": 30, "tile": 2, "block": 64},
        {"blocks_per_update": 3},
        {"block": 8192},
        {"cap": math.inf, "alpha": 1e-3},
    ],
    ids=str,
)
def test_fit_learns_in_other_forms(corpus, architecture, changes):
    trainer = EmbeddingTrainer(**SMALL | changes, architecture=architecture)
    history = trainer.fit(corpus).loss_history
    assert history[-1] < history[0] <= 6 * math.log(2) * 1.2


def test_fit_is_reproducible(corpus, architecture):
    first, second = (
        EmbeddingTrainer(**SMALL, architecture=architecture).fit(corpus) for _ in "ab"
    )
    other = EmbeddingTrainer(**SMALL, architecture=architecture, seed=2).fit(corpus)
    assert same(first, second) and not same(first, other)
    assert same(first.fit(corpus), second)  # fit starts afresh


def test_fit_without_epochs_gives_the_initial_vectors(corpus):
    trainer = EmbeddingTrainer(**SMALL | {"epochs": 0}, seed=2**64 - 1).fit(corpus)
    assert trainer.loss_history == []
    expected = initial_tables(8, 12, 2**64 - 1, "float32")
    np.testing.assert_array_equal(trainer.vectors, expected[0])
    assert np.abs(expected[0]).max() <= 0.5 / 12 and not expected[1].any()
    assert np.unique(expected[0]).size > 90


def test_initial_tables_by_their_draws():
    rng = np.random.default_rng(np.random.SeedSequence(3, spawn_key=(1,)))
    expected = (rng.random((50, 10), dtype=np.float32) - np.float32(0.5)) / np.float32(
        10
    )
    found = initial_tables(50, 10, 3, "float32")
    np.testing.assert_array_equal(found[0], expected, strict=True)


def test_initial_tables_are_the_same_draws_in_both_dtypes():
    single, double = (initial_tables(50, 10, 3, d)[0] for d in ("float32", "float64"))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "corpus, loss",
    [([["a"]], 0.0), ([["a"] * 5], None), ([["a"], ["b"]], 0.0), ([["a", "b"]], None)],
    ids=str,
)
def test_fit_tiny_corpora(architecture, corpus, loss):
    trainer = EmbeddingTrainer(**SMALL, architecture=architecture).fit(corpus)
    assert np.isfinite(trainer.vectors).all()
    if loss is None:  # the output table starts at zero
        assert trainer.loss_history[0] == pytest.approx(6 * math.log(2), rel=1e-6)
    else:
        assert trainer.loss_history == [loss] * 3


def test_partial_fit_on_an_untrained_trainer_is_one_epoch_of_fit(corpus):
    once = EmbeddingTrainer(**SMALL | {"epochs": 1}).fit(corpus)
    assert same(EmbeddingTrainer(**SMALL).partial_fit(corpus), once)


def test_partial_fit_goes_on_where_fit_ended(corpus):
    options = SMALL | {"alpha": 0.02, "min_alpha": 0.02}  # one rate in all epochs
    twice = EmbeddingTrainer(**options | {"epochs": 2}).fit(corpus)
    once = EmbeddingTrainer(**options | {"epochs": 1}).fit(corpus)
    assert same(once.partial_fit(corpus), twice)


def test_partial_fit_keeps_the_block(corpus):
    trainer = EmbeddingTrainer(**SMALL).fit(corpus)
    assert trainer.block is None and trainer._model.block == 64
    trainer.partial_fit(corpus * 200)
    assert trainer._model.block == 64
