import jax
import numpy as np
import pytest

from embedder.encoders.networks import (
    encoder,
    initial_params,
    layers_of,
    module_names,
    params_of,
    scaled,
)
from legacy import network as oracle

WIDTHS = (6, 5, 4, 3)
TOLERANCE = {  # of three products of 6 terms at most
    "float32": {"rtol": 1e-5, "atol": 1e-6},
    "float64": {"rtol": 1e-12, "atol": 1e-12},
}
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def random_layers(dtype: str) -> list[oracle.Layer]:
    """Layers with biases, which the first ones have not."""
    rng = np.random.default_rng(0)
    return [
        oracle.Layer(w, rng.normal(size=b.shape).astype(dtype))
        for w, b in oracle.initial_layers(WIDTHS, dtype, 3)
    ]


def features(dtype: str) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(7, 6)).astype(dtype)


@dtypes
@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_initial_params_are_those_of_the_oracle(dtype, seed):
    actual = layers_of(initial_params(encoder(WIDTHS, dtype=dtype, seed=seed)))
    for ours, theirs in zip(
        actual, oracle.initial_layers(WIDTHS, dtype, seed), strict=True
    ):
        np.testing.assert_array_equal(ours[0], theirs.weights, strict=True)
        np.testing.assert_array_equal(ours[1], theirs.biases, strict=True)


def test_initial_params_are_of_numpy_and_named_by_module():
    params = initial_params(encoder(WIDTHS, dtype="float32", seed=1))
    assert module_names(3) == ["hidden/~/linear_0", "hidden/~/linear_1", "classes"]
    assert {*params} == {*module_names(3)}
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(params))


@dtypes
@pytest.mark.parametrize(("name", "place"), [("embed", -2), ("scores", -1)])
def test_encoder_gives_what_the_oracle_gives(dtype, name, place):
    network, layers = encoder(WIDTHS, dtype=dtype, seed=0), random_layers(dtype)
    with jax.enable_x64(dtype == "float64"):
        actual = getattr(network, name)(params_of(layers), features(dtype))
    desired = oracle.activations(layers, features(dtype))[place]
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, desired, **TOLERANCE[dtype])


def test_encoder_takes_no_notice_of_other_rows():
    network = encoder(WIDTHS, dtype="float32", seed=0)
    params, x = params_of(random_layers("float32")), features("float32")
    whole = network.scores(params, x)
    np.testing.assert_allclose(network.scores(params, x[2:3]), whole[2:3], rtol=1e-6)


@dtypes
def test_scaled_pixels_are_from_0_to_1(dtype):
    pixels = np.arange(256, dtype=np.uint8).reshape(4, 8, 8)
    with jax.enable_x64(dtype == "float64"):
        actual = np.asarray(scaled(pixels, np.dtype(dtype)))
    desired = oracle.scaled(pixels.reshape(4, 64), dtype)
    rtol = np.finfo(dtype).eps  # XLA multiplies by 1 / 255
    np.testing.assert_allclose(actual, desired, rtol=rtol, strict=True)
    assert (actual.min(), actual.max()) == (0, 1)


def test_scaled_leaves_other_numbers_as_they_are():
    x = np.array([[[0.0, 255.0], [-3.0, 1e6]]], np.float32)
    np.testing.assert_array_equal(scaled(x, np.dtype("float32")), x.reshape(1, 4))


@dtypes
def test_layers_of_params_of_layers_are_the_same(dtype):
    layers = random_layers(dtype)
    again = layers_of(params_of(layers))
    assert [(w.shape, b.shape) for w, b in again] == [
        *(((6, 5), (5,)), ((5, 4), (4,)), ((4, 3), (3,)))
    ]
    for ours, theirs in zip(again, layers, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_layers_of_more_than_ten_are_in_order():
    layers = [(np.full((1, 1), i), np.full(1, i)) for i in range(12)]
    assert [int(b[0]) for _, b in layers_of(params_of(layers))] == [*range(12)]
