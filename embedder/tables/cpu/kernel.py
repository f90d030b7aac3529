"""The updates of `embedder.tables.update` by rows, for the threads of a CPU.

XLA leaves more than half the speed of a CPU with products as small as these. Here each
tile is computed in the caches of one core, its contexts as a band (`tiles.py`), and
gradients are derived by hand (`products.py`, in vectors of `simd.py`). The parity suite
compares them with the oracle, as it does the gradients that JAX derives. Results are
equal to the last bit for any number of threads.
"""

import functools
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np

from embedder.engine.program import PlacedState, Program
from embedder.engine.rules import RowRule, row_rule
from embedder.engine.state import TrainState
from embedder.tables import skipgram
from embedder.tables.cpu.rows import new_row_table
from embedder.tables.cpu.simd import LANES
from embedder.tables.cpu.team import TeamSize
from embedder.tables.cpu.thread import (
    Constants,
    LossTerms,
    Thread,
    apply_on_thread,
)
from embedder.tables.cpu.tiles import (
    Tables,
    new_buffers,
    new_gathered,
    round_up,
    tile_sizes,
)
from embedder.tables.prepare import Batch, Model
from embedder.tables.update import Loss

_ACCUMULATORS = "input_accumulator", "output_accumulator"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container, on Linux
_LINE = 64  # bytes of a cache line
_TRIAL_TOKENS = 2**13  # of a call, to time another number of threads with


def make_updates(
    model: Model,
    cap: float | None,
    *,
    loss_interval: int,
    threads: int,
    optimizer: str = "sgd",
) -> Callable[[PlacedState, Batch], tuple[PlacedState, Loss]]:
    """As `embedder.tables.update.make_updates`, for arrays of NumPy.

    The arrays of a state that it returns are of NumPy, and the next call changes them
    in place. The tokens of a sequence must be consecutive in their block. `cap` applies
    to SGD; None: no cap.
    """

    rule = row_rule(optimizer)

    @functools.cache
    def team(num_tiles: int) -> TeamSize:
        return TeamSize(min(threads, num_tiles))

    def updates(state: PlacedState, batch: Batch) -> tuple[PlacedState, Loss]:
        given = state.params["tables"]
        dim, dtype = given["input"].shape[1], given["input"].dtype
        tables = Tables(_padded(given["input"]), _padded(given["output"]))
        accumulators = _accumulators(rule, state)
        batch = jax.tree.map(_read_only, batch)
        constants = Constants(
            is_skipgram=model.objective is skipgram,
            window=model.window,
            dim=dim,
            loss_interval=loss_interval,
            cap=dtype.type(math.inf if cap is None else cap),
            noise_share=dtype.type(model.negative / batch.blocks.noise.shape[3]),
        )
        size = team(math.prod(batch.blocks.noise.shape[1:3]))
        loss = _apply(optimizer, constants, size, tables, accumulators, batch)
        num_updates = len(batch.rate)
        return _next_state(rule, state, tables, accumulators, dim, num_updates), loss

    return updates


def place(
    model: Model,
    cap: float | None,
    *,
    loss_interval: int,
    threads: int,
    optimizer: str = "sgd",
) -> Program:
    """As `embedder.tables.placement.place`: all arrays are in the machine's memory."""
    return Program(
        apply_updates=make_updates(
            model,
            cap,
            loss_interval=loss_interval,
            threads=threads,
            optimizer=optimizer,
        ),
        place_state=_unchanged,
        place_batch=_unchanged,
        whole_state=_plain,
    )


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


def _unchanged(values):
    return values


def _plain(state: TrainState) -> TrainState:
    """`state` with contiguous, read-only copies of its arrays."""

    def copy(array):
        plain = np.array(array, order="C", subok=False)
        plain.flags.writeable = False
        return plain

    arrays = jax.tree.map(copy, (state.params, state.opt_state))
    return state._replace(params=arrays[0], opt_state=arrays[1])


def _read_only(array) -> np.ndarray:
    """`array` without leave to write to it: the kernel is compiled for that."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


class _Owned(np.ndarray):
    """An array of a state that the kernel returned."""

    memory: np.ndarray | None = None  # what the kernel changes; None: a derived array


def _padded(table) -> np.ndarray:
    """`table` [V, D] with columns of zeros up to a multiple of LANES.

    Each row starts on a cache line. The kernel's own tables are not copied.
    """
    memory = getattr(table, "memory", None)
    if memory is not None:
        return memory
    num_rows, dim = table.shape
    width, size = round_up(dim, LANES), table.dtype.itemsize
    buffer = np.zeros(num_rows * width * size + _LINE, np.uint8)
    offset = -buffer.ctypes.data % _LINE
    padded: np.ndarray = np.ndarray((num_rows, width), table.dtype, buffer, offset)
    padded[:, :dim] = table
    return padded


def _accumulators(rule: RowRule, state: TrainState) -> Tables | None:
    """The accumulators [V] of Adagrad; the kernel's own ones are not copied."""
    given = rule.row_state(state.opt_state)
    if not given:
        return None
    return Tables._make(_writable(given[name]) for name in _ACCUMULATORS)


