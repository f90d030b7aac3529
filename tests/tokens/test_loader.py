"""Blocks and chunks: in order, and whole; the same from both loaders."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from embedder.data.blocks import (
    BlockShape,
    BlockSource,
    Sampling,
    StepBatches,
    block_source,
)
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.tokens.loader import (
    choose_updates_per_call,
    cut,
    epoch_chunks,
    loss_interval,
)
from tests.commands import no_new_threads

SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)


def make_source(encoded, sample: float = 1e-2, **options) -> BlockSource:
    settings = {"seed": 1, "epochs": range(2)}
    return block_source(encoded, SHAPE, Sampling(sample, 0.75), **settings | options)


@pytest.fixture
def encoded(monkeypatch, sequences) -> Encoded:
    """Several shards of the sequences."""
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 1000)
    return encode(sequences_corpus(sequences), 1)


@pytest.fixture
def source(encoded) -> BlockSource:
    return make_source(encoded)


def chunks(name, source, *, size=16, workers=2) -> list[tuple[StepBatches, int]]:
    return list(epoch_chunks(name, source, 1, size=size, workers=workers))


def updates_of(chunks) -> StepBatches:
    """The real updates, one after another."""
    parts = [cut(updates, 0, num) for updates, num in chunks]
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def assert_same(actual: StepBatches, desired: StepBatches) -> None:
    assert_equal = functools.partial(np.testing.assert_array_equal, strict=True)
    jax.tree.map(assert_equal, actual, desired)


@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_what_comes_after_an_update_is_the_rest_of_all(name, source):
    """After the first, the last of a shard, one within a shard, and the last of all."""
    whole = updates_of(chunks(name, source))
    places = whole.position[:, 1]
    last_of_shard = int(np.flatnonzero(np.diff(places))[0])
    for done in (0, last_of_shard, last_of_shard + 3, len(whole) - 2):
        after = tuple(whole.position[done, 1:].tolist())
        rest = epoch_chunks(name, source, 1, size=16, workers=2, after=after)
        assert_same(updates_of(rest), cut(whole, done + 1, None))
    after = tuple(whole.position[-1, 1:].tolist())
    assert not list(epoch_chunks(name, source, 1, size=16, workers=2, after=after))


def test_chunks_are_full_but_the_last_which_ends_with_empty_updates(source):
    made = chunks("memory", source)
    assert all(updates.num_updates == 16 for updates, _ in made)
    assert all(num == 16 for _, num in made[:-1]) and 0 < made[-1][1] < 16
    rest = cut(*made[-1], None)
    assert (rest.blocks.sequence == -1).all() and not rest.progress.any()
    assert not any(getattr(rest.blocks, x).any() for x in ("ids", "radius", "noise"))


@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_epoch_of_which_nothing_is_kept_is_empty(name):
    encoded = encode(sequences_corpus([["a", "b"]]), 1)
    assert chunks(name, make_source(encoded, sample=1e-300)) == []
    one = make_source(encode(sequences_corpus([["a"]]), 1), sample=0.0)
    ((updates, num),) = chunks(name, one)
    assert num == 1 and (updates.blocks.sequence >= 0).sum() == 1


@pytest.mark.row("F24")
@pytest.mark.parametrize("name", ["memory", "tfdata"])
def test_error_of_a_worker_comes_to_the_caller(capfd, name, source):
    def damaged(shard):
        raise ValueError("Cache file X is damaged")

    encoded = dataclasses.replace(source.encoded, read=damaged)
    source = dataclasses.replace(source, encoded=encoded)
    with pytest.raises(ValueError, match="Cache file X is damaged"):
        chunks(name, source)
    assert capfd.readouterr().err == ""


@pytest.mark.row("F24")
def test_memory_loader_leaves_no_threads(source):
    with no_new_threads():
        epoch = epoch_chunks("memory", source, 0, size=16, workers=3)
        next(epoch)
        epoch.close()


@pytest.mark.parametrize(
    ("num_tokens", "interval"), [(1024 * 64, 16), (1024 * 64 - 1, 1), (0, 1)]
)
def test_loss_interval_is_16_from_1024_updates_an_epoch(num_tokens, interval):
    assert loss_interval(num_tokens, 64) == interval


@pytest.mark.parametrize(
    ("tokens", "per_update", "size"),
    [
        *((1e9, 1024, 64), (1e9, 64, 1024), (1e9, 10**6, 16), (0, 64, 16)),
        # 6400 tokens: (6400 + 4 * 80) / 64 + 1 = 106 updates, up to a multiple of 16.
        (100 * 64, 64, 112),
    ],
)
def test_a_chunk_is_64k_tokens_or_a_small_epoch(tokens, per_update, size):
    assert choose_updates_per_call(tokens, per_update) == size


def test_a_share_is_those_blocks_of_the_whole_updates(encoded):
    """Beyond the blocks of an update it is empty."""
    whole = make_source(encoded).updates(1, 0)
    for share in (range(0, 1), range(1, 2), range(0, 2), range(1, 4)):
        part = make_source(encoded, share=share).updates(1, 0)
        for name in ("ids", "sequence", "radius", "noise"):
            expected = getattr(whole.blocks, name)[:, share.start : share.stop]
            num, actual = expected.shape[1], getattr(part.blocks, name)
            np.testing.assert_array_equal(actual[:, :num], expected, strict=True)
            assert actual.shape[1] == len(share)
            assert (actual[:, num:] == -(name == "sequence")).all()
        np.testing.assert_array_equal(part.progress, whole.progress)
