"""Peak memory of a training: by the size of its corpus, and against the estimate.

Each training is the command line of the port in its own process, under a limit of
`RLIMIT_DATA`: all memory that it allocates, used or not, without mapped files. PyTorch,
which only other benches need, is hidden from it.

`python -m bench.memory BYTES ARGUMENT...` runs `embedder ARGUMENT...` with such a limit
(0: none) and prints a line of JSON.
"""

import contextlib
import gzip
import importlib.abc
import io
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.processes import run_python
from bench.results import Results, Table, data_folder, write_results

_COUNT = 5  # `min_count` for each copy of the text: the vocabulary stays the same
_FLOOR_BYTES = 2**20  # the smallest text
_MIB = 2**20
_GIB = 2**30
_ROW_BYTES = 48  # in a file of `write_sessions`, about
_PIECE_ROWS = 2**20
_DIGITS = [n for n in range(36) if n not in (8, 13, 18, 23)]  # of a UUID
_NUM_ITEMS = 50_000
_YEAR = 365 * 86_400 * 10**6  # microseconds
ESTIMATED: dict[str, tuple[str, dict[str, Any]]] = {
    "wiki, memory": ("wiki", {"loader": "memory"}),
    "wiki, tfdata": ("wiki", {"loader": "tfdata"}),
    "wiki, 300 dimensions, 16 blocks": (
        "wiki",
        {"loader": "memory", "vector_size": 300, "blocks_per_update": 16},
    ),
    "V = 1 M, memory": ("many", {"loader": "memory", "min_count": 1}),
    "V = 1 M, tfdata": ("many", {"loader": "tfdata", "min_count": 1}),
    "V = 1 M, saved every 3 s": (
        "many",
        {"loader": "memory", "min_count": 1, "save_every": "3s"},
    ),
    "1 M types, V = 20 k": ("many", {"loader": "memory", "min_count": 100}),
}
"""Name -> text and settings; by default 100 dimensions and no checkpoints."""


class _Made(NamedTuple):
    """A corpus that a bench has written."""

    path: Path  # a file, or a folder of files
    options: dict[str, Any]  # settings of its training
    facts: dict[str, Any]  # for the results


def run(
    times: tuple[float, ...] = (0.1, 1), limit: float = 2, sample: float = 1e-7
) -> Table:
    """Peak memory as a function of the corpus size, under a limit of the system.

    Args:
      times: sizes of the text as multiples of the limit; a text of 10 times the
        limit needs 25 times the limit on disk.
      limit: GiB that a training may allocate.
      sample: as in a training; small, so that the bench takes minutes.
    """
    text = wiki()

    def write(size: int, folder: Path) -> _Made:
        corpus = folder / "corpus.txt"
        write_copies(text, size, corpus)
        min_count = max(1, round(_COUNT * size / len(text)))
        return _Made(corpus, {"min_count": min_count}, {"min_count": min_count})

    settings = {"limit_gib": limit, "loader": "tfdata", "epochs": 1, "sample": sample}
    samples = _samples(settings, times, write)
    return table(write_results("memory", settings=settings, samples=samples))


def run_sessions(
    times: tuple[float, ...] = (0.1, 1), limit: float = 2, sample: float = 1e-4
) -> Table:
    """Peak memory as a function of the size of a table of sessions, under a limit.

    Args:
      times: sizes of the files as multiples of the limit; a table of 10 times the
        limit needs 27 times the limit on disk.
      limit: GiB that a training may allocate.
      sample: as in a training; small, so that the bench takes minutes.
    """

    def write(size: int, folder: Path) -> _Made:
        table = folder / "table"
        num_rows = size // _ROW_BYTES
        write_sessions(num_rows, table)
        columns = {"session": "session", "item": "item", "order": "time"}
        return _Made(table, columns, {"rows": num_rows})

    settings = {"limit_gib": limit, "loader": "memory", "epochs": 1, "sample": sample}
    settings["backend"] = "numba"
    samples = _samples(settings, times, write)
    results = write_results("memory-sessions", settings=settings, samples=samples)
    return sessions_table(results)