def _writable(array) -> np.ndarray:
    memory = getattr(array, "memory", None)
    return np.array(array, subok=False) if memory is None else memory


def _owned(memory: np.ndarray, view: np.ndarray) -> _Owned:
    """`view`, a view of `memory`, as an array of the next state."""
    owned = view.view(_Owned)
    owned.memory = memory
    return owned


def _next_state(
    rule: RowRule,
    state: TrainState,
    tables: Tables,
    accumulators: Tables | None,
    dim: int,
    num_updates: int,
) -> PlacedState:
    """The state with the changed `tables` and `accumulators`."""
    params = {name: _owned(x, x[:, :dim]) for name, x in tables._asdict().items()}
    opt_state = state.opt_state
    if accumulators is not None:
        owned = (_owned(x, x) for x in accumulators)
        row_state = dict(zip(_ACCUMULATORS, owned, strict=True))
        opt_state = rule.with_row_state(opt_state, row_state)
    step = np.asarray(state.step + num_updates, np.int32)
    return PlacedState(TrainState._make([{"tables": params}, opt_state, step]))


def _apply(
    optimizer: str,
    constants: Constants,
    team: TeamSize,
    tables: Tables,
    accumulators: Tables | None,
    batch: Batch,
) -> Loss:
    """Applies the updates of `batch` to `tables` and `accumulators`, in place."""
    width, dtype = tables.input.shape[1], tables.input.dtype
    num_updates, num_blocks, num_tiles, num_noise = batch.blocks.noise.shape
    block, interval = batch.blocks.ids.shape[2], constants.loss_interval
    sizes = tile_sizes(block // num_tiles, constants.window, num_noise)
    num_tiles *= num_blocks
    num_gathered = num_tiles * sum(sizes)
    gathered = new_gathered(num_tiles, sum(sizes), width, dtype)
    scratch = [  # each thread its own
        (new_buffers(sizes, width, block, dtype), new_row_table(num_gathered, dtype))
        for _ in range(team.threads)
    ]
    reports = -(-num_updates // interval), num_tiles
    losses = LossTerms(np.zeros(reports), np.zeros(reports))
    compiled = apply_on_thread(dtype.name, optimizer)

    def run_thread(thread: Thread, updates: slice) -> float:
        """Returns the share of the time that the thread had a core."""
        buffers, rows = scratch[thread.number]
        rows.update[:] = 0
        first_report = updates.start // interval
        start, cpu_start = time.perf_counter(), time.thread_time()
        compiled(
            thread,
            tables,
            accumulators,
            jax.tree.map(lambda array: array[updates], batch),
            constants,
            gathered,
            buffers,
            rows,
            LossTerms._make(terms[first_report:] for terms in losses),
        )
        return (time.thread_time() - cpu_start) / (time.perf_counter() - start)

    _run_in_turns(team, num_updates, interval, block * num_blocks, run_thread)
    return Loss._make(terms.sum(axis=1).astype(dtype) for terms in losses)


def _run_in_turns(
    team: TeamSize, num_updates: int, interval: int, tokens: int, run_thread: Callable
) -> None:
    """Applies all updates, of `tokens` each; where a trial is due, the first as one."""
    trial_size = min(num_updates, round_up(-(-_TRIAL_TOKENS // tokens), interval))
    start = 0
    with ThreadPoolExecutor(team.threads) as pool:
        if (threads := team.trial()) is not None:
            start = trial_size
            _run_team(pool, team, threads, run_thread, slice(0, start))
        if start < num_updates:
            rest = slice(start, num_updates)
            _run_team(pool, team, team.best, run_thread, rest)


def _run_team(
    pool: ThreadPoolExecutor,
    team: TeamSize,
    threads: int,
    run_thread: Callable[[Thread, slice], float],
    updates: slice,
) -> None:
    """Applies a slice of the updates with `threads` threads; records their time."""
    counter = np.zeros(2, np.int64)

    def run(number: int) -> float:
        try:
            return run_thread(Thread(number, threads, counter), updates)
        except BaseException:
            counter[1] = 1  # or the others would wait for this thread
            raise

    start = time.perf_counter()
    try:
        parts = [pool.submit(run, number) for number in range(threads)]
        share = min(part.result() for part in parts)
    except BaseException:
        counter[1] = 1
        raise
    seconds = time.perf_counter() - start
    team.record(threads, updates.stop - updates.start, seconds, share)
