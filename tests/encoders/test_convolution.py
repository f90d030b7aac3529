import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.networks.conv_small import largest_of_squares
from embedder.encoders.networks.convolution import (
    by_patches,
    by_xla,
    convolution,
    in_order,
)
from tests.pairs import pairwise

SHAPES = {  # B, H, W, C, size of the kernel, stride, N
    "same size": (2, 6, 5, 3, 3, 1, 4),
    "every second pixel, even": (2, 6, 8, 3, 3, 2, 4),
    "every second pixel, odd": (2, 7, 5, 3, 3, 2, 4),
    "a pixel": (2, 6, 7, 3, 1, 1, 4),
    "a pixel, every second": (2, 6, 7, 3, 1, 2, 4),
    "large kernel": (2, 9, 8, 2, 7, 2, 3),
    "kernel larger than the image": (2, 3, 3, 2, 7, 1, 3),
    "even kernel": (2, 6, 5, 3, 2, 1, 4),
    "every third pixel": (2, 8, 7, 3, 3, 3, 4),
    "many channels": (2, 6, 5, 5, 3, 1, 2),
    "many examples": (70, 3, 4, 5, 3, 1, 2),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def arrays(shape, dtype="float32", models=()):
    num, height, width, channels, size, _, out = shape
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*models, num, height, width, channels)).astype(dtype)
    kernel = rng.normal(size=(*models, size, size, channels, out)).astype(dtype)
    return x, kernel


def found_and_gradients(form, stride):
    """The result, and the gradients of a sum of it with different weights."""

    def found(x, kernel):
        result, gradients = jax.vjp(lambda x, k: form(x, k, stride), x, kernel)
        weights = jnp.arange(result.size, dtype=x.dtype).reshape(result.shape)
        return result, *gradients(jnp.sin(weights))

    return found


def assert_equal(actual, desired, dtype="float32"):
    rtol = {"float32": 1e-5, "float64": 1e-13}[dtype]  # of sums of 98 products at most
    for ours, theirs in zip(actual, desired, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * scale)


@pytest.mark.spread(1)
@pairwise(
    shape=SHAPES, dtype=["float32", "float64"], form=[convolution, in_order, by_patches]
)
def test_all_forms_equal_that_of_xla(shape, dtype, form):
    shape = SHAPES[shape]
    x, kernel = arrays(shape, dtype)
    with jax.enable_x64(dtype == "float64"):
        desired = found_and_gradients(by_xla, shape[5])(x, kernel)
        actual = found_and_gradients(form, shape[5])(x, kernel)
    assert actual[0].dtype == dtype
    assert_equal(actual, desired, dtype)


@pytest.mark.spread(1)
@pytest.mark.spread(4)
@shapes
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_convolutions_of_many_networks_equal_those_of_each(shape, axes):
    given = arrays(shape, models=(3,))
    given = [x if axis == 0 else x[0] for x, axis in zip(given, axes, strict=True)]
    mapped = {
        form: jax.vmap(found_and_gradients(form, shape[5]), axes)(*given)
        for form in (in_order, by_xla)
    }
    assert_equal(mapped[in_order], mapped[by_xla])


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_in_a_loop_are_in_the_order_that_xla_has_fast_ones_for(stride):
    x, kernel = arrays((2, 8, 8, 8, 3, stride, 8))

    def update(_, kernel):
        def loss(x, kernel):
            return (convolution(x, kernel, stride) ** 2).sum()

        dx, dkernel = jax.grad(loss, (0, 1))(x, kernel)
        return kernel - dkernel - dx.sum()

    def updates(kernel, num):
        return jax.lax.fori_loop(0, num, update, kernel)

    program = jax.jit(updates).lower(kernel, 3).compile().as_text()
    orders = re.findall(r"convolution\(.*dim_labels=([^, ]*)", program)
    assert orders == 3 * ["b01f_01io->b01f"]


def test_gradients_of_the_largest_of_squares_are_those_of_the_maximum():
    rng = np.random.default_rng(0)
    x, gradient = rng.normal(size=(2, 5, 6, 3)), rng.normal(size=(2, 2, 3, 3))

    def by_maximum(x):
        return jnp.max(x[:, :4].reshape(2, 2, 2, 3, 2, 3), (2, 4))

    with jax.enable_x64(True):
        (found, back), (desired, desired_back) = (
            jax.vjp(function, jnp.asarray(x))
            for function in (largest_of_squares, by_maximum)
        )
        np.testing.assert_array_equal(found, desired)
        np.testing.assert_array_equal(
            back(jnp.asarray(gradient))[0], desired_back(jnp.asarray(gradient))[0]
        )


@pytest.mark.parametrize("square", [*itertools.product([0.0, 1.0], repeat=4)])
def test_the_first_of_equal_values_has_the_gradient(square):
    """As PyTorch's, and that of windows in XLA."""
    x = np.zeros((1, 3, 2, 1), np.float32)
    x[0, :2, :, 0] = np.reshape(square, (2, 2))
    found, back = jax.vjp(largest_of_squares, jnp.asarray(x))
    assert found.item() == max(square)
    expected = np.zeros(6)
    expected[square.index(max(square))] = 3.0
    assert back(jnp.full((1, 1, 1, 1), 3.0))[0].ravel().tolist() == expected.tolist()


@pytest.mark.slow
def test_a_gradient_needs_no_value_that_is_computed_twice_the_same():
    """Without LLVM's optimizations values that XLA computes again have other roundings:
    none of them was the maximum that had been found before."""
    images = np.random.default_rng(0).integers(256, size=(32, 12, 12, 3))
    found = []
    for is_plain in (False, True):
        jax.config.update("jax_disable_most_optimizations", is_plain)
        try:
            jax.clear_caches()
            encoder = FeatureEncoder(
                network="conv-small", epochs=1, batch_size=16, dtype="float64"
            )
            encoder.fit(images.astype(np.uint8), np.arange(32) % 4)
        finally:
            jax.config.update("jax_disable_most_optimizations", False)
            jax.clear_caches()
        found.append(encoder.transform(images.astype(np.uint8)))
    first, second = found
    assert first.std() > 0.01
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-12)
