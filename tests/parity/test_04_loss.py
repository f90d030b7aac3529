import itertools

import pytest

from migration.parity.updates import loss_stage
from tests.parity.cases import CASES, assert_pass

ARCHITECTURES = ["skipgram", "cbow"]


def each_case(first: int):
    """Every case, by the architectures in turn."""
    turns = itertools.islice(itertools.cycle(ARCHITECTURES), first, None)
    return pytest.mark.parametrize(
        ("case", "architecture"),
        [*zip(CASES, turns, strict=False)],
        ids=lambda each: getattr(each, "name", each),
    )


@pytest.mark.spread(3)
@each_case(0)
def test_loss_is_that_of_the_oracle_and_of_the_equation(case, architecture):
    assert_pass(loss_stage(case.sample(architecture)))


@pytest.mark.slow
@each_case(1)
def test_loss_is_so_for_the_other_architecture(case, architecture):
    assert_pass(loss_stage(case.sample(architecture)))


@pytest.mark.slow
@each_case(0)
def test_loss_is_so_in_float32(case, architecture):
    assert_pass(loss_stage(case.sample(architecture, "float32")))
