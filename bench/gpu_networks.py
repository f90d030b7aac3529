"""What updates of networks launch on an H200, and what limits them. Nothing is run.

Compiled as by `bench.gpu_offline`. Products are those of cuBLAS, convolutions those of
cuDNN, since XLA's own need autotuning, which needs the device.
"""

import argparse
import importlib.util
from typing import Any

from bench.gpu_offline import FLAGS, MODEL, PLUGIN, compiled, count_of
from bench.results import Results, Table, write_results

HALF_FLOPS = 989e12  # a second, of bfloat16 without sparsity; NVIDIA's data sheet
SMALL, COLOURED, LARGE = [28, 28], [32, 32, 3], [224, 224, 3]
VIT_B = ["patch=16", "width=768", "depth=12", "heads=12"]
CASES: dict[str, dict[str, Any]] = {
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


def run(names: list[str], batch_size: int, examples: int) -> Table:
    """Counts what an update of each network would launch; writes gpu-networks.json.

    Args:
      names: of `CASES`.
      batch_size: examples of an update.
      examples: on the device.
    """
    cases = []
    for name in names:
        for dtype in ("same", "bfloat16"):
            settings = dict(CASES[name])
            shape = settings.pop("example_shape")
            settings |= {"batch_size": batch_size, "compute_dtype": dtype}
            case = {"name": name, "example_shape": shape, "settings": settings}
            cases.append(case | {"classes": 10, "examples": examples})
    found = compiled(cases, "bench.h200_networks")
    samples = [case | each for case, each in zip(cases, found, strict=True)]
    settings = {"flags": FLAGS, "model": MODEL, "half_flops": HALF_FLOPS}
    return table(write_results("gpu-networks", settings=settings, samples=samples))


def table(results: Results) -> Table:
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
    return Table(_COLUMNS, rows)


_COLUMNS = [
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
    """Reads the command line and prints the table, or one line without the plugin."""
    parser = argparse.ArgumentParser(
        "python -m bench gpu-networks", description=run.__doc__
    )
    parser.add_argument("--networks", nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--examples", type=int, default=50_000)
    given = parser.parse_args(arguments)
    if importlib.util.find_spec(PLUGIN) is None:
        print(f"skipped: {PLUGIN} is not installed (extra `gpu-offline`).")
        return
    print(run(given.networks, given.batch_size, given.examples).markdown())


TABLES = {"gpu-networks": table}