def _samples(
    settings: dict[str, Any],
    times: tuple[float, ...],
    write: Callable[[int, Path], _Made],
) -> list[dict[str, Any]]:
    """The memory of each training, the first a tiny one.

    Each corpus is removed after its training.

    Args:
      write: writes a corpus of so many bytes, about, to a folder.
    """
    limit = settings["limit_gib"] * _GIB
    common = {key: value for key, value in settings.items() if key != "limit_gib"}
    samples = []
    for share in (0, *times):
        with tempfile.TemporaryDirectory() as folder:
            size = max(_FLOOR_BYTES, int(share * limit))
            corpus, options, facts = write(size, Path(folder))
            files = [corpus] if corpus.is_file() else [*corpus.iterdir()]
            size = sum(path.stat().st_size for path in files)
            found = measure(int(limit), corpus, **common, **options)
        samples.append({"bytes": size, **facts, **found})
        print(samples[-1], file=sys.stderr, flush=True)
    return samples


def run_estimates(names: tuple[str, ...] = tuple(ESTIMATED)) -> Table:
    """Memory as estimated by `--dry-run`, and as measured.

    Args:
      names: what to train; default: all.
    """
    texts = {"wiki": wiki, "many": lambda: many_types(1_000_000, 10_000_000)}
    base = {"epochs": 1, "backend": "numba", "save_every": "never"}
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.txt")
        write_copies(wiki(), _FLOOR_BYTES, corpus)
        floor = measure(0, corpus, **base, loader="memory", vector_size=16)
        for name in names:
            text, options = ESTIMATED[name]
            corpus.write_bytes(texts[text]())
            found = measure(0, corpus, **base | options)
            found["estimate"] = estimate(corpus, **base | options)
            samples.append({"name": name, "floor": floor["peak"], **found})
            print(samples[-1], file=sys.stderr, flush=True)
    return estimates_table(
        write_results("memory-estimates", settings=base, samples=samples)
    )


def wiki() -> bytes:
    """The text of 17 M words of Wikipedia."""
    return gzip.decompress((data_folder() / "wiki" / "wiki17m-0.txt.gz").read_bytes())


def many_types(num_types: int, num_tokens: int) -> bytes:
    """A text with each type once, and tokens with probability ~ rank ** -0.8."""
    rng = np.random.default_rng(0)
    weight = np.arange(1, num_types + 1) ** -0.8
    drawn = rng.choice(num_types, num_tokens - num_types, p=weight / weight.sum())
    ids = rng.permutation(np.concatenate([np.arange(num_types), drawn]))
    lines = (" ".join(map("w{:07d}".format, part)) for part in ids.reshape(-1, 100))
    return "\n".join(lines).encode()


def write_copies(text: bytes, size: int, path: Path) -> None:
    """Writes copies of `text`, up to the end of a line near `size` bytes."""
    with open(path, "wb") as file:
        while (left := size - file.tell()) > 0:
            end = len(text) if left >= len(text) else text.rfind(b"\n", 0, left) + 1
            file.write(text[:end])
            if end < len(text):
                break


