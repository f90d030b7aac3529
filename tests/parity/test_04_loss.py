import pytest

from migration.parity.updates import loss_rung
from tests.parity.cases import CASES, assert_pass


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)]
)
def test_loss_is_that_of_the_oracle_and_of_the_equation(case, architecture, dtype):
    assert_pass(loss_rung(case.sample(architecture, dtype)))
