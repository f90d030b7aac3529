"""The kernel on more cores than there are, on paper.

One thread applies real updates in as many buckets as a team of threads would have, with
a clock around each block and each bucket (`timed.py`). Threads that take these as the
kernel does give the work of the longest thread, and the bytes that it reads from what
other threads wrote. Two threads that only wait for each other give the cost of a
barrier, and whole updates of one thread and of two the cost of a byte:

    seconds = work + 2 * barrier * threads + byte * bytes / threads

`work` is the measured time of one thread, times the share of the longest thread. The
time of a barrier is taken as proportional to the threads that arrive, since each adds
to one counter. What many cores share is left out: the third-level cache, memory, the
clock rate.
"""

import heapq
import itertools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.parts import trainings, whole_call
from bench.results import Results, Table, data_folder, write_results
from bench.timed import Timed, TimedUpdates
from embedder.tokens.cpu.kernel import available_cores
from embedder.tokens.cpu.simd import entry
from embedder.tokens.cpu.thread import wait
from embedder.tokens.prepare import Batch
from embedder.tokens.trainer import TokensTrainer

THREADS = 1, 2, 4, 8, 16, 32, 64
_BARRIERS = 2  # of an update
_ARRIVALS = 20_000  # of each of two threads, to time a barrier
_NO_KEYS = np.zeros(0, np.int64)


class Taken(NamedTuple):
    """Which thread of a team takes what, in one update."""

    blocks: np.ndarray  # i64[N]
    buckets: np.ndarray  # i64[P]
    longest: float  # seconds of the longest thread, of both phases


class Costs(NamedTuple):
    """Seconds that threads cost beside their work."""

    barrier: float  # for each thread that arrives at it
    byte: float  # that another thread wrote


