import itertools

import pytest

from migration.parity.updates import loss_stage
from tests.parity.cases import CASES, assert_pass

TURNS, OTHERS = (
    [*zip(CASES, itertools.cycle(architectures), strict=False)]
    for architectures in (["skipgram", "cbow"], ["cbow", "skipgram"])
)
SLOW = [(*x, "float64") for x in OTHERS] + [(*x, "float32") for x in TURNS]


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("case", "architecture", "dtype"),
    [(*x, "float64") for x in TURNS]
    + [pytest.param(*cell, marks=pytest.mark.slow) for cell in SLOW],
    ids=lambda each: getattr(each, "name", each),
)
def test_loss_is_that_of_the_oracle_and_of_the_equation(case, architecture, dtype):
    assert_pass(loss_stage(case.sample(architecture, dtype)))
