"""One thread's part of S updates: the function that Numba compiles.

An update has two phases, and all threads wait for each other after each. In the first
a thread takes one block after the other and computes its gradients; in the second it
takes one bucket of rows after the other and updates them. Which thread takes which
depends on which is free, and changes nothing in the result.
"""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba.core.dispatcher import Dispatcher

from embedder.data.blocks import Blocks
from embedder.disk.kernel_cache import cached_on_disk
from embedder.tokens.cpu import (
    block,
    cbow,
    paths,
    products,
    rows,
    simd,
    skipgram,
    subwords,
)
from embedder.tokens.cpu.block import (
    BlockBuffers,
    BlockIndex,
    combine_positions,
    find_contexts,
    find_multiplicities,
    load_rows,
)
from embedder.tokens.cpu.rows import (
    BucketRows,
    Gathered,
    apply_adagrad,
    apply_capped_sgd,
    find_keys,
    find_rows,
    list_rows,
)
from embedder.tokens.cpu.simd import compiled, entry, fetch_add, nap, read
from embedder.tokens.prepare import Batch

_MODULES = rows, skipgram, cbow, paths, subwords, block, products, simd
_FILES = (__file__, *(module.__file__ for module in _MODULES))
SOURCES = hashlib.sha256(
    b"".join(Path(str(file)).read_bytes() for file in _FILES)
    + repr((Batch._fields, Blocks._fields)).encode()
).hexdigest()[:16]
"""Digest of all that is compiled."""
_SPINS = 100_000  # readings of a counter before a waiting thread sleeps: some 100 us


class Thread(NamedTuple):
    """A thread of a team, and the counters that the team shares."""

    threads: int
    arrivals: np.ndarray  # i64[2]: at the barrier; 1: a thread gave up
    blocks: np.ndarray  # i64[S]: blocks taken of each update
    buckets: np.ndarray  # i64[S]: buckets taken
    words: np.ndarray  # i64[S]: of subwords, parts of the words taken
    subwords: np.ndarray  # i64[S]: buckets of their rows taken


class Constants(NamedTuple):
    """What all updates of a run have in common."""

    predicts_contexts: bool  # see `objective.Kernel`
    is_mean: bool
    window: int  # W
    dim: int  # D, columns of a table without padding
    loss_interval: int  # updates from one computation of the loss to the next
    cap: np.floating  # of SGD, in the dtype of the tables
    noise_share: np.floating  # negative / K; 0: there is no negative sampling
    num_keys: int  # V


class Arrays(NamedTuple):
    """The arrays of a state, which all threads update in place."""

    tables: np.ndarray  # input and output, padded, one after the other
    accumulators: np.ndarray | None  # of the rows of both, of Adagrad
    factors: np.ndarray | None  # of the rates of these rows; None: all are 1


class LossTerms(NamedTuple):
    """Loss of the updates that report it, by block, and the number of its terms."""

    total: np.ndarray  # f64[reports, N]
    num_terms: np.ndarray  # f64[reports, N]


class ThreadMemory(NamedTuple):
    """What a thread computes in."""

    gathered: Gathered  # of all threads
    buffers: BlockBuffers
    rows: BucketRows
    losses: LossTerms  # of all threads


