"""The updates of `embedder.tokens.train_step` by rows, for the threads of a CPU.

XLA leaves more than half the speed of a CPU with products as small as these. Here each
block is computed in the caches of one core, its contexts as a band (`block.py`), and
gradients are derived by hand (`products.py`, in vectors of `simd.py`). The parity suite
compares them with the oracle, as it does the gradients that JAX derives. Results are
equal to the last bit for any number of threads.
"""

import functools
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from embedder.base.threads import available_cores as cores_by_affinity
from embedder.engine.compiled_step import CompiledStep, PlacedState
from embedder.engine.rules import RowRule, row_rule
from embedder.engine.state import TrainState
from embedder.tokens.cpu import paths, subwords
from embedder.tokens.cpu.block import (
    BlockBuffers,
    Sizes,
    aligned_zeros,
    new_buffers,
    read_only,
    round_up,
    sizes,
)
from embedder.tokens.cpu.rows import BucketRows, Gathered, new_bucket_rows, new_gathered
from embedder.tokens.cpu.simd import LANES
from embedder.tokens.cpu.thread import (
    Arrays,
    Constants,
    LossTerms,
    Thread,
    ThreadMemory,
    apply_on_thread,
)
from embedder.tokens.prepare import Batch, Model
from embedder.tokens.row_lr_multipliers import join_factors, split_factors
from embedder.tokens.subwords import TABLE, SubwordIndex
from embedder.tokens.train_step import TABLES, Loss, row_state_names

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container, on Linux
_TRIAL_TOKENS = 2**13  # of a call, to time another number of threads with
_UNDISTURBED = 0.8  # share of the time that a thread has a core on an idle machine
_MEMORY = 0.7  # weight of earlier measurements of a size, when there is a new one
_TRIALS = 0.05  # share of the time that trials of other sizes may cost
_FIRST_TRIALS = 0.02  # seconds that the first trials may cost


def place(
    model: Model,
    cap: float | None,
    *,
    loss_interval: int,
    threads: int,
    optimizer: str = "sgd",
) -> CompiledStep:
    """As `compiled_step.place`, for arrays of NumPy.

    The arrays of a state that updates return are of NumPy, and the next call changes
    them in place. The tokens of a sequence must be consecutive in their block.

    Args:
      cap: of SGD; None: no cap.
    """
    rule, objective = row_rule(optimizer), model.objective
    kernel = objective.architecture.kernel
    assert kernel is not None and rule.has_kernel, "see `compiled_step.pick_backend`"

    @functools.cache
    def team(num_blocks: int) -> TeamSize:
        return TeamSize(min(threads, num_blocks))

    newest = threading.local()  # trainings in several threads may share this program

    def memory(*shape) -> Memory:
        if getattr(newest, "shape", None) != shape:
            newest.shape = shape
            newest.memory = _new_memory(team(shape[0]).threads, *shape)
        return newest.memory

    def updates(placed: PlacedState, batch: Batch) -> tuple[PlacedState, Loss]:
        state, of_rows = split_factors(placed)
        before = state.params["tables"]
        dim, dtype = before["input"].shape[1], before["input"].dtype
        row_state = rule.row_state(state.opt_state)
        accumulators, factors, words, entries = None, None, None, []
        tables = _joined([before[name] for name in TABLES])
        if row_state:
            accumulators = _joined([row_state[name] for name in row_state_names(rule)])
        if of_rows:
            factors = _joined(
                [of_rows.get(x, np.ones(len(before[x]), dtype)) for x in TABLES]
            )
        if isinstance(state.extras, SubwordIndex):
            ids, num_words = batch.blocks.ids, len(before["input"])
            trained = _joined([before[TABLE]])
            words, num = subwords.word_rows(trained, state.extras, ids, num_words)
            entries = [subwords.new_entries(num) for _ in range(threads)]
        batch = _for_kernel(batch)
        above, batch = batch.above, batch._replace(above=None)
        num_blocks, num_tiles, num_noise = batch.blocks.noise.shape[1:]
        constants = Constants(
            predicts_contexts=kernel.predicts_contexts,
            is_mean=kernel.is_mean,
            window=model.window,
            dim=dim,
            loss_interval=loss_interval,
            cap=dtype.type(math.inf if cap is None else cap),
            noise_share=dtype.type(model.negative / num_noise * objective.is_sampled),
            num_keys=len(before["input"]),
        )
        block = batch.blocks.ids.shape[2]
        size = sizes(block, num_tiles, num_noise, model.window, objective.depth)
        used = memory(num_blocks, size, tables.shape[1], dtype.name)
        arrays, extra = Arrays(tables, accumulators, factors), (above, words, entries)
        loss = _apply(
            optimizer, constants, team(num_blocks), arrays, used, batch, extra
        )
        after = _next_state(rule, state, tables, accumulators, len(batch.rate))
        if words is not None:
            rows = words.table[:, :dim].view(_Owned)
            rows.memory = words.table
            params = {"tables": {**after.params["tables"], TABLE: rows}}
            after = PlacedState(after._replace(params=params, extras=state.extras))
        if factors is not None:
            parts = _parts(factors, factors, constants.num_keys)
            of_rows = dict(zip(TABLES, parts, strict=True))
        return PlacedState(join_factors(after, of_rows)), loss

    return CompiledStep(
        apply_updates=updates,
        place_state=lambda state: PlacedState(state),
        place_batch=lambda batch: batch,
        whole_state=_plain,
    )


