"""The networks of the bench in PyTorch compute what those of the program compute."""

import importlib.util
import sys

import numpy as np
import pytest

from bench import networks

TOLERANCE = 1e-4  # of the largest value, after 10 updates in float32
SIZES = {
    "conv-small": {"shape": [12, 10], "arguments": {"width": 4, "size": 8}},
    "resnet": {"shape": [9, 12, 3], "arguments": {"width": 4}},
    "wide-resnet": {"shape": [9, 12, 3], "arguments": {"depth": 10, "width": 1}},
    "vit": {
        "shape": [8, 12, 3],
        "arguments": {"patch": 4, "width": 8, "depth": 2, "heads": 2},
    },
}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is in the extra `bench`"
)


@pytest.mark.parametrize("epochs", [0, 2], ids=["first", "after 10 updates"])
@pytest.mark.parametrize("net", networks.NETS)
def test_vectors_are_those_of_the_port(net, epochs, tmp_path, monkeypatch):
    # PyTorch would load it, and beside TensorFlow the process crashes: both have LLVM.
    monkeypatch.setitem(sys.modules, "triton", None)
    settings = networks.COMMON | {"net": net, "epochs": epochs, "batch_size": 8}
    settings |= SIZES[net] | {"updates": 5}
    networks.write_problem(settings, tmp_path)
    vectors = []
    for program in ("port", "torch"):
        networks.TRAIN[program](settings, tmp_path)
        vectors.append(np.load(tmp_path / "embeddings.npy"))
    ours, theirs = vectors
    assert np.ptp(ours, axis=0).max() > 0.01  # images differ
    atol = TOLERANCE * np.abs(ours).max()
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=atol, strict=True)