@functools.cache
def apply_on_thread(
    dtype: str,
    optimizer: str,
    has_factors: bool = False,
    tree: bool = False,
    has_subwords: bool = False,
) -> Dispatcher:
    """The compiled function that applies one thread's part of S updates.

    Numba finds compiled code by the name and the file of a function, not by the code of
    what it calls; and two processes that compile one function for two signatures at the
    same time may exchange their code. So the name holds the dtype, the optimizer, which
    of the parts below there are, and a digest of all sources.

    Args:
      has_factors: whether rows have factors, of the dtype.
      tree: whether there is hierarchical softmax.
      has_subwords: of words, by SGD.
    """

    def apply(
        thread: Thread,
        arrays: Arrays,
        batch: Batch,
        constants: Constants,
        memory: ThreadMemory,
        tree: tuple[np.ndarray, paths.PathBuffers] | None,
        words: tuple[subwords.WordRows, subwords.Entries] | None,
    ):
        """Numba leaves out branches of an argument that is None, not of a field.

        Args:
          tree: `huffman.Tree.above`, and memory for paths.
          words: the rows of which input rows are made, and memory for them.
        """
        tables, gathered, rows = arrays.tables, memory.gathered, memory.rows
        num_buckets, arrivals = gathered.starts.shape[1] - 1, 0
        for s in range(len(batch.rate)):
            if words is not None:
                subwords.compose(s, thread.words, tables, words[0])
                arrivals += thread.threads
                if not wait(thread.arrivals, arrivals):
                    return
            _differentiate(s, thread, tables, batch.blocks, constants, memory, tree)
            arrivals += thread.threads
            if not wait(thread.arrivals, arrivals):
                return
            bucket = fetch_add(thread.buckets, s)
            while bucket < num_buckets:
                sizes, rate = find_rows(bucket, gathered, rows), batch.rate[s]
                if words is not None:
                    theirs = rows, sizes, constants.num_keys, words[0]
                    left = subwords.sum_words(gathered.gradients, *theirs)
                    sizes = left, sizes[1]
                of_bucket = gathered.gradients, rows, sizes
                of_rows = arrays.accumulators, arrays.factors
                _step(tables, *of_rows, of_bucket, constants, rate)
                bucket = fetch_add(thread.buckets, s)
            arrivals += thread.threads
            if not wait(thread.arrivals, arrivals):
                return
            if words is not None:
                bucket = fetch_add(thread.subwords, s)
                while bucket < num_buckets:
                    theirs_too = gathered, *words, constants.cap, batch.rate[s]
                    subwords.step_rows(s, bucket, *theirs_too)
                    bucket = fetch_add(thread.subwords, s)
                arrivals += thread.threads
                if not wait(thread.arrivals, arrivals):
                    return

    marks = "factors" * has_factors, "tree" * tree, "subwords" * has_subwords
    kind = "_".join(filter(None, (dtype, optimizer, *marks)))
    apply.__qualname__ = f"apply_{kind}_{SOURCES}"
    return cached_on_disk(entry()(apply))


@compiled()
def _step(tables, accumulators, factors, of_bucket, constants: Constants, rate):
    """Updates the rows of a bucket, of which there are gradients, rows and numbers."""
    gradients, rows, sizes = of_bucket
    if accumulators is None:
        cap = constants.cap
        apply_capped_sgd(tables, gradients, rows, sizes, cap, rate, factors)
    else:
        dim, of_rows = constants.dim, accumulators
        apply_adagrad(tables, of_rows, gradients, rows, sizes, dim, rate, factors)


@compiled()
def _differentiate(
    s,
    thread: Thread,
    tables,
    blocks: Blocks,
    constants: Constants,
    memory: ThreadMemory,
    tree,
):
    """Computes the gradients of update s, of the blocks that this thread takes, and
    their loss if it is reported."""
    gathered, buffers, losses = memory.gathered, memory.buffers, memory.losses
    num_blocks, num_tiles, num_noise = blocks.noise.shape[1:]
    block, num_keys = blocks.ids.shape[2], constants.num_keys
    report = s % constants.loss_interval == 0
    token_table = 0 if constants.predicts_contexts else 1
    keys, share = gathered.keys, constants.noise_share
    n = fetch_add(thread.blocks, s)
    while n < num_blocks:
        tile, window = block // num_tiles, constants.window
        at = BlockIndex(s, n, thread.blocks, tile, window, num_keys)
        find_contexts(at, blocks, buffers)
        find_multiplicities(at, blocks, buffers)
        find_keys(at, token_table, num_keys, blocks, gathered, buffers)
        slot, num_rows = n * len(buffers.listed), len(buffers.tokens)
        load_rows(tables, keys, slot, num_rows, buffers.tokens)
        load_rows(tables, keys, slot + num_rows, block, buffers.positions)
        arguments = at, report, tables, blocks, gathered, buffers
        if tree is None:
            if constants.predicts_contexts:
                num_terms = skipgram.weigh(at, share, buffers)
                loss = skipgram.differentiate(*arguments)
            else:
                num_terms = cbow.weigh(at, constants.is_mean, share, buffers)
                loss = cbow.differentiate(*arguments)
                combine_positions(at, gathered.gradients, buffers, buffers.errors)
        elif constants.predicts_contexts:
            num_terms, loss = paths.of_skipgram(arguments, share, *tree)
        else:
            is_mean = constants.is_mean
            num_terms, loss = paths.of_cbow(arguments, is_mean, share, *tree)
        list_rows(n, num_noise, gathered, buffers, None if tree is None else tree[1])
        if report:
            losses.total[s // constants.loss_interval, n] = loss
            losses.num_terms[s // constants.loss_interval, n] = num_terms
        n = buffers.next_block[0]


@compiled()
def wait(arrivals, expected):
    """Arrives at a barrier; waits for `expected` threads. False: one gave up."""
    fetch_add(arrivals, 0)
    spins = 0
    while read(arrivals, 0) < expected and not read(arrivals, 1):
        spins += 1
        if spins > _SPINS:
            nap()
    return not read(arrivals, 1)
