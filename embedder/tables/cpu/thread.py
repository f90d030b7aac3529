"""One thread's part of S updates: the function that Numba compiles.

An update has two phases, and all threads wait for each other after each. First every
thread computes the gradients of its tiles; then every row is updated by the one thread
that it is assigned to.
"""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba.core.dispatcher import Dispatcher

from embedder.tables.blocks import Blocks
from embedder.tables.cpu import OPTIMIZERS, cbow, products, rows, simd, skipgram, tiles
from embedder.tables.cpu.kernel_cache import kept
from embedder.tables.cpu.rows import (
    RowTable,
    apply_adagrad,
    apply_capped_sgd,
    index_rows,
)
from embedder.tables.cpu.simd import (
    cast_like,
    compiled,
    increment,
    read,
    yield_thread,
)
from embedder.tables.cpu.tiles import (
    Gathered,
    Tables,
    TileBuffers,
    TileIndex,
    find_contexts,
    find_sequences,
    load_rows,
    prefetch,
)
from embedder.tables.prepare import Batch

_MODULES = rows, skipgram, cbow, tiles, products, simd
_FILES = (__file__, *(module.__file__ for module in _MODULES))
SOURCES = hashlib.sha256(
    b"".join(Path(str(file)).read_bytes() for file in _FILES)
    + repr((Batch._fields, Blocks._fields)).encode()
).hexdigest()[:16]
"""Digest of all that is compiled."""
_SPINS = 1_000  # readings of the counter before a waiting thread yields its core


class Thread(NamedTuple):
    """Which thread of how many."""

    number: int
    threads: int
    counter: np.ndarray  # i64[2], of all threads: arrivals at the barrier; 1: give up


class Constants(NamedTuple):
    """What all updates of a run have in common."""

    is_skipgram: bool  # else CBOW
    window: int  # W
    dim: int  # D, columns of a table without padding
    loss_interval: int  # updates from one computation of the loss to the next
    cap: np.floating  # of SGD, in the dtype of the tables
    noise_share: np.floating  # negative / K


class LossTerms(NamedTuple):
    """Loss of the updates that report it, by tile, and the number of its terms."""

    total: np.ndarray  # f64[reports, M]
    num_terms: np.ndarray  # f64[reports, M]


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
        tables: Tables,
        accumulators: Tables | None,
        batch: Batch,
        constants: Constants,
        gathered: Gathered,
        buffers: TileBuffers,
        rows: RowTable,
        losses: LossTerms,
    ):
        """With `accumulators` by Adagrad, else by capped SGD."""
        blocks = batch.blocks
        num_updates, num_blocks, num_tiles, _ = blocks.noise.shape
        size = blocks.ids.shape[2] // num_tiles
        all_tiles = num_blocks * num_tiles
        first_tile = all_tiles * thread.number // thread.threads
        last_tile = all_tiles * (thread.number + 1) // thread.threads
        arrivals = 0
        for s in range(num_updates):
            report = s % constants.loss_interval == 0
            for m in range(first_tile, last_tile):
                n, g = m // num_tiles, m % num_tiles
                at = TileIndex(s, n, g, m, size, constants.window)
                if m == first_tile or g == 0:
                    find_sequences(blocks.sequence, s, n, buffers.begin, buffers.end)
                if s + 1 < num_updates:
                    prefetch(tables, blocks, s + 1, n, g)
                loss, num_terms = _differentiate(
                    at, report, tables, blocks, constants, gathered, buffers
                )
                if report:
                    losses.total[s // constants.loss_interval, m] = loss
                    losses.num_terms[s // constants.loss_interval, m] = num_terms
            arrivals += thread.threads
            if not _wait(thread.counter, arrivals):
                return
            num_rows = index_rows(gathered, rows, s + 1, thread.threads)
            mine = gathered.gradients, rows, num_rows, thread.number
            if accumulators is None:
                apply_capped_sgd(tables, *mine, constants.cap, batch.rate[s])
            else:
                apply_adagrad(tables, accumulators, *mine, constants.dim, batch.rate[s])
            arrivals += thread.threads
            if not _wait(thread.counter, arrivals):
                return

    apply.__qualname__ = f"apply_{dtype}_{optimizer}_{SOURCES}"
    return kept(compiled()(apply))


@compiled(inline="always")  # a call would pass some 25 arrays
def _differentiate(
    at: TileIndex,
    report,
    tables: Tables,
    blocks: Blocks,
    constants: Constants,
    gathered: Gathered,
    buffers: TileBuffers,
):
    """Computes the gradients of a tile; its loss, if it is reported, and its terms."""
    share, num_noise = constants.noise_share, blocks.noise.shape[3]
    find_contexts(at, blocks.radius, buffers)
    if constants.is_skipgram:
        band, num_terms = skipgram.weigh(at, share, buffers)
    else:
        band, num_terms = cbow.weigh(at, share, buffers)
    token_table = 0 if constants.is_skipgram else 1
    weight = share * cast_like(num_terms, share)
    load_rows(at, band, token_table, weight, tables, blocks, gathered, buffers)
    out = gathered.gradients
    if constants.is_skipgram:
        loss = skipgram.differentiate(at, band, out, num_noise, report, buffers)
    else:
        loss = cbow.differentiate(at, band, out, num_noise, report, buffers)
    return loss, num_terms


@compiled()
def _wait(counter, arrivals):
    """Waits until `arrivals` have reached the barrier; False: a thread gave up."""
    increment(counter)
    spins = 0
    while read(counter) < arrivals and not counter[1]:
        spins += 1
        if spins > _SPINS:
            yield_thread()
    return not counter[1]