def available_cores() -> int:
    """Cores that this process may use, by its affinity and the quota of its group."""
    cores = cores_by_affinity()
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such group, or "max": no quota
        return cores


def _plain(state: TrainState) -> TrainState:
    """`state` with contiguous, read-only copies of its arrays."""

    def copy(array):
        plain = np.array(array, order="C", subok=False)
        plain.flags.writeable = False
        return plain

    arrays = jax.tree.map(copy, (state.params, state.opt_state))
    return state._replace(params=arrays[0], opt_state=arrays[1])


def _for_kernel(batch: Batch) -> Batch:
    """`batch` read-only, with weights f32 of the tokens of a block, or of none where it
    has none: one compiled function serves them all."""
    weight = batch.blocks.weight
    if weight is None:
        weight = np.zeros((*batch.blocks.ids.shape[:2], 0), np.float32)
    blocks = batch.blocks._replace(weight=weight.astype(np.float32, copy=False))
    return jax.tree.map(read_only, batch._replace(blocks=blocks))


class _Owned(np.ndarray):
    """An array of a state that the kernel returned."""

    memory: np.ndarray | None = None  # what the kernel changes; None: a derived array


def _memory(array) -> np.ndarray | None:
    return array.memory if isinstance(array, _Owned) else None


def _joined(parts: list) -> np.ndarray:
    """Arrays of rows, one after the other in memory of the kernel: [n] or [n, D] with D
    padded to a multiple of LANES, each row from the start of a cache line on.

    The kernel's own arrays are not copied.
    """
    memory = _memory(parts[0])
    if memory is not None and all(_memory(part) is memory for part in parts):
        return memory
    shape = sum(map(len, parts)), *(round_up(n, LANES) for n in parts[0].shape[1:])
    joined, start = aligned_zeros(shape, parts[0].dtype), 0
    for part in parts:
        rows = joined[start : start + len(part)]
        rows[..., : part.shape[-1]] = part
        start += len(part)
    return joined


def _parts(memory: np.ndarray, view: np.ndarray, num_keys: int) -> list[_Owned]:
    """The rows of the input and of the output table in `view`, a view of `memory`, as
    arrays of the next state."""
    parts = [part.view(_Owned) for part in np.split(view, [num_keys])]
    for part in parts:
        part.memory = memory
    return parts


def _next_state(
    rule: RowRule,
    state: TrainState,
    tables: np.ndarray,
    accumulators: np.ndarray | None,
    num_updates: int,
) -> PlacedState:
    """The state with the changed `tables` and `accumulators`."""
    num_keys, dim = state.params["tables"]["input"].shape
    parts = _parts(tables, tables[:, :dim], num_keys)
    params = dict(zip(TABLES, parts, strict=True))
    opt_state = state.opt_state
    if accumulators is not None:
        owned = _parts(accumulators, accumulators, num_keys)
        row_state = dict(zip(row_state_names(rule), owned, strict=True))
        opt_state = rule.with_row_state(opt_state, row_state)
    step = np.asarray(state.step + num_updates, np.int32)
    return PlacedState(TrainState({"tables": params}, opt_state, step))


