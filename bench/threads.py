"""The kernel on more cores than there are, on paper.

One thread applies real updates in as many buckets as a team of threads would have, with
a clock around each block and each bucket (`timed.py`). Threads that take these as the
kernel does give the work of the longest thread, and the bytes that it reads from what
other threads wrote. Whole updates of one thread and of two give the cost of a barrier
and of a byte:

    seconds = scale * longest + 2 * barrier * threads + byte * bytes / threads

`scale` is the measured time of one thread over its work. The time of a barrier is taken
as proportional to the threads that arrive. What many cores share is left out: the
third-level cache, memory, the clock rate.
"""

import heapq
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from bench.parts import Trainings, trainings, whole_call
from bench.results import Results, Table, write_results
from bench.timed import Timed, TimedUpdates
from embedder.tables.cpu.kernel import available_cores

THREADS = 1, 2, 4, 8, 16, 32, 64
_BARRIERS = 2  # of an update


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
    corpus: Path,
    samples: int,
    updates: int,
    vector_size: int,
    blocks_per_update: tuple[int, ...],
) -> Table:
    """Times whole updates `samples` times, in turns, and counts `updates` of them."""
    given = trainings(corpus, vector_size, blocks_per_update)
    seconds = _whole_seconds(given, samples)
    found: dict[int, dict[str, Any]] = {}
    for num_blocks, (training, batch) in given.items():
        found[num_blocks] = {"seconds": seconds[num_blocks], "threads": {}}
        for threads in THREADS:
            if threads <= num_blocks:
                team = TimedUpdates(training, threads)
                num = min(updates + 1, len(batch.rate))
                counted = [team.apply(batch, s) for s in range(num)]
                row_bytes = team.tables[0].nbytes
                found[num_blocks]["threads"][threads] = _count(
                    counted, threads, row_bytes
                )
    settings = {"corpus": corpus.name, "vector_size": vector_size, "updates": updates}
    return table(write_results("threads", settings=settings, samples=found))


def _whole_seconds(given: Trainings, samples: int) -> dict[int, dict[int, list[float]]]:
    """Seconds of an update by one thread and, where there are two cores, by two."""
    teams = tuple(dict.fromkeys((1, min(2, available_cores()))))
    calls = {
        (num_blocks, threads): whole_call(*each, threads)
        for num_blocks, each in given.items()
        for threads in teams
    }
    times: dict[int, dict[int, list[float]]] = {
        num_blocks: {threads: [] for threads in teams} for num_blocks in given
    }
    for number in range(samples + 1):
        for (num_blocks, threads), call in calls.items():
            seconds = sum(call().values())
            if number:  # the first compiles
                times[num_blocks][threads].append(seconds)
    return times


def _count(updates: Sequence[Timed], threads: int, row_bytes: int) -> dict[str, float]:
    """Means over all updates but the first, whose data are in no cache."""
    taken = [take(update, threads) for update in updates]
    rows = [
        num_rows_of_others(*before, *now)
        for before, now in itertools.pairwise(zip(updates, taken, strict=True))
    ]
    return {
        "longest_seconds": statistics.mean(each.longest for each in taken[1:]),
        "bytes": statistics.mean(rows) * row_bytes,
    }


def take(update: Timed, threads: int) -> Taken:
    """What each thread of a team takes; one that computes a block has the next too."""
    blocks, work = _claim(update.blocks.sum(axis=1), threads, ahead=1)
    buckets, rest = _claim(update.buckets.sum(axis=1), threads, ahead=0)
    return Taken(blocks, buckets, float(work.max() + rest.max()) / 1e9)


def _claim(
    times: np.ndarray, threads: int, *, ahead: int
) -> tuple[np.ndarray, np.ndarray]:
    """The thread of each item, and the time of each thread.

    A thread that is free starts the next item, and claims `ahead` more.
    """
    owners, work = np.zeros(len(times), int), np.zeros(threads)
    left = iter(range(len(times)))
    claimed: list[list[int]] = [[] for _ in range(threads)]
    free = [(0.0, thread) for thread in range(threads)]
    while free:
        now, thread = heapq.heappop(free)
        num_claims = ahead + 1 - len(claimed[thread])
        claimed[thread] += itertools.islice(left, num_claims)
        if claimed[thread]:
            item = claimed[thread].pop(0)
            owners[item] = thread
            work[thread] += times[item]
            heapq.heappush(free, (now + float(times[item]), thread))
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
    for num_blocks, found in samples.items():
        measured = {
            threads: statistics.median(seconds)
            for threads, seconds in found["seconds"].items()
        }
        for threads, counts in found["threads"].items():
            work, barriers, moved = _seconds(found, threads, costs)
            total = work + barriers + moved
            efficiency = measured["1"] / total / int(threads)
            seconds = [work, barriers, moved, total, measured.get(threads)]
            cells = ["" if each is None else f"{each * 1e6:.1f}" for each in seconds]
            kib = f"{counts['bytes'] / 1024:.0f}"
            shares = f"{100 * efficiency:.0f}"
            rows.append([num_blocks, threads, cells[0], cells[1], kib, *cells[2:]])
            rows[-1].append(shares)
    return Table(
        [
            *("blocks an update", "threads", "longest thread, us", "barriers, us"),
            *("KiB from other threads", "their time, us", "an update, us"),
            *("measured, us", "efficiency, %"),
        ],
        rows,
    )


def fit(samples: dict[str, dict[str, Any]]) -> Costs:
    """The costs by which the model is nearest to the measured times of two threads;
    none without these."""
    costs_of_two, rest = [], []
    for found in samples.values():
        if "2" in found["seconds"] and "2" in found["threads"]:
            work = _seconds(found, "2", Costs(0, 0))[0]
            costs_of_two.append([_BARRIERS * 2, found["threads"]["2"]["bytes"] / 2])
            rest.append(statistics.median(found["seconds"]["2"]) - work)
    if not rest:
        return Costs(0, 0)
    scale = np.maximum(np.max(costs_of_two, axis=0), 1)
    found_costs, _ = nnls(np.array(costs_of_two) / scale, np.array(rest))
    return Costs(*(found_costs / scale).tolist())


def _seconds(
    found: dict[str, Any], threads: str, costs: Costs
) -> tuple[float, float, float]:
    """Seconds of an update: work, barriers, and bytes from other threads."""
    counts = found["threads"]
    alone = statistics.median(found["seconds"]["1"])
    scale = alone / counts["1"]["longest_seconds"]
    num = int(threads)
    barriers = _BARRIERS * costs.barrier * num if num > 1 else 0.0
    return (
        scale * counts[threads]["longest_seconds"],
        barriers,
        costs.byte * counts[threads]["bytes"] / num,
    )
