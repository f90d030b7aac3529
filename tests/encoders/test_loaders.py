"""Which loader makes the batches of an encoder, and what is not imported for it."""

import jax
import numpy as np
import pytest

from embedder.config import make_config
from embedder.encoders import loaders, training
from embedder.encoders.examples import Examples
from embedder.encoders.loaders import choose_loader
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from embedder.options import RunOptions
from tests.commands import run_python
from tests.encoders.image_cases import make_training

TRAIN = """
import sys
import numpy as np
from embedder.cli import main
x = np.random.default_rng(0).integers(0, 256, (40, 4, 3), np.uint8)
np.savez("images.npz", X=x, y=np.arange(40) % 2)
options = ["--model", "encoder", "--workdir", "run", "--verbose"]
code = main(["train", "images.npz", *options])
print(code, "tensorflow" in sys.modules)
"""


def examples(num_bytes: int) -> Examples:
    features = np.zeros((10, num_bytes // 10), np.uint8)
    return Examples(features, np.zeros(10, np.int32), ["a"], [*"0123456789"])


@pytest.mark.parametrize(
    ("loader", "has_tensorflow", "num_bytes", "processes", "expected"),
    [
        ("auto", True, 1000, 1, ("memory", True)),
        ("auto", True, 1010, 1, ("tfdata", False)),
        ("auto", True, 1000, 2, ("tfdata", False)),
        ("auto", False, 2000, 1, ("memory", True)),
        ("auto", False, 2010, 1, ("memory", False)),
        ("memory", True, 2000, 1, ("memory", True)),
        ("memory", True, 2010, 1, ("memory", False)),
        ("memory", True, 10, 2, ("memory", False)),
        ("tfdata", True, 10, 1, ("tfdata", False)),
    ],
)
def test_features_that_fit_stay_on_the_device(
    monkeypatch, loader, has_tensorflow, num_bytes, processes, expected
):
    """`auto` in a quarter of its memory, without TensorFlow and `memory` in half."""
    monkeypatch.setattr(loaders, "capacity", lambda device, num_local: 4000)
    monkeypatch.setattr(loaders, "has_tensorflow", lambda: has_tensorflow)
    monkeypatch.setattr(loaders, "check_tensorflow", lambda: None)
    monkeypatch.setattr(loaders.jax, "process_count", lambda: processes)
    found = choose_loader(RunOptions(loader=loader), examples(num_bytes))
    assert found == expected


@pytest.mark.parametrize("loader", ["memory", "auto"])
def test_features_that_do_not_fit_give_the_same_vectors(monkeypatch, loader):
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    options = {"loader": loader, "model": "encoder", "epochs": 2, "layers": (6, 4, 2)}
    config = make_config(options)
    data = Examples(x, np.arange(40, dtype=np.int32) % 2, ["a", "b"], ["k"] * 40)
    found = []
    for room in (1 << 40, 1000):
        with monkeypatch.context() as patch:
            patch.setattr(loaders, "capacity", lambda device, num_local: room)  # noqa: B023
            patch.setattr(loaders, "has_tensorflow", lambda: False)
            training = EncoderTraining(config, data, range(2))
        found.append(run_epochs(training, training.initial_state()).state.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, *found))


@pytest.mark.row("F19")
@pytest.mark.parametrize(
    ("has_tensorflow", "advice"),
    [(True, "give --loader tfdata, a smaller network"), (False, "give a smaller net")],
)
def test_tfdata_is_advised_only_with_tensorflow(monkeypatch, has_tensorflow, advice):
    monkeypatch.setattr(loaders, "has_tensorflow", lambda: has_tensorflow)
    monkeypatch.setattr(training, "capacity", lambda device, num_local: 1000)
    with pytest.raises(InputError, match=f"The training needs .*: {advice}"):
        make_training("mlp")


def test_training_a_small_encoder_imports_no_tensorflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_python("-c", TRAIN)
    assert done.stdout.split()[-2:] == ["0", "False"], done.stderr
    line = "loader: memory, features of 0.0 MiB stay on the devices"
    assert line in done.stderr.splitlines()
