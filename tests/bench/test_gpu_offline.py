"""Counts of launches from what XLA dumps; what updates launch on an H200."""

import importlib.util

import pytest

from bench.gpu import h200, main, offline
from bench.gpu.offline import SHAPE, compiled

THUNKS = """
000: kCommandBuffer [source       | next=003 (1)]
    001: kCopy         [source        | sink         ] kCopy
    002: kCustomKernel [source        | sink         ] loop_fusion grid: [1, 1, 1]
003: kWhile         [prev=000 (1) | next=010 (1)]
condition:
    004: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1]
  body:
    005: kDynamicSliceFusion [source       | next=000 (1) ] params=1, results=1
        006: kCopy [source | sink] kCopy
    007: kWhile         [prev=030 (2) | sink        ]
condition:
        008: kCustomKernel [source | sink] loop_compare_fusion_1 grid: [1, 1, 1]
      body:
        000: kCommandBuffer [source | sink]
            009: kCustomKernel [source       | sink] input_scatter_fusion grid: [1]
            010: kCustomKernel [source       | sink] gemm_fusion_dot grid: [1]
011: kCustomKernel  [source       | sink        ] loop_fusion_1 grid: [1, 1, 1]
"""
HLO = r"""
%inner (p: s32[]) -> s32[] {
  %x = s32[] add(%p, %p)
}
%outer (p: s32[]) -> s32[] {
  %w = s32[] while(%p), condition=%c, body=%inner, backend_config={"known_trip_count":{"n":"15"}}
}
ENTRY %main (p: s32[]) -> s32[] {
  %w.1 = s32[] while(%p), condition=%c, body=%outer, backend_config={"known_trip_count":{"n":"4"}}
}
"""  # noqa: E501
PTX = """
.visible .entry one(
  atom.global.v4.f32.add {%r1, %r2, %r3, %r4}, [%rd1], {%r5, %r6, %r7, %r8};
  atom.relaxed.sys.global.add.f32 %r9, [%rd2], %r9;
.visible .entry other(
  atom.relaxed.sys.global.cas.b32 %r1, [%rd1], %r2, %r3;
  red.global.add.f32 [%rd1], %r2;
"""
CASE = SHAPE | {"vector_size": 100, "blocks": 64}
SKIPGRAM_SGD = CASE | {"architecture": "skipgram", "optimizer": "sgd"}


def test_launches_are_counted_with_the_trips_of_their_loops():
    call = h200.read_thunks(THUNKS)
    outer, inner = call.all_loops()
    assert [name for _, name in inner.launches] == [
        "input_scatter_fusion",
        "gemm_fusion_dot",
    ]
    assert [kind for kind, _ in outer.launches] == ["kCopy"]
    assert len(call.launches) == 3
    assert h200.read_trips(HLO) == [4, 15]
    assert call.total(iter(h200.read_trips(HLO))) == 3 + 4 * (1 + 15 * 2)


def test_atomics_are_counted_by_kind_for_the_kernels_asked_for():
    assert h200.atomics(PTX, {"one"}) == {"v4.f32.add": 1, "add.f32": 1}
    assert h200.atomics(PTX, {"one", "other"})["cas"] == 1


def test_flops_and_bytes_by_hand():
    """Two tiles of 2 tokens, 4 positions, 3 noise ids, 5 dimensions; float32."""
    small = {"window": 1, "block": 4, "tile": 2, "noise": 3, "blocks": 1}
    case = SKIPGRAM_SGD | small | {"vector_size": 5}
    assert [each.flops for each in offline.products(case)] == [2 * 2 * 2 * 5 * 7] * 3
    products = 3 * 2 * (2 * 5 + 7 * 5 + 2 * 7)
    rows = 2 * (2 + 4 + 3)
    errors = 2 * 2 * 2 * 7
    assert offline.bytes_moved(case) == 4 * (
        products + 5 * rows * 5 + errors + 3 * rows
    )
    cbow = offline.products(case | {"architecture": "cbow"})
    assert sum(each.flops for each in cbow) == 2 * 2 * 2 * 5 * (3 * 5 + 2 * 4)


@pytest.mark.parametrize("suite", ["", "tables", "replicas", "networks"])
def test_without_the_plugin_one_line_says_so(monkeypatch, capsys, suite):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    main(["offline", *suite.split()])
    out = capsys.readouterr().out
    assert out.startswith("skipped: jax_cuda12_plugin ") and out.count("\n") == 1


needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec(offline.PLUGIN) is None,
    reason="needs the extra `gpu-offline`",
)


@pytest.mark.slow
@needs_plugin
@pytest.mark.parametrize(
    ("settings", "kernels", "atomics"),
    [
        ({"architecture": "skipgram", "optimizer": "sgd"}, 9, 2),
        ({"architecture": "cbow", "optimizer": "sgd"}, 12, 2),
        # the sums of both tables are one array
        ({"architecture": "skipgram", "optimizer": "adagrad"}, 14, 1),
        ({"architecture": "cbow", "optimizer": "adagrad"}, 18, 1),
        (offline.OBJECTIVES["hs"], 17, None),
        # All n-grams of a word are taken at once; 8 at a time: 151.
        (offline.OBJECTIVES["subwords"], 24, None),
    ],
)
def test_an_update_takes_few_kernels_of_an_h200(settings, kernels, atomics):
    case = SKIPGRAM_SGD | settings
    [found] = compiled([case])
    silent = found["silent"]
    assert "cas" not in silent["atomics_of_call"]
    table = 4 * case["vocabulary"] * case["vector_size"]
    if atomics is None:
        assert silent["launches_of_call"] / found["updates"] <= kernels
        assert silent["temporary_bytes"] < 3 * table
    else:
        assert silent["kernels"] <= kernels and silent["copies"] == 0
        assert silent["atomics"]["v4.f32.add"] == atomics
        assert silent["temporary_bytes"] < table


@pytest.mark.slow
@needs_plugin
def test_an_update_of_a_network_has_no_copies_and_convolutions_of_cudnn():
    settings = {"network": "conv-small", "batch_size": 128}
    case = {"example_shape": [28, 28], "classes": 10, "examples": 100}
    [found] = compiled([case | {"settings": settings}])
    assert found["copies"] == 0 and found["kernels"] <= 110
    assert found["scatters"] <= 1 and "cas" not in found["atomics_of_call"]
    # Three convolutions, with the gradients of their kernels and of two inputs, and
    # the three products of each of two linear layers, but for one input.
    assert 8 < found["libraries"] <= 14
    values = 3 * found["parameters"]  # parameters and the moments of Adam
    assert values < found["state_bytes"] / 4 < 1.02 * values


@pytest.mark.slow
@needs_plugin
def test_several_models_take_few_more_kernels_than_one():
    tables = SHAPE | offline.SKIPGRAM
    tables |= {"vocabulary": 1000, "vector_size": 100, "blocks": 256, "updates": 16}
    parameters = (2 + 1) * 32 + (32 + 1) * 2
    for case, number, kernels, values in (
        (offline.SPIRALS, 100, 18, parameters),
        (tables, 4, 9, 2 * 1000 * 100),
    ):
        cases = [case | {"replicas": replicas} for replicas in (1, number)]
        one, several = compiled(cases)
        assert one["kernels"] <= kernels and several["kernels"] <= kernels + 1
        assert one["scatters"] == several["scatters"]
        assert "cas" not in several["atomics_of_call"]
        assert one["state_bytes"] == 4 * (values + 1)  # and the number of updates
        assert several["state_bytes"] == number * one["state_bytes"]