def write_sessions(num_rows: int, folder: Path) -> None:
    """Writes a table of random sessions to a new folder, a file for each piece.

    A session has 10 rows on average, which may be anywhere. Its name looks like a UUID,
    and items differ in frequency.
    """
    import polars as pl  # not above: in a child after `cli.prepare_process`

    rng = np.random.default_rng(0)
    folder.mkdir()
    for number, start in enumerate(range(0, num_rows, _PIECE_ROWS)):
        size = min(_PIECE_ROWS, num_rows - start)
        columns = {
            "session": _uuids(rng.integers(0, max(1, num_rows // 10), size)),
            "item": (rng.random(size) ** 2 * _NUM_ITEMS).astype(np.int32),
            "time": rng.integers(0, _YEAR, size),
        }
        rows = pl.DataFrame(columns).with_columns(
            pl.col("session").cast(pl.String), pl.col("time").cast(pl.Datetime("us"))
        )
        rows.write_parquet(folder / f"{number:05}.parquet", compression="snappy")


def _uuids(numbers: np.ndarray) -> np.ndarray:
    """Text of 36 characters in the form of a UUID for each number, S36[n]."""
    odd = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
    nibbles = np.unpackbits((numbers.astype(np.uint64)[:, None] * odd).view(np.uint8))
    values = np.packbits(nibbles.reshape(-1, 32, 4), axis=2)[..., 0] >> 4
    text = np.full((len(numbers), 36), ord("-"), np.uint8)
    text[:, _DIGITS] = np.frombuffer(b"0123456789abcdef", np.uint8)[values]
    return text.view("S36")[:, 0]


def measure(limit: int, corpus: Path, **options) -> dict[str, Any]:
    """Exit code, peak memory and seconds of a training on `corpus`."""
    with tempfile.TemporaryDirectory(dir=corpus.parent) as folder:
        arguments = ["train", str(corpus), "--workdir", str(Path(folder, "run"))]
        found = _in_child(limit, arguments + _flags(options))
    return {name: value for name, value in found.items() if name != "output"}


def estimate(corpus: Path, **options) -> int:
    """Bytes that `embedder train --dry-run` estimates."""
    arguments = ["train", str(corpus), "--dry-run", *_flags(options)]
    found = _in_child(0, arguments)
    size = re.search(r"^memory: ([\d.]+) MiB", found["output"], re.M)[1]
    return round(float(size) * _MIB)


def _flags(options: dict[str, Any]) -> list[str]:
    pairs = ((f"--{k.replace('_', '-')}", str(v)) for k, v in options.items())
    return [text for pair in pairs for text in pair]


def _in_child(limit: int, arguments: list[str]) -> dict[str, Any]:
    command = "-m", "bench.memory", str(limit), *arguments
    try:
        return run_python(*command, stderr=subprocess.PIPE)
    except (
        subprocess.CalledProcessError
    ) as failed:  # killed, or out of memory before it could report
        return {"code": failed.returncode, "error": failed.stderr[-500:]}


def table(results: Results) -> Table:
    """A row for each size of the text."""
    limit = results["settings"]["limit_gib"]
    rows = []
    for each in results["samples"]:
        row = [f"{each['bytes'] / 1e9:.3f}", f"{each['bytes'] / limit / _GIB:.2g}"]
        if each["code"]:
            rows.append([*row, "failed", "", ""])
            continue
        sizes = [f"{each[name] / _MIB:.0f}" for name in ("peak", "data")]
        rows.append([*row, *sizes, f"{each['seconds']:.0f}"])
    columns = ["text, GB", "text / limit", "peak resident, MiB", "data, MiB", "s"]
    return Table(columns, rows)


def sessions_table(results: Results) -> Table:
    """A row for each size of the table of sessions."""
    found = table(results)
    for row, each in zip(found.rows, results["samples"], strict=True):
        row.insert(1, f"{each['rows'] / 1e6:.2f}")
        ratio = "" if each["code"] else f"{each['bytes'] / each['peak']:.2g}"
        row.insert(4, ratio)
    columns = ["table, GB", "rows, M", "table / limit", *found.columns[2:]]
    columns.insert(4, "table / peak")
    return Table(columns, found.rows)


def estimates_table(results: Results) -> Table:
    """A row for each training; no ratio if the peak is not above the floor."""
    rows = []
    for each in results["samples"]:
        beyond = each["peak"] - each["floor"]
        sizes = [each["peak"], beyond, each["estimate"]]
        row = [f"{size / _MIB:.0f}" for size in sizes]
        ratio = f"{each['estimate'] / beyond:.2f}" if beyond > 0 else ""
        rows.append([each["name"], *row, ratio])
    columns = ["training", "peak, MiB", "beyond the floor", "estimate", "ratio"]
    return Table(columns, rows)


class _WithoutTorch(importlib.abc.MetaPathFinder):
    """Hides PyTorch: tensorboardX imports it where it can, which takes 450 MiB."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch":
            raise ModuleNotFoundError("PyTorch is hidden")


def main(limit: int, arguments: list[str]) -> None:
    """Runs the command line `arguments` of the port, and prints its memory."""
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    sys.meta_path.insert(0, _WithoutTorch())
    from embedder.cli import main as cli

    cli.prepare_process()
    started, output = time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = cli.main(arguments)
    found = {
        "code": code,
        "peak": status_bytes("VmHWM"),
        "data": status_bytes("VmData"),
    }
    found["seconds"] = time.perf_counter() - started
    print(json.dumps(found | {"output": output.getvalue()}), flush=True)


def status_bytes(name: str) -> int:
    """A field of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1])


BENCHES = {
    "memory": run,
    "memory-sessions": run_sessions,
    "memory-estimates": run_estimates,
}
TABLES = {
    "memory": table,
    "memory-sessions": sessions_table,
    "memory-estimates": estimates_table,
}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
