"""Checkpoints of networks: what they hold, and what earlier ones did not hold."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from embedder.cli import main
from embedder.encoders.artefact import read_encoder
from embedder.encoders.training import EncoderTraining
from embedder.run.checkpoints import Checkpoints, arrays_of
from tests.encoders.image_cases import make_examples, make_training

CONV = ["--network", "conv-small", "--network-args", "width=2", "dropout=0.3"]
CONV += ["--average", "0.5", "--schedule", "cosine"]
COMMON = ["--model", "encoder", "--loader", "memory", "--batch-size", "6"]
COMMON += ["--validation-fraction", "0.2", "--dtype", "float64"]
BEFORE_NETWORKS = {
    "step",
    *(
        f"{tree}.{module}.{name}"
        for tree in ("params", "opt_state.0.mu", "opt_state.0.nu")
        for module in ("hidden/~/linear_0", "classes")
        for name in "wb"
    ),
    "opt_state.0.count",
}
"""Arrays of a checkpoint of an MLP by Adam, when there was no other network."""


def names_of(training: EncoderTraining) -> set[str]:
    return {*arrays_of(training.initial_state())}


@pytest.fixture
def images(tmp_path, monkeypatch) -> str:
    """Images in the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    examples = make_examples()
    np.savez("images.npz", X=examples.features, y=examples.labels)
    return "images.npz"


def train(*options: str, epochs: int, workdir: str = "run") -> int:
    length = ["--epochs", str(epochs), "--workdir", workdir]
    return main(["train", "images.npz", *COMMON, *options, *length])


def newest(workdir: str = "run") -> dict[str, np.ndarray]:
    """The arrays of the newest checkpoint."""
    found = Checkpoints(Path(workdir) / "checkpoints", keep=2).newest()
    assert found is not None
    return found.arrays


def test_a_checkpoint_of_an_mlp_has_the_arrays_that_it_had(images):
    """So those of earlier runs are read."""
    assert train("--layers", "64", "5", "3", "--save-every", "1", epochs=1) == 0
    assert {*newest()} == BEFORE_NETWORKS


@pytest.mark.slow
@pytest.mark.row("F47")
def test_a_checkpoint_of_a_network_has_all_of_its_state(images):
    """Statistics, the seed of random numbers, and the moving average."""
    assert train(*CONV, "--save-every", "1", epochs=1) == 0
    arrays = newest()
    moving = {name for name in arrays if name.startswith("extras.average.")}
    of_params = {name for name in arrays if name.startswith("params.")}
    assert {name.removeprefix("extras.average.") for name in moving} == {
        name.removeprefix("params.") for name in of_params
    }
    statistics = {name for name in arrays if name.startswith("extras.averages.")}
    assert statistics == {
        f"extras.averages.{module}.{name}"
        for module in ("norm_0", "norm_1", "norm_2", "norm_dense")
        for name in ("mean", "variance")
    }
    assert arrays["extras.seed"].tolist() == [0, 1]
    name = "conv_0.w"
    assert (arrays[f"extras.average.{name}"] != arrays[f"params.{name}"]).any()


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("options", "extras"),
    [
        ({"average": 0.0}, {"averages", "seed"}),
        ({"average": 0.5}, {"averages", "seed", "average"}),
        ({"average": 0.0, "network_args": ("width=2",)}, {"averages"}),
    ],
    ids=["no average", "average", "no random numbers"],
)
def test_a_state_has_no_more_than_the_network_needs(options, extras):
    names = names_of(make_training("conv-small", **options))
    found = {name.split(".")[1] for name in names if name.startswith("extras.")}
    assert found == extras


@pytest.mark.slow
def test_the_encoder_of_a_run_is_the_moving_average(images):
    assert train(*CONV, "--save-every", "1", epochs=1) == 0
    arrays, saved = newest(), read_encoder(Path("run/model.npz")).arrays
    module, name = "conv_1", "w"
    np.testing.assert_array_equal(
        saved[f"params/{module}/{name}"], arrays[f"extras.average.{module}.{name}"]
    )
    np.testing.assert_array_equal(
        saved["averages/norm_1/mean"], arrays["extras.averages.norm_1.mean"]
    )


@pytest.mark.slow
@pytest.mark.row("F47")
def test_a_run_that_goes_on_from_any_checkpoint_has_the_same_bits(images):
    """Of three epochs of four updates; the later checkpoints are taken away."""
    options = [*CONV, "--save-every", "2", "--keep", "100"]
    assert train(*options, epochs=3, workdir="whole") == 0
    desired = Path("whole/model.npz").read_bytes()
    steps = Checkpoints(Path("whole/checkpoints"), keep=100).steps()
    assert len(steps) > 4
    for step in steps[1:]:
        shutil.copytree("whole", "run")
        for later in (each for each in steps if each > step):
            shutil.rmtree(f"run/checkpoints/{later}")
        for name in ("model.npz", "vectors.safetensors"):
            Path("run", name).unlink()
        assert train(*options, epochs=3) == 0
        assert Path("run/model.npz").read_bytes() == desired
        shutil.rmtree("run")


def test_states_are_pytrees_of_numpy_before_training():
    state = make_training("conv-small").initial_state()
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(state))
