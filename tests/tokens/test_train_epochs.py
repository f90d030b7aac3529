"""`EmbeddingTrainer.train_epochs`: epochs over tables that the caller keeps."""

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.tokens.backends import initial_input

WORDS = [str(i) for i in range(12)]
RNG = np.random.default_rng(0)
SENTENCES = [RNG.choice(WORDS, size=9).tolist() for _ in range(60)]
SETTINGS = {"vector_size": 8, "min_count": 1, "sample": 0.01, "epochs": 3}


def given(trainer: EmbeddingTrainer, keys: list[str]):
    """The tables that `fit` starts from, and the sentences as ids."""
    ids = {key: row for row, key in enumerate(keys)}
    flat = [ids[word] for sentence in SENTENCES for word in sentence]
    shape = len(keys), trainer.vector_size
    output_rows = len(keys) * (bool(trainer.negative) + trainer.hs)
    tables = (
        initial_input(*shape, np.float32, trainer.seed),
        np.zeros((output_rows, trainer.vector_size), np.float32),
        np.bincount(flat),
        None,
    )
    return tables, (np.array(flat, np.int32), np.full(len(SENTENCES), 9))


OBJECTIVES = {
    "sampled": {},
    "paths": {"hs": True, "negative": 0},
    "both": {"hs": True, "negative": 3},
}


@pytest.mark.spread(1)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_epochs_one_by_one_are_those_of_fit(architecture, objective):
    settings = SETTINGS | {"architecture": architecture, **objective}
    trainer = EmbeddingTrainer(**settings).fit(SENTENCES)
    tables, sequences = given(trainer, trainer.index_to_key)
    whole = trainer.train_epochs(tables, sequences, range(3), range(3))
    losses, terms = [], []
    for epoch in range(3):
        epochs = range(epoch, epoch + 1)
        done = trainer.train_epochs(tables, sequences, epochs, range(3))
        tables = done.input, done.output, *tables[2:]
        losses.append(done.loss)
        terms.append(done.num_terms)
    assert losses == trainer.loss_history
    np.testing.assert_array_equal(tables[0], trainer.vectors)
    np.testing.assert_array_equal(whole.input, trainer.vectors)
    np.testing.assert_array_equal(whole.output, tables[1])
    assert whole.loss == pytest.approx(np.mean(losses))
    assert whole.num_terms == pytest.approx(np.mean(terms), abs=1)


def test_calls_and_epochs_are_reported():
    trainer, seen = EmbeddingTrainer(**SETTINGS), []
    tables, sequences = given(trainer, WORDS)
    epochs = range(1, 3)
    trainer.train_epochs(tables, sequences, epochs, range(4), on_status=seen.append)
    progress = [each.progress for each in seen]
    assert progress == sorted(progress) and progress[-1] == 3 / 4
    assert [each.epoch for each in seen if each.is_epoch_end] == [1, 2]
    assert sum(not each.is_epoch_end for each in seen) >= 2


def test_neither_the_arrays_nor_the_trainer_change():
    trainer = EmbeddingTrainer(**SETTINGS)
    tables, sequences = given(trainer, WORDS)
    before = [x.copy() for x in tables[:3]]
    done = trainer.train_epochs(tables, sequences, range(1), range(1))
    assert not np.array_equal(done.input, before[0])
    for array, old in zip(tables, before, strict=False):
        np.testing.assert_array_equal(array, old)
    with pytest.raises(RuntimeError, match="not trained yet"):
        _ = trainer.vectors


def test_rates_scale_the_steps_of_input_rows():
    trainer = EmbeddingTrainer(**SETTINGS | {"architecture": "cbow"})
    tables, sequences = given(trainer, WORDS)
    rates = np.ones(12, np.float32)
    rates[3] = 0
    before = tables[0].copy()
    for epoch in range(2):  # the output table starts at 0: input rows move after it
        epochs = range(epoch, epoch + 1)
        done = trainer.train_epochs((*tables[:3], rates), sequences, epochs, range(2))
        tables = done.input, done.output, *tables[2:]
    moved = (done.input != before).any(axis=1)
    assert moved.tolist() == [row != 3 for row in range(12)]


def pairs(lengths: list[int], window: int) -> int:
    """Ordered pairs of tokens of a sentence at most `window` apart."""
    return sum(
        2 * max(length - d, 0) for length in lengths for d in range(1, window + 1)
    )


@pytest.mark.slow
def test_fixed_windows_have_all_contexts():
    trainer = EmbeddingTrainer(vector_size=8, sample=0, window=3)
    tables, _ = given(trainer, WORDS)
    sequences = np.arange(24, dtype=np.int32) % 12, np.array([10, 10, 4])
    whole, drawn = (
        trainer.train_epochs(
            tables, sequences, range(1), range(1), shrink_windows=shrink
        )
        for shrink in (False, True)
    )
    assert whole.num_terms == pairs([10, 10, 4], 3)
    assert 0 < drawn.num_terms < whole.num_terms


def test_unknown_tokens_are_left_out():
    trainer = EmbeddingTrainer(**SETTINGS | {"sample": 0})
    tables, _ = given(trainer, WORDS)
    with_gaps = np.array([0, -1, 1, 2, -1, 3], np.int32), np.array([4, 2])
    without = np.array([0, 1, 2, 3], np.int32), np.array([3, 1])
    found, expected = (
        trainer.train_epochs(tables, each, range(1), range(1))
        for each in (with_gaps, without)
    )
    np.testing.assert_array_equal(found.output, expected.output)
    assert found.num_tokens == expected.num_tokens == 4
    empty = np.array([-1], np.int32), np.array([1])
    assert trainer.train_epochs(tables, empty, range(1), range(1)).num_terms == 0


@pytest.mark.slow
def test_terms_are_counted_where_few_updates_report():
    """Of more than 1,024 updates an epoch every 16th reports."""
    trainer = EmbeddingTrainer(vector_size=4, sample=0, window=2)
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 50, 70_000, dtype=np.int32)
    tables = np.zeros((50, 4), "f4"), np.zeros((50, 4), "f4"), np.bincount(ids), None
    done = trainer.train_epochs(
        tables, (ids, np.array([70_000])), range(1), range(1), shrink_windows=False
    )
    blocks = [64] * (70_000 // 64) + [70_000 % 64]
    assert done.num_terms == pytest.approx(pairs(blocks, 2), rel=2e-3)
