"""Neighbours from file to file: queries a second of the whole command, and its memory.

A process of its own runs `embedder neighbors FILE --from KEYS --to neighbours.parquet`,
by the index and with --exact: it starts Python, reads the vectors, checks the index,
reads the keys, and writes the table. Vectors are those of `bench.search.clustered`,
keys are drawn from them at random.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.memory import status_bytes
from bench.processes import run_python
from bench.results import Results, Table, grouped, spread, write_results
from bench.search import TOPN, clustered

PROGRAMS = ("embedder, exact", "embedder, index")


def run(
    rows: int = 1_000_000,
    queries: tuple[int, ...] = (10_000, 100_000, 1_000_000),
    most_exact: int = 100_000,
    samples: int = 1,
    name: str = "search-batch",
) -> Table:
    """Nearest neighbours from file to file: queries a second, and peak memory.

    Args:
      rows: of the clustered vectors.
      queries: numbers of queries.
      most_exact: queries that are looked up by exact search, too.
      samples: of each, one after the other.
      name: of the file in bench/results.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        run_python("-m", "bench.search_batch", "write", folder, str(rows))
        for num in queries:
            _write_keys(Path(folder), rows, num)
            for program in PROGRAMS[num > most_exact :]:
                for _ in range(samples):
                    sample = run_python(
                        "-m", "bench.search_batch", "look up", folder, program
                    )
                    sample |= {"program": program, "rows": rows, "queries": num}
                    print(sample, flush=True)
                    found.append(sample)
    return table(write_results(name, settings={"topn": TOPN}, samples=found))


def write(folder: Path, num_rows: int) -> dict[str, Any]:
    """Writes vectors and their index."""
    from embedder.vectors.export import write_vectors
    from embedder.vectors.index import IndexOptions, build_index

    vectors, path = clustered(num_rows), folder / "vectors.safetensors"
    write_vectors(vectors, path)
    return {"recall": build_index(vectors, path, IndexOptions()).recall}


def look_up(folder: Path, program: str) -> dict[str, Any]:
    """Runs the command in this process."""
    start = time.perf_counter()
    from embedder.cli import main as cli

    cli.prepare_process()
    to = folder / "neighbours.parquet"
    command = ["neighbors", str(folder / "vectors.safetensors"), "--topn", str(TOPN)]
    command += ["--from", str(folder / "keys.txt"), "--to", str(to)]
    if code := cli.main([*command, *["--exact"] * (program == PROGRAMS[0])]):
        raise SystemExit(code)
    seconds, used = time.perf_counter() - start, time.process_time()
    peak = {"peak": status_bytes("VmHWM"), "bytes": to.stat().st_size}
    return {"seconds": seconds, "cpu": used, **peak}


def _write_keys(folder: Path, num_rows: int, num: int) -> None:
    rows = np.random.default_rng(2).integers(num_rows, size=num)
    (folder / "keys.txt").write_text("\n".join(map(str, rows)) + "\n")


def table(results: Results) -> Table:
    """A row for each number of queries and program."""
    rows = []
    for num, of_num in grouped(results["samples"], "queries").items():
        for program, samples in grouped(of_num, "program").items():
            rows.append(
                [
                    *(f"{samples[0]['rows']:,}", f"{num:,}", program),
                    spread(x["seconds"] for x in samples),
                    spread((num / x["seconds"] for x in samples), 0),
                    spread([1000 * x["cpu"] / num for x in samples]),
                    spread([x["peak"] / 2**30 for x in samples], 2),
                    f"{samples[0]['bytes'] / 2**20:.0f}",
                ]
            )
    columns = ["rows", "queries", "program", "seconds", "queries/s", "CPU ms"]
    return Table([*columns, "peak GiB", "result MiB"], rows)


BENCHES = {"search-batch": run}
TABLES = {"search-batch": table}


if __name__ == "__main__":
    what, folder, given = sys.argv[1:]
    if what == "write":
        print(json.dumps(write(Path(folder), int(given))))
    else:
        print(json.dumps(look_up(Path(folder), given)))
