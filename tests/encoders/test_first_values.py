"""The first parameters of networks of images, drawn again by NumPy."""

import re
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from embedder import FeatureEncoder
from embedder.encoders.networks.encoder import Encoder
from legacy.network import initial_layers
from migration.parity.encoder_networks import SMALL, small_case


def resnet(shortcuts: tuple[int, ...], blocks: int, convolutions: int) -> Iterator[str]:
    yield "stem/w"
    for block in range(blocks):
        if block in shortcuts:
            yield f"block_{block}_conv_shortcut/w"
        for number in range(convolutions):
            yield f"block_{block}_conv_{number}/w"


def vit(depth: int, *token: str) -> Iterator[str]:
    yield from ("patches/w", *token, "~/positions")
    for block in range(depth):
        for part in ("query", "key", "value", "output"):
            yield f"block_{block}_attention_{part}/w"
        yield from (f"block_{block}_mlp_{number}/w" for number in (0, 1))


DRAWN = {
    "conv-small": [*(f"conv_{i}/w" for i in range(3)), "dense/w"],
    "resnet": [*resnet((2, 4, 6), 8, 2), "projection/w"],
    "resnet, bottlenecks": [*resnet((0, 3, 7, 13), 16, 3)],
    "wide-resnet": [
        "stem/w",
        *(f"block_{i}_{x}/w" for i in (0, 1) for x in ("shortcut", "conv_0", "conv_1")),
    ],
    "vit": [*vit(2, "~/class_token"), "projection/w"],
    "vit, mean": [*vit(1)],
}
"""Title of a small network -> what it draws before its last layer, in order."""


def bound(name: str, shape: tuple[int, ...]) -> float:
    """(24), and what ALGORITHM.md says below (50)."""
    if name.startswith("~"):  # tokens and positions
        return 0.02 * 3**0.5
    is_linear = re.match("patches|projection|block_[0-9]+_(attention|mlp)", name)
    return ((3 if is_linear else 6) / np.prod(shape[:-1])) ** 0.5


def fixed(title: str, name: str) -> float:
    """The first value of what is not drawn."""
    last = {"resnet": 1, "resnet, bottlenecks": 2}.get(title)
    if re.fullmatch(f"block_[0-9]+_norm_{last}/scale", name):
        return 0  # a block adds nothing at first
    return float(name.endswith(("/scale", "/variance")))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("title", SMALL)
def test_first_parameters_are_those_of_the_rule(title, dtype):
    network, seed = small_case(title).network, 5
    model = Encoder(network, dtype=dtype, seed=seed).init()
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    found = {f"{m}/{n}": x for m, own in model.params.items() for n, x in own.items()}
    for name in (*DRAWN[title], "classes/w"):
        shape = found[name].shape
        values = (2 * rng.random(shape) - 1) * bound(name, shape)
        np.testing.assert_allclose(found.pop(name), values.astype(dtype), rtol=1e-6)
    for name, array in found.items():
        assert (array == fixed(title, name)).all(), name
    averages, _ = jax.tree_util.tree_flatten_with_path(model.averages)
    for path, array in averages:
        assert (array == fixed(title, f"/{path[-1].key}")).all(), path
    dtypes = {leaf.dtype.name for leaf in jax.tree.leaves(model)}
    assert dtypes == {dtype}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", [1, 2**64 - 1])
def test_first_layers_of_an_mlp_are_those_of_the_oracle(dtype, seed):
    widths = (3,) * 13  # more than ten layers stay in order
    encoder = FeatureEncoder(widths, dtype=dtype, seed=seed, epochs=0)
    encoder.fit(np.eye(3), [0, 1, 2])
    oracle = initial_layers(widths, dtype, seed)
    for ours, theirs in zip(encoder.layers_, oracle, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
