"""What updates would launch on an H200, and a model of their time. Nothing is run.

XLA compiles the updates for a description of the device, in a child process
(`bench.gpu.h200`). Kernels, copies, atomics and memory are counted in the compiled
program; bytes and FLOPs of an update follow from the shapes. Needs jax-cuda12-plugin
and the packages of the extra `gpu-offline`, no GPU.

There are three suites: `tables` (one model of tokens), `replicas` (K models side by
side: tables, and small networks on the spirals) and `networks` (of images; products are
those of cuBLAS, convolutions those of cuDNN, since XLA's own need autotuning).
"""

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bench.results import CHECKOUT, Results, Table, write_results

PLUGIN = "jax_cuda12_plugin"
FLAGS = (
    "--xla_backend_extra_options=-nvptx-allow-ftz-atomics",  # as a training sets them
    "--xla_gpu_autotune_level=0",  # autotuning needs the device
)
CUBLAS = "--xla_gpu_enable_triton_gemm=false"  # of networks: tiles need autotuning
MODEL = {
    "bytes_per_second": 4.8e12,
    "flops_per_second": 67e12,  # float32, without TF32
    "efficiency": 0.3,  # assumed: the products are small, 16 x 58 x 100
    "launch_microseconds": (2, 4),
    "words_per_token": 1.365,  # raw words of wiki17m-0 for each token kept
}
"""Figures of NVIDIA's data sheet of the H200 SXM, and assumptions."""
ONE_DEVICE = ["jit", "replicated", 1, 1]
EIGHT_DEVICES = [
    ["sharded", "replicated", 8, 1],
    ["sharded", "columns", 1, 8],
    ["sharded", "columns", 2, 4],
    ["sharded", "rows", 1, 8],
]
OBJECTIVES: dict[str, dict[str, Any]] = {
    "hs": {"vocabulary": 68_127, "depth": 22, "negative": 0, "noise": 1},
    "subwords": {
        "vocabulary": 68_127,
        "subwords": {"rows": 364_648, "listed": 1_724_617, "longest": 123},
    },
}
"""Other updates, with the sizes of wiki17m-0: nodes of the longest path of hierarchical
softmax; rows of words and n-grams of 3 to 6 characters, their number in all words and
in the longest one."""
SHAPE: dict[str, Any] = {
    "vocabulary": 100_000,
    "window": 5,
    "negative": 5,
    "cap": 64,
    "block": 64,
    "tile": 16,
    "noise": 32,
    "layout": ONE_DEVICE,
}


class Product(NamedTuple):
    """Matrix products [m, k] x [k, n] of float32, `number` of them."""

    number: int
    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        return 2 * self.number * self.m * self.k * self.n

    @property
    def num_bytes(self) -> int:
        return 4 * self.number * (self.m * self.k + self.k * self.n + self.m * self.n)


def products(case: dict[str, Any]) -> list[Product]:
    """The products of an update: scores, and gradients; of CBOW the means as well."""
    tiles, tile, rows_in, rows_out = _sizes(case)
    size = case["vector_size"]
    scores = [
        Product(tiles, tile, size, rows_out),
        Product(tiles, tile, rows_out, size),
        Product(tiles, rows_out, tile, size),
    ]
    if case["architecture"] == "skipgram":
        return scores
    means = Product(tiles, tile, rows_in, size), Product(tiles, rows_in, tile, size)
    return [*scores, *means]


def bytes_moved(case: dict[str, Any]) -> int:
    """Bytes that the kernels of an update read and write, by the shapes.

    A row is gathered (2), and its gradient is added to the table (3). Row-wise Adagrad
    also sets sums to 0, adds gradients to them (3), squares them and reads them (2).
    """
    tiles, tile, rows_in, rows_out = _sizes(case)
    rows = tiles * (rows_in + rows_out)
    passes = 2 + 3 + (1 + 3 + 1) * (case["optimizer"] == "adagrad")
    errors = 2 * tiles * tile * rows_out  # scores read, errors written
    ids_and_shares = 3 * rows
    moved = passes * rows * case["vector_size"] + errors + ids_and_shares
    return 4 * moved + sum(each.num_bytes for each in products(case))


def _sizes(case: dict[str, Any]) -> tuple[int, int, int, int]:
    """Tiles of an update, tokens of a tile, rows of a tile of both tables."""
    tile = case["tile"]
    tiles = case["blocks"] * case["block"] // tile
    positions = tile + 2 * case["window"]
    centre, context = tile, positions
    if case["architecture"] == "cbow":
        centre, context = context, centre
    return tiles, tile, centre, context + case["noise"]


