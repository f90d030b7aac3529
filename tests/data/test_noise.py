"""Noise ids: the alias table, and draws from it."""

import numpy as np
import pytest

from embedder.data.blocks import NoiseTable, draw_noise, noise_table

COUNTS = {
    "zipf": (1e6 / np.arange(1, 1001)).astype(np.int64),
    "equal": np.full(7, 3),
    "one": np.array([12]),
    "one_dominates": np.array([10**9, 1, 1, 1]),
    "two": np.array([2, 1]),
}


def test_table_by_hand():
    # Weights 1, 2, 3 of 6, times V = 3: 1/2, 1, 3/2. Column 0 takes 1/2 of id 2.
    table = noise_table(np.array([1, 2, 3]), 1.0)
    assert table.limit.dtype == np.uint32 and table.alias.dtype == np.int32
    assert table.limit.tolist() == [2**31 - 1, 2**32 - 1, 2**32 - 1]
    assert table.alias.tolist() == [2, 1, 2]


@pytest.mark.parametrize("exponent", [0.75, 0.0, 1.0, -0.5])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_table_holds_the_distribution(counts, exponent):
    table = noise_table(counts, exponent)
    own = (table.limit + 1.0) / 2**32  # exact in float64
    drawn = own + np.bincount(table.alias, 1 - own, minlength=counts.size)
    expected = counts.astype(float) ** exponent
    expected *= counts.size / expected.sum()
    # Each of the columns that give an id is off by half of 2**-32 at most.
    num_columns = 1 + np.bincount(table.alias, minlength=counts.size)
    assert (np.abs(drawn - expected) <= 2**-32 * num_columns + 1e-12).all()


def test_draw_takes_the_alias_above_the_limit():
    table = NoiseTable(np.array([0, 0], np.uint32), np.array([7, 8], np.int32))
    # A coin is 0 once in 2**32 draws: all come from the aliases.
    drawn = draw_noise(table, 1000, np.random.default_rng(0))
    assert drawn.dtype == np.int32 and set(drawn.tolist()) == {7, 8}


def test_draw_takes_all_columns_before_all_coins():
    """The bits of these draws are a promise: other programs make the same."""
    table = noise_table(COUNTS["zipf"], 0.75)
    rng = np.random.default_rng(3)
    column = rng.integers(0, 1000, size=500, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=500, dtype=np.uint32)
    expected = np.where(coin <= table.limit[column], column, table.alias[column])
    drawn = draw_noise(table, 500, np.random.default_rng(3))
    assert drawn.tolist() == expected.tolist()
