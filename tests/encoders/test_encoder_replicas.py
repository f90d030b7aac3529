"""K encoders side by side: each is the one that a run of its own seed trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from embedder.config import common_config
from embedder.encoders.batches import BatchSource
from embedder.encoders.examples import Examples
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import run_epochs
from embedder.engine.replicas import unstack_states
from embedder.errors import InputError
from tests.encoders.replica_cases import (
    DEALT,
    EPOCHS,
    REPLICAS,
    SEED,
    differences,
    largest_difference,
    make_config,
    make_examples,
    make_training,
    single_run,
    trained,
)

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-12  # float64, after 102 updates
loaders = pytest.mark.parametrize("loader", ["memory", "tfdata"])


def assert_equal_to_single_runs(found: dict) -> None:
    assert found["updates"] == 102
    for name in ("params", "opt_state", "history"):
        assert found[name] < TOLERANCE, found


@pytest.mark.slow
@loaders
def test_each_replica_is_a_single_run_of_its_seed(loader):
    """Its parameters and optimizer; metrics are means, of validation too."""
    assert_equal_to_single_runs(differences(loader=loader)._asdict())


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer, arguments",
    [
        ("sgd", ["momentum={} nesterov=true", (0.9, 0.5)]),
        ("adamw", ["weight_decay={}", (0.1, 0.0)]),
        ("adam", ["b1={}", (0.9, 0.7)]),
        ("rmsprop", ["decay={} momentum=0.5", (0.9, 0.7)]),
        ("lion", ["b2={}", (0.99, 0.9)]),
        ("adagrad", ["initial_accumulator_value={}", (0.1, 0.3)]),
        ("rprop", ["eta_plus=1.2", (0, 0)]),
        ("rmsprop", ["initial_scale={}", (0.0, 1.0)]),
    ],
)
def test_networks_with_own_rates_are_those_of_runs_of_their_own(optimizer, arguments):
    text, values = arguments
    own: list[dict] = [
        {"learning_rate": 0.01 * (k + 1), "seed": 3 + 4 * k, "optimizer": optimizer}
        | {"optimizer_args": text.format(value).split()}
        for k, value in enumerate(values)
    ]
    models = [make_config(**each) for each in own]
    training = EncoderTraining(
        common_config(models), make_examples(), range(EPOCHS), models
    )
    together = run_epochs(training, training.initial_state())
    for each, found in zip(own, unstack_states(together.state), strict=True):
        alone = trained(**each).state
        assert largest_difference(found.params, alone.params) < TOLERANCE
        assert largest_difference(found.opt_state, alone.opt_state) < TOLERANCE


def test_networks_side_by_side_must_have_the_same_arguments():
    models = [make_config(optimizer_args=[each]) for each in ("b1=0.9", "b2=0.9")]
    with pytest.raises(
        InputError, match="`optimizer_args` .* must have the same names"
    ):
        EncoderTraining(common_config(models), make_examples(), range(1), models)


@pytest.mark.slow
def test_replicas_on_two_devices_are_single_runs():
    """By sharded and pmap; batches of 7 examples do not divide by 2."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.encoders.replica_cases"],
        cwd=ROOT,
        env=os.environ | flags | {"JAX_NUMPY_RANK_PROMOTION": "raise"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 8
    for each in found:
        assert each["devices"] == 2
        assert each["groups"] == (2 if each["replicas"] == DEALT else 1)
        assert_equal_to_single_runs(each)


def test_runs_of_other_seeds_differ():
    """Else the tests above could not fail."""
    one, two = single_run(0), single_run(1)
    assert largest_difference(one.state.params, two.state.params) > 0.1
    histories = [each.position.history[-1] for each in (one, two)]
    assert np.abs(np.subtract(*histories)).max() > 1e-3


def test_first_parameters_are_those_of_single_runs():
    states = unstack_states(make_training(replicas=REPLICAS).initial_state())
    for k, state in enumerate(states):
        one = make_training(seed=SEED + k).initial_state()
        assert jax.tree.map(np.shape, state) == jax.tree.map(np.shape, one)
        assert largest_difference(state, one) == 0


def test_seeds_start_at_0_after_the_largest():
    training = make_training(replicas=2, seed=2**64 - 1)
    first = unstack_states(training.initial_state())[1]
    desired = make_training(seed=0).program.encoder.init().params
    assert largest_difference(first.params, desired) == 0


def test_validation_examples_are_the_same_for_all():
    training = make_training(replicas=REPLICAS)
    ids = training.source.order(0)
    assert ids.shape == (40, REPLICAS)
    assert (np.sort(ids, axis=0) == np.arange(40)[:, np.newaxis]).all()


def test_one_replica_has_no_axis_of_replicas():
    training = make_training(replicas=1)
    _, _, batches = next(training.host_batches(0))
    assert batches.ids.ndim == 2
    assert training.initial_state().step.shape == ()


# --- batches


def source(*seeds: int) -> BatchSource:
    examples = make_examples()
    return BatchSource(examples, np.arange(40), 7, seeds, range(2), range(8))


def test_batches_of_replicas_are_those_of_their_seeds():
    both = source(3, 4)
    updates = both.updates(both.order(1), 1, 4, 3)
    gathered = both.gather(updates)
    assert updates.ids.shape == (3, 8, 2) and gathered.features.shape == (3, 8, 2, 4)
    for k, seed in enumerate((3, 4)):
        one = source(seed)
        alone = one.updates(one.order(1), 1, 4, 3)
        np.testing.assert_array_equal(updates.ids[:, :, k], alone.ids)
        np.testing.assert_array_equal(
            gathered.features[:, :, k], one.gather(alone).features
        )
        np.testing.assert_array_equal(updates.weights, alone.weights)
        np.testing.assert_array_equal(updates.position, alone.position)
    assert (updates.ids[:, :, 0] != updates.ids[:, :, 1]).any()


# --- the compiled program


def test_replicas_share_features_on_the_device():
    one, several = make_training(), make_training(replicas=REPLICAS)
    (_, _, alone), (_, _, batches) = (
        next(training.host_batches(0)) for training in (one, several)
    )
    assert batches.features.shape == alone.features.shape == (50, 4)
    assert batches.labels.shape == (50,)
    assert batches.ids.shape == (*alone.ids.shape, REPLICAS)


def loop_conditions(function, *arguments) -> list[tuple[int, ...]]:
    """Shape of the condition of each loop in a compiled function."""
    equations = function.trace(*arguments).jaxpr.eqns
    loops = (x for x in equations if x.primitive.name == "while")
    return [loop.params["cond_jaxpr"].out_avals[0].shape for loop in loops]


def test_the_loop_over_updates_is_not_masked():
    """A loop of one condition for each replica computes updates that it leaves out."""
    training = make_training(replicas=REPLICAS)
    _, _, batches = next(training.host_batches(0))
    program, state = training.program, training.initial_state()
    with jax.enable_x64(True):
        assert loop_conditions(program.apply_updates, state, batches) == [()]


def test_a_loop_of_other_numbers_of_updates_would_be_masked():
    """Else the test above could not fail."""

    def until(num):
        return jax.lax.fori_loop(0, num, lambda _, x: x + 1, 0)

    each = jax.jit(jax.vmap(until))
    assert loop_conditions(each, np.array([1, 2])) == [(2,)]


# --- memory


def test_memory_counts_all_replicas():
    """Features on the device are there once; a call has about as many examples."""
    one, several = make_training().memory, make_training(replicas=100).memory
    for name in ("parameters", "order of examples"):
        assert several[name] == 100 * one[name] > 0
    for name in ("features", "features on the device"):
        assert several[name] == one[name] > 0
    assert several["rotations"] == 2 * 100 * 5**2 * 8
    assert several["vectors to write"] == 2 * one["vectors to write"]


@pytest.mark.tfdata
def test_memory_counts_the_batches_of_all_replicas():
    one, several = (make_training(loader="tfdata", replicas=k) for k in (1, 4))
    assert one.superblock_size == several.superblock_size == 6
    assert several.memory["batches"] == 4 * one.memory["batches"] > 0
    assert several.device_memory["batches"] == several.memory["batches"]


def test_calls_of_many_replicas_have_fewer_updates(monkeypatch):
    monkeypatch.setattr("embedder.encoders.batches._RESIDENT_BYTES", 6 * 7 * 4 * 8)
    assert make_training().superblock_size == 6
    assert make_training(replicas=3).superblock_size == 2


# --- metrics


@pytest.mark.slow
def test_without_validation_there_are_means_of_training_only():
    options = {"validation_fraction": 0.0}
    training = make_training(replicas=2, **options)
    end = run_epochs(training, training.initial_state())
    histories = []
    for seed in (SEED, SEED + 1):
        one = make_training(seed=seed, **options)
        histories.append(run_epochs(one, one.initial_state()).position.history)
    for both, *each in zip(end.position.history, *histories, strict=True):
        assert both[2:] == (None, None)
        np.testing.assert_allclose(
            both[:2], np.mean([x[:2] for x in each], axis=0), atol=TOLERANCE
        )


def repeated(examples: Examples, times: np.ndarray) -> Examples:
    """The examples, each as many times."""
    keys = [str(i) for i in range(int(times.sum()))]
    features, labels = (np.repeat(x, times, axis=0) for x in examples[:2])
    return Examples(features, labels, examples.classes, keys)


@pytest.mark.spread(1)
@loaders
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_resample_trains_as_its_examples_repeated(loader, replicas):
    """All examples are one batch, so that their order changes rounding alone."""
    whole = {"validation_fraction": 0.0, "batch_size": 100, "loader": loader}
    training = make_training(bootstrap=True, replicas=replicas, **whole)
    end = run_epochs(training, training.initial_state())
    states = unstack_states(end.state) if replicas > 1 else [end.state]
    times = training.source.multiplicity.reshape(50, -1).T
    assert (times.sum(axis=1) == 50).all() and len(np.unique(times, axis=0)) == replicas
    for k, state in enumerate(states):
        given = repeated(make_examples(), times[k])
        single = make_training(given, seed=SEED + k, **whole)
        expected = run_epochs(single, single.initial_state())
        assert largest_difference(state.params, expected.state.params) < TOLERANCE
        if replicas == 1:
            losses = np.array([end.position.losses, expected.position.losses])
            np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)


def test_validation_examples_are_not_resampled():
    source = make_training(bootstrap=True, replicas=2).source
    assert source.multiplicity.shape == (50, 2)
    assert (source.multiplicity[40:] == 0).all()
    assert (source.multiplicity.sum(axis=0) == 40).all()


def test_a_batch_without_any_drawn_example_changes_nothing():
    training = make_training(bootstrap=True, batch_size=1, optimizer="sgd")
    assert (training.source.multiplicity[:40] == 0).any()
    end = run_epochs(training, training.initial_state())
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(end.state.params))
