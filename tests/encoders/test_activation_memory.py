"""The memory of activations, which is estimated before a training begins."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.cli import main
from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.memory import update_bytes
from embedder.encoders.networks.resnet import ResNet
from embedder.engine.liveness import peak_bytes
from embedder.errors import InputError
from embedder.limits import Limit
from tests.commands import error_line
from tests.encoders.image_cases import make_training

X = jax.ShapeDtypeStruct((8, 4), np.float32)  # 128 bytes


def chain(x):
    return ((x * 2) + 1).sum()  # at the sum: one of 128, and its result


def kept(x):
    doubled = x * 2
    return jnp.sin(jnp.cos(doubled)) * doubled  # `doubled` is held to the end


def looped(x):
    return jax.lax.scan(lambda carry, row: (carry + row, row * 2), x[0], x)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (chain, 128 + 128),
        (kept, 3 * 128),
        (lambda x: x, 0),
        (jax.jit(kept), 3 * 128),
        # x[0] by way of [1, 4]; results [4] and [8, 4], and two rows of a turn.
        (looped, 16 + 16 + 128 + 32),
    ],
    ids=["chain", "kept", "nothing", "compiled", "loop"],
)
def test_values_are_held_from_their_first_to_their_last_use(function, expected):
    assert peak_bytes(function, X) == expected


def bytes_of(network: str, num: int = 8, **options) -> int:
    training = make_training(network, **options)
    return update_bytes(training.program.learning, (num, 8, 8), "float64")


def test_convolutions_of_residual_networks_take_more_than_their_values(monkeypatch):
    """Measured on a CPU, decision 133; on a GPU only values are counted."""
    found = bytes_of("resnet")
    monkeypatch.setattr(ResNet, "cpu_overhead", 1.0)
    update_bytes.cache_clear()
    assert found == pytest.approx(1.25 * bytes_of("resnet"), abs=1)
    update_bytes.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit", "wide-resnet"])
def test_activations_are_fewer_with_remat_or_in_parts(network, monkeypatch):
    whole = bytes_of(network)
    assert 1.6 * whole < bytes_of(network, 16) < 2.1 * whole
    if network == "vit":  # no batch normalisation: parts are the whole
        assert bytes_of(network, micro_batches=2) < 0.75 * whole
    arguments = {
        "vit": ("width=8", "depth=2", "heads=2", "remat=true"),
        "wide-resnet": ("depth=10", "width=1", "remat=true"),
    }[network]
    without = tuple(a for a in arguments if "remat" not in a)
    assert bytes_of(network, network_args=arguments) == bytes_of(
        network, network_args=without
    )  # XLA merges what is computed again on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    update_bytes.cache_clear()
    again = bytes_of(network, 32, network_args=arguments)
    assert again < 0.9 * bytes_of(network, 32, network_args=without)
    update_bytes.cache_clear()


def limited(monkeypatch, size: int) -> None:
    for module in ("limits", "engine.devices", "engine.memory"):
        name = f"embedder.{module}.memory_limit"
        monkeypatch.setattr(name, lambda: Limit(size, "the test"))


@pytest.mark.slow
@pytest.mark.row("F19")
def test_activations_that_do_not_fit_are_refused(tmp_path, monkeypatch, capsys):
    images = np.zeros((4, 64, 64, 3), np.uint8)
    np.savez(tmp_path / "images.npz", X=images, y=np.arange(4) % 2)
    limited(monkeypatch, 300 * 2**20)
    run = ["train", str(tmp_path / "images.npz"), "--model", "encoder"]
    run += ["--loader", "memory", "--workdir", str(tmp_path / "run")]
    assert main([*run, "--batch-size", "512"]) == 2
    line = error_line(capsys)
    assert re.search(r"The training needs 1\.\d GiB .* activations 1\.\d GiB\)", line)
    assert "`batch_size`, or more `micro_batches`" in line
    assert not (tmp_path / "run").exists()
    assert main([*run, "--batch-size", "8", "--dry-run"]) == 0
    assert "activations" in capsys.readouterr().out
    encoder = FeatureEncoder(network="conv-small", batch_size=512)
    with pytest.raises(
        InputError, match="The training needs .*activations.*it has 300"
    ):
        encoder.fit(images, np.arange(4) % 2)
