import jax
import numpy as np
import pytest

from embedder.encoders.networks.encoder import (
    make_encoder,
    num_params,
    scaled,
)
from embedder.encoders.networks.mlp import (
    MLP,
    arrays_of,
    layers_in,
    layers_of,
    module_names,
    params_of,
)
from embedder.encoders.networks.network import Draws, Model
from embedder.encoders.networks.registry import network_for, network_in
from embedder.encoders.options import EncoderOptions
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
def test_initial_params_equal_those_of_the_oracle(dtype, seed):
    actual = layers_of(make_encoder(MLP(WIDTHS), dtype=dtype, seed=seed).init().params)
    for ours, theirs in zip(
        actual, oracle.initial_layers(WIDTHS, dtype, seed), strict=True
    ):
        np.testing.assert_array_equal(ours[0], theirs.weights, strict=True)
        np.testing.assert_array_equal(ours[1], theirs.biases, strict=True)


def test_initial_params_are_of_numpy_and_named_by_module():
    params = make_encoder(MLP(WIDTHS), dtype="float32", seed=1).init().params
    assert module_names(3) == ["hidden/~/linear_0", "hidden/~/linear_1", "classes"]
    assert {*params} == {*module_names(3)}
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(params))


@dtypes
@pytest.mark.parametrize(("name", "layer"), [("embed", -2), ("scores", -1)])
def test_an_encoder_equals_the_oracle(dtype, name, layer):
    encoder, layers = (
        make_encoder(MLP(WIDTHS), dtype=dtype, seed=0),
        random_layers(dtype),
    )
    with jax.enable_x64(dtype == "float64"):
        actual = getattr(encoder, name)(Model(params_of(layers)), features(dtype))
    desired = oracle.activations(layers, features(dtype))[layer]
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, desired, **TOLERANCE[dtype])


def test_rows_do_not_affect_each_other():
    encoder = make_encoder(MLP(WIDTHS), dtype="float32", seed=0)
    params, x = Model(params_of(random_layers("float32"))), features("float32")
    whole = encoder.scores(params, x)
    np.testing.assert_allclose(encoder.scores(params, x[2:3]), whole[2:3], rtol=1e-6)


@dtypes
def test_scaled_pixels_are_from_0_to_1(dtype):
    pixels = np.arange(256, dtype=np.uint8).reshape(4, 8, 8)
    with jax.enable_x64(dtype == "float64"):
        actual = np.asarray(scaled(pixels, np.dtype(dtype)))
    desired = oracle.scaled(pixels.reshape(4, 64), dtype).reshape(4, 8, 8)
    rtol = np.finfo(dtype).eps  # XLA multiplies by 1 / 255
    np.testing.assert_allclose(actual, desired, rtol=rtol, strict=True)
    assert (actual.min(), actual.max()) == (0, 1)


def test_scaled_changes_only_u8():
    x = np.array([[[0.0, 255.0], [-3.0, 1e6]]], np.float32)
    np.testing.assert_array_equal(scaled(x, np.dtype("float32")), x)


@dtypes
def test_layers_survive_the_round_trip_through_params(dtype):
    layers = random_layers(dtype)
    again = layers_of(params_of(layers))
    assert [(w.shape, b.shape) for w, b in again] == [
        *(((6, 5), (5,)), ((5, 4), (4,)), ((4, 3), (3,)))
    ]
    for ours, theirs in zip(again, layers, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_more_than_ten_layers_stay_in_order():
    layers = [(np.full((1, 1), i), np.full(1, i)) for i in range(12)]
    assert [int(b[0]) for _, b in layers_of(params_of(layers))] == [*range(12)]
    assert [int(b[0]) for _, b in layers_in(arrays_of(layers))] == [*range(12)]


def test_the_network_of_an_encoder_file_is_found_by_its_arrays():
    network = MLP(WIDTHS)
    params = params_of(random_layers("float32"))
    arrays = network.to_arrays(Model(params))
    assert network_in(EncoderOptions(), arrays, (2, 3)) == network
    again = network.to_model(arrays).params
    assert all(again[m][n] is params[m][n] for m in params for n in params[m])


def test_num_params_is_the_number_of_their_values():
    params = make_encoder(MLP(WIDTHS), dtype="float32", seed=1).init().params
    assert num_params(MLP(WIDTHS)) == sum(x.size for x in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("shape", "fan_in"), [((50, 400), 50), ((3, 5, 4, 400), 60)], ids=["linear", "conv"]
)
def test_initial_weights_have_variance_2_by_fan_in(shape, fan_in):
    weights = np.asarray(Draws(1)(shape, np.dtype("float32")))
    bound = (6 / fan_in) ** 0.5
    assert 0.99 * bound < np.abs(weights).max() <= bound
    assert weights.var() == pytest.approx(2 / fan_in, rel=0.02)


def test_networks_of_two_classes_are_two_keys_of_a_cache():
    """A named tuple would equal any other with the same values."""

    class Other(MLP):
        pass

    assert Other(WIDTHS) != MLP(WIDTHS) and WIDTHS != MLP(WIDTHS)
    assert hash(MLP(WIDTHS)) == hash(MLP(tuple(WIDTHS)))


def test_the_settings_of_a_network_give_it_again():
    network = MLP(WIDTHS)
    again = network_for(EncoderOptions(**network.settings), (2, 3), 3)
    assert again == network
