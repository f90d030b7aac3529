import logging

import numpy as np
import pytest

from legacy.blocks import (
    Blocks,
    cut_shards,
    epoch_order,
    learning_rates,
    loss_interval,
    shard_blocks,
    updates,
)
from legacy.noise import build_noise_table
from legacy.vocabulary import keep_limit

NUM_IDS = 50


@pytest.fixture
def shard():
    """Ids and lengths of 40 sequences."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 30, 40).astype(np.int64)
    return rng.integers(0, NUM_IDS, lengths.sum()).astype(np.int32), lengths


def make(shard, *, sample=0.0, seed=1, epoch=0, number=0, **sizes) -> Blocks:
    counts = np.bincount(shard[0], minlength=NUM_IDS) + 1
    sizes = {"window": 5, "block": 64, "tile": 16, "noise": 6} | sizes
    return shard_blocks(
        *shard,
        seed=seed,
        epoch=epoch,
        shard=number,
        keep_limit=keep_limit(counts, sample),
        noise_table=build_noise_table(counts, 0.75),
        **sizes,
    )


def flat_tokens(blocks: Blocks) -> list[tuple[int, int]]:
    """(sequence, id) of all tokens but padding, sorted."""
    real = blocks.sequence >= 0
    return sorted(zip(blocks.sequence[real], blocks.ids[real], strict=True))


def test_cut_shards_takes_whole_sequences():
    lengths = np.array([4, 4, 3, 10, 1, 9])
    corpus = cut_shards(np.arange(31, dtype=np.int32), lengths, shard_tokens=10)
    assert corpus.num_shards == 4
    assert [corpus.shard(i)[1].tolist() for i in range(4)] == [
        [4, 4],
        [3],
        [10],
        [1, 9],
    ]
    assert corpus.shard_tokens().tolist() == [8, 3, 10, 10]
    ids = np.concatenate([corpus.shard(i)[0] for i in range(4)])
    np.testing.assert_array_equal(ids, np.arange(31))


def test_cut_shards_cuts_long_sequences(caplog):
    with caplog.at_level(logging.INFO, logger="legacy"):
        corpus = cut_shards(np.arange(29), np.array([3, 20, 6]), shard_tokens=8)
    assert corpus.lengths.tolist() == [3, 8, 8, 4, 6]
    assert corpus.shard_tokens().tolist() == [3, 8, 8, 4, 6]
    assert "Cut 1 sequences longer than 8 tokens." in caplog.text


def test_cut_shards_of_nothing():
    corpus = cut_shards(np.zeros(0, np.int32), np.zeros(0, np.int64))
    assert corpus.num_shards == 0 and corpus.shard_tokens().size == 0


def test_epoch_order_is_a_function_of_seed_and_epoch():
    orders = [epoch_order(20, seed=s, epoch=e) for s, e in [(1, 0), (1, 1), (2, 0)]]
    for order in orders:
        assert sorted(order) == list(range(20))
    assert len({tuple(order) for order in orders}) == 3
    np.testing.assert_array_equal(epoch_order(20, seed=1, epoch=0), orders[0])
    promised = np.random.SeedSequence([1, 0], spawn_key=(0,))
    expected = np.random.default_rng(promised).permutation(20)
    np.testing.assert_array_equal(orders[0], expected)


@pytest.mark.parametrize("block, tile", [(64, 16), (7, 7), (5, 1), (2000, 8)])
def test_shard_blocks_have_every_token_once(shard, block, tile):
    ids, lengths = shard
    blocks = make(shard, block=block, tile=tile)
    num_blocks = -(-ids.size // block)
    assert blocks.ids.shape == (num_blocks, block)
    assert blocks.noise.shape == (num_blocks, block // tile, 6)
    sequence = np.repeat(np.arange(lengths.size), lengths)
    assert flat_tokens(blocks) == sorted(zip(sequence, ids, strict=True))


def test_shard_blocks_drop_by_the_first_draws(shard):
    ids, lengths = shard
    counts = np.bincount(ids, minlength=NUM_IDS) + 1
    limit = keep_limit(counts, 1e-3)
    draws = np.random.default_rng([1, 2, 3]).integers(
        0, 2**32, size=ids.size, dtype=np.uint32
    )
    kept = draws <= limit[ids]
    assert 0 < kept.sum() < ids.size
    sequence = np.repeat(np.arange(lengths.size), lengths)
    blocks = make(shard, sample=1e-3, epoch=2, number=3)
    expected = sorted(zip(sequence[kept], ids[kept], strict=True))
    assert flat_tokens(blocks) == expected


def test_shard_blocks_draw_in_the_promised_order(shard):
    ids, _ = shard
    counts = np.bincount(ids, minlength=NUM_IDS) + 1
    rng = np.random.default_rng([1, 0, 0])
    rng.integers(0, 2**32, size=ids.size, dtype=np.uint32)
    num_blocks = -(-ids.size // 64)
    order = rng.permutation(num_blocks)
    radius = rng.integers(1, 6, size=(num_blocks, 64), dtype=np.int8)
    table = build_noise_table(counts, 0.75)
    size = num_blocks * 4 * 6
    column = rng.integers(0, NUM_IDS, size=size, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    noise = np.where(coin <= table.limit[column], column, table.alias[column])
    blocks = make(shard)
    packed = np.append(ids, np.zeros(-ids.size % 64, np.int32)).reshape(-1, 64)
    np.testing.assert_array_equal(blocks.ids, packed[order])
    num_padding = -ids.size % 64
    real = np.arange(num_blocks * 64).reshape(-1, 64)[order] < ids.size
    assert num_padding > 0 and (~real).sum() == num_padding
    np.testing.assert_array_equal(blocks.sequence >= 0, real)
    assert (blocks.sequence[~real] == -1).all()
    np.testing.assert_array_equal(blocks.radius, np.where(real, radius, 0))
    np.testing.assert_array_equal(blocks.noise, noise.reshape(num_blocks, 4, 6))
    assert [x.dtype for x in blocks] == [np.int32, np.int32, np.int8, np.int32]


def test_shard_blocks_of_no_kept_token():
    limit = np.zeros(1, np.uint32)  # keeps one draw in 2**32
    blocks = shard_blocks(
        np.zeros(9, np.int32),
        np.array([9]),
        seed=0,
        epoch=0,
        shard=0,
        keep_limit=limit,
        noise_table=build_noise_table(np.array([9]), 0.75),
        window=2,
        block=4,
        tile=2,
        noise=3,
    )
    assert blocks.ids.shape == (0, 4) and blocks.noise.shape == (0, 2, 3)
    assert list(updates(blocks, 2)) == []


def test_updates_are_consecutive_blocks(shard):
    blocks = make(shard)
    parts = list(updates(blocks, 4))
    assert [len(part.ids) for part in parts] == [4] * (len(blocks.ids) // 4) + (
        [len(blocks.ids) % 4] if len(blocks.ids) % 4 else []
    )
    for part in zip(*parts, strict=True):
        assert any(np.array_equal(np.concatenate(part), field) for field in blocks)


def test_learning_rates_by_hand():
    rates = learning_rates(
        4,
        alpha=1.0,
        min_alpha=0.0,
        epoch=1,
        epochs=2,
        tokens_before=50,
        shard_tokens=40,
        corpus_tokens=100,
    )
    assert rates.dtype == np.float64
    np.testing.assert_allclose(rates, [0.25, 0.20, 0.15, 0.10], rtol=1e-15)


def test_loss_interval():
    assert loss_interval(1024 * 1024, 1024) == 16
    assert loss_interval(1024 * 1024 - 1, 1024) == 1
