import math

import pytest

from migration.parity.updates import updates_stage
from tests.parity.cases import NEGATIVE, Case, assert_pass

TILED = Case("tiled", 200, (100, 1, 64), tile=16, noise=8, window=5, padding=30)
CLASSIC = Case("classic", 200, (100, 1, 32), tile=1, noise=NEGATIVE, window=5)
SEVERAL_BLOCKS = Case("several_blocks", 50, (100, 3, 32), tile=8, noise=8, window=5)

CAPPED = {"cap": 8.0}
ADAGRAD = {"optimizer": "adagrad"}


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        ("skipgram", "float64"),
        pytest.param("cbow", "float64", marks=pytest.mark.slow),
        pytest.param("skipgram", "float32", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("case", "update", "rule"),
    [
        (TILED, "rows", CAPPED),
        (CLASSIC, "rows", CAPPED),
        (SEVERAL_BLOCKS, "rows", CAPPED),
        (TILED, "rows", {"cap": math.inf}),
        (TILED, "dense", CAPPED),
        (TILED, "kernel", CAPPED),
        (CLASSIC, "kernel", CAPPED),
        (SEVERAL_BLOCKS, "kernel", {"cap": math.inf}),
        (TILED, "rows", ADAGRAD),
        (CLASSIC, "rows", ADAGRAD),
        (SEVERAL_BLOCKS, "rows", ADAGRAD),
        (TILED, "dense", ADAGRAD),
        (TILED, "kernel", ADAGRAD),
        (CLASSIC, "kernel", ADAGRAD),
        (SEVERAL_BLOCKS, "kernel", ADAGRAD),
    ],
    ids=[
        *("tiled", "classic", "several_blocks", "no_cap", "dense"),
        *("kernel", "classic_kernel", "several_blocks_kernel"),
        *("adagrad", "classic_adagrad", "several_blocks_adagrad", "dense_adagrad"),
        *("kernel_adagrad", "classic_kernel_adagrad", "several_blocks_kernel_adagrad"),
    ],
)
def test_tables_are_those_of_the_oracle(case, architecture, dtype, update, rule):
    sample = case.sample(architecture, dtype, update=update, **rule)
    assert_pass(updates_stage("100 updates", sample))
