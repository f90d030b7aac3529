import dataclasses

import numpy as np
import pytest

from embedder.data import encode, loader
from embedder.data.blocks import BlockShape, block_source
from embedder.data.corpus import sequences_corpus
from tests.parity.rungs import assert_same, compare_blocks

SHAPES = {
    "tiled": BlockShape(window=5, block=64, tile=16, noise=8, blocks_per_update=1),
    "classic": BlockShape(window=5, block=64, tile=1, noise=5, blocks_per_update=1),
    "several_blocks": BlockShape(
        window=2, block=16, tile=16, noise=3, blocks_per_update=4
    ),
}


@pytest.fixture
def make_source(monkeypatch, sequences):
    """A source of several shards."""

    def make(shape, sample=1e-2, seed=3):
        monkeypatch.setattr(encode, "SHARD_TOKENS", 1500)
        encoded = encode.encode(sequences_corpus(sequences), 2)
        return block_source(
            encoded,
            shape,
            sample=sample,
            ns_exponent=0.75,
            seed=seed,
            epochs=range(3),
        )

    return make


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("sample", [0, 1e-2])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_blocks_and_rates_are_those_of_the_oracle(make_source, shape, sample, seed):
    source = make_source(shape, sample, seed)
    assert len(source.encoded.shard_tokens) == 5
    compare_blocks(source, alpha=0.035, min_alpha=1e-4)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("workers", [1, 3])
def test_both_loaders_yield_the_same_superblocks(make_source, shape, workers):
    source = make_source(shape)
    for epoch in source.epochs:
        options = {"size": 16, "workers": workers}
        memory = loader.epoch_superblocks("memory", source, epoch, **options)
        tfdata = loader.epoch_superblocks("tfdata", source, epoch, **options)
        num_updates = 0
        for (actual, num_actual), (desired, num_desired) in zip(
            tfdata, memory, strict=True
        ):
            assert num_actual == num_desired
            for values, expected in zip(actual, desired, strict=True):
                assert_same(values, expected)
            num_updates += num_actual
        places = range(len(source.encoded.shard_tokens))
        assert num_updates == sum(len(source.updates(epoch, p)) for p in places)


def test_superblocks_are_the_updates_of_the_shards_in_order(make_source):
    source = make_source(SHAPES["several_blocks"])
    superblocks = loader.epoch_superblocks("memory", source, 1, size=16, workers=2)
    ids = np.concatenate([updates.ids[:num] for updates, num in superblocks])
    places = range(len(source.encoded.shard_tokens))
    assert_same(ids, np.concatenate([source.updates(1, p).ids for p in places]))


def test_a_shard_is_a_pure_function_of_its_position(make_source):
    source = make_source(SHAPES["tiled"])
    first = source.updates(1, 2)
    source.updates(0, 0)
    for values, expected in zip(source.updates(1, 2), first, strict=True):
        assert_same(values, expected)
    other = dataclasses.replace(source, seed=4).updates(1, 2)
    assert not np.array_equal(other.noise[:10], first.noise[:10])
