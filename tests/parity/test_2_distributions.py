import numpy as np
import pytest

from tests.parity.rungs import compare_distributions

COUNTS = {
    "zipf": 1_000_000 // np.arange(1, 5001),
    "equal": np.full(100, 7),
    "one_word": np.array([5]),
    "one_word_has_99_percent": np.array([9900, 50, 30, 20]),
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS.keys())
@pytest.mark.parametrize("sample", [0, 1e-5, 1e-3, 1])
@pytest.mark.parametrize("exponent", [0.75, 0.0, 1.0, -0.5])
def test_keep_and_noise_tables_are_those_of_the_oracle(counts, sample, exponent):
    compare_distributions(counts.astype(np.int64), sample, exponent)
