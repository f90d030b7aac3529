import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration.parity.data import distributions_stage
from tests.parity.cases import assert_pass

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
    assert_pass(distributions_stage(counts.astype(np.int64), sample, exponent))


@given(
    counts=st.lists(st.integers(1, 10**12), min_size=1, max_size=50),
    sample=st.floats(0, 1),
    exponent=st.floats(-2, 2),
)
def test_tables_of_any_counts_are_those_of_the_oracle(counts, sample, exponent):
    ordered = np.sort(np.array(counts, np.int64))[::-1]
    assert_pass(distributions_stage(ordered, sample, exponent))
