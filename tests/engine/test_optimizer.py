import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.engine.rules import (
    cap_rows,
    capped_sgd,
    linear_rate,
    row_rule,
    rowwise_adagrad,
    scale_by_rowwise_adagrad,
)

GRADIENT = {"table": jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}
WEIGHTS = {"table": jnp.array([0.0, 4.0, 40.0])}


def test_cap_rows_scales_only_rows_above_the_cap():
    cap = cap_rows(8.0)
    capped, _ = cap.update(GRADIENT, cap.init(GRADIENT), weights=WEIGHTS)
    np.testing.assert_allclose(capped["table"], [[1, 2], [3, 4], [1, 1.2]], rtol=1e-6)


def test_the_share_of_a_weight_is_what_a_capped_gradient_is_scaled_by():
    rule = capped_sgd(8.0)
    start = rule.transformation.init(GRADIENT)
    shares = jax.tree.map(rule.share, WEIGHTS)
    assert shares["table"].tolist() == pytest.approx([1, 1, 0.2])
    by_weight, by_share = (
        rule.transformation.update(GRADIENT, start, rate=0.5, **given)[0]
        for given in ({"weights": WEIGHTS}, {"shares": shares})
    )
    np.testing.assert_array_equal(by_share["table"], by_weight["table"])


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


ADAGRAD = rowwise_adagrad().transformation


def test_rowwise_adagrad_divides_by_the_root_of_the_mean_squares_so_far():
    """Rows (3, 4) and (0, 0): mean squares 12.5 and 0, in the second update twice."""
    gradient = {"table": jnp.array([[3.0, 4.0], [0.0, 0.0]])}
    state = ADAGRAD.init(gradient)
    np.testing.assert_array_equal(state[0].accumulators["table"], [0, 0])
    first, state = ADAGRAD.update(gradient, state, rate=jnp.float32(0.5))
    second, state = ADAGRAD.update(gradient, state, rate=jnp.float32(0.5))
    direction = np.array([[-1.5, -2], [0, 0]])
    np.testing.assert_allclose(first["table"], direction / 12.5**0.5, rtol=1e-6)
    np.testing.assert_allclose(second["table"], direction / 5, rtol=1e-6)
    np.testing.assert_array_equal(state[0].accumulators["table"], [25, 0])


def test_rowwise_adagrad_touches_the_rows_of_its_ids_alone():
    """Ids before and after the rows that are here are of no row."""
    scale = scale_by_rowwise_adagrad()
    table = {"table": jnp.zeros((4, 2))}
    state = scale.init(table)
    gradient = {"table": jnp.array([[9.0, 9], [1, 7], [2, 2], [9, 9]])}
    ids = {"table": jnp.array([-1, 1, 3, 4])}
    scaled, state = scale.update(gradient, state, row_ids=ids)
    np.testing.assert_array_equal(state.accumulators["table"], [0, 25, 0, 4])
    np.testing.assert_allclose(scaled["table"][1:3], [[0.2, 1.4], [1, 1]], rtol=1e-6)


def test_rowwise_adagrad_takes_the_mean_over_the_columns_of_all_devices():
    scale = scale_by_rowwise_adagrad()
    gradient = {"table": jnp.array([[3.0, 4.0]])}
    _, state = scale.update(
        gradient, scale.init(gradient), mean_columns=lambda x: x.sum(-1) / 5
    )
    np.testing.assert_array_equal(state.accumulators["table"], [5])


def test_rowwise_adagrad_in_float64():
    with jax.enable_x64(True):
        gradient = {"table": jnp.array([[0.1, 0.2]], jnp.float64)}
        delta, state = ADAGRAD.update(gradient, ADAGRAD.init(gradient), rate=0.1)
        assert state[0].accumulators["table"].dtype == np.float64
        desired = -0.1 * np.array([[0.1, 0.2]]) / (0.025**0.5 + 1e-8)
        np.testing.assert_allclose(delta["table"], desired, rtol=1e-15)


def test_a_rule_by_its_name():
    assert row_rule("sgd", 2.0).sums_rows is False
    assert row_rule("adagrad").sums_rows is True
    with pytest.raises(ValueError, match="adam"):
        row_rule("adam")
