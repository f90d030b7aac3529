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
from embedder.tables.cpu.kernel import available_cores

BUSY: dict[str, int | None] = {"none": None, "nice 19": 19, "nice 0": 0}
"""Name of a configuration -> nice value of the busy process; None: there is none."""


def run(samples: int, seconds: float, vocabulary: int, updates: int) -> Table:
    """Measures each configuration `samples` times.

    Args:
      seconds: duration of a measurement.
      vocabulary: rows of a table.
      updates: updates of a call.
    """
    teams = list(dict.fromkeys((1, available_cores())))
    calls = {threads: _call(threads, vocabulary, updates) for threads in teams}
    rates: dict[str, dict[int, list[float]]] = {
        name: {threads: [] for threads in teams} for name in BUSY
    }
    for _ in range(samples):
        for name, nice in BUSY.items():
            with _busy_process(nice):
                for threads, call in calls.items():
                    rate = _calls_per_second(call, seconds) * updates
                    rates[name][threads].append(rate)
    settings = {"seconds": seconds, "vocabulary": vocabulary, "updates": updates}
    return table(write_results("beside", settings=settings, samples=rates))


def _call(threads: int, vocabulary: int, updates: int) -> Callable[[], None]:
    config = resolve(with_options(Config(), sample=0, backend="numba"), 10**7)
    config = with_options(config, threads=threads)
    return updates_call(config, vocabulary, updates)


@contextlib.contextmanager
def _busy_process(nice: int | None) -> Iterator[None]:
    if nice is None:
        yield
        return
    loop = f"import os\nos.nice({nice})\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
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
    """Updates per second, and their ratio to one thread, sample by sample."""
    rates: dict[str, dict[str, list[float]]] = results["samples"]
    rows = []
    for name, teams in rates.items():
        for threads, values in teams.items():
            alone = [a / b for a, b in zip(values, rates["none"]["1"], strict=True)]
            beside = [a / b for a, b in zip(values, teams["1"], strict=True)]
            middle = f"{statistics.median(values) / 1e3:.1f}"
            rows.append([name, threads, middle, spread(alone), spread(beside)])
    columns = ["busy process", "threads", "k updates/s", "ratio to 1 thread, none busy"]
    return Table([*columns, "ratio to 1 thread, same load"], rows)
