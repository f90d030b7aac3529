import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedder.data import encode
from embedder.data.blocks import BlockShape, Sampling, block_source
from embedder.data.corpus import sequences_corpus
from embedder.tokens import loader
from migration.parity.data import blocks_stage
from tests.parity.cases import assert_pass

assert_equal = functools.partial(np.testing.assert_array_equal, strict=True)
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
        monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 1500)
        return source_of(sequences, shape, sample, seed)

    return make


def source_of(sequences, shape, sample, seed, min_count=2):
    encoded = encode.encode(sequences_corpus(sequences), min_count)
    sampling = Sampling(sample, 0.75)
    return block_source(encoded, shape, sampling, seed=seed, epochs=range(3))


def assert_same_blocks(source, kind, workers=2):
    assert_pass(
        blocks_stage(
            source, kind, size=16, workers=workers, alpha=0.035, min_alpha=1e-4
        )
    )


@pytest.mark.parametrize("kind", ["tfdata", "memory"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("sample", [0, 1e-2])
@pytest.mark.parametrize("seed", [2**64 - 1, pytest.param(0, marks=pytest.mark.slow)])
def test_blocks_and_rates_are_those_of_the_oracle(
    make_source, kind, shape, sample, seed
):
    source = make_source(shape, sample, seed)
    assert len(source.encoded.shard_tokens) == 5
    assert_same_blocks(source, kind)


@settings(max_examples=50)
@given(
    sequences=st.lists(st.lists(st.sampled_from("abcdefg"), max_size=30), min_size=1),
    window=st.integers(1, 127),
    tile=st.integers(1, 5),
    tiles=st.integers(1, 5),
    noise=st.integers(1, 6),
    blocks=st.integers(1, 4),
    sample=st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
)
def test_any_blocks_are_those_of_the_oracle(
    sequences, window, tile, tiles, noise, blocks, sample, seed
):
    shape = BlockShape(window, tile * tiles, tile, noise, blocks)
    source = source_of([["a"], *sequences], shape, sample, seed, min_count=1)
    assert_same_blocks(source, "memory")


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.tfdata
def test_both_loaders_yield_the_same_chunks(make_source, shape, workers):
    source = make_source(shape)
    for epoch in source.epochs:
        options = {"size": 16, "workers": workers}
        memory = loader.epoch_chunks("memory", source, epoch, **options)
        tfdata = loader.epoch_chunks("tfdata", source, epoch, **options)
        for (actual, num_actual), (desired, num_desired) in zip(
            tfdata, memory, strict=True
        ):
            assert num_actual == num_desired
            jax.tree.map(assert_equal, actual, desired)
