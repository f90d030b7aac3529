import math

import pytest

from migration.parity.updates import updates_rung
from tests.parity.cases import NEGATIVE, Case, assert_pass

TILED = Case("tiled", 200, (100, 1, 64), tile=16, noise=8, window=5, padding=30)
CLASSIC = Case("classic", 200, (100, 1, 32), tile=1, noise=NEGATIVE, window=5)
SEVERAL_BLOCKS = Case("several_blocks", 50, (100, 3, 32), tile=8, noise=8, window=5)


@pytest.mark.parametrize(
    "architecture", ["skipgram", pytest.param("cbow", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("case", "update", "cap"),
    [
        (TILED, "rows", 8.0),
        (CLASSIC, "rows", 8.0),
        (SEVERAL_BLOCKS, "rows", 8.0),
        (TILED, "rows", math.inf),
        (TILED, "dense", 8.0),
        (TILED, "kernel", 8.0),
        (CLASSIC, "kernel", 8.0),
        (SEVERAL_BLOCKS, "kernel", math.inf),
    ],
    ids=[
        *("tiled", "classic", "several_blocks", "no_cap", "dense"),
        *("kernel", "classic_kernel", "several_blocks_kernel"),
    ],
)
def test_tables_are_those_of_the_oracle(case, architecture, dtype, update, cap):
    sample = case.sample(architecture, dtype, update=update, cap=cap)
    assert_pass(updates_rung("100 updates", sample))
