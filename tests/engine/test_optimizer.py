import jax.numpy as jnp
import numpy as np

from embedder.engine.rules import cap_rows, capped_sgd, linear_rate

GRADIENT = {"table": jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}
WEIGHTS = {"table": jnp.array([0.0, 4.0, 40.0])}


def test_cap_rows_scales_only_rows_above_the_cap():
    cap = cap_rows(8.0)
    capped, _ = cap.update(GRADIENT, cap.init(GRADIENT), weights=WEIGHTS)
    np.testing.assert_allclose(capped["table"], [[1, 2], [3, 4], [1, 1.2]], rtol=1e-6)


def test_infinite_cap_changes_nothing():
    cap = cap_rows(float("inf"))
    capped, _ = cap.update(GRADIENT, cap.init(GRADIENT), weights=WEIGHTS)
    np.testing.assert_array_equal(capped["table"], GRADIENT["table"])


def test_capped_sgd_goes_downhill_by_the_rate():
    optimizer = capped_sgd(8.0).transformation
    step, _ = optimizer.update(
        GRADIENT, optimizer.init(GRADIENT), weights=WEIGHTS, rate=jnp.float32(0.5)
    )
    np.testing.assert_allclose(
        step["table"], [[-0.5, -1], [-1.5, -2], [-0.5, -0.6]], rtol=1e-6
    )


def test_linear_rate_falls_from_alpha_to_min_alpha():
    rates = linear_rate(np.array([0, 0.5, 1]), alpha=0.1, min_alpha=0.02)
    np.testing.assert_allclose(rates, [0.1, 0.06, 0.02])
