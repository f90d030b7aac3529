"""Skip-gram updates by one thread of the kernel, with the time of each part.

The parts are those of `embedder.tokens.cpu.thread`, in its order and on its data, so
that each finds in the caches what a training finds there. A reading of the clock takes
some 30 ns.
"""

import ctypes
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from embedder.tokens import train_step
from embedder.tokens.cpu import block, kernel, rows, skipgram
from embedder.tokens.cpu.block import BlockBuffers, BlockIndex
from embedder.tokens.cpu.rows import BucketRows, Gathered
from embedder.tokens.cpu.simd import compiled, entry
from embedder.tokens.cpu.thread import Constants
from embedder.tokens.prepare import Batch
from embedder.tokens.trainer import TokensTrainer

BLOCK_PARTS = "contexts, keys, weights, lists", "rows: load", "products and errors"
BUCKET_PARTS = "rows of buckets: find", "rows: apply"
_clock_gettime = ctypes.CDLL(None).clock_gettime
_clock_gettime.argtypes = ctypes.c_int, ctypes.c_void_p
_clock_gettime.restype = ctypes.c_int
_MONOTONIC = time.CLOCK_MONOTONIC


class Timed(NamedTuple):
    """One update."""

    blocks: np.ndarray  # i64[N, 3], nanoseconds of BLOCK_PARTS
    buckets: np.ndarray  # i64[P, 2], nanoseconds of BUCKET_PARTS
    keys: np.ndarray  # i64[M], of all gradients
    block_of: np.ndarray  # i64[M], the block that computed each gradient
    bucket_of: np.ndarray  # i64[M], the bucket of its row


class TimedUpdates:
    """Updates of a state of its own.

    Args:
      threads: of a team; one thread does its work, in as many buckets as it has.
    """

    def __init__(self, training: TokensTrainer, threads: int = 1):
        data = training.config.tables
        assert data.block is not None and data.max_pairs_per_row is not None
        given = training.initial_state().params["tables"]
        self.tables = kernel._joined([given[name] for name in train_step.TABLES])
        dtype, width = self.tables.dtype, self.tables.shape[1]
        size = block.sizes(data.block, data.block // data.tile, data.noise, data.window)
        gathered = rows.new_gathered(
            data.blocks_per_update, size, width, dtype, threads
        )
        clock = np.zeros(1, np.int64)  # a key after the last; see `_timed_load`
        self._gathered = gathered._replace(keys=np.append(gathered.keys, clock))
        self._buffers = block.new_buffers(size, width, dtype)
        self._rows = rows.new_bucket_rows(data.blocks_per_update, size, dtype)
        self._constants = Constants(
            predicts_contexts=True,
            is_mean=True,
            window=data.window,
            dim=data.vector_size,
            loss_interval=1,
            cap=dtype.type(data.max_pairs_per_row),
            noise_share=dtype.type(data.negative / data.noise),
            num_keys=len(given["input"]),
        )

    def apply(self, batch: Batch, s: int) -> Timed:
        """Applies update `s` of `batch`."""
        starts = self._gathered.starts
        num_blocks, num_buckets = len(starts), starts.shape[1] - 1
        block_times = np.zeros((num_blocks, len(BLOCK_PARTS)), np.int64)
        bucket_times = np.zeros((num_buckets, len(BUCKET_PARTS)), np.int64)
        _apply(
            s,
            self.tables,
            kernel._for_kernel(batch),
            self._constants,
            self._gathered,
            self._buffers,
            self._rows,
            np.zeros(2, np.int64),
            block_times,
            bucket_times,
        )
        keys = [
            listed[: ends[-1]]
            for listed, ends in zip(self._gathered.listed_keys, starts, strict=True)
        ]
        counts = np.diff(starts).ravel()
        block_of, bucket_of = np.divmod(np.arange(len(counts)), num_buckets)
        return Timed(
            block_times,
            bucket_times,
            np.concatenate(keys),
            np.repeat(block_of, counts),
            np.repeat(bucket_of, counts),
        )


@compiled()
def _now(memory):
    """Nanoseconds; `memory` is i64[2]."""
    _clock_gettime(_MONOTONIC, memory.ctypes)
    return memory[0] * 1_000_000_000 + memory[1]


@compiled(_nrt=True)  # it has memory
def _timed_load(tables, keys, start, size, out):
    """As `load_rows`; adds its nanoseconds to the last of `keys`."""
    memory = np.empty(2, np.int64)
    begin = _now(memory)
    block.load_rows(tables, keys, start, size, out)
    keys[len(keys) - 1] += _now(memory) - begin


def _with_names(function, **names):
    """The compiled function with other values of some of its global names."""
    code, known = function.py_func.__code__, function.py_func.__globals__
    return compiled()(type(function.py_func)(code, {**known, **names}))


_differentiate: Callable[..., float] = _with_names(
    skipgram.differentiate, load_rows=_timed_load
)


@compiled()
def _apply_block(
    at: BlockIndex,
    tables,
    batch: Batch,
    constants: Constants,
    gathered: Gathered,
    buffers: BlockBuffers,
    memory,
    times,
):
    blocks, n, keys = batch.blocks, at.block, gathered.keys
    slot = n * len(buffers.listed)
    num_rows, num_tokens = len(buffers.tokens), len(buffers.row_of)
    begin = _now(memory)
    block.find_contexts(at, blocks, buffers)
    block.find_multiplicities(at, blocks, buffers)
    rows.find_keys(at, 0, at.num_keys, blocks, gathered, buffers)
    found = _now(memory)
    block.load_rows(tables, keys, slot, num_rows, buffers.tokens)
    block.load_rows(tables, keys, slot + num_rows, num_tokens, buffers.positions)
    loaded = _now(memory)
    skipgram.weigh(at, constants.noise_share, buffers)
    weighed = _now(memory)
    keys[len(keys) - 1] = 0
    _differentiate(at, False, tables, blocks, gathered, buffers)
    computed, noise = _now(memory), keys[len(keys) - 1]
    rows.list_rows(n, blocks.noise.shape[3], gathered, buffers, None)
    times[n, 0] = found - begin + weighed - loaded + _now(memory) - computed
    times[n, 1] = loaded - found + noise
    times[n, 2] = computed - weighed - noise


@entry(_nrt=True)
def _apply(
    s,
    tables,
    batch: Batch,
    constants: Constants,
    gathered: Gathered,
    buffers: BlockBuffers,
    bucket_rows: BucketRows,
    memory,
    block_times,
    bucket_times,
):
    tile = batch.blocks.ids.shape[2] // batch.blocks.noise.shape[2]
    taken = np.zeros(s + 1, np.int64)
    for n in range(len(block_times)):
        taken[s] = n + 1
        num_keys = len(tables) // 2
        at = BlockIndex(s, n, taken, tile, constants.window, num_keys)
        _apply_block(
            at, tables, batch, constants, gathered, buffers, memory, block_times
        )
    for p in range(len(bucket_times)):
        begin = _now(memory)
        found = rows.find_rows(p, gathered, bucket_rows)
        middle = _now(memory)
        rows.apply_capped_sgd(
            tables, gathered.gradients, bucket_rows, found, constants.cap, batch.rate[s]
        )
        bucket_times[p, 0], bucket_times[p, 1] = middle - begin, _now(memory) - middle
