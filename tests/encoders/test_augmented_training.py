"""Random changes of images while an encoder trains."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from embedder import FeatureEncoder, read_vectors
from embedder.cli.main import main
from embedder.encoders.augment import make_augment, mixup_weights
from embedder.encoders.networks.network import Model
from embedder.encoders.train_step import _AUGMENT
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.epochs import run_epochs
from tests.encoders.image_cases import (
    SEED,
    largest_difference,
    make_training,
    trained,
    write_pngs,
)

CHANGED = ("crop=1", "flip", "cutout=3")
PLAIN = {"average": 0.0, "optimizer_args": (), "rate_schedule": "constant"}
"""An update is parameters - rate gradient."""


def key_of(epoch: int, row: int, view: int = 0) -> jax.Array:
    """The key of a view of an example, fold by fold."""
    key = jax.random.wrap_key_data(jnp.array([0, SEED], jnp.uint32))
    for number in (_AUGMENT, epoch, row, view):
        key = jax.random.fold_in(key, number)
    return key


def changed(image: np.ndarray, key: jax.Array) -> jax.Array:
    """One image by itself."""
    return make_augment(CHANGED)(image[np.newaxis], key[np.newaxis])[0]


def by_hand(training: EncoderTrainer, loss_of_batch) -> dict:
    """The parameters after an epoch of plain SGD on `loss_of_batch`."""
    params = training.initial_state().params
    order = training.source.order(0)
    for start in range(0, len(order), 6):
        slope = jax.grad(loss_of_batch)(params, order[start : start + 6])
        params = jax.tree.map(lambda p, g: p - 0.02 * g, params, slope)
    return jax.device_get(params)


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_an_epoch_of_mixed_images_is_that_of_two_losses(loader):
    """Cross entropy is linear in the labels, so it is the mean by lambda of two."""
    augment = {"augment": (*CHANGED, "mixup=0.4")}
    training = make_training("mlp", epochs=1, loader=loader, **augment, **PLAIN)
    examples = training.examples
    order = training.source.order(0)
    assert order.shape == (22, 2) and {*order[:, 0]} == {*range(22)}
    assert set(order[:, 1]) < {*range(22)}, "never an example of the validation"

    def loss(params, pairs):
        first, second = pairs.T
        keys = jnp.stack([key_of(0, int(i)) for i in first])
        share = mixup_weights(0.4, keys).astype(jnp.float64)
        images = [
            s * changed(examples.features[i], key_of(0, int(i)))
            + (1 - s) * changed(examples.features[j], key_of(0, int(j)))
            for i, j, s in zip(first, second, share, strict=True)
        ]
        scores = training.program.encoder.scores(Model(params), jnp.stack(images))
        of_labels = optax.softmax_cross_entropy_with_integer_labels
        one, other = (of_labels(scores, examples.labels[x]) for x in (first, second))
        return (share * one + (1 - share) * other).mean()

    with jax.enable_x64(True):
        expected = by_hand(training, loss)
    found = run_epochs(training, training.initial_state()).state.params
    assert largest_difference(found, expected) < 1e-12
    plain = trained("mlp", epochs=1, loader=loader, **PLAIN).state.params
    assert largest_difference(plain, expected) > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("own_folder")
def test_simclr_trains_on_images_without_labels(capsys):
    """Files in one folder, and arrays; their vectors are those of any labels, since the
    classifier beside them does not change the network."""
    images = np.random.default_rng(1).integers(256, size=(12, 8, 8), dtype=np.uint8)
    for folder, some in (("flat", 12), ("named/a", 6), ("named/b", 6)):
        write_pngs(Path(folder), images[:some])
    train = "train flat --model encoder --network-args width=2 size=5 --epochs 2"
    train += " --batch-size 5 --augment crop=1 flip --objective simclr"

    def run(command: str, code: int = 0) -> str:
        assert main(command.split()) == code
        found = capsys.readouterr()
        return found.err if code else found.out

    held = "--validation-fraction 0.2 --workdir held"
    for name, value in (("patience", 2), ("result", "best")):
        error = run(f"{train} {held} --{name} {value}", 2)
        assert f"`{name}` goes by the loss of classes, and the examples have" in error
    run(f"{train} --workdir run")
    vectors = read_vectors("run/vectors.safetensors")
    assert vectors.matrix.shape == (12, 5) and np.isfinite(vectors.matrix).all()
    assert main(f"{train} {held} --verbose".split()) == 0
    err = capsys.readouterr().err
    assert "train_loss" in err and "accuracy" not in err and "val_loss" not in err
    for folder in ("run", "held"):  # neither has labels to evaluate
        error = run(f"evaluate {folder}", 2)
        assert "without labels" in error and "--validation-fraction" not in error
        assert "give labelled examples by --examples DATA" in error
    out = run("embed run flat/3.png")
    assert out.startswith("flat/3.png:\n") and "unlabelled" not in out
    for query in ("3.png", "flat/3.png"):  # an example by its key, and a file
        run(f"neighbors run {query} --to sheet.png")
        assert "unlabelled" not in run(f"neighbors run {query}")
    assert "recall@1" in run("evaluate run --examples named")

    settings = {"network": "conv-small", "network_args": {"width": 2, "size": 5}}
    settings |= {"objective": "simclr", "augment": ("crop=1", "flip")}
    settings |= {"epochs": 2, "batch_size": 5}
    without, labelled = (
        FeatureEncoder(**settings).fit(images, y) for y in (None, np.arange(12) % 3)
    )
    np.testing.assert_allclose(
        without.transform(images), labelled.transform(images), rtol=1e-5, atol=1e-6
    )
