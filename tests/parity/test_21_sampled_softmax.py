"""CBOW by a sampled softmax with near contexts counting more: stages of updates."""

import itertools
import math

import pytest

from migration.parity import updates
from tests.parity.cases import CASES, Case, assert_pass

MANY = Case("many", 200, (100, 2, 32), tile=8, noise=6, window=5, padding=11)
TREE, ALONE = {"hs": True}, {"hs": True, "negative": 0}


def sample(case: Case, **options) -> updates.Sample:
    return case.sample(architecture="cbow-softmax", **options)


def cases_with(*options, times: int = 1):
    """Each case so often, with one of the options; the first is fast."""
    pairs = zip(times * CASES, itertools.cycle(options), strict=False)
    slow = itertools.chain([()], itertools.repeat(pytest.mark.slow))
    every = [
        pytest.param(case, each, id=f"{case.name}-{each}", marks=marks)
        for (case, each), marks in zip(pairs, slow, strict=False)
    ]
    return pytest.mark.parametrize(("case", "options"), every)


@cases_with({}, TREE, {}, ALONE)
def test_loss_is_that_of_the_oracle_and_of_the_equation(case, options):
    assert_pass(updates.loss_stage(sample(case, **options)))


@cases_with({}, TREE, {}, ALONE)
def test_gradients_and_weights_are_those_of_the_oracle(case, options):
    assert_pass(updates.gradients_stage(sample(case, **options)))


@cases_with({}, {"update": "dense"}, TREE, {"optimizer": "adagrad"}, times=2)
def test_tables_are_those_of_the_oracle(case, options):
    assert_pass(updates.updates_stage("one update", sample(case, **options)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                *({"update": "dense"}, {"cap": math.inf}, {"dtype": "float32"}),
                *({"optimizer": "adagrad"}, TREE, {"subwords": (2, 3)}),
            )
        ),
    ],
    ids=str,
)
def test_tables_after_100_updates_are_those_of_the_oracle(options):
    assert_pass(updates.updates_stage("100 updates", sample(MANY, **options)))