def seconds(case: dict[str, Any], launches: float, microseconds: float) -> float:
    """Time of an update by the model: launches, bytes and FLOPs, one after another."""
    flops = sum(each.flops for each in products(case))
    return (
        launches * microseconds / 1e6
        + bytes_moved(case) / MODEL["bytes_per_second"]
        + flops / (MODEL["flops_per_second"] * MODEL["efficiency"])
    )


def run_tables(blocks: list[int], vector_sizes: list[int], vocabulary: int) -> Table:
    """Counts the launches of updates that are compiled for an H200; nothing is run.

    Skip-gram by SGD for all numbers of blocks and dimensions. CBOW, row-wise Adagrad,
    hierarchical softmax and subwords for 64 blocks and 100 dimensions, and skip-gram on
    8 devices for 1,024 blocks and 100 dimensions, if these are among them.
    """
    cases = [*_cases(blocks, vector_sizes, vocabulary)]
    samples = []
    for case, found in zip(cases, compiled(cases), strict=True):
        if _is_modelled(case):
            found["bytes"] = bytes_moved(case)
            found["flops"] = sum(each.flops for each in products(case))
        samples.append(case | found)
    settings = {"flags": FLAGS, "model": MODEL}
    return of_tables(write_results("gpu-offline", settings=settings, samples=samples))


def _cases(blocks, sizes, vocabulary: int) -> Iterator[dict[str, Any]]:
    shape = SHAPE | {"vocabulary": vocabulary}
    for size, number in itertools.product(sizes, blocks):
        for architecture, optimizer in itertools.product(
            ("skipgram", "cbow"), ("sgd", "adagrad")
        ):
            is_default = (architecture, optimizer) == ("skipgram", "sgd")
            if is_default or (number, size) == (64, 100):
                yield shape | {
                    "architecture": architecture,
                    "optimizer": optimizer,
                    "vector_size": size,
                    "blocks": number,
                }
    if 64 in blocks and 100 in sizes:
        for name, architecture in itertools.product(OBJECTIVES, ("skipgram", "cbow")):
            case = shape | {"architecture": architecture, "optimizer": "sgd"}
            case |= {"vector_size": 100, "blocks": 64, "objective": name}
            yield case | OBJECTIVES[name]
    if 1024 in blocks and 100 in sizes:
        case = shape | {"architecture": "skipgram", "optimizer": "sgd"}
        for layout in EIGHT_DEVICES:
            yield case | {"vector_size": 100, "blocks": 1024, "layout": layout}


