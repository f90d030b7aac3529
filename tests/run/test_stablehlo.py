"""`embedder export RUN --to encoder.stablehlo`: read back, equal embeddings."""

import re
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest

from embedder.cli import main
from embedder.encoders import stablehlo
from embedder.encoders.artefact import read_encoder
from embedder.encoders.predictor import predictor_of
from tests.commands import error_line
from tests.encoders.image_cases import NETWORKS

RNG = np.random.default_rng(0)
LABELS = np.arange(24) % 3
IMAGES = RNG.integers(256, size=(24, 8, 8, 3)).astype(np.uint8)
POINTS = RNG.normal(size=(24, 4))
FAST = ["--model", "encoder", "--loader", "memory", "--batch-size", "8"]
RUNS = {
    **{
        name: ("images.npz", ["--network", name, *_args])
        for name, _args in (
            (name, ["--network-args", *args] if args else [])
            for name, args in NETWORKS.items()
        )
    },
    "wide": ("points.npz", ["--layers", "4", "6", "3", "--dtype", "float64"]),
    "several": ("points.npz", ["--layers", "4", "6", "3", "--replicas", "3"]),
}
SLOW = {"resnet", "wide-resnet", "vit"}
"""Networks whose updates take long to compile: they are not trained."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stablehlo")
    np.savez(folder / "images.npz", X=IMAGES, y=LABELS)
    np.savez(folder / "points.npz", X=POINTS, y=LABELS)
    return folder


@pytest.fixture
def run_of(folder, monkeypatch, tmp_path):
    """A function: the run with a name, which is trained once."""
    monkeypatch.chdir(tmp_path)

    def get(name: str) -> Path:
        run, (data, options) = folder / name, RUNS[name]
        if not run.exists():
            epochs = "0" if name in SLOW else "1"
            where = ["--workdir", str(run), "--epochs", epochs]
            assert main(["train", str(folder / data), *FAST, *options, *where]) == 0
        return run

    return get


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_file_gives_the_embeddings(run_of, name):
    run = run_of(name)
    assert main(["export", str(run), "--to", "net.stablehlo"]) == 0
    assert [*map(str, Path().iterdir())] == ["net.stablehlo"]
    model = read_encoder(run / "model.npz")
    dtype = model.settings["dtype"]
    x = POINTS.astype(dtype) if RUNS[name][0] == "points.npz" else IMAGES
    with jax.enable_x64(dtype == "float64"):
        exported = jax.export.deserialize(bytearray(Path("net.stablehlo").read_bytes()))
        for num in (1, 5, 24):  # any number of examples
            found = np.asarray(exported.call(x[:num]))
            expected = predictor_of(model).vectors(x[:num], model.rotations)
            assert (found.shape, found.dtype) == (expected.shape, dtype)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert {*exported.platforms} == {"cpu", "cuda", "tpu"}
    assert exported.in_avals[0].shape[1:] == x.shape[1:]


def test_an_encoder_file_and_the_name_of_the_format(run_of):
    file = run_of("wide") / "model.npz"
    arguments = ["--to", "x.stablehlo", "--format", "stablehlo"]
    assert main(["export", str(file), *arguments]) == 0
    assert Path("x.stablehlo").stat().st_size > 0


def test_a_network_that_cannot_be_exported_is_refused(run_of, monkeypatch, capsys):
    def forward(model):
        return lambda x: (x.reshape(24, -1),)  # for 24 examples only

    run = run_of("several")
    capsys.readouterr()  # of the training
    monkeypatch.setattr(stablehlo, "forward", forward)
    assert main(["export", str(run), "--to", "x.stablehlo"]) == 2
    message = "RUN .*several cannot be exported as StableHLO: "
    assert re.search(message, error_line(capsys))
    assert [*Path().iterdir()] == []


def test_a_file_with_other_embeddings_is_refused(run_of, monkeypatch, capsys):
    forward, run = stablehlo.forward, run_of("several")
    capsys.readouterr()  # of the training
    monkeypatch.setattr(
        stablehlo, "forward", lambda model: lambda x: [forward(model)(x)[0] * 1.001]
    )
    assert main(["export", str(run), "--to", "x.stablehlo"]) == 2
    assert "its embeddings are not those of the encoder" in error_line(capsys)
    assert [*Path().iterdir()] == []
