"""Throughput of the kernel while another process keeps a core busy.

That process is an endless loop in Python at normal priority (nice 0) or at the lowest
(nice 19). Updates are those of `bench vocabulary`. The configurations take turns.
"""

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.results import Results, Table, spread, write_results
from bench.vocabulary import updates_call
from embedder.config import Config, resolve, with_options
from embedder.tokens.cpu.kernel import available_cores

BUSY: dict[str, int | None] = {"none": None, "nice 19": 19, "nice 0": 0}
"""Name of a configuration -> nice value of the busy process; None: there is none."""


def run(
    samples: int = 5,
    seconds: float = 3,
    vocabulary_size: int = 100_000,
    updates: int = 1024,
    blocks_per_update: tuple[int, ...] = (1, 64),
) -> Table:
    """Throughput of the kernel while another process keeps a core busy.

    Args:
      samples: number of measurements of each configuration.
      seconds: duration of a measurement.
      vocabulary_size: rows of a table.
      updates: updates of a call, of one block; fewer of more blocks.
      blocks_per_update: blocks of an update; each number is measured.
    """
    teams = list(dict.fromkeys((1, available_cores())))
    calls = {
        (num_blocks, threads): _call(threads, vocabulary_size, updates, num_blocks)
        for num_blocks in blocks_per_update
        for threads in teams
        if threads <= num_blocks
    }
    rates: dict[int, dict[str, dict[int, list[float]]]] = {
        num_blocks: {name: {} for name in BUSY} for num_blocks in blocks_per_update
    }
    for _ in range(samples):
        for name, nice in BUSY.items():
            with _busy_process(nice):
                for (num_blocks, threads), (call, tokens) in calls.items():
                    rate = _calls_per_second(call, seconds) * tokens
                    rates[num_blocks][name].setdefault(threads, []).append(rate)
    settings = {"seconds": seconds, "vocabulary": vocabulary_size}
    settings |= {"updates": updates}
    return table(write_results("beside", settings=settings, samples=rates))


def _call(
    threads: int, vocabulary: int, updates: int, num_blocks: int
) -> tuple[Callable[[], None], int]:
    """A call, and the number of its tokens."""
    config = with_options(
        Config(), sample=0, backend="numba", blocks_per_update=num_blocks
    )
    config = with_options(resolve(config, 10**7), threads=threads)
    num_updates, block = max(1, updates // num_blocks), config.tables.block
    assert block is not None
    call = updates_call(config, vocabulary, num_updates)
    return call, num_updates * num_blocks * block


@contextlib.contextmanager
def _busy_process(nice: int | None) -> Iterator[None]:
    if nice is None:
        yield
        return
    loop = f"import os\nos.nice({nice})\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def _calls_per_second(call: Callable[[], None], seconds: float) -> float:
    """Calls per second, after a warm-up of `seconds` / 2 in which teams adapt."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds / 2:
        call()
    start, num = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds or not num:
        call()
        num += 1
    return num / passed


def table(results: Results) -> Table:
    """Tokens per second, and their ratio to one thread, sample by sample."""
    samples: dict[str, dict[str, dict[str, list[float]]]] = results["samples"]
    rows = []
    for num_blocks, loads in samples.items():
        for name, teams in loads.items():
            for threads, values in teams.items():
                alone = _ratios(values, loads["none"]["1"])
                beside = _ratios(values, teams["1"])
                middle = f"{statistics.median(values) / 1e6:.2f}"
                rows.append([num_blocks, name, threads, middle, alone, beside])
    columns = ["blocks an update", "busy process", "threads", "M tokens/s"]
    ratios = ["ratio to 1 thread, none busy", "ratio to 1 thread, same load"]
    return Table([*columns, *ratios], rows)


def _ratios(values: list[float], to: list[float]) -> str:
    return spread(a / b for a, b in zip(values, to, strict=True))


BENCHES = {"beside": run}
TABLES = {"beside": table}