def run(
    corpus: Path | None = None,
    samples: int = 9,
    updates: int = 16,
    vector_size: int = 100,
    blocks_per_update: tuple[int, ...] = (16, 64, 256),
) -> Table:
    """Time of an update with more threads than there are cores, on paper.

    Args:
      corpus: a text file; none: 17 M words of Wikipedia.
      samples: number of measurements of whole updates.
      updates: updates whose blocks and buckets are timed and counted.
      vector_size: dimensions of a vector.
      blocks_per_update: blocks of an update; each number is computed.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    given = trainings(corpus, vector_size, blocks_per_update)
    found: dict[str, Any] = {"barrier": _measure_barrier(samples)}
    found["blocks"] = {
        num: _measure(*each, samples, updates) for num, each in given.items()
    }
    settings = {"corpus": corpus.name, "vector_size": vector_size, "updates": updates}
    return table(write_results("threads", settings=settings, samples=found))


def _measure_barrier(samples: int) -> list[float]:
    """Seconds of a barrier of two threads; none on one core."""
    if available_cores() == 1:
        return []
    seconds = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(samples + 1):
            arrivals = np.zeros(4, np.int64)  # two for the start
            parts = [pool.submit(_arrive, arrivals, 2, _ARRIVALS) for _ in range(2)]
            seconds.append(max(part.result() for part in parts) / _ARRIVALS)
    return seconds[1:]  # the first compiles


def _arrive(arrivals: np.ndarray, threads: int, times: int) -> float:
    """Seconds that one thread of a team takes for barriers alone."""
    _wait_for_others(arrivals, threads, 1)  # until all have begun
    start = time.perf_counter()
    _wait_for_others(arrivals[2:], threads, times)
    return time.perf_counter() - start


@entry()
def _wait_for_others(arrivals, threads, times):
    for number in range(times):
        wait(arrivals, threads * (number + 1))


def _measure(
    training: TokensTrainer, batch: Batch, samples: int, updates: int
) -> dict[str, dict[int, Any]]:
    """By number of threads; all numbers take turns.

    "seconds": samples of a whole update, by one thread and, where there are two cores,
    by two; "longest": seconds of the longest thread; "bytes" that another thread wrote.
    """
    num_blocks = training.config.tables.blocks_per_update
    num_updates = min(updates + 1, len(batch.rate))
    whole = {
        threads: whole_call(training, batch, threads)
        for threads in dict.fromkeys((1, min(2, available_cores(), num_blocks)))
    }
    teams = {n: TimedUpdates(training, n) for n in THREADS if n <= num_blocks}
    seconds: dict[int, list[float]] = {threads: [] for threads in whole}
    rounds: dict[int, list[list[Timed]]] = {threads: [] for threads in teams}
    for number in range(samples + 1):
        for threads, call in whole.items():
            taken = sum(call().values())
            if number:  # the first compiles
                seconds[threads].append(taken)
        for threads, team in teams.items():
            applied = [team.apply(batch, s) for s in range(num_updates)]
            if number > 1:  # the keys are those of the first round
                applied = [Timed(*one[:2], *[_NO_KEYS] * 3) for one in applied]
            if number:
                rounds[threads].append(applied)
    row_bytes = next(iter(teams.values())).tables[0].nbytes
    counts = {n: _count(usual(rounds[n]), n, row_bytes) for n in teams}
    return {
        "seconds": seconds,
        "longest": {threads: longest for threads, (longest, _) in counts.items()},
        "bytes": {threads: num_bytes for threads, (_, num_bytes) in counts.items()},
    }


def usual(rounds: list[list[Timed]]) -> list[Timed]:
    """The updates of a round, with the median over all rounds of each of their times:
    another program may take the core in any of them."""
    return [
        one._replace(
            blocks=np.median([each[s].blocks for each in rounds], axis=0),
            buckets=np.median([each[s].buckets for each in rounds], axis=0),
        )
        for s, one in enumerate(rounds[0])
    ]


def _count(updates: list[Timed], threads: int, row_bytes: int) -> tuple[float, float]:
    """Seconds of the longest thread, and bytes that another thread wrote: means over
    all updates but the first, whose data are in no cache."""
    taken = [take(update, threads) for update in updates]
    rows = [
        num_rows_of_others(*before, *now)
        for before, now in itertools.pairwise(zip(updates, taken, strict=True))
    ]
    longest = statistics.mean(each.longest for each in taken[1:])
    return longest, statistics.mean(rows) * row_bytes


def take(update: Timed, threads: int) -> Taken:
    """What each thread of a team takes: its next block within a block, to prefetch it,
    and its next bucket after one."""
    blocks, work = _claim(update.blocks.sum(axis=1), threads, done=0.25)
    buckets, rest = _claim(update.buckets.sum(axis=1), threads, done=1)
    return Taken(blocks, buckets, float(work.max() + rest.max()) / 1e9)


def _claim(
    times: np.ndarray, threads: int, *, done: float
) -> tuple[np.ndarray, np.ndarray]:
    """The thread of each item, and the time of each thread.

    A thread takes its next item when this share of its item is done.
    """
    owners, work = np.zeros(len(times), int), np.zeros(threads)
    claims = [(0.0, thread) for thread in range(threads)]
    for item, seconds in enumerate(times):
        _, thread = heapq.heappop(claims)
        owners[item] = thread
        heapq.heappush(claims, (work[thread] + done * float(seconds), thread))
        work[thread] += seconds
    return owners, work


def num_rows_of_others(before: Timed, earlier: Taken, now: Timed, taken: Taken) -> int:
    """Rows that threads read in an update, and that another thread wrote.

    They are the gradients of its own buckets, and the rows of tables that it loads or
    updates, and that another thread updated in the update before.
    """
    readers, appliers = taken.blocks[now.block_of], taken.buckets[now.bucket_of]
    keys, first = np.unique(before.keys, return_index=True)
    writers = earlier.buckets[before.bucket_of[first]]
    pairs = [(readers, now.keys), (appliers, now.keys)]
    touched = np.unique(np.concatenate([np.stack(pair) for pair in pairs], 1), axis=1)
    threads, touched_keys = touched
    at = np.minimum(np.searchsorted(keys, touched_keys), len(keys) - 1)
    moved = (keys[at] == touched_keys) & (writers[at] != threads)
    return int((readers != appliers).sum() + moved.sum())


def table(results: Results) -> Table:
    """A row for each number of blocks and of threads, with the time by the model."""
    samples = results["samples"]
    costs = fit(samples)
    rows = []
    for num_blocks, found in samples["blocks"].items():
        alone = statistics.median(found["seconds"]["1"])
        for threads, num_bytes in found["bytes"].items():
            parts = _seconds(found, threads, costs or Costs(0, 0))
            measured = found["seconds"].get(threads)
            cells = [f"{seconds * 1e6:.1f}" for seconds in (*parts, sum(parts))]
            if costs is None:
                cells[1] = cells[2] = ""
            kib = f"{num_bytes / 1024:.0f}"
            whole = f"{statistics.median(measured) * 1e6:.1f}" if measured else ""
            efficiency = f"{100 * alone / sum(parts) / int(threads):.0f}"
            row = [num_blocks, threads, *cells[:2], kib, *cells[2:], whole, efficiency]
            rows.append(row)
    return Table(
        [
            *("blocks an update", "threads", "longest thread, us", "barriers, us"),
            *("KiB from other threads", "their time, us", "an update, us"),
            *("measured, us", "efficiency, %"),
        ],
        rows,
    )


def fit(samples: dict[str, Any]) -> Costs | None:
    """The cost of a barrier as measured, and that of a byte by which the model is
    nearest to the measured times of two threads, in proportion to them.

    None: no such times.
    """
    barrier = statistics.median(samples["barrier"] or [0.0]) / 2
    terms, rest = [], []
    for found in samples["blocks"].values():
        if "2" in found["seconds"]:
            measured = statistics.median(found["seconds"]["2"])
            work, barriers, others = _seconds(found, "2", Costs(barrier, 1))
            terms.append(others / measured)
            rest.append(1 - (work + barriers) / measured)
    if not rest:
        return None
    return Costs(barrier, max(0.0, float(np.dot(terms, rest) / np.dot(terms, terms))))


def _seconds(
    found: dict[str, Any], threads: str, costs: Costs
) -> tuple[float, float, float]:
    """Seconds of an update: work, barriers, and bytes from other threads."""
    alone, num = statistics.median(found["seconds"]["1"]), int(threads)
    share = found["longest"][threads] / found["longest"]["1"]
    barriers = _BARRIERS * costs.barrier * num if num > 1 else 0.0
    return share * alone, barriers, costs.byte * found["bytes"][threads] / num


BENCHES = {"threads": run}
TABLES = {"threads": table}
