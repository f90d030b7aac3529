"""Everything but the registry takes any `Network`: here one of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import haiku as hk
import jax
import numpy as np
import pytest

import embedder
from embedder.cli import main
from embedder.encoders.artefact import read_encoder
from embedder.encoders.networks.network import BaseNetwork
from embedder.encoders.networks.registry import NETWORKS, named_arrays_shapes
from embedder.vectors.export import read_vectors

IMAGES = np.random.default_rng(0).integers(256, size=(20, 4, 3, 2), dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class Convolution(BaseNetwork):
    """A convolution of 2 x 2, and its mean over the image."""

    name: ClassVar[str] = "vit"  # a value that the settings take

    channels: int = 5

    @property
    def hidden_size(self) -> int:
        return self.channels

    @property
    def needs_keys(self) -> bool:
        return False

    def hidden(self, draws):
        def forward(x, use):
            kernel = hk.Conv2D(self.channels, 2, w_init=draws, name="kernel")
            return jax.nn.relu(kernel(x)).mean(axis=(1, 2))

        return forward


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A finished run of the convolution."""
    monkeypatch.setitem(NETWORKS, "vit", Convolution)
    np.savez(tmp_path / "data.npz", X=IMAGES, y=np.arange(20) % 2)
    options = ["--model", "encoder", "--loader", "memory", "--batch-size", "8"]
    options += ["--network", "vit", "--network-args", "channels=6"]
    run = ["--workdir", str(tmp_path / "run"), "--validation-fraction", "0.2"]
    assert main(["train", str(tmp_path / "data.npz"), *run, *options]) == 0
    return tmp_path / "run"


def test_another_network_trains_and_embeds_new_examples(run, tmp_path):
    np.save(tmp_path / "new.npy", IMAGES)
    to = tmp_path / "new.npz"
    assert main(["embed", str(run), str(tmp_path / "new.npy"), "--to", str(to)]) == 0
    trained = read_vectors(run / "vectors.safetensors").matrix
    assert trained.shape == (20, 6)
    np.testing.assert_array_equal(read_vectors(to).matrix, trained)


def test_the_file_of_another_network_has_its_settings(run):
    model = read_encoder(run / "model.npz")
    network = Convolution(example_shape=(4, 3, 2), num_classes=2, channels=6)
    assert model.network == network
    shapes = {name: array.shape for name, array in model.arrays.items()}
    assert shapes == named_arrays_shapes(network)
    assert shapes["params/kernel/w"] == (2, 2, 2, 6)
    assert model.settings["network_args"] == ["channels=6"]
    assert 'network = "vit"' in (run / "config.toml").read_text()
    encoder = embedder.FeatureEncoder.load(run / "model.npz")
    assert (encoder.network, encoder.network_args) == ("vit", {"channels": "6"})
    trained = read_vectors(run / "vectors.safetensors").matrix
    np.testing.assert_array_equal(encoder.transform(IMAGES), trained)
