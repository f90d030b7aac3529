"""Superblocks: the same from both loaders, in order, and whole."""

import dataclasses
import functools
import threading

import jax
import numpy as np
import pytest

from embedder.tables.blocks import BlockShape, BlockSource, Updates, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.loader import (
    cut,
    epoch_superblocks,
    loss_interval,
    superblock_size,
)
from legacy.blocks import loss_interval as oracle_interval

SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)


def make_source(encoded, sample: float = 1e-2) -> BlockSource:
    return block_source(
        encoded, SHAPE, sample=sample, ns_exponent=0.75, seed=1, epochs=range(2)
    )


@pytest.fixture
def source(monkeypatch, sequences) -> BlockSource:
    """Over several shards."""
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    return make_source(encode(sequences_corpus(sequences), 1))


def superblocks(name, source, *, size=16, workers=2) -> list[tuple[Updates, int]]:
    return list(epoch_superblocks(name, source, 1, size=size, workers=workers))


def updates_of(superblocks) -> Updates:
    """The real updates, one after another."""
    parts = [cut(updates, 0, num) for updates, num in superblocks]
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def assert_same(actual: Updates, desired: Updates) -> None:
    assert_equal = functools.partial(np.testing.assert_array_equal, strict=True)
    jax.tree.map(assert_equal, actual, desired)


@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_loader_gives_the_shards_in_order(name, source):
    places = range(len(source.encoded.shard_tokens))
    expected = [(source.updates(1, place), 10**6) for place in places]
    assert_same(updates_of(superblocks(name, source)), updates_of(expected))


@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_what_comes_after_an_update_is_the_rest_of_all(name, source):
    """After the first, the last of a shard, one within a shard, and the last of all."""
    whole = updates_of(superblocks(name, source))
    places = whole.position[:, 1]
    last_of_shard = int(np.flatnonzero(np.diff(places))[0])
    for done in (0, last_of_shard, last_of_shard + 3, len(whole) - 2):
        after = tuple(whole.position[done, 1:].tolist())
        rest = epoch_superblocks(name, source, 1, size=16, workers=2, after=after)
        assert_same(updates_of(rest), cut(whole, done + 1, None))
    after = tuple(whole.position[-1, 1:].tolist())
    assert not list(epoch_superblocks(name, source, 1, size=16, workers=2, after=after))


def test_superblocks_are_full_but_the_last(source):
    made = superblocks("memory", source)
    assert all(updates.num_updates == 16 for updates, _ in made)
    assert all(num == 16 for _, num in made[:-1]) and 0 < made[-1][1] < 16


def test_last_superblock_is_filled_with_empty_updates(source):
    updates, num = superblocks("memory", source)[-1]
    rest = cut(updates, num, None)
    assert (rest.blocks.sequence == -1).all()
    assert not any(
        x.any()
        for x in (rest.blocks.ids, rest.blocks.radius, rest.blocks.noise, rest.progress)
    )


@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_epoch_of_which_nothing_is_kept_is_empty(name):
    encoded = encode(sequences_corpus([["a", "b"]]), 1)
    assert superblocks(name, make_source(encoded, sample=1e-300)) == []


@pytest.mark.row("F24")
@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_error_of_a_worker_comes_to_the_caller(capfd, name, source):
    def damaged(shard):
        raise ValueError("Cache file X is damaged")

    encoded = dataclasses.replace(source.encoded, read=damaged)
    source = dataclasses.replace(source, encoded=encoded)
    with pytest.raises(ValueError, match="Cache file X is damaged"):
        superblocks(name, source)
    assert capfd.readouterr().err == ""


@pytest.mark.row("F24")
def test_memory_loader_leaves_no_threads(source):
    before = threading.active_count()
    epoch = epoch_superblocks("memory", source, 0, size=16, workers=3)
    next(epoch)
    epoch.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("num_tokens", "interval"), [(1024 * 64, 16), (1024 * 64 - 1, 1), (0, 1)]
)
def test_loss_interval_is_16_from_1024_updates_an_epoch(num_tokens, interval):
    assert loss_interval(num_tokens, 64) == interval
    assert oracle_interval(num_tokens, 64) == interval


@pytest.mark.parametrize(
    ("tokens", "per_update", "size"),
    [
        (1e9, 1024, 64),
        (1e9, 64, 1024),
        (1e9, 10**6, 16),
        (0, 64, 16),
        (100 * 64, 64, 112),
    ],
)
def test_superblock_size_is_64k_tokens_or_a_small_epoch(tokens, per_update, size):
    # 6400 tokens: (6400 + 4 * 80) / 64 + 1 = 106 updates, up to a multiple of 16.
    assert superblock_size(tokens, per_update) == size
