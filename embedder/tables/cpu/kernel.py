"""The updates of `embedder.tables.update` by rows, for the threads of a CPU.

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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import jax
import numpy as np

from embedder.engine.program import PlacedState, Program
from embedder.engine.rules import RowRule, row_rule
from embedder.engine.state import TrainState
from embedder.tables import cbow_sums, skipgram
from embedder.tables.cpu import paths, subwords
from embedder.tables.cpu.block import (
    BlockBuffers,
    Sizes,
    aligned_zeros,
    new_buffers,
    round_up,
    sizes,
)
from embedder.tables.cpu.rows import (
    BucketRows,
    Gathered,
    new_bucket_rows,
    new_gathered,
)
from embedder.tables.cpu.simd import LANES
from embedder.tables.cpu.team import TeamSize
from embedder.tables.cpu.thread import (
    Constants,
    LossTerms,
    Thread,
    apply_on_thread,
)
from embedder.tables.hierarchical import HierarchicalSoftmax
from embedder.tables.objective import Objective
from embedder.tables.prepare import Batch, Model
from embedder.tables.row_factors import join_factors, split_factors
from embedder.tables.subwords import TABLE, Lists
from embedder.tables.update import TABLES, Loss
from embedder.threads import available_cores as cores_by_affinity

_ACCUMULATORS = "input_accumulator", "output_accumulator"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container, on Linux
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
    is_skipgram, is_mean, is_sampled, depth = _kind(model.objective)

    @functools.cache
    def team(num_blocks: int) -> TeamSize:
        return TeamSize(min(threads, num_blocks))

    kept = threading.local()  # trainings in several threads may share this program

    def memory(*shape) -> Memory:
        if getattr(kept, "shape", None) != shape:
            kept.shape = shape
            kept.memory = _new_memory(team(shape[0]).threads, *shape)
        return kept.memory

    def updates(given_state: PlacedState, batch: Batch) -> tuple[PlacedState, Loss]:
        state, of_rows = split_factors(given_state)
        given = state.params["tables"]
        dim, dtype = given["input"].shape[1], given["input"].dtype
        tables = _joined(_padded(dtype), [given[name] for name in TABLES])
        accumulators = _accumulators(rule, state)
        factors = _factors(of_rows, given)
        words, entries = _words(given, state.extras, batch)
        batch = jax.tree.map(_read_only, _with_weights(batch))
        above, batch = batch.above, batch._replace(above=None)
        num_blocks, num_tiles, num_noise = batch.blocks.noise.shape[1:]
        constants = Constants(
            is_skipgram=is_skipgram,
            is_mean=is_mean,
            window=model.window,
            dim=dim,
            loss_interval=loss_interval,
            cap=dtype.type(math.inf if cap is None else cap),
            noise_share=dtype.type(model.negative / num_noise * is_sampled),
            num_keys=len(given["input"]),
        )
        block = batch.blocks.ids.shape[2]
        size = sizes(block, num_tiles, num_noise, model.window, depth)
        used = memory(num_blocks, size, tables.shape[1], dtype.name)
        arrays = tables, accumulators, factors
        extra = above, words, [subwords.new_entries(n) for n in entries * threads]
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

    return updates


def _kind(objective: Objective) -> tuple[bool, bool, bool, int]:
    """Whether an objective is of skip-gram, whether CBOW has means of contexts, whether
    it has negative sampling, and the nodes of the longest path of hierarchical softmax;
    0: it has none."""
    if isinstance(objective, HierarchicalSoftmax):
        is_sampled = objective.sampled is not None
        kind = not objective.is_cbow, objective.is_mean
        return *kind, is_sampled, objective.depth
    is_mean = objective is not cast(Objective, cbow_sums)
    return objective is cast(Objective, skipgram), is_mean, True, 0


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
    cores = cores_by_affinity()
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


def _with_weights(batch: Batch) -> Batch:
    """`batch` with weights of the tokens of a block, or of none where it has none: the
    kernel is compiled for an array."""
    if batch.blocks.weight is not None:
        return batch
    none = np.zeros((*batch.blocks.ids.shape[:2], 0), np.uint8)
    return batch._replace(blocks=batch.blocks._replace(weight=none))


def _read_only(array) -> np.ndarray:
    """`array` without leave to write to it: the kernel is compiled for that."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


class _Owned(np.ndarray):
    """An array of a state that the kernel returned."""

    memory: np.ndarray | None = None  # what the kernel changes; None: a derived array


