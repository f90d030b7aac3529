"""Schedules, warm-up, weight decay and clipping, against plain formulas."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.config import Config
from embedder.config.encoder_options import EncoderOptions
from embedder.config.run_options import RunOptions
from embedder.encoders.networks.conv_small import ConvSmall
from embedder.encoders.networks.encoder import Encoder
from embedder.encoders.optimizers import Schedule, make_optimizer

UPDATES, EPOCH = 40, 10
FORMULAS: dict[str, Callable[[float], float]] = {
    "constant": lambda x: 1.0,
    "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
    "linear": lambda x: 1 - x,
    "step": lambda x: 1.0 if x < 0.5 else 0.1 if x < 0.75 else 0.01,
}
WARMUPS = {"0": 0, "5": 5, "1epoch": 10, "2epochs": 20, "100": 40}
"""Values of `warmup`, and the updates that they are of 40."""


def expected_share(kind: str, warmup: int, count: int) -> float:
    if count < warmup:
        return (count + 1) / warmup
    return FORMULAS[kind]((count - warmup) / max(1, UPDATES - warmup))


def schedule(kind: str = "constant", warmup: str = "0") -> Schedule:
    options = EncoderOptions(rate_schedule=kind, warmup=warmup)
    return Schedule.of(options, UPDATES, EPOCH)


def shares_of(given: Schedule) -> list[float]:
    """The share at each update, by JAX as by NumPy."""
    by_jax = [float(x) for x in jax.vmap(given.share)(jnp.arange(UPDATES))]
    by_numpy = [float(given.share(count)) for count in range(UPDATES)]
    np.testing.assert_allclose(by_jax, by_numpy, rtol=1e-12, atol=1e-15)
    return by_jax


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("warmup", WARMUPS)
def test_the_share_of_the_rate_at_each_update(kind, warmup):
    found = schedule(kind, warmup)
    with jax.enable_x64(True):
        shares = shares_of(found)
    desired = [expected_share(kind, WARMUPS[warmup], i) for i in range(UPDATES)]
    np.testing.assert_allclose(shares, desired, rtol=1e-12, atol=1e-15)
    assert found.is_constant == (kind == "constant" and warmup == "0")


@pytest.mark.parametrize(
    ("arguments", "desired"),
    [
        ((), [1] * 20 + [0.1] * 10 + [0.01] * 10),
        (("factor=0.5",), [1] * 20 + [0.5] * 10 + [0.25] * 10),
        (("boundaries=1,3.5", "factor=0.2"), [1] * 10 + [0.2] * 25 + [0.04] * 5),
        (("boundaries=2",), [1] * 20 + [0.1] * 20),
        (("boundaries=9",), [1] * 40),
    ],
    ids=["defaults", "factor", "both", "one", "later"],
)
def test_steps_are_where_they_are_given(arguments, desired):
    """Boundaries are epochs of 10 updates, also after a warm-up."""
    options = EncoderOptions(rate_schedule="step", schedule_args=arguments)
    found = Schedule.of(options, UPDATES, EPOCH)
    with jax.enable_x64(True):
        shares = shares_of(found)
    np.testing.assert_allclose(shares, desired, rtol=1e-12)
    assert (found == schedule("step")) == (arguments == ())
    if any("boundaries" in each for each in arguments):
        warm = dataclasses.replace(options, warmup="5")
        with jax.enable_x64(True):
            shares = shares_of(Schedule.of(warm, UPDATES, EPOCH))
        rising = [0.2, 0.4, 0.6, 0.8, 1.0]
        np.testing.assert_allclose(shares, rising + desired[5:], rtol=1e-12)


def changes(options: EncoderOptions, name: str, steps: int, params, gradients):
    """How the parameters change at each of `steps` updates with equal gradients."""
    run = RunOptions(model="encoder", optimizer=name)
    config = Config(run=run, family=options)
    plan = Schedule.of(options, UPDATES, EPOCH)
    with jax.enable_x64(True):
        optimizer = make_optimizer(config, plan).rule()
        state, found = optimizer.init(params), []
        for _ in range(steps):
            deltas, state = optimizer.update(gradients, state, params)
            found.append(jax.device_get(deltas))
    return found


@pytest.mark.parametrize("kind", FORMULAS)
def test_updates_follow_the_schedule(kind):
    """By SGD with a gradient of 1, from the first update to the last."""
    options = EncoderOptions(rate_schedule=kind, warmup="5", learning_rate=0.3)
    params = {"layer": {"w": np.zeros((1, 1))}}
    ones = jax.tree.map(np.ones_like, params)
    found = changes(options, "sgd", UPDATES, params, ones)
    desired = [-0.3 * expected_share(kind, 5, count) for count in range(UPDATES)]
    actual = [float(each["layer"]["w"][0, 0]) for each in found]
    np.testing.assert_allclose(actual, desired, rtol=1e-12, atol=1e-15)


@pytest.mark.spread(1)
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_only_weights_decay(name):
    """With gradients of 0; not biases, nor scales and offsets of norms."""
    network = ConvSmall(example_shape=(8, 8), num_classes=3, width=2, size=4)
    params = Encoder(network, dtype="float64", seed=1).init().params
    params = jax.tree.map(lambda x: x + 0.5, params)
    zeros = jax.tree.map(np.zeros_like, params)
    options = EncoderOptions(weight_decay=0.1, learning_rate=0.2)
    (deltas,) = changes(options, name, 1, params, zeros)
    kinds = set()
    for module, arrays in params.items():
        for array_name, array in arrays.items():
            share = 0.1 * 0.2 if array_name == "w" else 0
            desired = -share * array
            actual = deltas[module][array_name]
            np.testing.assert_allclose(actual, desired, rtol=1e-12, atol=0)
            kinds.add(array_name)
    assert kinds == {"w", "b", "scale", "offset"}


@pytest.mark.parametrize(("limit", "share"), [(0.0, 1), (1.0, 0.2), (7.0, 1)])
def test_the_norm_of_the_gradient_is_clipped(limit, share):
    """That of all parameters, 5; before weight decay is added."""
    options = EncoderOptions(clip_norm=limit, learning_rate=1.0, weight_decay=0.5)
    params = {"a": {"w": np.full((1, 1), 8.0)}, "b": {"b": np.zeros(1)}}
    gradients = {"a": {"w": np.full((1, 1), 3.0)}, "b": {"b": np.full(1, 4.0)}}
    (deltas,) = changes(options, "sgd", 1, params, gradients)
    np.testing.assert_allclose(deltas["a"]["w"], [[-3 * share - 4]], rtol=1e-12)
    np.testing.assert_allclose(deltas["b"]["b"], [-4 * share], rtol=1e-12)
