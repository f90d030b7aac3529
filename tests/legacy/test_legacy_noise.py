import numpy as np
import pytest

from legacy.noise import NoiseTable, build_noise_table, draw_noise

COUNTS = {
    "zipf": (1e6 / np.arange(1, 1001)).astype(np.int64),
    "equal": np.full(7, 3),
    "one": np.array([12]),
    "one_dominates": np.array([10**9, 1, 1, 1]),
    "two": np.array([2, 1]),
}


@pytest.mark.parametrize("exponent", [0.75, 0.0, 1.0, -0.5])
@pytest.mark.parametrize("name", COUNTS)
def test_noise_table_reproduces_the_distribution(name, exponent):
    counts = COUNTS[name]
    table = build_noise_table(counts, exponent)
    own = (table.limit + 1.0) / 2**32  # exact in float64
    drawn = own + np.bincount(table.alias, 1 - own, minlength=counts.size)
    expected = counts.astype(float) ** exponent
    expected *= counts.size / expected.sum()
    # Each of the columns that give an id is off by half of 2**-32 at most.
    num_columns = 1 + np.bincount(table.alias, minlength=counts.size)
    assert (np.abs(drawn - expected) <= 2**-32 * num_columns + 1e-12).all()


def test_noise_table_by_hand():
    # Weights 1, 2, 3 of 6, times V = 3: 1/2, 1, 3/2. Column 0 takes 1/2 of id 2.
    table = build_noise_table(np.array([1, 2, 3]), 1.0)
    assert table.limit.dtype == np.uint32 and table.alias.dtype == np.int32
    assert table.limit.tolist() == [2**31 - 1, 2**32 - 1, 2**32 - 1]
    assert table.alias.tolist() == [2, 1, 2]


@pytest.mark.parametrize("exponent", [1000.0, -1000.0])
def test_noise_table_out_of_range(exponent):
    with pytest.raises(ValueError, match="`ns_exponent` must leave"):
        build_noise_table(np.array([5, 7]), exponent)


def test_draw_noise_takes_the_alias_above_the_limit():
    table = NoiseTable(np.array([0, 0], np.uint32), np.array([7, 8], np.int32))
    # A coin is 0 once in 2**32 draws: all come from the aliases.
    assert set(draw_noise(table, np.random.default_rng(0), 1000)) == {7, 8}


def test_draw_noise_is_reproducible():
    table = build_noise_table(COUNTS["zipf"], 0.75)
    first, second = (draw_noise(table, np.random.default_rng(3), 500) for _ in "ab")
    assert first.dtype == np.int32
    np.testing.assert_array_equal(first, second)
    # The bits of these draws are a promise: other programs make the same.
    rng = np.random.default_rng(3)
    column = rng.integers(0, 1000, size=500, dtype=np.uint32)
    coin = rng.integers(0, 2**32, size=500, dtype=np.uint32)
    for id_, i, c in zip(first, column, coin, strict=True):
        assert id_ == (i if c <= table.limit[i] else table.alias[i])
