"""The updates of `embedder.tables.update` by rows, for the threads of a CPU.

XLA leaves more than half the speed of a CPU with products as small as these. Here each
tile is worked on in the caches of one core, its contexts as a band (`tiles.py`), and
gradients are by hand (`products.py`, in vectors of `simd.py`). The parity suite holds
them to the oracle as it does those that JAX derives. Results are equal to the last bit
for any number of threads.

An update has two parts, with a barrier after each: every thread leaves the gradients of
its tiles; then every row is stepped by the one thread that it is dealt to.
"""

import functools
import hashlib
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from embedder.engine.program import Program
from embedder.engine.state import TrainState
from embedder.tables import skipgram
from embedder.tables.cpu import products, simd, tiles
from embedder.tables.cpu.kernel_cache import kept
from embedder.tables.cpu.simd import (
    LANES,
    cast_like,
    compiled,
    give_way,
    increment,
    load,
    read,
    store,
    subtract_scaled,
)
from embedder.tables.cpu.team import TeamSize
from embedder.tables.cpu.tiles import (
    differentiate_cbow,
    differentiate_skipgram,
    find_contexts,
    find_sequences,
    load_rows,
    new_gathered,
    new_tile,
    prefetch,
    round_up,
    tile_sizes,
    weigh_cbow,
    weigh_skipgram,
)
from embedder.tables.update import Batch, Loss, Model

_FILES = __file__, tiles.__file__, products.__file__, simd.__file__
_SOURCES = hashlib.sha256(
    b"".join(Path(file).read_bytes() for file in _FILES)
).hexdigest()[:16]
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container, on Linux
_LINE = 64  # bytes of a cache line
_TRIAL_TOKENS = 2**13  # of a call, that another number of threads is tried with
_SPINS = 1_000  # readings of the counter before a waiting thread gives way


class _Found(NamedTuple):
    """The different rows of an update: a hash table, which a thread keeps for itself.

    It has H slots, a power of two, and is empty again with the next update.
    """

    update: np.ndarray  # i64[H], the update that took the slot, from 1
    key: np.ndarray  # i64[H]
    weight: np.ndarray  # [H], sum of the weights of the row
    owner: np.ndarray  # i64[H], the thread that steps the row
    slots: np.ndarray  # i64[M R], slot of each gathered row
    places: np.ndarray  # i64[M R], and where its gradient is


def make_updates(
    model: Model, cap: float, *, loss_interval: int, threads: int
) -> Callable[[TrainState, Batch], tuple[TrainState, Loss]]:
    """As `embedder.tables.update.make_updates`, for arrays of NumPy and capped SGD.

    The tables of a state that it returns are arrays of NumPy, which the next call
    changes in place. Tokens of a sequence stand together in their block.
    """

    @functools.cache
    def team(num_tiles: int) -> TeamSize:
        return TeamSize(min(threads, num_tiles))

    def updates(state: TrainState, batch: Batch) -> tuple[TrainState, Loss]:
        tables = {name: _filled_up(x) for name, x in state.params["tables"].items()}
        batch = jax.tree.map(_read_only, batch)
        num_tiles = math.prod(batch.blocks.noise.shape[1:3])
        loss = _apply(model, cap, loss_interval, team(num_tiles), tables, batch)
        step = np.asarray(state.step + len(batch.rate), np.int32)
        dim = state.params["tables"]["input"].shape[1]
        tables = {name: _cut(whole, dim) for name, whole in tables.items()}
        return TrainState({"tables": tables}, state.opt_state, step), loss

    return updates


def place(model: Model, cap: float, *, loss_interval: int, threads: int) -> Program:
    """As `embedder.tables.placement.place`: all is in the memory of the machine."""
    updates = make_updates(model, cap, loss_interval=loss_interval, threads=threads)
    return Program(
        apply_updates=updates,
        place_state=_unchanged,
        place_batch=_unchanged,
        whole_state=_contiguous,
    )


def _unchanged(values):
    return values


def _contiguous(state: TrainState) -> TrainState:
    """`state` with arrays as anybody expects them: those here have wider rows."""
    tables = {}
    for name, table in state.params["tables"].items():
        tables[name] = np.array(table, order="C", subok=False)
        tables[name].flags.writeable = False
    return state._replace(params={"tables": tables})


def available_cores() -> int:
    """Cores that this process may use, by its affinity and the quota of its group."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such group, or "max": no quota
        return cores


def _read_only(array) -> np.ndarray:
    """`array` as all are given to the kernel: it is compiled for that."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


