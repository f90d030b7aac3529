"""Networks of images against plain NumPy: layers one by one, and whole networks."""

import functools
import json

import numpy as np
import pytest

from embedder.cli.main import main
from embedder.encoders.networks import convolution
from embedder.encoders.networks import layers as port
from migration.parity import layers
from migration.parity.encoder_networks import SMALL, network_lines, small_case

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 7, 6, 2))
TOKENS = RNG.normal(size=(2, 3, 5, 4))  # [B, A, T, C]
WEIGHTS = np.array([1.0, 2, 0])
KEEP = RNG.random(IMAGES.shape) < 0.7


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def of_one(function, slopes, *parameters):
    """A layer, its derivatives, and the arrays that it has derivatives by."""
    return function, slopes, parameters


LAYERS = {
    "convolution": of_one(
        layers.convolution, layers.convolution_slopes, IMAGES, values(3, 3, 2, 4)
    ),
    "stride 2": of_one(
        functools.partial(layers.convolution, stride=2),
        *(layers.convolution_slopes, IMAGES, values(3, 3, 2, 4)),
    ),
    "stride 2 of 1 x 1": of_one(
        functools.partial(layers.convolution, stride=2),
        *(layers.convolution_slopes, IMAGES, values(1, 1, 2, 4)),
    ),
    "largest of 3 x 3": of_one(
        lambda x: layers.largest(x, 3, 2), *(layers.largest_slopes, IMAGES)
    ),
    "largest of 2 x 2": of_one(
        lambda x: layers.largest(x, 2, 2), *(layers.largest_slopes, IMAGES)
    ),
    "batch norm": of_one(
        lambda x, *own: layers.batch_norm(x, WEIGHTS, *own)[:2],
        *(layers.batch_norm_slopes, IMAGES, values(2), values(2)),
    ),
    "layer norm": of_one(
        *(layers.layer_norm, layers.layer_norm_slopes, IMAGES, values(2), values(2))
    ),
    "linear": of_one(
        *(layers.linear, layers.linear_slopes, IMAGES, values(2, 3), values(3))
    ),
    "relu": of_one(layers.relu, layers.relu_slopes, IMAGES),
    "gelu": of_one(layers.gelu, layers.gelu_slopes, IMAGES),
    "attention": of_one(
        *(layers.attention, layers.attention_slopes),
        *(TOKENS, TOKENS[..., ::-1] + 0.3, TOKENS[:, ::-1]),
    ),
    "dropout": of_one(
        lambda x: layers.masked(x, KEEP, 0.3), layers.masked_slopes, IMAGES
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_of_a_layer_are_finite_differences(name):
    """Along random directions of each array: rounding, 1e-16 of sums of some ten terms
    over 2e-6, is the largest error. An example of weight 0 changes no other."""
    function, slopes, arrays = LAYERS[name]
    y, cache = function(*arrays)
    slope = np.random.default_rng(2).normal(size=y.shape)
    found = slopes(slope, cache)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(arrays)
    for number, (array, of_array) in enumerate(zip(arrays, found, strict=True)):
        along = np.random.default_rng(3).normal(size=array.shape)

        def moved(step, number=number, along=along):
            changed = [*arrays]
            changed[number] = changed[number] + step * along
            return (slope * function(*changed)[0]).sum()

        difference = (moved(1e-6) - moved(-1e-6)) / 2e-6
        assert of_array.shape == array.shape
        np.testing.assert_allclose(difference, (of_array * along).sum(), rtol=1e-6)


def test_moments_of_a_batch_norm_by_hand():
    """The third example does not count, the second twice: mean (1 + 2 * 4) / 3 = 3,
    variance (4 + 2) / 3 = 2."""
    x = np.array([[1.0], [4], [100]])
    y, _, moments = layers.batch_norm(x, WEIGHTS, np.array([2.0]), np.array([1.0]))
    assert (moments.mean, moments.variance) == (3, 2)
    np.testing.assert_allclose(y[:2, 0], 1 + 2 * np.array([-2, 1]) / np.sqrt(2 + 1e-5))


# --- networks


def lines_of(title: str, dtype: str = "float64"):
    return list(network_lines(small_case(title), dtype, seed=1))


def passes(title: str, dtype: str) -> bool:
    lines = lines_of(title, dtype)
    assert len(lines) == 6 - ("vit" in title) + (dtype == "float64")
    return all(line.passed for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("title", SMALL)
def test_a_network_is_the_oracles(title):
    assert passes(title, "float64")


@pytest.mark.slow
@pytest.mark.parametrize("title", ["conv-small", "wide-resnet"])
def test_a_network_is_the_oracles_in_float32(title):
    """There convolutions, and their gradients, have another form."""
    assert passes(title, "float32")


@pytest.mark.slow
def test_the_convolutions_of_float32_are_the_oracles_in_float64(monkeypatch):
    """With strides, and with kernels whose gradients are products or convolutions."""
    monkeypatch.setattr(port, "convolution", convolution.in_order)
    assert all(line.passed for line in lines_of("wide-resnet"))


def parity(path, *options: str) -> int:
    given = ["--model", "encoder", "--optimizer", "sgd", "--network", *options]
    return main(["parity", "--corpus", str(path), *given])


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(12, 8, 8)).astype(np.uint8), np.arange(12) % 3
    np.savez(tmp_path / "images.npz", X=x, y=y)
    return tmp_path / "images.npz"


@pytest.mark.slow
def test_a_network_that_settings_name_is_compared_on_the_examples(images, capsys):
    options = "conv-small", "--network-args", "width=2", "size=5", "--json"
    assert parity(images, *options, "--vector-size", "3") == 0
    found = json.loads(capsys.readouterr().out)
    assert {line["stage"] for line in found["lines"]} == {"networks"}
    assert {line["dtype"] for line in found["lines"]} == {"float64", "float32"}
    sizes = {line["quantity"]: line["size"] for line in found["lines"]}
    assert sizes["conv-small, embeddings"] == 6 * 3
    assert sizes["conv-small, scores"] == 6 * 3
