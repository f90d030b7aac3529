"""An encoder that starts from the parameters of another one."""

import jax
import numpy as np
import pytest

from embedder.cli import main
from embedder.encoders.networks.encoder import make_encoder
from embedder.encoders.networks.mlp import MLP
from embedder.encoders.networks.network import Model
from embedder.encoders.start import Start
from embedder.errors import InputError
from tests.commands import error_line
from tests.encoders.image_cases import make_training


def model_of(network, seed: int) -> Model:
    return make_encoder(network, dtype="float32", seed=seed).init()


def start_of(model: Model) -> Start:
    return Start(model, "other.npz", b"", ("a", "b"))


def test_what_fits_is_taken_and_the_rest_is_drawn():
    """Other classes are another last layer."""
    old, new = model_of(MLP((4, 3, 2)), 1), model_of(MLP((4, 3, 5)), 2)
    found = start_of(old).into(new)
    hidden = "hidden/~/linear_0"
    np.testing.assert_array_equal(found.params[hidden]["w"], old.params[hidden]["w"])
    for name, array in new.params["classes"].items():
        np.testing.assert_array_equal(found.params["classes"][name], array)


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ((6, 7, 5), "has no module with .* names and shapes as the network: give the"),
        ((6, 3, 2), "shapes as the network but `classes`: give the --network and"),
    ],
    ids=["nothing", "classes"],
)
def test_another_network_is_refused(old, message):
    with pytest.raises(InputError, match=message):
        start_of(model_of(MLP(old), 1)).check(model_of(MLP((4, 3, 2)), 2))


def test_a_network_of_one_layer_starts_from_its_classes():
    old, new = (model_of(MLP((4, 2)), seed) for seed in (1, 2))
    found = start_of(old).into(new)
    jax.tree.map(np.testing.assert_array_equal, found.params, old.params)


@pytest.mark.slow
def test_another_network_with_as_wide_an_embedding_is_one_line(tmp_path, capsys):
    """A vit for a run of conv-small: only the last layer fits."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(8, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", X=images, y=np.arange(8) % 2)
    run = ["train", str(tmp_path / "images.npz"), "--model", "encoder", "--epochs", "0"]
    small = ["--network", "conv-small", "--network-args", "size=8", "width=2"]
    assert main([*run, *small, "--workdir", str(tmp_path / "small")]) == 0
    capsys.readouterr()
    other = ["--network", "vit", "--network-args", "width=8", "depth=1"]
    other += [
        "--init-from",
        str(tmp_path / "small"),
        "--workdir",
        str(tmp_path / "vit"),
    ]
    assert main([*run, *other]) == 2
    assert "but `classes`: give the --network" in error_line(capsys)
    assert not (tmp_path / "vit").exists()


def test_a_training_has_the_parameters_it_starts_from():
    training = make_training("vit")
    old = model_of(training.network, 9)
    training._start = start_of(old)
    state = training.initial_state()
    for found, given in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(old.params), strict=True
    ):
        np.testing.assert_array_equal(found, given.astype(found.dtype))


@pytest.mark.slow
def test_a_run_with_a_start_still_has_its_data(tmp_path, monkeypatch, capsys):
    """Its manifest is compared, not what it started from."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(8, 8, 8), dtype=np.uint8)
    np.savez("images.npz", X=images, y=np.arange(8) % 2)
    run = ["train", "images.npz", "--model", "encoder", "--epochs", "1", "--layers"]
    run += ["64", "6", "2", "--validation-fraction", "0.25", "--workdir"]
    assert main([*run, "base"]) == 0
    assert main([*run, "again", "--init-from", "base"]) == 0
    capsys.readouterr()
    assert main(["export", "again", "--to", "p.parquet", "--predictions"]) == 0
    assert main(["neighbors", "again", "0", "--to", "sheet.png"]) == 0
    assert (tmp_path / "sheet.png").stat().st_size > 1000
