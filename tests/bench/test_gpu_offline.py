"""Counts of launches from what XLA dumps; what updates launch on an H200."""

import importlib.util

import pytest

from bench import gpu_offline, h200
from bench.gpu_offline import SHAPE

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
    assert [each.flops for each in gpu_offline.products(case)] == [
        2 * 2 * 2 * 5 * 7
    ] * 3
    products = 3 * 2 * (2 * 5 + 7 * 5 + 2 * 7)
    rows = 2 * (2 + 4 + 3)
    errors = 2 * 2 * 2 * 7
    assert gpu_offline.bytes_moved(case) == 4 * (
        products + 5 * rows * 5 + errors + 3 * rows
    )
    cbow = gpu_offline.products(case | {"architecture": "cbow"})
    assert sum(each.flops for each in cbow) == 2 * 2 * 2 * 5 * (3 * 5 + 2 * 4)


def test_without_the_plugin_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    gpu_offline.main([])
    out = capsys.readouterr().out
    assert out.startswith("skipped: jax_cuda12_plugin ") and out.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec(gpu_offline.PLUGIN) is None,
    reason="needs the extra `gpu-offline`",
)
@pytest.mark.parametrize(
    ("architecture", "optimizer", "kernels", "atomics"),
    [
        ("skipgram", "sgd", 9, 2),
        ("cbow", "sgd", 12, 2),
        ("skipgram", "adagrad", 14, 1),  # the sums of both tables are one array
        ("cbow", "adagrad", 18, 1),
    ],
)
def test_an_update_takes_few_kernels_of_an_h200(
    architecture, optimizer, kernels, atomics
):
    case = CASE | {"architecture": architecture, "optimizer": optimizer}
    [found] = gpu_offline.compiled([case])
    silent = found["silent"]
    assert silent["kernels"] <= kernels
    assert silent["copies"] == 0
    assert "cas" not in silent["atomics_of_call"]
    assert silent["atomics"]["v4.f32.add"] == atomics
    table = 4 * case["vocabulary"] * case["vector_size"]
    assert silent["temporary_bytes"] < table


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec(gpu_offline.PLUGIN) is None,
    reason="needs the extra `gpu-offline`",
)
@pytest.mark.parametrize(
    ("objective", "launches"), [("hs", 17), ("subwords", 24)], ids=["hs", "subwords"]
)
def test_other_updates_take_few_launches_of_an_h200(objective, launches):
    """With subwords all n-grams of a word are taken at once; 8 at a time: 151."""
    case = CASE | {"architecture": "skipgram", "optimizer": "sgd"}
    case |= gpu_offline.OBJECTIVES[objective]
    [found] = gpu_offline.compiled([case])
    silent = found["silent"]
    assert silent["launches_of_call"] / found["updates"] <= launches
    assert "cas" not in silent["atomics_of_call"]
    table = 4 * case["vocabulary"] * case["vector_size"]
    assert silent["temporary_bytes"] < 3 * table
