import pytest

from migration.parity.updates import gradients_stage
from tests.parity.cases import CASES, assert_pass


@pytest.mark.spread(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        ("skipgram", "float64"),
        pytest.param("cbow", "float64", marks=pytest.mark.slow),
        pytest.param("skipgram", "float32", marks=pytest.mark.slow),
    ],
)
def test_gradients_and_weights_are_those_of_the_oracle(case, architecture, dtype):
    assert_pass(gradients_stage(case.sample(architecture, dtype)))
