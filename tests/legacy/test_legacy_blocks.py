"""Shards and blocks by hand, and by the draws that they are a function of."""

import logging

import numpy as np
import pytest

from legacy.blocks import (
    Blocks,
    cut_shards,
    epoch_order,
    learning_rates,
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


@pytest.mark.parametrize("block, tile", [(64, 16), (7, 7), (6, 1), (2000, 8)])
def test_shard_blocks_by_the_promised_draws(shard, block, tile):
    ids, lengths = shard
    counts = np.bincount(ids, minlength=NUM_IDS) + 1
    rng = np.random.default_rng([1, 2, 3])  # seed, epoch, shard
    draws = rng.integers(0, 2**32, size=ids.size, dtype=np.uint32)
    kept = draws <= keep_limit(counts, 1e-3)[ids]
    num, num_blocks = kept.sum(), -(-kept.sum() // block)
    assert 0 < num < ids.size and num % block
    order = rng.permutation(num_blocks)
    radius = rng.integers(1, 6, size=(num_blocks, block), dtype=np.int8)
    table = build_noise_table(counts, 0.75)
    size = num_blocks * block // tile * 6
    column = rng.integers(0, NUM_IDS, size=size, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=size, dtype=np.uint32)
    noise = np.where(coin <= table.limit[column], column, table.alias[column])

    def packed(values, padding):
        filled = np.append(values, np.full(-num % block, padding, np.int32))
        return filled.reshape(-1, block)[order]

    numbers = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    expected = Blocks(
        packed(ids[kept], 0),
        packed(numbers[kept], -1),
        np.where(packed(np.ones(num, np.int8), 0), radius, 0),
        noise.reshape(num_blocks, -1, 6).astype(np.int32),
    )
    found = make(shard, sample=1e-3, epoch=2, number=3, block=block, tile=tile)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


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
