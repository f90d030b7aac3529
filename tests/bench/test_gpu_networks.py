"""What updates of networks launch on an H200."""

import importlib.util

import pytest

from bench import gpu_networks
from bench.gpu_offline import PLUGIN, compiled


def test_without_the_plugin_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    gpu_networks.main([])
    out = capsys.readouterr().out
    assert out.startswith("skipped: jax_cuda12_plugin ") and out.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec(PLUGIN) is None, reason="needs the extra `gpu-offline`"
)
def test_an_update_of_a_network_has_no_copies_and_convolutions_of_cudnn():
    settings = {"network": "conv-small", "batch_size": 128}
    case = {"example_shape": [28, 28], "classes": 10, "examples": 100}
    [found] = compiled([case | {"settings": settings}], "bench.h200_networks")
    assert found["copies"] == 0 and found["kernels"] <= 110
    assert found["scatters"] <= 1 and "cas" not in found["atomics_of_call"]
    # Three convolutions, with the gradients of their kernels and of two inputs, and
    # the three products of each of two linear layers, but for one input.
    assert 8 < found["libraries"] <= 14
    values = 3 * found["parameters"]  # parameters and the moments of Adam
    assert values < found["state_bytes"] / 4 < 1.02 * values
