import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.tables import cbow, cbow_sums, objective, skipgram
from embedder.tables.objective import Pairs, Rows

LOG_2 = math.log(2)


def pairs_of(sequence, radius, *, tile, window) -> Pairs:
    sequence = np.array([sequence], np.int32)
    radius = np.array([radius], np.int8)
    return objective.pairs_of(
        sequence, radius, tile=tile, window=window, dtype=jnp.float32
    )


def skipgram_rows(pairs: Pairs, num_noise: int) -> Rows:
    """Rows of zeros that fit `pairs`."""
    num_blocks, num_tiles, tile, positions = pairs.mask.shape
    return Rows(
        jnp.zeros((num_blocks, num_tiles, tile, 2)),
        jnp.zeros((num_blocks, num_tiles, positions + num_noise, 2)),
    )


def cbow_rows(pairs: Pairs, num_noise: int) -> Rows:
    """Rows of zeros that fit `pairs`."""
    num_blocks, num_tiles, tile, positions = pairs.mask.shape
    return Rows(
        jnp.zeros((num_blocks, num_tiles, positions, 2)),
        jnp.zeros((num_blocks, num_tiles, tile + num_noise, 2)),
    )


@pytest.mark.spread(1)
@pytest.mark.parametrize("tile", [1, 2, 4])
def test_pairs_count_contexts_within_radius_and_sequence(tile):
    """Tokens a b | c d: b sees a, c sees d; a radius of 2 does not cross."""
    pairs = pairs_of([0, 0, 1, 1], [1, 1, 2, 1], tile=tile, window=2)
    np.testing.assert_array_equal(pairs.num_contexts.reshape(-1), [1, 1, 1, 1])


@pytest.mark.parametrize("tile", [1, 2, 4])
def test_pairs_cross_tiles_but_not_the_block(tile):
    pairs = pairs_of([0, 0, 0, 0], [3, 2, 1, 3], tile=tile, window=3)
    np.testing.assert_array_equal(pairs.num_contexts.reshape(-1), [3, 3, 2, 3])


def test_pairs_leave_padding_out():
    pairs = pairs_of([0, 0, -1, -1], [3, 3, 0, 0], tile=2, window=3)
    np.testing.assert_array_equal(pairs.num_contexts.reshape(-1), [1, 1, 0, 0])
    assert pairs.mask.sum() == 2


def test_skipgram_weights_worked_by_hand():
    """a b c with radii 1 1 2: a-b, b-a, b-c, c-a, c-b; K = 2, negative = 4."""
    pairs = pairs_of([0, 0, 0], [1, 1, 2], tile=3, window=2)
    weights = skipgram.row_weights(pairs, negative=4, num_noise=2)
    np.testing.assert_array_equal(weights.input[0, 0], [1, 2, 2])
    np.testing.assert_array_equal(weights.output[0, 0], [2, 2, 1, 2 * 5, 2 * 5])


def test_cbow_weights_worked_by_hand():
    """a's context is b; b's a and c; c's a and b."""
    pairs = pairs_of([0, 0, 0], [1, 1, 2], tile=3, window=2)
    weights = cbow.row_weights(pairs, negative=4, num_noise=2)
    np.testing.assert_allclose(weights.input[0, 0], [0.5 + 0.5, 1 + 0.5, 0.5])
    np.testing.assert_array_equal(weights.output[0, 0], [1, 1, 1, 2 * 3, 2 * 3])
    sums = cbow_sums.row_weights(pairs, negative=4, num_noise=2)
    np.testing.assert_array_equal(sums.input[0, 0], [2, 2, 1])
    np.testing.assert_array_equal(sums.output, weights.output)


def test_ids_are_gathered_by_tile_with_halo_and_noise():
    """Tokens 1 2 | 3 4 with a window of 1; beyond the block stands id 0."""
    ids = jnp.array([[1, 2, 3, 4]])
    noise = jnp.array([[[7], [8]]])
    found = skipgram.row_ids(ids, noise, window=1)
    np.testing.assert_array_equal(found.input[0], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(found.output[0], [[0, 1, 2, 3, 7], [2, 3, 4, 0, 8]])
    means = cbow.row_ids(ids, noise, window=1)
    np.testing.assert_array_equal(means.input[0], [[0, 1, 2, 3], [2, 3, 4, 0]])
    np.testing.assert_array_equal(means.output[0], [[1, 2, 7], [3, 4, 8]])


@pytest.mark.parametrize("x", [-1e4, -20.0, 0.0, 20.0, 1e4])
def test_softplus_and_its_derivative_are_right_at_the_ends(x):
    value, slope = jax.value_and_grad(objective.softplus)(x)
    assert float(value) == pytest.approx(np.logaddexp(0, x), rel=1e-6)
    assert float(slope) == pytest.approx(1 / (1 + np.exp(min(-x, 700))), rel=1e-6)


def test_gradient_alone_computes_no_logarithm():
    """What makes the loss free on updates that do not report it."""
    pairs = pairs_of([0] * 4, [2] * 4, tile=2, window=2)

    def loss(rows):
        return skipgram.loss(rows, pairs, negative=5)

    rows = skipgram_rows(pairs, 3)
    gradient = jax.jit(jax.grad(loss)).lower(rows).compile().as_text()
    both = jax.jit(jax.value_and_grad(loss)).lower(rows).compile().as_text()
    assert "log-plus-one" not in gradient and " log(" not in gradient
    assert "log-plus-one" in both or " log(" in both


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("function", "rows_of"),
    [(skipgram.loss, skipgram_rows), (cbow.loss, cbow_rows)],
    ids=["skipgram", "cbow"],
)
def test_types_stay_strict(function, rows_of):
    """No promotion hides between int, float32 and float64."""
    with jax.numpy_dtype_promotion("strict"):
        pairs = pairs_of([0] * 4, [2] * 4, tile=2, window=2)
        loss = functools.partial(function, pairs=pairs, negative=5)
        assert jax.grad(loss)(rows_of(pairs, 3)).input.dtype == jnp.float32
