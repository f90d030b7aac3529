"""Which loader makes the batches of an encoder, and what is not imported for it."""

import numpy as np
import pytest

from embedder.encoders import loaders
from embedder.encoders.examples import Examples
from embedder.encoders.loaders import choose_loader
from embedder.options import RunOptions
from tests.commands import run_python

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
    ("num_bytes", "processes", "expected"),
    [(1000, 1, "memory"), (1010, 1, "tfdata"), (1000, 2, "tfdata")],
)
def test_features_that_fit_in_a_quarter_stay_on_the_device(
    monkeypatch, num_bytes, processes, expected
):
    monkeypatch.setattr(loaders, "capacity", lambda device, num_local: 4000)
    monkeypatch.setattr(loaders.jax, "process_count", lambda: processes)
    assert choose_loader(RunOptions(), examples(num_bytes)) == expected


@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_a_loader_that_is_given_is_taken(monkeypatch, loader):
    monkeypatch.setattr(loaders, "capacity", lambda device, num_local: 0)
    assert choose_loader(RunOptions(loader=loader), examples(10)) == loader


def test_training_a_small_encoder_imports_no_tensorflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_python("-c", TRAIN)
    assert done.stdout.split()[-2:] == ["0", "False"], done.stderr
    assert "loader: memory, for features of 0.0 MiB" in done.stderr.splitlines()
