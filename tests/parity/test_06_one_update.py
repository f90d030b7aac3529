import functools
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.parity.updates import updates_stage
from tests.parity.cases import CASES, UPDATES, Case, assert_pass

ARCHITECTURES = ["skipgram", "cbow"]
OPTIMIZERS = ["sgd", "adagrad"]
FEW = [case for case in CASES if case.name in ("tiled", "several_blocks")]
one_update_stage = functools.partial(updates_stage, "one update")


@pytest.mark.spread(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tables_are_those_of_the_oracle(case, architecture):
    assert_pass(one_update_stage(case.sample(architecture)))


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("case", "architecture"),
    [*zip(CASES, itertools.cycle(ARCHITECTURES), strict=False)],
    ids=lambda each: getattr(each, "name", each),
)
def test_tables_by_adagrad_are_those_of_the_oracle(case, architecture):
    assert_pass(one_update_stage(case.sample(architecture, optimizer="adagrad")))


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
@pytest.mark.parametrize(
    "architecture", ["skipgram", pytest.param("cbow", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "options",
    [
        {"update": "dense"},
        {"update": "kernel"},
        {"cap": math.inf},
        {"dtype": "float32"},
        {"optimizer": "adagrad", "update": "dense"},
        {"optimizer": "adagrad", "update": "kernel"},
        {"optimizer": "adagrad", "dtype": "float32"},
        {"optimizer": "adagrad", "dtype": "float32", "update": "kernel"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_tables_are_those_of_the_oracle_in_every_way(case, architecture, options):
    assert_pass(one_update_stage(case.sample(architecture, **options)))


@pytest.mark.slow
@settings(max_examples=16)
@given(
    num_rows=st.integers(1, 30),
    num_blocks=st.integers(1, 3),
    num_tiles=st.integers(1, 3),
    tile=st.integers(1, 5),
    noise=st.integers(1, 7),
    window=st.integers(1, 12),
    sequence_length=st.integers(1, 15),
    architecture=st.sampled_from(ARCHITECTURES),
    update=st.sampled_from(list(UPDATES)),
    dtype=st.sampled_from(["float64", "float32"]),
    cap=st.sampled_from([0.5, 2.5, math.inf]),
    optimizer=st.sampled_from(OPTIMIZERS),
    data=st.data(),
)
def test_any_update_is_that_of_the_oracle(
    num_rows,
    num_blocks,
    num_tiles,
    tile,
    noise,
    window,
    sequence_length,
    architecture,
    update,
    dtype,
    cap,
    optimizer,
    data,
):
    block = num_tiles * tile
    padding = data.draw(st.integers(0, block))
    size = (1, num_blocks, block)
    case = Case("any", num_rows, size, tile, noise, window, sequence_length, padding)
    sample = case.sample(
        architecture, dtype, update=update, cap=cap, optimizer=optimizer
    )
    assert_pass(one_update_stage(sample))
