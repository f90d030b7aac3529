import functools

import numpy as np
import pytest

from migration.parity import equations
from migration.parity.updates import gradients_stage, oracle_rows
from tests.parity.cases import CASES, NEGATIVE, Case, assert_pass

ARCHITECTURES = ["skipgram", "cbow"]
SMALL = [
    Case("tiled", 6, (1, 1, 8), tile=4, noise=3, sequence_length=5),
    Case("classic", 6, (1, 1, 8), tile=1, noise=NEGATIVE, sequence_length=5),
    Case("two_blocks", 3, (1, 2, 4), tile=2, noise=3, padding=1),
]


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


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_entry_of_a_gradient_is_the_finite_difference(case, architecture):
    """The third way, entry by entry; the second, autodiff, is compared above."""
    sample = case.sample(architecture)
    blocks = sample.blocks(0)
    rows = (
        sample.input[blocks.ids],
        sample.output[blocks.ids],
        sample.output[blocks.noise],
    )
    loss = functools.partial(
        equations.loss, blocks, architecture=architecture, negative=NEGATIVE
    )
    gradients = oracle_rows(sample).terms.gradients
    for which, gradient in enumerate(gradients):
        for place in np.ndindex(gradient.shape):
            directions = [np.zeros(values.shape) for values in rows]
            directions[which][place] = 1
            desired = equations.derivative_along(loss, rows, directions)
            assert gradient[place] == pytest.approx(desired, rel=1e-12, abs=1e-12)
