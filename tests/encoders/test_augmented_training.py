"""Random changes of images while an encoder trains."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from PIL import Image

from embedder import FeatureEncoder, read_vectors
from embedder.cli import main
from embedder.encoders.augment import make_augment, mixup_weights
from embedder.encoders.networks.network import Model
from embedder.encoders.training import EncoderTraining
from embedder.encoders.update import _AUGMENT
from embedder.engine.epochs import run_epochs
from embedder.engine.replicas import unstack_states
from embedder.errors import InputError
from tests.encoders.image_cases import (
    SEED,
    largest_difference,
    make_config,
    make_examples,
    make_training,
    trained,
)

CHANGED = ("crop=1", "flip", "cutout=3")
MIXED = ("flip", "mixup=0.4")
PLAIN = {"average": 0.0, "optimizer_args": (), "rate_schedule": "constant"}
"""An update is parameters - rate gradient."""


def key_of(epoch: int, row: int, view: int = 0) -> jax.Array:
    """The key of a view of an example, fold by fold."""
    key = jax.random.wrap_key_data(jnp.array([0, SEED], jnp.uint32))
    for number in (_AUGMENT, epoch, row, view):
        key = jax.random.fold_in(key, number)
    return key


def changed(spec: tuple[str, ...], image: np.ndarray, key: jax.Array) -> jax.Array:
    """One image by itself."""
    return make_augment(spec)(image[np.newaxis], key[np.newaxis])[0]


def by_hand(training: EncoderTraining, loss_of_batch) -> dict:
    """The parameters after an epoch of plain SGD on `loss_of_batch`."""
    params = training.initial_state().params
    order = training.source.order(0)
    for start in range(0, len(order), 6):
        slope = jax.grad(loss_of_batch)(params, order[start : start + 6])
        params = jax.tree.map(lambda p, g: p - 0.02 * g, params, slope)
    return jax.device_get(params)


def scores_of(training: EncoderTraining, params, images) -> jax.Array:
    return training.program.encoder.scores(Model(params), jnp.stack(images))


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_an_epoch_is_that_of_the_changed_images(loader):
    training = make_training("mlp", epochs=1, loader=loader, augment=CHANGED, **PLAIN)
    examples = training.examples

    def loss(params, rows):
        images = [
            changed(CHANGED, examples.features[row], key_of(0, int(row)))
            for row in rows
        ]
        scores = scores_of(training, params, images)
        return optax.softmax_cross_entropy_with_integer_labels(
            scores, examples.labels[rows]
        ).mean()

    with jax.enable_x64(True):
        expected = by_hand(training, loss)
    found = run_epochs(training, training.initial_state()).state.params
    assert largest_difference(found, expected) < 1e-12
    plain = trained("mlp", epochs=1, loader=loader, **PLAIN).state.params
    assert largest_difference(plain, expected) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_an_epoch_with_mixup_is_that_of_two_losses(loader):
    """Cross entropy is linear in the labels, so it is the mean by lambda of two."""
    training = make_training("mlp", epochs=1, loader=loader, augment=MIXED, **PLAIN)
    examples = training.examples
    order = training.source.order(0)
    assert order.shape == (22, 2) and {*order[:, 0]} == {*range(22)}
    assert set(order[:, 1]) < {*range(22)}, "never an example of the validation"

    def loss(params, pairs):
        first, second = pairs.T
        keys = jnp.stack([key_of(0, int(i)) for i in first])
        share = mixup_weights(0.4, keys).astype(jnp.float64)
        images = [
            s * changed(("flip",), examples.features[i], key_of(0, int(i)))
            + (1 - s) * changed(("flip",), examples.features[j], key_of(0, int(j)))
            for i, j, s in zip(first, second, share, strict=True)
        ]
        scores = scores_of(training, params, images)
        losses = [
            optax.softmax_cross_entropy_with_integer_labels(
                scores, examples.labels[rows]
            )
            for rows in (first, second)
        ]
        return (share * losses[0] + (1 - share) * losses[1]).mean()

    with jax.enable_x64(True):
        expected = by_hand(training, loss)
    found = run_epochs(training, training.initial_state()).state.params
    assert largest_difference(found, expected) < 1e-12


TRAINED = {
    "changed": {"augment": CHANGED},
    "mixed": {"augment": MIXED},
    "mixed alone": {"augment": ("mixup=1",)},
    "simclr": {"augment": CHANGED, "objective": "simclr"},
    "supcon of two views": {
        "augment": CHANGED,
        "objective": "supcon",
        "objective_args": ("views=2",),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED)
def test_both_loaders_give_the_same_bits(case):
    first, second = (
        trained("mlp", loader=loader, **TRAINED[case])
        for loader in ("memory", "tfdata")
    )
    assert largest_difference(first.state, second.state) == 0
    assert first.position.history == second.position.history
    other = trained("mlp", **TRAINED[case] | {"seed": SEED + 1})
    assert largest_difference(first.state.params, other.state.params) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("case", ["changed", "mixed", "simclr"])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_replicas_are_runs_of_their_seeds(case, bootstrap):
    options = TRAINED[case] | {"bootstrap": bootstrap}
    models = [make_config("mlp", seed=seed, **options) for seed in (3, 8)]
    training = make_training("mlp", models=models, **options)
    end = run_epochs(training, training.initial_state())
    for state, each in zip(unstack_states(end.state), (3, 8), strict=True):
        alone = trained("mlp", **options | {"seed": each})
        assert largest_difference(state.params, alone.state.params) < 1e-12


@pytest.mark.slow
def test_parts_of_a_batch_are_the_whole_batch():
    for spec in (CHANGED, MIXED):
        whole, parts = (
            trained("mlp", augment=spec, micro_batches=num) for num in (1, 3)
        )
        assert largest_difference(parts.state, whole.state) < 1e-12


@pytest.mark.slow
def test_views_of_an_example_differ():
    """Else simclr has nothing to learn: its positive would be the example itself."""
    image = make_examples().features[0]
    first, second = (changed(CHANGED, image, key_of(0, 0, view)) for view in (0, 1))
    assert (first != second).any()


@pytest.mark.row("B47")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"augment": ("mixup=1",), "objective": "supcon"},
            "mixup applies only to `objective` softmax, got supcon",
        ),
        (
            {"augment": ("crop=8",)},
            "crop=8 must be less than the height and width of images, 8 and 8",
        ),
        ({"augment": ("rotate=3",)}, "`augment` must be crop=N.* got 'rotate=3'"),
        ({"objective": "simclr"}, "`objective` simclr compares views.* give `augment`"),
        (
            {"objective": "supcon", "objective_args": ("views=2",)},
            "`objective` supcon compares views.* give `augment`",
        ),
    ],
)
def test_changes_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        make_training("mlp", **options)


@pytest.mark.slow
def test_simclr_trains_on_images_without_labels(tmp_path, monkeypatch, capsys):
    """Files in one folder, and arrays; their vectors are those of any labels, since the
    classifier beside them does not change the network."""
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(1).integers(256, size=(12, 8, 8), dtype=np.uint8)
    for folder in ("flat", "named/a", "named/b"):
        (tmp_path / folder).mkdir(parents=True)
    for number, image in enumerate(images):
        png = Image.fromarray(image)
        png.save(f"flat/{number:02}.png")
        png.save(f"named/{'ab'[number % 2]}/{number:02}.png")
    options = ["--model", "encoder", "--network-args", "width=2", "size=5"]
    options += ["--epochs", "2", "--batch-size", "5", "--augment", "crop=1", "flip"]
    for each in ("simclr", "softmax"):
        command = ["train", "flat", *options, "--objective", each, "--workdir", "run"]
        assert main(command) == {"simclr": 0, "softmax": 2}[each]
    assert "images that are in no folder of a class" in capsys.readouterr().err
    chosen = [
        "--objective",
        "simclr",
        "--validation-fraction",
        "0.2",
        "--workdir",
        "no",
    ]
    for each in (["--patience", "2"], ["--result", "best"]):
        assert main(["train", "flat", *options, *chosen, *each]) == 2
        refused = f"`{each[0][2:]}` goes by the loss of classes, and the examples have"
        assert refused in capsys.readouterr().err
    vectors = read_vectors("run/vectors.safetensors")
    assert vectors.matrix.shape == (12, 5) and np.isfinite(vectors.matrix).all()
    capsys.readouterr()
    held = ["--workdir", "held", "--verbose"]
    assert main(["train", "flat", *options, *chosen[:4], *held]) == 0
    err = capsys.readouterr().err
    assert "train_loss" in err and "accuracy" not in err and "val_loss" not in err
    for run in ("run", "held"):  # neither has labels to evaluate
        assert main(["evaluate", run]) == 2
        line = capsys.readouterr().err
        assert "without labels" in line and "--validation-fraction" not in line
        assert "give labelled examples by --examples DATA" in line
    assert main(["embed", "run", "flat/03.png"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("flat/03.png:\n") and "unlabelled" not in out
    for query in ("03.png", "flat/03.png"):  # an example by its key, and a file
        command = ["neighbors", "run", query, "--to", "sheet.png"]
        assert main(command) == 0
        assert main(command[:3]) == 0
        assert "unlabelled" not in capsys.readouterr().out
    assert main(["evaluate", "run", "--examples", "named"]) == 0
    assert "recall@1" in capsys.readouterr().out

    settings = {"network": "conv-small", "network_args": {"width": 2, "size": 5}}
    settings |= {"objective": "simclr", "augment": ("crop=1", "flip")}
    settings |= {"epochs": 2, "batch_size": 5, "dtype": "float32"}
    without, labelled = (
        FeatureEncoder(**settings).fit(images, y) for y in (None, np.arange(12) % 3)
    )
    np.testing.assert_allclose(
        without.transform(images), labelled.transform(images), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="requires y to be passed"):
        FeatureEncoder(**settings | {"objective": "supcon"}).fit(images, None)