def compiled(cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What `bench.gpu.h200` prints for each case, from a child process."""
    flags = FLAGS + (CUBLAS,) * any("example_shape" in case for case in cases)
    environment = os.environ | {
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # a cached program dumps nothing
        "JAX_PLATFORMS": "cuda,cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "XLA_FLAGS": " ".join(flags),
    }
    command = [sys.executable, "-m", "bench.gpu.h200", json.dumps(cases)]
    with subprocess.Popen(
        command, env=environment, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        yield from map(json.loads, child.stdout)
    if child.returncode:
        raise SystemExit("bench: the compilation for an H200 failed.")


def of_tables(results: Results) -> Table:
    """A row for each case; the model of time for those of one device."""
    rows = []
    for case in results["samples"]:
        silent, reporting = case["silent"], case["reporting"]
        launches = silent["launches_of_call"] / case["updates"]
        is_modelled = _is_modelled(case)
        rows.append(
            [
                ", ".join([case["architecture"], *_kind(case)]),
                f"{case['vector_size']}",
                f"{case['blocks']:,}",
                _launches(silent),
                _launches(reporting),
                f"{launches:.1f}",
                f"{silent['scatters']}",
                count_of(silent["atomics"], "v4.f32.add"),
                count_of(silent["atomics_of_call"], "cas"),
                f"{silent['temporary_bytes'] / 2**20:.1f}",
                f"{case['bytes'] / 1e6:.1f}" if is_modelled else "",
                f"{case['flops'] / 1e6:.0f}" if is_modelled else "",
                _words_per_second(case, launches) if is_modelled else "",
            ]
        )
    return Table(_TABLES_COLUMNS, rows)


def count_of(counts: dict[str, int] | None, kind: str) -> str:
    """The atomics of a kind as text; "unknown" where they were not counted."""
    return "unknown" if counts is None else str(counts.get(kind, 0))


def _is_modelled(case: dict[str, Any]) -> bool:
    """Whether `products` and `bytes_moved` know the update."""
    return case["layout"] == ONE_DEVICE and "objective" not in case


def _kind(case: dict[str, Any]) -> Iterator[str]:
    """What tells a case from others of its architecture."""
    yield case.get("objective", case["optimizer"])
    if case["layout"] != ONE_DEVICE:
        _, tables, *grid = case["layout"]
        yield from (tables, f"{grid[0]} x {grid[1]}")


def _launches(update: dict[str, Any]) -> str:
    counted = [update["kernels"], update["copies"], update["collectives"]]
    return " + ".join(map(str, counted if counted[2] else counted[:2]))


def _words_per_second(case: dict[str, Any], launches: float) -> str:
    words = case["blocks"] * case["block"] * MODEL["words_per_token"]
    fastest, slowest = (
        f"{words / seconds(case, launches, each) / 1e6:.0f}"
        for each in MODEL["launch_microseconds"]
    )
    return f"{slowest} to {fastest}"


_TABLES_COLUMNS = [
    "update",
    "dimensions",
    "blocks an update",
    "kernels + copies",
    "with the loss",
    "launches of a call / updates",
    "scatters",
    "of 4 floats at once",
    "compare and swap",
    "temporary MiB",
    "MB moved",
    "MFLOP",
    "M words/s by the model",
]


SPIRALS = {"subject": "spirals", "layers": [2, 32, 2], "examples": 200, "updates": 100}
SKIPGRAM = {"subject": "skipgram", "architecture": "skipgram", "optimizer": "sgd"}


def run_replicas(networks: list[int], models: list[int], **shape: int) -> Table:
    """Counts what updates of K models would launch, and writes gpu-replicas.json.

    Args:
      networks: numbers K of networks on the spirals.
      models: numbers K of models of skip-gram.
      shape: of these: vocabulary, vector_size and blocks.
    """
    cases: list[dict[str, Any]] = [SPIRALS | {"replicas": k} for k in networks]
    tables = SHAPE | SKIPGRAM | shape | {"updates": _updates(shape["blocks"])}
    cases += [tables | {"replicas": k} for k in models]
    found = compiled(cases)
    samples = [case | each for case, each in zip(cases, found, strict=True)]
    settings = {"flags": FLAGS}
    return of_replicas(
        write_results("gpu-replicas", settings=settings, samples=samples)
    )


def _updates(blocks: int) -> int:
    from embedder.tokens.loader import choose_updates_per_call

    return choose_updates_per_call(float("inf"), blocks * SHAPE["block"])


def of_replicas(results: Results) -> Table:
    """A row for each subject and K."""
    rows = [
        [
            each["subject"],
            f"{each['replicas']:,}",
            f"{each['kernels']} + {each['copies']}",
            f"{each['launches_of_call'] / each['updates']:.1f}",
            "no" if each["is_counted"] else "yes",
            f"{each['scatters']}",
            count_of(each["atomics_of_call"], "cas"),
            *(
                f"{each[f'{name}_bytes'] / 2**20:,.2f}"
                for name in ("state", "argument", "temporary")
            ),
        ]
        for each in results["samples"]
    ]
    return Table(_REPLICAS_COLUMNS, rows)


_REPLICAS_COLUMNS = [
    "subject",
    "K",
    "kernels + copies",
    "launches of a call / updates",
    "host waits for the loop",
    "scatters",
    "compare and swap",
    "state MiB",
    "arguments MiB",
    "temporary MiB",
]


HALF_FLOPS = 989e12  # a second, of bfloat16 without sparsity; NVIDIA's data sheet
SMALL, COLOURED, LARGE = [28, 28], [32, 32, 3], [224, 224, 3]
VIT_B = ["patch=16", "width=768", "depth=12", "heads=12"]
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"example_shape": SMALL, "layers": [784, 512, 10]},
    "conv-small": {"example_shape": SMALL, "network": "conv-small"},
    "conv-small, supcon": {
        "example_shape": SMALL,
        "network": "conv-small",
        "objective": "supcon",
    },
    "resnet-18": {"example_shape": COLOURED, "network": "resnet"},
    "wide-resnet-28-10": {
        "example_shape": COLOURED,
        "network": "wide-resnet",
        "network_args": ["depth=28", "width=10"],
    },
    "vit": {"example_shape": COLOURED, "network": "vit"},
    "vit-b-16": {"example_shape": LARGE, "network": "vit", "network_args": VIT_B},
}
"""The shape of an image, and settings."""


def run_networks(networks: list[str], batch_size: int, examples: int) -> Table:
    """Counts what an update of each network would launch; writes gpu-networks.json.

    Args:
      networks: of `NETWORKS`.
      batch_size: examples of an update.
      examples: on the device.
    """
    cases = []
    for name in networks:
        for dtype in ("same", "bfloat16"):
            settings = dict(NETWORKS[name])
            shape = settings.pop("example_shape")
            settings |= {"batch_size": batch_size, "compute_dtype": dtype}
            case = {"name": name, "example_shape": shape, "settings": settings}
            cases.append(case | {"classes": 10, "examples": examples})
    found = compiled(cases)
    samples = [case | each for case, each in zip(cases, found, strict=True)]
    settings = {"flags": FLAGS, "model": MODEL, "half_flops": HALF_FLOPS}
    return of_networks(
        write_results("gpu-networks", settings=settings, samples=samples)
    )


def of_networks(results: Results) -> Table:
    """A row for each network and type."""
    rows = []
    for case in results["samples"]:
        is_half = case["settings"]["compute_dtype"] == "bfloat16"
        # The gradient takes two products for each of the pass forward.
        flops = 3 * case["settings"]["batch_size"] * case["forward_flops"]
        peak = HALF_FLOPS if is_half else MODEL["flops_per_second"]
        launches = case["kernels"] + case["copies"]
        fewest, most = (launches * each / 1e3 for each in MODEL["launch_microseconds"])
        milliseconds = 1e3 * flops / peak
        rows.append(
            [
                case["name"],
                " x ".join(map(str, case["example_shape"])),
                "bfloat16" if is_half else "float32",
                f"{case['parameters'] / 1e6:.2f}",
                f"{case['kernels']} + {case['copies']}",
                f"{case['libraries']}",
                f"{case['scatters']}",
                count_of(case["atomics_of_call"], "cas"),
                f"{case['state_bytes'] / 2**20:,.0f}",
                f"{case['temporary_bytes'] / 2**20:,.0f}",
                f"{flops / 1e9:,.0f}",
                f"{milliseconds:.2f}",
                f"{fewest:.2f} to {most:.2f}",
            ]
        )
    return Table(_NETWORKS_COLUMNS, rows)


_NETWORKS_COLUMNS = [
    "network",
    "images",
    "arithmetic",
    "M parameters",
    "kernels + copies",
    "of cuDNN, cuBLAS",
    "scatters",
    "compare and swap",
    "state MiB",
    "temporary MiB",
    "GFLOP",
    "ms of FLOPs",
    "ms of launches",
]


def main(arguments: list[str]) -> None:
    """Reads the command line, and prints the tables of the suites, or one line without
    the plugin."""
    description = __doc__ or ""
    parser = argparse.ArgumentParser(
        "python -m bench gpu offline", description=description
    )
    suites = parser.add_subparsers(dest="suite", help="none: all of them")
    first = suites.add_parser("tables")
    first.add_argument("--blocks", type=int, nargs="+", default=BLOCKS)
    first.add_argument("--vector-sizes", type=int, nargs="+", default=[100, 300])
    first.add_argument("--vocabulary", type=int, default=SHAPE["vocabulary"])
    second = suites.add_parser("replicas")
    second.add_argument("--networks", type=int, nargs="*", default=SIDE_BY_SIDE)
    second.add_argument("--models", type=int, nargs="*", default=[1, 4, 16])
    second.add_argument("--vocabulary", type=int, default=70_000)
    second.add_argument("--vector-size", type=int, default=100)
    second.add_argument("--blocks", type=int, default=256)
    third = suites.add_parser("networks")
    names = [*NETWORKS]
    third.add_argument("--networks", nargs="+", choices=names, default=names)
    third.add_argument("--batch-size", type=int, default=128)
    third.add_argument("--examples", type=int, default=50_000)
    given = parser.parse_args(arguments)
    if importlib.util.find_spec(PLUGIN) is None:
        print(f"skipped: {PLUGIN} is not installed (extra `gpu-offline`).")
        return
    for suite in [given.suite] if given.suite else [*suites.choices]:
        options = vars(given if given.suite else parser.parse_args([suite]))
        options.pop("suite")
        print(RUNS[suite](**options).markdown())


BLOCKS = [1, 16, 64, 256, 1024]
SIDE_BY_SIDE = [1, 10, 100, 1000]
RUNS: dict[str, Callable[..., Table]] = {
    "tables": run_tables,
    "replicas": run_replicas,
    "networks": run_networks,
}
TABLES = {
    "gpu-offline": of_tables,
    "gpu-replicas": of_replicas,
    "gpu-networks": of_networks,
}
