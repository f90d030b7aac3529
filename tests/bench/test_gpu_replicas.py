"""What updates of models side by side launch on an H200."""

import importlib.util
from typing import Any

import pytest

from bench import gpu_replicas
from bench.gpu_offline import PLUGIN, SHAPE, compiled

needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec(PLUGIN) is None, reason="needs the extra `gpu-offline`"
)
SMALL = {"vocabulary": 1000, "vector_size": 100, "blocks": 256, "updates": 16}


def counted(case: dict[str, Any], *replicas: int) -> list[dict[str, Any]]:
    cases = [case | {"replicas": number} for number in replicas]
    return [*compiled(cases, "bench.h200_replicas")]


def test_without_the_plugin_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    gpu_replicas.main([])
    out = capsys.readouterr().out
    assert out.startswith("skipped: jax_cuda12_plugin ") and out.count("\n") == 1


@pytest.mark.slow
@needs_plugin
def test_a_hundred_networks_take_one_kernel_more_than_one():
    one, hundred = counted(gpu_replicas.SPIRALS, 1, 100)
    assert one["kernels"] <= 18 and hundred["kernels"] <= 19
    assert one["copies"] == hundred["copies"] == 0
    assert "cas" not in hundred["atomics_of_call"]
    parameters = 4 * ((2 + 1) * 32 + (32 + 1) * 2)
    assert one["state_bytes"] == parameters + 4  # and the number of updates
    assert hundred["state_bytes"] == 100 * one["state_bytes"]


@pytest.mark.slow
@needs_plugin
def test_four_models_of_tables_take_few_more_kernels_than_one():
    case = SHAPE | gpu_replicas.SKIPGRAM | SMALL
    one, four = counted(case, 1, 4)
    assert one["kernels"] <= 9 and four["kernels"] <= 10
    assert four["scatters"] == one["scatters"] == 2
    assert "cas" not in four["atomics_of_call"]
    assert four["atomics"]["v4.f32.add"] == 2
    assert four["state_bytes"] == 4 * one["state_bytes"]
    assert one["state_bytes"] == 4 * (2 * 1000 * 100 + 1)
