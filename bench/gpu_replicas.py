"""What updates of K models side by side launch on an H200. Nothing is run.

Compiled as by `bench.gpu_offline`, which counts the launches of one model. Subjects:
`spirals`, the networks of `bench replicas`, 100 updates in a call; `skipgram`, tables
with default settings.
"""

import argparse
import importlib.util
from typing import Any

from bench.gpu_offline import FLAGS, PLUGIN, SHAPE, compiled, count_of
from bench.results import Results, Table, write_results

SPIRALS = {"subject": "spirals", "layers": [2, 32, 2], "examples": 200, "updates": 100}
SKIPGRAM = {"subject": "skipgram", "architecture": "skipgram", "optimizer": "sgd"}


def run(networks: list[int], models: list[int], shape: dict[str, int]) -> Table:
    """Counts what updates of K models would launch, and writes gpu-replicas.json.

    Args:
      networks: numbers K of networks on the spirals.
      models: numbers K of models of skip-gram.
      shape: of these: vocabulary, vector_size and blocks.
    """
    cases: list[dict[str, Any]] = [SPIRALS | {"replicas": k} for k in networks]
    tables = SHAPE | SKIPGRAM | shape | {"updates": _updates(shape["blocks"])}
    cases += [tables | {"replicas": k} for k in models]
    found = compiled(cases, "bench.h200_replicas")
    samples = [case | each for case, each in zip(cases, found, strict=True)]
    settings = {"flags": FLAGS}
    return table(write_results("gpu-replicas", settings=settings, samples=samples))


def _updates(blocks: int) -> int:
    from embedder.tables.loader import superblock_size

    return superblock_size(float("inf"), blocks * SHAPE["block"])


def table(results: Results) -> Table:
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
    return Table(_COLUMNS, rows)


_COLUMNS = [
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


def main(arguments: list[str]) -> None:
    """Reads the command line and prints the table, or one line without the plugin."""
    parser = argparse.ArgumentParser(
        "python -m bench gpu-replicas", description=run.__doc__
    )
    parser.add_argument("--networks", type=int, nargs="*", default=[1, 10, 100, 1000])
    parser.add_argument("--models", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--vocabulary", type=int, default=70_000)
    parser.add_argument("--vector-size", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=256)
    given = parser.parse_args(arguments)
    if importlib.util.find_spec(PLUGIN) is None:
        print(f"skipped: {PLUGIN} is not installed (extra `gpu-offline`).")
        return
    names = "vocabulary", "vector_size", "blocks"
    shape = {name: getattr(given, name) for name in names}
    print(run(given.networks, given.models, shape).markdown())


TABLES = {"gpu-replicas": table}
