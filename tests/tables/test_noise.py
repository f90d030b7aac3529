"""Noise ids: the alias table, and draws from it."""

import numpy as np
import pytest

from embedder.tables.noise import NoiseTable, draw_noise, noise_table


def test_table_by_hand():
    # Weights 1, 2, 3 of 6, times 3: 1/2, 1, 3/2. Column 0 takes 1/2 from id 2.
    table = noise_table(np.array([1, 2, 3]), 1.0)
    assert table.limit.dtype == np.uint32 and table.alias.dtype == np.int32
    assert table.limit.tolist() == [2**31 - 1, 2**32 - 1, 2**32 - 1]
    assert table.alias.tolist() == [2, 1, 2]


def test_exponent_0_is_uniform():
    assert noise_table(np.array([9, 4, 1]), 0.0).limit.tolist() == [2**32 - 1] * 3


def test_vocabulary_of_one_is_always_drawn():
    table = noise_table(np.array([7]), 0.75)
    assert draw_noise(table, 5, np.random.default_rng(0)).tolist() == [0] * 5


@pytest.mark.parametrize("exponent", [0.75, -0.5])
def test_table_has_the_distribution(exponent):
    counts = np.array([1000, 300, 300, 20, 5, 1])
    table = noise_table(counts, exponent)
    own = (table.limit + 1.0) / 2**32
    share = own.copy()
    np.add.at(share, table.alias, 1 - own)
    weights = counts**exponent
    np.testing.assert_allclose(share / 6, weights / weights.sum(), atol=1e-9)


@pytest.mark.parametrize("exponent", [1000.0, -1000.0])
def test_weights_out_of_range_are_refused(exponent):
    with pytest.raises(ValueError, match=f"`ns_exponent` must leave .* got {exponent}"):
        noise_table(np.array([5, 7]), exponent)


def test_draw_takes_the_alias_above_the_limit():
    table = NoiseTable(np.array([0, 0], np.uint32), np.array([7, 8], np.int32))
    drawn = draw_noise(table, 1000, np.random.default_rng(0))
    assert drawn.dtype == np.int32 and set(drawn.tolist()) == {7, 8}


def test_draw_takes_all_columns_before_all_coins():
    table = noise_table(np.array([1, 2, 3]), 1.0)
    rng = np.random.default_rng(3)
    column = rng.integers(0, 3, size=50, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=50, dtype=np.uint32)
    expected = np.where(coin <= table.limit[column], column, table.alias[column])
    drawn = draw_noise(table, 50, np.random.default_rng(3))
    assert drawn.tolist() == expected.tolist()