class TeamSize:
    """Picks the number of threads that applies the most updates a second, where other
    programs use the cores too.

    The threads of an update wait for each other twice, with small updates in some 40
    microseconds. When another program takes the core of one thread, all of them wait
    until the scheduler gives that core back, and the team is slower than one thread
    alone. The vectors do not depend on the number of threads, so it may change at any
    time.

    It starts with all threads. When one of them has a core for less than 0.8 of the
    time, it tries smaller numbers in turn and uses the fastest, until all threads have
    their cores again and are the fastest.

    Args:
      threads: the most threads.
    """

    def __init__(self, threads: int):
        self.threads = threads
        self.is_disturbed = False
        """Whether another program has recently taken a core of the team."""
        self._sizes = sorted({threads, max(1, threads - 1), max(1, threads // 2), 1})
        self._begin_trials()

    @property
    def best(self) -> int:
        """The number of threads with the most updates a second, as far as is known."""
        return max(self._sizes, key=lambda size: (self._rate(size), size))

    def trial(self) -> int | None:
        """The number of threads to time some updates with; None: no trial is due."""
        if not self.is_disturbed or self._credit < 0:
            return None
        others = [size for size in self._sizes if size != self.best]
        return min(others, key=self._num_calls.__getitem__)

    def record(self, size: int, updates: int, seconds: float, share: float) -> None:
        """Records how long `updates` took.

        Args:
          size: the number of threads that applied them.
          share: the smallest share of the time that a thread of them had a core.
        """
        has_cores = share >= _UNDISTURBED
        if self.is_disturbed:
            self._measure(size, updates, seconds)
            if has_cores and size == self.threads == self.best:
                self.is_disturbed = False
                self._begin_trials()
        elif size > 1 and not has_cores:
            self.is_disturbed = True

    def _begin_trials(self) -> None:
        self._updates = dict.fromkeys(self._sizes, 0.0)
        self._seconds = dict.fromkeys(self._sizes, 0.0)
        self._num_calls = dict.fromkeys(self._sizes, 0)
        self._credit = _FIRST_TRIALS
        """Seconds that trials may still cost."""

    def _measure(self, size: int, updates: int, seconds: float) -> None:
        best = self.best
        if size == best:
            self._credit += _TRIALS * seconds
        elif rate := self._rate(best):
            self._credit -= max(0.0, seconds - updates / rate)
        self._num_calls[size] += 1
        self._updates[size] = _MEMORY * self._updates[size] + updates
        self._seconds[size] = _MEMORY * self._seconds[size] + seconds

    def _rate(self, size: int) -> float:
        """Updates a second, over all recorded time: a slow call outweighs fast ones."""
        seconds = self._seconds[size]
        return self._updates[size] / seconds if seconds else 0.0


class Memory(NamedTuple):
    """What the threads compute in; kept from call to call."""

    gathered: Gathered
    buffers: list[BlockBuffers]  # of each thread
    rows: list[BucketRows]  # of each thread
    paths: list[paths.PathBuffers | None]  # of each thread; None: there is no tree


def _new_memory(
    threads: int, num_blocks: int, size: Sizes, width: int, dtype: str
) -> Memory:
    return Memory(
        new_gathered(num_blocks, size, width, dtype, threads),
        [new_buffers(size, width, np.dtype(dtype)) for _ in range(threads)],
        [new_bucket_rows(num_blocks, size, dtype) for _ in range(threads)],
        [paths.new_buffers(size, width, np.dtype(dtype)) for _ in range(threads)],
    )


def _apply(
    optimizer: str,
    constants: Constants,
    team: TeamSize,
    arrays: Arrays,
    memory: Memory,
    batch: Batch,
    extra: tuple[np.ndarray | None, subwords.WordRows | None, list[subwords.Entries]],
) -> Loss:
    """Applies the updates of `batch` to `arrays`, in place.

    Args:
      extra: the Huffman tree, the rows of subwords, and the memory of each thread for
        these.
    """
    above, words, entries = extra
    dtype, interval = arrays.tables.dtype, constants.loss_interval
    num_updates, num_blocks, block = batch.blocks.ids.shape
    reports = -(-num_updates // interval), num_blocks
    losses = LossTerms(np.zeros(reports), np.zeros(reports))
    extras = arrays.factors is not None, above is not None, words is not None
    compiled = apply_on_thread(dtype.name, optimizer, *extras)

    def run_thread(number: int, thread: Thread, updates: slice) -> float:
        """Returns the share of the time that the thread had a core."""
        first_report = updates.start // interval
        terms = LossTerms._make(terms[first_report:] for terms in losses)
        of_words = None
        if words is not None:
            of_updates = words.first[updates.start : updates.stop + 1]
            of_words = words._replace(first=of_updates), entries[number]
        start, cpu_start = time.perf_counter(), time.thread_time()
        compiled(
            thread,
            arrays,
            jax.tree.map(lambda array: array[updates], batch),
            constants,
            ThreadMemory(
                memory.gathered, memory.buffers[number], memory.rows[number], terms
            ),
            None if above is None else (above, memory.paths[number]),
            of_words,
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
    run_thread: Callable[[int, Thread, slice], float],
    updates: slice,
) -> None:
    """Applies a slice of the updates with `threads` threads; records their time."""
    num_updates = updates.stop - updates.start
    arrivals, *taken = (np.zeros(n, np.int64) for n in (2, *[num_updates] * 4))
    thread = Thread(threads, arrivals, *taken)

    def run(number: int) -> float:
        try:
            return run_thread(number, thread, updates)
        except BaseException:
            arrivals[1] = 1  # or the others would wait for this thread
            raise

    start = time.perf_counter()
    try:
        parts = [pool.submit(run, number) for number in range(threads)]
        share = min(part.result() for part in parts)
    except BaseException:
        arrivals[1] = 1
        raise
    seconds = time.perf_counter() - start
    team.record(threads, num_updates, seconds, share)
