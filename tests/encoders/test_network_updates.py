"""Updates of networks: parts of a batch, moving averages, frozen modules, replicas."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np
import pytest

from embedder.cli import main
from embedder.config import common_config
from embedder.encoders.artefact import read_encoder
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import run_epochs
from embedder.engine.replicas import unstack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from legacy import network as legacy_network
from legacy.network import Layer
from migration.parity import objectives as oracle
from tests.commands import error_line
from tests.encoders.image_cases import (
    NETWORKS,
    SEED,
    largest_difference,
    make_config,
    make_examples,
    make_training,
    trained,
)

# --- parts of a batch

NO_DROPOUT = ("width=8", "depth=2", "heads=2")
BALANCED = {"class_weights": "balanced", "objective_args": ("smoothing=0.1",)}
PARTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "mlp": (6, "mlp", {}),
    "mlp, class weights": (2, "mlp", BALANCED),
    "mlp, arcface": (2, "mlp", {"objective": "arcface"} | BALANCED),
    "vit": (2, "vit", {"network_args": NO_DROPOUT}),
    "vit, dropout": (6, "vit", {}),
}
"""The number of parts, the network and its settings."""


@pytest.mark.slow
@pytest.mark.parametrize("case", PARTS)
def test_parts_of_a_batch_are_the_whole_batch(case):
    """Without batch normalisation, whose statistics are those of a part."""
    parts, network, options = PARTS[case]
    whole = trained(network, **options)
    found = trained(network, micro_batches=parts, **options)
    assert found.position.updates == 8
    assert largest_difference(found.state, whole.state) < 1e-12
    histories = [x.position.history for x in (found, whole)]
    np.testing.assert_allclose(*histories, rtol=1e-12)


@pytest.mark.row("B52")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"micro_batches": 4}, "`micro_batches` must divide `batch_size` 6, got 4"),
        (
            {"micro_batches": 2, "objective": "supcon"},
            "`micro_batches` must be 1 for `objective` supcon.* got 2",
        ),
        (
            {"micro_batches": 3, "objective": "triplet"},
            "`micro_batches` must be 1 for `objective` triplet.* got 3",
        ),
        ({"objective": "simclr"}, "`objective` simclr compares views.* give `augment`"),
    ],
)
def test_parts_and_views_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        make_training("mlp", **options)


@pytest.mark.row("B51")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--network vit --network-args patch=3", "patch must divide the images, 8 x 8"),
        ("--network vit --network-args width=9 heads=2", "heads must divide .* got 2"),
        ("--network vit --network-args pool=max", "pool must be class or mean"),
        ("--network resnet --network-args depth=19", "depth must be one of .* got 19"),
        ("--network wide-resnet --network-args depth=9", "depth must be .* got 9"),
        ("--network conv-small --network-args drop=1", "must be of .* got 'drop'"),
        ("--network conv-small --network-args dropout=1", r"\[0, 1\), got '1'"),
        ("--objective-args margin=1", "of softmax must be of .* got 'margin'"),
        ("--objective-args smoothing=1", r"smoothing must be .* \[0, 1\), got 1"),
        ("--objective triplet --objective-args margin=3", "margin must be .* got 3"),
        ("--objective supcon --objective-args temperature=0", "> 0, got 0"),
        ("--warmup soon", "`warmup` must be a number of updates .* got 'soon'"),
        ("--network mlp --network-args width=3", "are of networks .* got width=3"),
        ("--objective supcon --class-weights balanced", "softmax and arcface, got 'b"),
        ("--freeze stem*", "`freeze` must be a pattern of some .* is that of none: "),
        ("--freeze *", "`freeze` must be a pattern of some .* is that of all: "),
        ("--micro-batches 5", "`micro_batches` must divide `batch_size` 6, got 5"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    examples = make_examples()
    np.savez("images.npz", X=examples.features, y=examples.labels)
    options = ["--model", "encoder", "--batch-size", "6", *flags.split()]
    assert main(["train", "images.npz", *options]) == 2
    assert re.search(message, error_line(capsys))


# --- moving average


def states_after_each_update(
    training: EncoderTraining, epochs: int = 2
) -> Iterator[TrainState]:
    """Copies of the state, from the first one on."""
    program = training.program
    yield training.initial_state()
    state = program.place_state(training.initial_state())
    for epoch in range(epochs):
        for call in training.calls(state, epoch):
            assert call.num_updates
            state = call.state
            yield jax.tree.map(np.array, program.whole_state(state))


@pytest.mark.slow
def test_the_moving_average_is_that_of_a_plain_loop():
    """kept = min(decay, (1 + s) / (10 + s)) after update s, from 0."""
    training = make_training("conv-small", average=0.3, save_every=1)
    first, *others = states_after_each_update(training)
    assert len(others) == 8
    average = first.params
    for number, state in enumerate(others):
        kept = min(0.3, (1 + number) / (10 + number))
        average = jax.tree.map(
            lambda a, p, kept=kept: kept * a + (1 - kept) * p, average, state.params
        )
        assert largest_difference(state.extras.average, average) < 1e-12
    assert largest_difference(average, state.params) > 1e-4


# --- frozen modules

FREEZING: dict[str, dict[str, Any]] = {
    "momentum": {"weight_decay": 0.1, "clip_norm": 1.0},
    "adam": {"optimizer": "adam", "optimizer_args": (), "weight_decay": 0.1},
    "adamw": {"optimizer": "adamw", "optimizer_args": (), "weight_decay": 0.1},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FREEZING)
def test_frozen_modules_keep_every_bit(case):
    """Parameters, statistics of batch normalisation, and the moving average."""
    options = {"freeze_modules": "*_0", "average": 0.9} | FREEZING[case]
    training = make_training("conv-small", **options)
    before = training.initial_state()
    after = run_epochs(training, before).state
    trees = [
        (after.params, before.params),
        (after.extras.averages, before.extras.averages),
        (after.extras.average, before.params),
    ]
    frozen = {name for name in before.params if fnmatchcase(name, "*_0")}
    assert frozen == {"conv_0", "norm_0"}
    for found, desired in trees:
        for module, arrays in found.items():
            for name, array in arrays.items():
                is_same = array.tobytes() == desired[module][name].tobytes()
                assert is_same == (module in frozen), (module, name)


# --- class weights and smoothing, from the command line


@pytest.mark.slow
def test_a_run_with_class_weights_and_smoothing_is_that_of_the_oracle(
    tmp_path, monkeypatch
):
    """An epoch of an MLP, by NumPy alone, from the first parameters on."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 5)), np.repeat([0, 1, 2], [4, 8, 18])
    y = rng.permutation(y)
    np.savez("points.npz", X=x, y=y)
    options = ["--model", "encoder", "--layers", "5", "6", "3", "--epochs", "1"]
    options += ["--optimizer", "sgd", "--learning-rate", "0.5", "--batch-size", "8"]
    options += ["--class-weights", "balanced", "--objective-args", "smoothing=0.2"]
    options += ["--dtype", "float64", "--loader", "memory", "--seed", "3"]
    assert main(["train", "points.npz", *options, "--workdir", "run"]) == 0
    layers = legacy_network.initial_layers((5, 6, 3), "float64", 3)
    weights = tuple((30 / (3 * np.bincount(y))).tolist())
    for batch in legacy_network.batches(np.arange(30), 8, 3, 0):

        def loss(scores, batch=batch):
            return oracle.softmax(scores, y[batch], np.ones(len(batch)), 0.2, weights)

        layers = oracle.update_by_scores(layers, x[batch], loss, 0.5)
    arrays = read_encoder(tmp_path / "run" / "model.npz").arrays
    found = [Layer(arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in range(2)]
    assert largest_difference(found, layers) < 1e-12


# --- replicas


@pytest.mark.slow
@pytest.mark.row("F47")
@pytest.mark.parametrize("network", ["conv-small", "vit"])
def test_each_replica_of_a_network_is_a_run_of_its_seed(network):
    """Parameters, statistics, moving average and random numbers."""
    together = trained(network, replicas=2).state
    for k, found in enumerate(unstack_states(together)):
        alone = trained(network, seed=SEED + k).state
        assert largest_difference(found, alone) < 1e-10
    first, second = (each.params for each in unstack_states(together))
    assert largest_difference(first, second) > 1e-2


@pytest.mark.slow
def test_networks_with_own_rates_are_runs_of_their_own():
    """Beside a schedule, weight decay and clipping, which they share."""
    shared = {"rate_schedule": "linear", "warmup": "3", "weight_decay": 0.1}
    shared |= {"clip_norm": 1.0}
    own = [{"learning_rate": 0.01, "seed": 3}, {"learning_rate": 0.05, "seed": 9}]
    models = [make_config("conv-small", **shared, **each) for each in own]
    training = EncoderTraining(common_config(models), make_examples(), range(2), models)
    together = run_epochs(training, training.initial_state()).state
    for each, found in zip(own, unstack_states(together), strict=True):
        alone = trained("conv-small", **shared, **each).state
        assert largest_difference(found, alone) < 1e-10


@pytest.mark.slow
def test_two_runs_of_a_network_have_the_same_bits():
    first, second = (trained("conv-small").state for _ in range(2))
    assert largest_difference(first, second) == 0
    assert NETWORKS["conv-small"][-1] == "dropout=0.3"
