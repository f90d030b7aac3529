"""CBOW by sums of contexts: every stage with them, and with what goes with CBOW."""

import functools
import itertools
import math

import pytest

from embedder.config import Config, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from migration.parity import continued, equations, replicas, training, updates
from tests.parity.cases import CASES, Case, assert_pass

MANY = Case("many", 200, (100, 2, 32), tile=8, noise=6, window=5, padding=11)
SMALL = {"loader": "memory", "vector_size": 8, "min_count": 2, "block": 32}
SUMS = {"architecture": "cbow", "cbow_mean": False}
TREE, ALONE = {"hs": True}, {"hs": True, "negative": 0}


def cells(*values):
    """The first cell; the others are slow."""
    return [
        pytest.param(each, marks=[pytest.mark.slow] if number else [])
        for number, each in enumerate(values)
    ]


def small(**options) -> Config:
    return with_options(Config(), **SMALL | SUMS | {"dtype": "float64"} | options)


def sample(case: Case, **options) -> updates.Sample:
    return case.sample(**SUMS | options)


def cases_with(*options, times: int = 1):
    """Each case so often, with one of the options after the other; the first is fast.

    Of means `test_06_one_update.py` has each case by each architecture, and
    `test_17_hierarchical.py` each with and without negative sampling.
    """
    pairs = zip(times * CASES, itertools.cycle(options), strict=False)
    slow = itertools.chain([()], itertools.repeat(pytest.mark.slow))
    every = [
        pytest.param(case, each, id=f"{case.name}-{each}", marks=marks)
        for (case, each), marks in zip(pairs, slow, strict=False)
    ]
    return pytest.mark.parametrize(("case", "options"), every)


@cases_with({}, TREE, ALONE)
def test_loss_is_that_of_the_oracle_and_of_the_equation(case, options):
    assert_pass(updates.loss_stage(sample(case, **options)))


@cases_with({}, TREE, ALONE)
def test_gradients_and_weights_are_those_of_the_oracle(case, options):
    assert_pass(updates.gradients_stage(sample(case, **options)))


def test_the_equation_has_other_gradients_than_that_of_means():
    """Or the stages above would not see the difference."""
    given = sample(CASES[0])
    blocks = given.blocks(0)
    loss = functools.partial(
        *(equations.loss, blocks, given.input[blocks.ids]),
        *(given.output[blocks.ids], given.output[blocks.noise]),
        **{"architecture": "cbow", "negative": 5},
    )
    assert abs(loss(cbow_mean=False) - loss()) > 1


@cases_with(
    *[{"update": "kernel"}, {}, {"update": "dense"}, TREE],
    *[ALONE | {"update": "kernel"}, TREE | {"update": "kernel"}],
    times=2,
)
def test_tables_are_those_of_the_oracle(case, options):
    assert_pass(updates.updates_stage("one update", sample(case, **options)))


@pytest.mark.parametrize(
    "options",
    cells(
        *[{"update": "kernel"}, {}, {"update": "dense"}, {"cap": math.inf}],
        *[{"dtype": "float32"}, {"update": "kernel", "dtype": "float32"}],
        *[{"optimizer": "adagrad"}, {"update": "kernel", "optimizer": "adagrad"}],
        *[TREE, ALONE | {"update": "kernel"}, {"subwords": (2, 3)}],
        {"update": "kernel", "subwords": (2, 3)} | TREE,
    ),
    ids=str,
)
def test_tables_after_100_updates_are_those_of_the_oracle(options):
    assert_pass(updates.updates_stage("100 updates", sample(MANY, **options)))


@pytest.mark.parametrize(
    "options",
    cells(
        *[{"backend": "numba"}, {}, {"update": "dense"}, {"optimizer": "adagrad"}],
        *[{"dtype": "float32"}, TREE, ALONE | {"backend": "numba"}],
        {"subwords": (2, 4), "buckets": 300},
    ),
    ids=str,
)
def test_an_epoch_is_that_of_the_oracle(sequences, options):
    config = small(**options)
    encoded = encode(sequences_corpus(sequences), config.tables.min_count)
    assert_pass(training.epoch_stage(config, encoded, sequences))


@pytest.mark.parametrize("options", cells({}, TREE), ids=str)
def test_training_goes_on_from_a_file_of_either_program(sequences, options):
    assert_pass(training.resume_stage(small(**options), sequences))


def test_a_model_file_is_the_same_after_the_way_there_and_back(sequences):
    assert_pass(training.converters_stage(small(), sequences))


@pytest.mark.parametrize(
    ("stage", "backend"),
    [
        (replicas.replicas_stage, "numba"),
        pytest.param(replicas.bootstrap_stage, "xla", marks=pytest.mark.slow),
    ],
)
def test_replicas_are_the_models_of_the_oracle(sequences, stage, backend):
    assert_pass(stage(small(blocks_per_update=2, backend=backend), sequences))


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage",
    [continued.update_stage, continued.frozen_rows_stage],
    ids=["update", "frozen"],
)
def test_a_training_that_goes_on_is_that_of_the_oracle(sequences, stage):
    assert_pass(stage(small(), sequences))
