import math

import pytest

from tests.parity.cases import CASES
from tests.parity.rungs import compare_updates

FEW = [case for case in CASES if case.name in ("tiled", "several_blocks")]


def compare(case, architecture, *, dtype="float64", update="rows", cap=2.5):
    compare_updates(case, architecture, dtype, update=update, cap=cap, rung="update")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_tables_are_those_of_the_oracle(case, architecture):
    compare(case, architecture)


@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "options",
    [{"update": "dense"}, {"cap": math.inf}, {"dtype": "float32"}],
    ids=["dense", "no_cap", "float32"],
)
def test_tables_are_those_of_the_oracle_in_every_way(case, architecture, options):
    compare(case, architecture, **options)
