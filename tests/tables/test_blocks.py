"""Blocks: pure functions of (seed, epoch, shard), worked by hand from the draws."""

import functools

import jax
import numpy as np
import pytest

from embedder.tables.blocks import BlockShape, BlockSource, Updates, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.encoded import Encoded

SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)


@pytest.fixture
def encoded(monkeypatch, sequences) -> Encoded:
    """Several shards of the sequences."""
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    return encode(sequences_corpus(sequences), 1)


def source(encoded: Encoded, **changes) -> BlockSource:
    settings = dict(sample=0.0, ns_exponent=0.75, seed=1, epochs=range(2))
    shape = changes.pop("shape", SHAPE)
    return block_source(encoded, shape, **(settings | changes))


def assert_same(actual: Updates, desired: Updates) -> None:
    assert_equal = functools.partial(np.testing.assert_array_equal, strict=True)
    jax.tree.map(assert_equal, actual, desired)


def test_updates_have_the_shapes_and_dtypes_they_say(encoded):
    updates = source(encoded).updates(0, 0)
    num = updates.num_updates
    expected = {
        "ids": ("int32", (num, 2, 8)),
        "sequence": ("int32", (num, 2, 8)),
        "radius": ("int8", (num, 2, 8)),
        "noise": ("int32", (num, 2, 2, 5)),
        "position": ("int64", (num, 3)),
        "progress": ("float64", (num,)),
    }
    for name, (dtype, shape) in expected.items():
        array = (updates.blocks._asdict() | updates._asdict())[name]
        assert (array.dtype, array.shape) == (np.dtype(dtype), shape), name


def test_last_update_is_filled_with_empty_blocks(encoded):
    made = source(encoded, shape=SHAPE._replace(blocks_per_update=7))
    updates = made.updates(0, 0)
    num_blocks = -(-int(encoded.shard_tokens[made.shard_order(0)[0]]) // 8)
    assert updates.num_updates == -(-num_blocks // 7)
    empty = -num_blocks % 7
    assert 0 < empty < 7
    assert (updates.blocks.sequence[-1, -empty:] == -1).all()
    assert not updates.blocks.noise[-1, -empty:].any()


def test_epoch_visits_every_shard_once(encoded):
    made = source(encoded)
    num_shards = len(encoded.shard_tokens)
    assert num_shards > 3
    for epoch in range(2):
        assert sorted(made.shard_order(epoch)) == list(range(num_shards))
        counts = np.zeros(len(encoded.vocabulary), np.int64)
        for place in range(num_shards):
            updates = made.updates(epoch, place)
            counts += np.bincount(
                updates.blocks.ids[updates.blocks.sequence >= 0], minlength=len(counts)
            )
        np.testing.assert_array_equal(counts, encoded.vocabulary.counts)


def test_position_is_epoch_place_and_first_block(encoded):
    position = source(encoded).updates(1, 2).position
    assert (position[:, :2] == [1, 2]).all()
    assert position[:, 2].tolist() == list(range(0, 2 * len(position), 2))


def test_progress_by_hand():
    encoded = encode(sequences_corpus([["a"] * 32]), 1)
    made = source(encoded, epochs=range(3, 5))
    # 4 blocks, 2 an update: 0 and 1/2 of the first of two epochs, then of the second.
    assert made.updates(3, 0).progress.tolist() == [0.0, 0.25]
    assert made.updates(4, 0).progress.tolist() == [0.5, 0.75]


def test_progress_counts_the_shards_before(encoded):
    made = source(encoded)
    order, tokens = made.shard_order(0), encoded.shard_tokens
    expected = tokens[order[:2]].sum() / tokens.sum() / 2
    assert made.updates(0, 2).progress[0] == pytest.approx(expected, rel=1e-15)


def test_shard_of_which_nothing_is_kept_has_no_updates():
    encoded = encode(sequences_corpus([["a", "b"]]), 1)
    assert source(encoded, sample=1e-300).updates(0, 0).num_updates == 0


def test_tokens_of_one_are_blocks_of_padding_but_one():
    encoded = encode(sequences_corpus([["a"]]), 1)
    updates = source(encoded).updates(0, 0)
    assert updates.num_updates == 1 and (updates.blocks.sequence >= 0).sum() == 1


@pytest.mark.parametrize("per_update", [1, 2, 3])
def test_a_share_is_those_blocks_of_the_whole_updates(encoded, per_update):
    shape = SHAPE._replace(blocks_per_update=per_update)
    whole = source(encoded, shape=shape).updates(1, 0)
    for share in (range(0, 1), range(per_update - 1, per_update), range(per_update)):
        part = source(encoded, shape=shape, share=share).updates(1, 0)
        for name in ("ids", "sequence", "radius", "noise"):
            expected = getattr(whole.blocks, name)[:, share.start : share.stop]
            actual = getattr(part.blocks, name)
            np.testing.assert_array_equal(actual, expected, strict=True)
        np.testing.assert_array_equal(part.progress, whole.progress)


def test_a_share_beyond_the_blocks_of_an_update_is_empty(encoded):
    updates = source(encoded, share=range(1, 4)).updates(0, 0)
    assert updates.blocks.ids.shape[1] == 3
    assert (updates.blocks.sequence[:, 1:] == -1).all()
    for name in ("ids", "radius", "noise"):
        assert not getattr(updates.blocks, name)[:, 1:].any()