class _Table(np.ndarray):
    """A table [V, D]: the first columns of `whole`."""

    whole: np.ndarray | None = None  # not of what is derived from it


def _filled_up(table) -> np.ndarray:
    """`table` with its rows filled up with zeros, each on cache lines of its own."""
    whole = getattr(table, "whole", None)
    if whole is not None:
        return whole
    num_rows, dim = table.shape
    width, size = round_up(dim, LANES), table.dtype.itemsize
    memory = np.zeros(num_rows * width * size + _LINE, np.uint8)
    offset = -memory.ctypes.data % _LINE
    whole = np.ndarray((num_rows, width), table.dtype, memory, offset)
    whole[:, :dim] = table
    return whole


def _cut(whole: np.ndarray, dim: int) -> _Table:
    table = whole[:, :dim].view(_Table)
    table.whole = whole
    return table


def _apply(
    model: Model, cap: float, interval: int, team: TeamSize, tables, batch: Batch
) -> Loss:
    """Applies the updates of `batch` to `tables`, in place."""
    width = tables["input"].shape[1]
    dtype = tables["input"].dtype
    num_updates, num_blocks, num_tiles, num_noise = batch.blocks.noise.shape
    block = batch.blocks.ids.shape[2]
    num_tiles *= num_blocks
    tile = block * num_blocks // num_tiles
    sizes = tile_sizes(tile, model.window, num_noise)
    gathered = new_gathered(num_tiles, sum(sizes), width, dtype)
    reports = tuple(
        np.zeros((-(-num_updates // interval), num_tiles)) for _ in range(2)
    )
    is_skipgram = model.objective is skipgram
    work = _work(dtype.name)
    scratch = [
        (
            new_tile(sizes, width, block, dtype),
            _new_found(num_tiles * sum(sizes), dtype),
        )
        for _ in range(team.threads)
    ]

    def take_part(thread: int, threads: int, counter, updates: slice) -> float:
        """Works as one of `threads`; returns the share of the time it had a core."""
        own, found = scratch[thread]
        found.update[:] = 0
        began, start = time.perf_counter(), time.thread_time()
        work(
            (thread, threads, counter),
            (tables["input"], tables["output"]),
            tuple(array[updates] for array in (*batch.blocks, batch.rate)),
            (dtype.type(cap), dtype.type(model.negative / num_noise)),
            (is_skipgram, model.window, interval),
            gathered,
            own,
            found,
            tuple(report[updates.start // interval :] for report in reports),
        )
        return (time.thread_time() - start) / (time.perf_counter() - began)

    tokens = block * num_blocks
    trial_size = min(num_updates, round_up(-(-_TRIAL_TOKENS // tokens), interval))
    start = 0
    with ThreadPoolExecutor(team.threads) as pool:
        if (threads := team.trial()) is not None:
            start = trial_size
            _work_together(pool, team, threads, take_part, slice(0, start))
        if start < num_updates:
            rest = slice(start, num_updates)
            _work_together(pool, team, team.best, take_part, rest)
    return Loss(*(report.sum(axis=1).astype(dtype) for report in reports))


def _work_together(
    pool: ThreadPoolExecutor,
    team: TeamSize,
    threads: int,
    take_part: Callable,
    updates: slice,
) -> None:
    """Lets so many threads apply the updates of a slice, and tells the team of it."""
    counter = np.zeros(2, np.int64)  # arrivals at the barrier; whether to give up

    def take_part_or_tell(thread: int) -> float:
        try:
            return take_part(thread, threads, counter, updates)
        except BaseException:  # the others would wait for this one
            counter[1] = 1
            raise

    began = time.perf_counter()
    try:
        parts = [pool.submit(take_part_or_tell, thread) for thread in range(threads)]
        share = min(part.result() for part in parts)
    except BaseException:
        counter[1] = 1
        raise
    seconds = time.perf_counter() - began
    team.record(threads, updates.stop - updates.start, seconds, share)


def _new_found(num_gathered: int, dtype) -> _Found:
    size = 1 << (2 * num_gathered).bit_length()
    return _Found(
        update=np.zeros(size, np.int64),
        key=np.zeros(size, np.int64),
        weight=np.zeros(size, dtype),
        owner=np.zeros(size, np.int64),
        slots=np.zeros(num_gathered, np.int64),
        places=np.zeros(num_gathered, np.int64),
    )


@functools.cache
def _work(dtype: str) -> Callable:
    """The part of one thread in a batch of updates, compiled or from Numba's cache.

    Numba looks up what it has compiled before by the name and the file of a function,
    not by what that calls; and two processes that compile a function for two dtypes at
    once may take each other's. So the name tells of the dtype and of all sources.
    """

    def work(team, tables, batch, constants, settings, gathered, own, found, reports):
        thread, threads, counter = team
        ids, sequence, radius, noise, rate = batch
        cap, share = constants
        is_skipgram, window, interval = settings
        num_updates, num_blocks, num_tiles, num_noise = noise.shape
        size = ids.shape[2] // num_tiles
        all_tiles = num_blocks * num_tiles
        first_tile = all_tiles * thread // threads
        last_tile = all_tiles * (thread + 1) // threads
        arrivals = 0
        for s in range(num_updates):
            report = s % interval == 0
            for m in range(first_tile, last_tile):
                n, g = m // num_tiles, m % num_tiles
                place = s, n, g, m, size, window
                if m == first_tile or g == 0:
                    find_sequences(sequence, s, n, own.begin, own.end)
                if s + 1 < num_updates:
                    prefetch(tables, ids, noise, s + 1, n, g)
                find_contexts(place, radius, own)
                if is_skipgram:
                    band, terms = weigh_skipgram(place, share, own)
                else:
                    band, terms = weigh_cbow(place, share, own)
                of_tokens = 0 if is_skipgram else 1
                weight = share * cast_like(terms, share)
                load_rows(
                    place, band, of_tokens, weight, tables, ids, noise, gathered, own
                )
                gradients = gathered.gradients
                if is_skipgram:
                    loss = differentiate_skipgram(
                        place, band, gradients, num_noise, report, own
                    )
                else:
                    loss = differentiate_cbow(
                        place, band, gradients, num_noise, report, own
                    )
                if report:
                    reports[0][s // interval, m] = loss
                    reports[1][s // interval, m] = terms
            arrivals += threads
            _wait(counter, arrivals)
            if counter[1]:
                return
            num_rows = _find_rows(gathered, found, s + 1, threads)
            _step_rows(
                tables, gathered.gradients, found, num_rows, thread, cap, rate[s]
            )
            arrivals += threads
            _wait(counter, arrivals)
            if counter[1]:
                return

    work.__qualname__ = f"work_{dtype}_{_SOURCES}"
    return kept(compiled(work))


@compiled()
def _wait(counter, arrivals):
    """Returns when so many have come to the barrier, or all is given up."""
    increment(counter)
    spins = 0
    while read(counter) < arrivals and not counter[1]:
        spins += 1
        if spins > _SPINS:
            give_way()


@compiled()
def _find_rows(gathered, found, update, threads):
    """Lists the gathered rows, sums their weights, and deals them to threads.

    A row is dealt to a thread that has its gradients at hand: the only one, or the
    first or last, that gathered it in this update. All threads find the same.
    """
    num_tiles = len(gathered.count)
    mask = len(found.key) - 1
    num_rows = 0
    for thread in range(threads):
        first = num_tiles * thread // threads
        for m in range(first, num_tiles * (thread + 1) // threads):
            for r in range(gathered.count[m]):
                key = gathered.keys[m, r]
                slot = (key * 0x9E3779B1 >> 12) & mask
                while found.update[slot] == update and found.key[slot] != key:
                    slot = (slot + 1) & mask
                if found.update[slot] != update:
                    found.update[slot] = update
                    found.key[slot] = key
                    found.weight[slot] = 0
                    found.owner[slot] = thread
                found.weight[slot] += gathered.weights[m, r]
                if key & 1:  # of odd rows the last thread, for balance
                    found.owner[slot] = thread
                found.slots[num_rows] = slot
                found.places[num_rows] = gathered.places[m, r]
                num_rows += 1
    return num_rows


@compiled()
def _step_rows(tables, gradients, found, num_rows, thread, cap, rate):
    """row -= rate min(1, cap / weight of the row) gradient, in the order of tiles."""
    num_keys = len(tables[0])
    for e in range(num_rows):
        slot = found.slots[e]
        if found.owner[slot] == thread:
            key, weight = found.key[slot], found.weight[slot]
            scale = rate * (cap / weight) if weight > cap else rate
            if key < num_keys:
                _subtract(tables[0], key, scale, gradients, found.places[e])
            else:
                _subtract(tables[1], key - num_keys, scale, gradients, found.places[e])


@compiled()
def _subtract(table, row, scale, gradients, place):
    for d in range(0, table.shape[1], LANES):
        gradient = load(gradients, place, d)
        store(table, row, d, subtract_scaled(load(table, row, d), scale, gradient))
