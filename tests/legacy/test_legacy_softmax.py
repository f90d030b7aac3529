"""Hierarchical softmax of the oracle against loops and finite differences."""

import functools

import numpy as np
import pytest

import legacy
from legacy import softmax
from legacy.objective import pairs
from legacy.softmax import PathRows

DIMENSIONS, DEPTH = 4, 3
SIZES = {  # blocks, tokens in a block, tile, window
    "tiled": (1, 24, 8, 3),
    "classic": (1, 12, 1, 3),
    "several_blocks": (3, 12, 4, 2),
    "window_wider_than_block": (1, 6, 3, 9),
}
FUNCTIONS = {
    "skipgram": (softmax.skipgram, softmax.skipgram_loss),
    "cbow": (softmax.cbow, softmax.cbow_loss),
    "cbow_sums": (functools.partial(softmax.cbow, mean=False), softmax.cbow_loss),
}


class Case:
    """Random rows, signs and pairs; the last block ends in padding."""

    def __init__(self, name: str, dtype="float64"):
        num_blocks, block, self.tile, self.window = SIZES[name]
        shape = num_blocks, block
        rng = np.random.default_rng(2)
        self.sequence = np.sort(rng.integers(0, 3, shape)).astype(np.int32)
        self.radius = rng.integers(1, self.window + 1, shape, np.int8)
        self.sequence[-1, -2:], self.radius[-1, -2:] = -1, 0
        self.signs = rng.choice(np.array([-1, 1, 0], np.int8), (*shape, DEPTH))
        self.rows = PathRows(
            rng.normal(0, 1, (*shape, DIMENSIONS)).astype(dtype),
            rng.normal(0, 1, (*shape, DEPTH, DIMENSIONS)).astype(dtype),
        )
        self.pairs = pairs(
            self.sequence,
            self.radius,
            tile=self.tile,
            window=self.window,
            dtype=dtype,
        )

    def terms(self, architecture: str, rows: PathRows | None = None):
        compute = FUNCTIONS[architecture][0]
        return compute(rows or self.rows, self.signs, self.pairs, window=self.window)

    def loss(self, architecture: str, rows: PathRows | None = None) -> float:
        terms = self.terms(architecture, rows)
        return FUNCTIONS[architecture][1](terms, self.pairs)

    def centres(self):
        """(block, place, contexts) of all centres that have contexts."""
        for n, t in np.ndindex(self.sequence.shape):
            contexts = [
                j
                for j in range(self.sequence.shape[1])
                if 0 < abs(t - j) <= self.radius[n, t]
                and self.sequence[n, j] == self.sequence[n, t]
            ]
            if contexts:
                yield n, t, contexts


@pytest.fixture(params=SIZES)
def case(request) -> Case:
    return Case(request.param)


@pytest.fixture(params=FUNCTIONS)
def architecture(request) -> str:
    return request.param


def test_loss_is_that_of_a_loop(case, architecture):
    desired = 0.0
    for n, t, contexts in case.centres():
        given = [case.rows.input[n, j] for j in contexts]
        if architecture == "cbow":
            given = [np.mean(given, axis=0)]
        elif architecture == "cbow_sums":
            given = [np.sum(given, axis=0)]
        for x in given:
            for sign, node in zip(case.signs[n, t], case.rows.nodes[n, t], strict=True):
                if sign:
                    # The branch is taken with probability sigma(-sign x.a).
                    desired -= np.log(1 / (1 + np.exp(sign * (x @ node))))
    assert case.loss(architecture) == pytest.approx(desired, rel=1e-12)


def test_weights_are_those_of_a_loop(case, architecture):
    inputs, nodes = np.zeros(case.sequence.shape), np.zeros(case.signs.shape)
    for n, t, contexts in case.centres():
        is_skipgram = architecture == "skipgram"
        for j in contexts:
            inputs[n, j] += 1 / len(contexts) if architecture == "cbow" else 1
        nodes[n, t, case.signs[n, t] != 0] += len(contexts) if is_skipgram else 1
    weights = case.terms(architecture).weights
    np.testing.assert_allclose(weights.input, inputs, rtol=1e-13)
    np.testing.assert_allclose(weights.nodes, nodes, rtol=1e-13)


@pytest.mark.parametrize("role", PathRows._fields)
def test_gradients_are_finite_differences(case, architecture, role):
    gradients, step = case.terms(architecture).gradients, 1e-5
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


def test_float32_agrees_with_float64(architecture):
    single, exact = (Case("tiled", x).terms(architecture) for x in ("f4", "f8"))
    for found, wanted in zip(
        (*single.gradients, *single.weights, single.scores),
        (*exact.gradients, *exact.weights, exact.scores),
        strict=True,
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_large_scores_are_finite(architecture, scale):
    case = Case("tiled", "float32")
    rows = case.rows._replace(input=case.rows.input * np.float32(scale))
    assert np.isfinite(case.loss(architecture, rows))
    assert all(np.isfinite(x).all() for x in case.terms(architecture, rows).gradients)


SMALL = {"vector_size": 8, "min_count": 1, "block": 32, "dtype": "float64"}


@pytest.mark.parametrize("negative", [0, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_model_learns_and_its_file_goes_on(
    sequences, tmp_path, architecture, negative, optimizer
):
    options = {"architecture": architecture.removesuffix("_sums"), "hs": True}
    options |= {"negative": negative, "cbow_mean": architecture != "cbow_sums"}
    options |= SMALL | {"optimizer": optimizer, "epochs": 3}
    trained = legacy.EmbeddingTrainer(**options).fit(sequences)
    assert trained.loss_history == sorted(trained.loss_history, reverse=True)
    trained.save(tmp_path / "model.npz")
    loaded = legacy.EmbeddingTrainer.load(tmp_path / "model.npz")
    assert loaded.hs is True and loaded.negative == negative
    both = (each.partial_fit(sequences) for each in (trained, loaded))
    first, second = both
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert first.loss_history == second.loss_history


def test_only_hierarchical_softmax_does_without_negatives():
    message = "`negative` must be an integer >= 1, or 0 with `hs`, got 0."
    with pytest.raises(ValueError, match=message):
        legacy.EmbeddingTrainer(negative=0)


def test_workers_train_it(sequences):
    trained = legacy.EmbeddingTrainer(hs=True, negative=0, workers=2, **SMALL)
    assert np.isfinite(trained.fit(sequences).vectors).all()
