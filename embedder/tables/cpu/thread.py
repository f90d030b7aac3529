"""One thread's part of S updates: the function that Numba compiles.

An update has three phases, and all threads wait for each other after each:

1. Rows that several blocks gather are found, by buckets of rows.
2. Gradients are computed, by blocks. Rows that only one block gathers are updated.
3. The other rows are updated, by buckets; and the rows of the next update are listed.

A thread takes one block or bucket after the other. Which thread takes which depends on
which is free, and changes nothing in the result.
"""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba.core.dispatcher import Dispatcher

from embedder.tables.blocks import Blocks
from embedder.tables.cpu import OPTIMIZERS, block, cbow, products, rows, simd, skipgram
from embedder.tables.cpu.block import (
    BlockBuffers,
    BlockIndex,
    Contexts,
    find_contexts,
)
from embedder.tables.cpu.kernel_cache import kept
from embedder.tables.cpu.rows import (
    BucketRows,
    Destination,
    Repeated,
    Rule,
    Slots,
    find_repeated,
    list_rows,
    update_repeated,
)
from embedder.tables.cpu.simd import compiled, fetch_add, nap, read
from embedder.tables.prepare import Batch

_MODULES = rows, skipgram, cbow, block, products, simd
_FILES = (__file__, *(module.__file__ for module in _MODULES))
SOURCES = hashlib.sha256(
    b"".join(Path(str(file)).read_bytes() for file in _FILES)
    + repr((Batch._fields, Blocks._fields)).encode()
).hexdigest()[:16]
"""Digest of all that is compiled."""
_SPINS = 10_000  # readings of a counter, some 10 us, before a waiting thread sleeps


class Thread(NamedTuple):
    """A thread of a team, and the counters that the team shares."""

    threads: int
    arrivals: np.ndarray  # i64[2]: at the barrier; 1: a thread gave up
    taken: np.ndarray  # i64[6, S]: how much of each update threads took, see below


# Rows of `Thread.taken`. The first two are used by `rows.find_repeated`.
_ROWS, _GRADIENTS, _FOUND, _COMPUTED, _UPDATED, _LISTED = range(6)


class Shared(NamedTuple):
    """What the threads of an update share."""

    contexts: Contexts
    slots: Slots
    repeated: Repeated


class Own(NamedTuple):
    """What each thread has for itself."""

    buffers: BlockBuffers
    rows: BucketRows


class Constants(NamedTuple):
    """What all updates of a run have in common."""

    is_skipgram: bool  # else CBOW
    window: int  # W
    dim: int  # D, columns of a table without padding
    loss_interval: int  # updates from one computation of the loss to the next
    cap: np.floating  # of SGD, in the dtype of the tables
    noise_share: np.floating  # negative / K


class LossTerms(NamedTuple):
    """Loss of the updates that report it, by block, and the number of its terms."""

    total: np.ndarray  # f64[reports, N]
    num_terms: np.ndarray  # f64[reports, N]