def _memory(array) -> np.ndarray | None:
    return array.memory if isinstance(array, _Owned) else None


def _joined(empty: Callable[[tuple], np.ndarray], parts: list) -> np.ndarray:
    """Two arrays of rows, one after the other in memory of the kernel.

    The kernel's own arrays are not copied.
    """
    if _memory(parts[0]) is not None and _memory(parts[0]) is _memory(parts[1]):
        return parts[0].memory
    size = len(parts[0])
    joined = empty((sum(map(len, parts)), *parts[0].shape[1:]))
    for rows, part in zip((joined[:size], joined[size:]), parts, strict=True):
        rows[..., : part.shape[-1]] = part
    return joined


def _padded(dtype: np.dtype) -> Callable[[tuple], np.ndarray]:
    """Makes tables of zeros, [rows, D] with D padded to a multiple of LANES.

    Each row starts on a cache line.
    """

    def empty(shape: tuple[int, int]) -> np.ndarray:
        return aligned_zeros((shape[0], round_up(shape[1], LANES)), dtype)

    return empty


def _accumulators(rule: RowRule, state: TrainState) -> np.ndarray | None:
    """The accumulators of Adagrad, of the rows of both tables."""
    given = rule.row_state(state.opt_state)
    if not given:
        return None
    parts = [given[name] for name in _ACCUMULATORS]
    return _joined(functools.partial(np.zeros, dtype=parts[0].dtype), parts)


def _factors(
    given: dict[str, np.ndarray], tables: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """The factors of the rows of both tables; None: all are 1."""
    if not given:
        return None
    dtype = tables["input"].dtype
    parts = [given.get(name, np.ones(len(tables[name]), dtype)) for name in TABLES]
    return _joined(functools.partial(np.zeros, dtype=dtype), parts)


def _words(
    given: Mapping[str, np.ndarray], lists: Lists | tuple, batch: Batch
) -> tuple[subwords.WordRows | None, list[int]]:
    """The rows of subwords for the words of a batch, and how many entries a thread
    needs room for; None: there are none."""
    if not isinstance(lists, Lists):
        return None, []
    memory = _memory(given[TABLE])
    table = subwords.padded(given[TABLE]) if memory is None else memory
    found, size = subwords.word_rows(
        table, lists, batch.blocks.ids, len(given["input"])
    )
    return found, [size]


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
        row_state = dict(zip(_ACCUMULATORS, owned, strict=True))
        opt_state = rule.with_row_state(opt_state, row_state)
    step = np.asarray(state.step + num_updates, np.int32)
    return PlacedState(TrainState({"tables": params}, opt_state, step))


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
    arrays: tuple[np.ndarray, np.ndarray | None, np.ndarray | None],
    memory: Memory,
    batch: Batch,
    extra: tuple[np.ndarray | None, subwords.WordRows | None, list[subwords.Entries]],
) -> Loss:
    """Applies the updates of `batch` to tables and accumulators, in place; the third
    of `arrays` are the factors of their rows. `extra` are the Huffman tree, and the
    rows of subwords with the memory of each thread, or None."""
    above, words, entries = extra
    dtype, interval = arrays[0].dtype, constants.loss_interval
    num_updates, num_blocks, block = batch.blocks.ids.shape
    reports = -(-num_updates // interval), num_blocks
    losses = LossTerms(np.zeros(reports), np.zeros(reports))
    kinds = [dtype.name, optimizer, batch.blocks.weight.dtype.name]
    factors = "" if arrays[2] is None else dtype.name
    has_subwords = words is not None
    compiled = apply_on_thread(*kinds, factors, above is not None, has_subwords)

    def run_thread(number: int, thread: Thread, updates: slice) -> float:
        """Returns the share of the time that the thread had a core."""
        first_report = updates.start // interval
        some = words
        if words is not None:
            of_updates = words.first[updates.start : updates.stop + 1]
            some = words._replace(first=of_updates)
        start, cpu_start = time.perf_counter(), time.thread_time()
        compiled(
            thread,
            *arrays,
            jax.tree.map(lambda array: array[updates], batch),
            constants,
            memory.gathered,
            memory.buffers[number],
            memory.rows[number],
            LossTerms._make(terms[first_report:] for terms in losses),
            above,
            memory.paths[number],
            some,
            entries[number] if has_subwords else None,
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
