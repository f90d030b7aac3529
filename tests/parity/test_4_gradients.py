import numpy as np
import pytest

from tests.parity import reference
from tests.parity.cases import CASES, NEGATIVE, Case, blocks_of
from tests.parity.rungs import compare_gradients, oracle_terms
from tests.parity.tolerances import TOLERANCE

ARCHITECTURES = ["skipgram", "cbow"]
SMALL = [
    Case("tiled", 6, (1, 1, 8), tile=4, noise=3, sequence_length=5),
    Case("classic", 6, (1, 1, 8), tile=1, noise=NEGATIVE, sequence_length=5),
    Case("two_blocks", 3, (1, 2, 4), tile=2, noise=3, padding=1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_loss_gradients_and_weights_are_those_of_the_oracle(case, architecture, dtype):
    compare_gradients(case, architecture, dtype)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_three_ways_agree(case, architecture):
    """Autodiff = hand-derived = finite differences of the equation itself."""
    compare_gradients(case, architecture, "float64")
    input, output = case.tables("float64")
    terms, loss, _ = oracle_terms(case, architecture, input, output)
    blocks = blocks_of(case.updates(), 0)
    v = input[blocks.ids]
    u = output[blocks.ids], output[blocks.noise]
    options = {"architecture": architecture, "negative": NEGATIVE}
    tolerance = TOLERANCE["gradient", "float64"]
    np.testing.assert_allclose(
        loss, reference.loss(blocks, v, u, **options), **tolerance
    )
    for gradient, function, x in (
        (terms.gradients.input, lambda x: reference.loss(blocks, x, u, **options), v),
        (
            terms.gradients.output,
            lambda x: reference.loss(blocks, v, (x, u[1]), **options),
            u[0],
        ),
        (
            terms.gradients.noise,
            lambda x: reference.loss(blocks, v, (u[0], x), **options),
            u[1],
        ),
    ):
        desired = reference.derivative(function, x)
        np.testing.assert_allclose(gradient, desired, **tolerance)