@functools.cache
def apply_on_thread(dtype: str, optimizer: str) -> Dispatcher:
    """The compiled function that applies one thread's part of S updates.

    Numba finds compiled code by the name and the file of a function, not by the code of
    what it calls; and two processes that compile one function for two signatures at the
    same time may exchange their code. So the name holds the dtype, the optimizer and a
    digest of all sources.

    Raises:
      ValueError: no kernel has this optimizer.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(optimizer)

    def apply(
        thread: Thread,
        tables: np.ndarray,
        accumulators: np.ndarray | None,
        batch: Batch,
        constants: Constants,
        shared: Shared,
        own: Own,
        losses: LossTerms,
    ):
        """Of `tables` [2 V, D], input and output, padded; with `accumulators` [2 V] by
        Adagrad, else by capped SGD."""
        num_updates, num_buckets = len(batch.rate), len(shared.repeated.first)
        slots, repeated, num_keys = shared.slots, shared.repeated, len(tables) // 2
        _list(0, thread, num_keys, batch.blocks, constants, shared, own)
        if not _wait(thread, 1):
            return
        for s in range(num_updates):
            bucket = _take(thread, _FOUND, s)
            while bucket < num_buckets:
                find_repeated(bucket, s, thread.taken, slots, repeated, own.rows)
                bucket = _take(thread, _FOUND, s)
            if not _wait(thread, 3 * s + 2):
                return
            rule = Rule(batch.rate[s], constants.cap, constants.dim)
            to = Destination(tables, accumulators, rule, slots, repeated)
            _compute(
                s, thread, batch.blocks, constants, shared.contexts, to, own, losses
            )
            if not _wait(thread, 3 * s + 3):
                return
            bucket = _take(thread, _UPDATED, s)
            while bucket < num_buckets:
                update_repeated(bucket, to)
                bucket = _take(thread, _UPDATED, s)
            if s + 1 < num_updates:
                _list(s + 1, thread, num_keys, batch.blocks, constants, shared, own)
            if not _wait(thread, 3 * s + 4):
                return

    apply.__qualname__ = f"apply_{dtype}_{optimizer}_{SOURCES}"
    return kept(compiled()(apply))


@compiled()
def _list(
    s,
    thread: Thread,
    num_keys,
    blocks: Blocks,
    constants: Constants,
    shared: Shared,
    own: Own,
):
    """Lists the rows of update s, of the blocks that this thread takes."""
    num_blocks, num_tiles = blocks.noise.shape[1:3]
    tile, share = blocks.ids.shape[2] // num_tiles, constants.noise_share
    contexts, buffers = shared.contexts, own.buffers
    n = _take(thread, _LISTED, s)
    while n < num_blocks:
        find_contexts(s, n, constants.window, blocks, contexts, buffers)
        if constants.is_skipgram:
            skipgram.weigh(n, tile, share, contexts, buffers.row_of)
        else:
            cbow.weigh(n, tile, share, contexts, buffers.row_of)
        token_table = 0 if constants.is_skipgram else 1
        list_rows(s, n, token_table, num_keys, blocks, contexts, shared.slots, buffers)
        n = _take(thread, _LISTED, s)


@compiled()
def _compute(
    s,
    thread: Thread,
    blocks: Blocks,
    constants: Constants,
    contexts: Contexts,
    to: Destination,
    own: Own,
    losses: LossTerms,
):
    """Computes the gradients of update s, of the blocks that this thread takes, and
    their loss if it is reported."""
    num_blocks, num_tiles, num_noise = blocks.noise.shape[1:]
    tile, window = blocks.ids.shape[2] // num_tiles, constants.window
    report = s % constants.loss_interval == 0
    n = _take(thread, _COMPUTED, s)
    while n < num_blocks:
        next_block = _take(thread, _COMPUTED, s)
        at = BlockIndex(n, next_block, tile, window, num_noise)
        if constants.is_skipgram:
            loss = skipgram.differentiate(at, report, contexts, to, own.buffers)
        else:
            loss = cbow.differentiate(at, report, contexts, to, own.buffers)
        if report:
            losses.total[s // constants.loss_interval, n] = loss
            losses.num_terms[s // constants.loss_interval, n] = contexts.num_terms[n]
        n = next_block


@compiled()
def _take(thread: Thread, kind, s):
    """The next block or bucket of update s that no thread took."""
    return fetch_add(thread.taken, kind * thread.taken.shape[1] + s, 1)


@compiled()
def _wait(thread: Thread, barrier):
    """Waits until all threads arrived at a barrier, numbered from 1; False: one gave
    up."""
    arrivals, spins = thread.arrivals, 0
    fetch_add(arrivals, 0, 1)
    expected = barrier * thread.threads
    while read(arrivals, 0) < expected and not read(arrivals, 1):
        spins += 1
        if spins > _SPINS:
            nap()
    return not read(arrivals, 1)
