"""Everything but networks.py takes any `Network`: here one that is not an MLP."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import haiku as hk
import jax
import numpy as np
import pytest

import embedder.encoders.artefact
import embedder.encoders.training
from embedder.cli import main
from embedder.encoders.artefact import read_encoder
from embedder.encoders.networks import Params
from embedder.errors import InputError
from embedder.vectors.export import read_vectors

IMAGES = np.random.default_rng(0).integers(256, size=(20, 4, 3, 2), dtype=np.uint8)
SHAPES = {"kernel:w": (2, 2, 2, 5), "kernel:b": (5,), "classes:w": (5, 2)}


@dataclass(frozen=True)
class Convolution:
    """A convolution of 2 x 2, and its mean over the image."""

    example_shape: tuple[int, ...]
    num_classes: int
    vector_size: int = 5
    num_params: int = sum(map(math.prod, SHAPES.values()))

    @property
    def settings(self) -> dict:
        return {"precision": "high"}  # stands for a setting of its own

    def modules(self, initializer):
        kernel = hk.Conv2D(5, 2, w_init=initializer, name="kernel")
        classes = hk.Linear(2, with_bias=False, w_init=initializer, name="classes")
        return lambda x: jax.nn.relu(kernel(x)).mean(axis=(1, 2)), classes

    def to_arrays(self, params: Params) -> dict[str, np.ndarray]:
        parts = (name.split(":") for name in SHAPES)
        return {f"{m}:{n}": np.asarray(params[m][n]) for m, n in parts}

    def to_params(self, arrays: Mapping[str, np.ndarray]) -> Params:
        kernel = {"w": arrays["kernel:w"], "b": arrays["kernel:b"]}
        return {"kernel": kernel, "classes": {"w": arrays["classes:w"]}}


def network_for(options, example_shape, num_classes) -> Convolution:
    return Convolution(example_shape, num_classes)


def network_in(options, arrays, example_shape=None) -> Convolution:
    assert options.precision == "high"
    assert {name: x.shape for name, x in arrays.items()} == SHAPES
    return Convolution(example_shape, arrays["classes:w"].shape[1])


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A finished run of the convolution."""
    monkeypatch.setattr(embedder.encoders.training, "network_for", network_for)
    monkeypatch.setattr(embedder.encoders.artefact, "network_in", network_in)
    np.savez(tmp_path / "data.npz", X=IMAGES, y=np.arange(20) % 2)
    options = ["--model", "encoder", "--loader", "memory", "--batch-size", "8"]
    run = ["--workdir", str(tmp_path / "run"), "--validation-fraction", "0.2"]
    assert main(["train", str(tmp_path / "data.npz"), *run, *options]) == 0
    return tmp_path / "run"


def test_another_network_trains_and_embeds_new_examples(run, tmp_path):
    np.save(tmp_path / "new.npy", IMAGES)
    to = tmp_path / "new.npz"
    assert main(["embed", str(run), str(tmp_path / "new.npy"), "--to", str(to)]) == 0
    trained = read_vectors(run / "vectors.safetensors").matrix
    assert trained.shape == (20, 5)
    np.testing.assert_array_equal(read_vectors(to).matrix, trained)


def test_the_file_of_another_network_has_its_settings(run):
    model = read_encoder(run / "model.npz")
    assert model.network == Convolution((4, 3, 2), 2)
    assert model.settings["precision"] == "high"
    assert 'precision = "high"' in (run / "config.toml").read_text()
    with pytest.raises(InputError, match="FeatureEncoder does not have, by `precision"):
        embedder.FeatureEncoder.load(run / "model.npz")
