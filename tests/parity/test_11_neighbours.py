import pytest

from embedder.config import Config, with_options
from migration.parity.training import neighbours_stage
from tests.parity.cases import assert_pass


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_neighbours_are_those_of_the_oracle(sequences, dtype):
    config = with_options(Config(), vector_size=8, min_count=2, dtype=dtype)
    assert_pass(neighbours_stage(config, sequences))


def test_fewer_tokens_than_neighbours_asked_for():
    config = with_options(Config(), vector_size=4, min_count=1)
    assert_pass(neighbours_stage(config, [["a", "b", "c"]] * 5))
