"""Updates of networks: parts of a batch, moving averages, frozen modules, weights,
convolutions; tests/parity compares whole networks."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder import FeatureEncoder
from embedder.cli.main import main
from embedder.encoders.artefact import read_encoder
from embedder.encoders.networks.conv_small import largest_of_squares
from embedder.encoders.networks.convolution import convolution
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.state import TrainState
from legacy import network as legacy_network
from legacy.network import Layer
from migration.parity import objectives as oracle
from tests.encoders.image_cases import largest_difference, make_training, trained

BALANCED = {"class_weights": "balanced", "objective_args": ("smoothing=0.1",)}
PARTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "mlp": (6, "mlp", {}),
    "mlp, class weights": (2, "mlp", BALANCED),
    "mlp, arcface": (2, "mlp", {"objective": "arcface"} | BALANCED),
    "mlp, changed images": (3, "mlp", {"augment": ("crop=1", "mixup=0.4")}),
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


def states_after_each_update(training: EncoderTrainer) -> Iterator[TrainState]:
    """Copies of the state, from the first one on."""
    program = training.program
    yield training.initial_state()
    state = program.place_state(training.initial_state())
    for epoch in range(2):
        for call in training.calls(state, epoch):
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


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_frozen_modules_keep_every_bit(tmp_path, optimizer):
    """Parameters, statistics of batch normalisation, and the moving average."""
    rng, options = np.random.default_rng(0), {"width": 2, "size": 5}
    images, labels = rng.integers(256, size=(30, 8, 8)).astype(np.uint8), rng.random(30)
    arrays = []
    for epochs in (0, 2):
        encoder = FeatureEncoder(
            **{"network": "conv-small", "network_args": options, "freeze": "*_0"},
            **{"optimizer": optimizer, "average": 0.9, "epochs": epochs},
            **{"weight_decay": 0.1, "clip_norm": 1.0, "batch_size": 6},
        )
        encoder.fit(images, labels > 0.5).save(tmp_path / "model.npz")
        arrays.append(read_encoder(tmp_path / "model.npz").arrays)
    first, after = arrays
    for name, array in after.items():
        is_frozen = name.split("/")[1] in ("conv_0", "norm_0")
        assert (array.tobytes() == first[name].tobytes()) == is_frozen, name


@pytest.mark.slow
@pytest.mark.usefixtures("own_folder")
def test_a_run_with_class_weights_and_smoothing_is_that_of_the_oracle():
    """An epoch of an MLP, by NumPy alone, from the first parameters on."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 5)), rng.permutation(np.repeat([0, 1, 2], [4, 8, 18]))
    np.savez("points.npz", X=x, y=y)
    options = "--model encoder --layers 5 6 3 --epochs 1 --optimizer sgd --seed 3"
    options += " --learning-rate 0.5 --batch-size 8 --dtype float64 --loader memory"
    options += " --class-weights balanced --objective-args smoothing=0.2 --workdir run"
    assert main(["train", "points.npz", *options.split()]) == 0
    layers = legacy_network.initial_layers((5, 6, 3), "float64", 3)
    weights = tuple((30 / (3 * np.bincount(y))).tolist())
    for batch in legacy_network.batches(np.arange(30), 8, 3, 0):

        def loss(scores, batch=batch):
            return oracle.softmax(scores, y[batch], np.ones(len(batch)), 0.2, weights)

        layers = oracle.update_by_scores(layers, x[batch], loss, 0.5)
    arrays = read_encoder(Path("run/model.npz")).arrays
    found = [Layer(arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in range(2)]
    assert largest_difference(found, layers) < 1e-12


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_in_a_loop_are_in_the_order_that_xla_has_fast_ones_for(stride):
    rng = np.random.default_rng(0)
    x, kernel = rng.random((2, 8, 8, 8), "f4"), rng.random((3, 3, 8, 8), "f4")

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
