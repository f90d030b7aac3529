"""Replicas of an encoder next to single runs of their seeds.

`python -m tests.encoders.replica_cases` prints one JSON object: how far they differ on
all devices, by each mode and loader.
"""

import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from embedder.config import Config, with_options
from embedder.encoders.examples import Examples
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import Snapshot, run_epochs
from embedder.engine.replicas import unstack_states

SEED, REPLICAS = 5, 3
DEALT = 4  # replicas, of which each of two devices has some
EPOCHS = 17  # of 6 updates: 102


@functools.cache
def single_run(number: int) -> Snapshot:
    """The run of the seed of a replica, by `jit` and the loader `memory`."""
    return trained(seed=SEED + number)


class Differences(NamedTuple):
    """The largest differences of replicas to single runs."""

    params: float
    opt_state: float
    history: float  # of the means
    updates: int


def make_examples() -> Examples:
    """50 points around three corners, f64[50, 4]."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=50).astype(np.int32)
    features = rng.normal(size=(50, 4)) + 2 * np.eye(4)[labels]
    return Examples(features, labels, list("abc"), [str(i) for i in range(50)])


def make_config(**options: Any) -> Config:
    """Batches of 7, by Adam in float64."""
    given: dict[str, Any] = {
        "model": "encoder",
        "loader": "memory",
        "dtype": "float64",
        "optimizer": "adam",
        "learning_rate": 0.01,
        "layers": (4, 6, 5, 3),
        "batch_size": 7,
        "validation_fraction": 0.2,
        "seed": SEED,
        "mode": "jit",
    }
    return with_options(Config(), **given | options)


def make_training(examples: Examples | None = None, **options: Any) -> EncoderTraining:
    """On 40 training examples."""
    config = make_config(**options)
    return EncoderTraining(config, examples or make_examples(), range(EPOCHS))


def trained(**options: Any) -> Snapshot:
    training = make_training(**options)
    return run_epochs(training, training.initial_state())


def largest_difference(actual: Any, desired: Any) -> float:
    """Between the arrays of two trees."""
    assert jax.tree.structure(actual) == jax.tree.structure(desired)
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def differences(replicas: int = REPLICAS, **options: Any) -> Differences:
    """Of replicas with `options` to single runs by `jit`."""
    end = trained(replicas=replicas, **options)
    singles = [single_run(k) for k in range(replicas)]
    pairs = [*zip(unstack_states(end.state), singles, strict=True)]
    mean = np.mean([single.position.history for single in singles], axis=0)
    return Differences(
        max(largest_difference(own.params, one.state.params) for own, one in pairs),
        max(
            largest_difference(own.opt_state, one.state.opt_state) for own, one in pairs
        ),
        float(np.abs(np.array(end.position.history) - mean).max()),
        end.position.updates,
    )


def differences_on_devices() -> Iterator[dict[str, Any]]:
    """By each mode of several devices and each loader."""
    devices = jax.device_count()
    options = itertools.product(
        ("sharded", "pmap"), ("memory", "tfdata"), (REPLICAS, DEALT)
    )
    for mode, loader, replicas in options:
        where = {"mode": mode, "loader": loader, "devices": devices}
        where |= {"replicas": replicas}
        groups = make_training(**where).layout.replica_devices
        yield where | {"groups": groups} | differences(**where)._asdict()


if __name__ == "__main__":
    print(json.dumps([*differences_on_devices()]))
