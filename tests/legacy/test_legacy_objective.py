"""The objectives against loops over tokens and finite differences.

The losses by the equations: see the rung of the loss in `tests/parity`.
"""

import functools

import numpy as np
import pytest

from legacy import objective
from legacy.objective import Rows, pairs

FUNCTIONS = {
    "skipgram": (
        objective.skipgram,
        objective.skipgram_loss,
        objective.num_skipgram_terms,
    ),
    "cbow": (objective.cbow, objective.cbow_loss, objective.num_cbow_terms),
    "cbow_sums": (
        functools.partial(objective.cbow, mean=False),
        objective.cbow_loss,
        objective.num_cbow_terms,
    ),
}

# blocks, tokens in a block, tile, noise ids, window
SIZES = {
    "tiled": (1, 24, 8, 5, 3),
    "classic": (1, 12, 1, 5, 3),
    "one_tile": (1, 12, 12, 4, 2),
    "several_blocks": (3, 12, 4, 3, 2),
    "window_wider_than_tile": (2, 12, 2, 3, 5),
    "window_wider_than_block": (1, 6, 3, 2, 9),
    "window_of_one": (1, 8, 4, 2, 1),
    "longest_window": (1, 4, 2, 2, 127),
}
NEGATIVE = 5
DIMENSIONS = 4


class Case:
    """Random rows and pairs of some sizes; the last block ends in padding."""

    def __init__(self, name: str, dtype="float64"):
        self.name = name
        num_blocks, block, tile, noise, self.window = SIZES[name]
        rng = np.random.default_rng(2)
        self.tile = tile
        self.sequence = np.sort(rng.integers(0, 3, (num_blocks, block)))
        self.sequence = self.sequence.astype(np.int32)
        self.radius = rng.integers(1, self.window + 1, (num_blocks, block), np.int8)
        self.sequence[-1, -2:], self.radius[-1, -2:] = -1, 0
        shapes = [(num_blocks, block), (num_blocks, block)]
        shapes.append((num_blocks, block // tile, noise))
        self.rows = Rows(
            *(rng.normal(0, 1, (*shape, DIMENSIONS)).astype(dtype) for shape in shapes)
        )
        self.pairs = pairs(
            self.sequence, self.radius, tile=tile, window=self.window, dtype=dtype
        )

    def terms(self, architecture: str, rows: Rows | None = None):
        compute = FUNCTIONS[architecture][0]
        rows = rows or self.rows
        return compute(rows, self.pairs, window=self.window, negative=NEGATIVE)

    def loss(self, architecture: str, rows: Rows | None = None) -> float:
        scores = self.terms(architecture, rows).scores
        return FUNCTIONS[architecture][1](scores, self.pairs, negative=NEGATIVE)

    def contexts(self, n: int, t: int) -> list[int]:
        return [
            j
            for j in range(self.sequence.shape[1])
            if 0 < abs(t - j) <= self.radius[n, t]
            and self.sequence[n, j] == self.sequence[n, t]
        ]

    def centres(self):
        """(block, place, contexts) of all centres that have contexts."""
        for n, t in np.ndindex(self.sequence.shape):
            if contexts := self.contexts(n, t):
                yield n, t, contexts


def reference_weights(case: Case, architecture: str) -> Rows:
    weights = Rows(*(np.zeros(rows.shape[:-1]) for rows in case.rows))
    scale = NEGATIVE / case.rows.noise.shape[2]
    for n, t, contexts in case.centres():
        tile = t // case.tile
        if architecture == "skipgram":
            for j in contexts:
                weights.input[n, t] += 1
                weights.output[n, j] += 1
                weights.noise[n, tile] += scale
        else:
            for j in contexts:
                is_mean = architecture == "cbow"
                weights.input[n, j] += 1 / len(contexts) if is_mean else 1
            weights.output[n, t] += 1
            weights.noise[n, tile] += scale
    return weights


@pytest.fixture(params=SIZES)
def case(request) -> Case:
    return Case(request.param)


@pytest.fixture(params=FUNCTIONS)
def architecture(request) -> str:
    return request.param


def test_pairs_are_those_of_a_loop(case):
    expected = {(n, t, j) for n, t, found in case.centres() for j in found}
    num_tiles, tile, halo = case.pairs.mask.shape[1:]
    assert halo == tile + 2 * case.window
    found = {
        (n, g * tile + b, g * tile + c - case.window)
        for n, g, b, c in np.argwhere(case.pairs.mask).tolist()
    }
    assert found == expected
    count = np.zeros(case.sequence.shape)
    for n, t, contexts in case.centres():
        count[n, t] = len(contexts)
    np.testing.assert_array_equal(case.pairs.count.reshape(count.shape), count)


def test_weights_are_those_of_a_loop(case, architecture):
    weights = case.terms(architecture).weights
    expected = reference_weights(case, architecture)
    for found, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.parametrize("role", Rows._fields)
def test_gradients_are_finite_differences(case, architecture, role):
    gradients = case.terms(architecture).gradients
    step = 1e-5
    rows = getattr(case.rows, role)
    expected = np.empty_like(rows)
    for place in np.ndindex(rows.shape):
        moved = [rows.copy(), rows.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (
            case.loss(architecture, case.rows._replace(**{role: x})) for x in moved
        )
        expected[place] = (up - down) / (2 * step)
    # Central differences are off by step**2 and by rounding / step, both about 1e-10.
    np.testing.assert_allclose(getattr(gradients, role), expected, atol=1e-8)


def test_float32_agrees_with_float64(case, architecture):
    single = Case(case.name, "float32")
    terms, exact = single.terms(architecture), case.terms(architecture)
    for found, wanted in zip(
        (*terms.gradients, *terms.weights, *terms.scores),
        (*exact.gradients, *exact.weights, *exact.scores),
        strict=True,
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)


def test_gradients_go_where_out_says(case, architecture):
    out = Rows(*(np.full_like(rows, np.nan) for rows in case.rows))
    compute = FUNCTIONS[architecture][0]
    options = {"window": case.window, "negative": NEGATIVE}
    terms = compute(case.rows, case.pairs, out=out, **options)
    assert terms.gradients is out
    for found, wanted in zip(out, case.terms(architecture).gradients, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_large_scores_are_finite(architecture, dtype, scale):
    case = Case("tiled", dtype)
    rows = case.rows._replace(input=case.rows.input * case.rows.input.dtype.type(scale))
    terms = case.terms(architecture, rows)
    assert np.isfinite(case.loss(architecture, rows))
    assert all(np.isfinite(gradient).all() for gradient in terms.gradients)
