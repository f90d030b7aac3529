"""The rows of an update: which there are, in which order they are updated, and how.

A row that several blocks gathered has several gradients. Rows are assigned to buckets
by a hash of their key. One thread updates all rows of a bucket, and adds the gradients
of a row in the order of the blocks, so that the result depends neither on the number of
threads nor on which thread has which bucket.
"""

from typing import NamedTuple

import numpy as np

from embedder.data.blocks import Blocks
from embedder.tokens.cpu.block import (
    BlockBuffers,
    BlockIndex,
    Sizes,
    add_row,
    aligned_zeros,
)
from embedder.tokens.cpu.simd import (
    LANES,
    cast_like,
    compiled,
    load,
    prefetch_row,
    store,
    subtract_scaled,
)

_ADAGRAD_EPS = 1e-8
_SLOTS_AHEAD = 8  # from the slot whose row is prefetched to the one that is applied
_BUCKETS_OF_A_THREAD = 4  # more: threads end together; fewer: fewer short lists


class Gathered(NamedTuple):
    """The rows that the blocks gathered, and their gradients: shared by all threads.

    A block has R slots: G B' of its tokens, T' of its positions, G K' of noise, and of
    hierarchical softmax T L of inner nodes. Slots with a gradient are listed, by
    bucket. The key of a row is its index in the tables.
    """

    keys: np.ndarray  # i64[N R], of each slot
    weights: np.ndarray  # [N R], of each slot
    gradients: np.ndarray  # [N R, D], of each slot
    listed: np.ndarray  # i64[N, R], slots
    listed_keys: np.ndarray  # i64[N, R], keys of these
    starts: np.ndarray  # i64[N, P + 1], index in `listed[n]` of the start of a bucket


class BucketRows(NamedTuple):
    """The slots of a bucket, M at most, and its distinct rows; each thread has its own.

    `table` is a hash table of H entries, a power of two, of which a bucket uses the
    first, as many as it needs.
    """

    table: np.ndarray  # i32[H], number of the row, -1: empty
    keys: np.ndarray  # i64[M], of each row
    weights: np.ndarray  # [M], sum of the weights of each row; then its scale
    heads: np.ndarray  # i64[M], the first slot of each row
    slots: np.ndarray  # i64[M], in the order of blocks
    rows: np.ndarray  # i32[M], the row of each of these slots


def new_gathered(
    num_blocks: int, size: Sizes, width: int, dtype, threads: int
) -> Gathered:
    """For N blocks; `width` is D, padded."""
    slots = num_blocks * size.num_slots
    num_buckets = _power_of_two(_BUCKETS_OF_A_THREAD * threads)
    return Gathered(
        keys=np.zeros(slots, np.int64),
        weights=np.zeros(slots, dtype),
        gradients=aligned_zeros((slots, width), dtype),
        listed=np.zeros((num_blocks, size.num_slots), np.int64),
        listed_keys=np.zeros((num_blocks, size.num_slots), np.int64),
        starts=np.zeros((num_blocks, num_buckets + 1), np.int64),
    )


def new_bucket_rows(num_blocks: int, size: Sizes, dtype) -> BucketRows:
    """For the rows of N blocks; a small vocabulary has all of them in one bucket."""
    slots = num_blocks * size.num_slots
    return BucketRows(
        table=np.zeros(_power_of_two(2 * slots), np.int32),
        keys=np.zeros(slots, np.int64),
        weights=np.zeros(slots, dtype),
        heads=np.zeros(slots, np.int64),
        slots=np.zeros(slots, np.int64),
        rows=np.zeros(slots, np.int32),
    )


@compiled()
def find_keys(
    at: BlockIndex,
    token_table,
    num_keys,
    blocks: Blocks,
    gathered: Gathered,
    buffers: BlockBuffers,
):
    """Writes the keys of the rows of a block, by slot.

    Rows of tokens are in table `token_table`, 0 or 1, rows of positions in the other.
    """
    s, n, keys = at.update, at.block, gathered.keys
    base = n * gathered.listed.shape[1]
    token_key, position_key = token_table * num_keys, (1 - token_table) * num_keys
    for t in range(len(buffers.row_of)):
        row = int(blocks.ids[s, n, t])
        keys[base + buffers.row_of[t]] = token_key + row
        keys[base + len(buffers.tokens) + t] = position_key + row
    base += len(buffers.tokens) + len(buffers.positions)
    for g in range(blocks.noise.shape[2]):
        for k in range(blocks.noise.shape[3]):
            keys[base + k] = num_keys + int(blocks.noise[s, n, g, k])
        base += len(buffers.noise)


@compiled()
def list_rows(n, num_noise, gathered: Gathered, buffers: BlockBuffers, paths):
    """Lists the slots of block n that have a gradient, by bucket, and their weights.

    Args:
      paths: `PathBuffers` of hierarchical softmax; None: there is none.
    """
    listed, weights = buffers.listed, gathered.weights
    base, count = n * gathered.listed.shape[1], 0
    for t in range(len(buffers.row_of)):
        row = buffers.row_of[t]
        weights[base + row] = buffers.token_weights[row]
        listed[count] = base + row
        count += buffers.token_weights[row] > 0
    base += len(buffers.tokens)
    for t in range(len(buffers.row_of)):
        weights[base + t] = buffers.position_weights[t]
        listed[count] = base + t
        count += buffers.position_weights[t] > 0
    base += len(buffers.positions)
    for g in range(len(buffers.tile_weights)):
        if buffers.tile_weights[g] > 0:
            for k in range(num_noise):
                weights[base + k] = buffers.tile_weights[g]
                listed[count] = base + k
                count += 1
        base += len(buffers.noise)
    if paths is not None:
        for m in range(paths.num[0]):
            weights[base + m] = paths.weights[m]
            listed[count] = base + m
            count += 1
    _sort_by_bucket(n, listed[:count], gathered)


@compiled()
def _sort_by_bucket(n, slots, gathered: Gathered):
    """Lists `slots` of block n by the buckets of their keys; slots of a bucket keep
    their order."""
    out, out_keys = gathered.listed[n], gathered.listed_keys[n]
    keys, starts = gathered.keys, gathered.starts[n]
    mask = len(starts) - 2
    starts[:] = 0
    for e in range(len(slots)):
        starts[(hash_key(keys[slots[e]]) & mask) + 1] += 1
    for p in range(1, len(starts)):
        starts[p] += starts[p - 1]
    for e in range(len(slots)):
        key = keys[slots[e]]
        bucket = hash_key(key) & mask
        out[starts[bucket]] = slots[e]
        out_keys[starts[bucket]] = key
        starts[bucket] += 1
    for p in range(len(starts) - 1, 0, -1):
        starts[p] = starts[p - 1]
    starts[0] = 0


@compiled()
def hash_key(key):
    """Bits by which keys are assigned to buckets."""
    return np.int64(key) * 0x9E3779B1 >> 12


@compiled()
def find_rows(bucket, gathered: Gathered, rows: BucketRows):
    """Numbers of slots and of distinct rows of a bucket; lists both in the order of the
    blocks, with the sums of the weights of each row."""
    starts, num_slots = gathered.starts, 0
    for n in range(len(starts)):
        num_slots += starts[n, bucket + 1] - starts[n, bucket]
    size = 2
    while size < 2 * num_slots:
        size *= 2
    rows.table[:size] = -1
    e = num_rows = 0
    for n in range(len(starts)):
        for i in range(starts[n, bucket], starts[n, bucket + 1]):
            slot, key = gathered.listed[n, i], gathered.listed_keys[n, i]
            at = (hash_key(key) >> 8) & (size - 1)
            row = rows.table[at]
            while row >= 0 and rows.keys[row] != key:
                at = (at + 1) & (size - 1)
                row = rows.table[at]
            if row < 0:
                row = np.int32(num_rows)
                num_rows += 1
                rows.table[at] = row
                rows.keys[row] = key
                rows.weights[row] = 0
                rows.heads[row] = slot
            rows.weights[row] += gathered.weights[slot]
            rows.slots[e] = slot
            rows.rows[e] = row
            e += 1
    return num_slots, num_rows


@compiled()
def apply_capped_sgd(
    tables, gradients, rows: BucketRows, sizes, cap, rate, factors=None
):
    """row_r <- row_r - rate min(1, cap / c_r) G_r, ALGORITHM.md (18), for the rows of a
    bucket; `sizes` are its numbers of slots and rows. The gradients in G_r, (41), are
    subtracted one by one. `factors` of the rows of `tables` scale the rate, (68); None:
    all are 1."""
    num_slots, num_rows = sizes
    for row in range(num_rows):
        weight = rows.weights[row]
        rows.weights[row] = rate * (cap / weight) if weight > cap else rate
    if factors is not None:
        for row in range(num_rows):
            rows.weights[row] *= factors[rows.keys[row]]
    for e in range(num_slots):
        if e + _SLOTS_AHEAD < num_slots:
            prefetch_row(tables, rows.keys[rows.rows[e + _SLOTS_AHEAD]])
            prefetch_row(gradients, rows.slots[e + _SLOTS_AHEAD])
        row = rows.rows[e]
        if _moves(factors, rows.keys[row]):
            key, scale = rows.keys[row], rows.weights[row]
            _subtract(tables, key, scale, gradients, rows.slots[e])


@compiled()
def apply_adagrad(
    tables, accumulators, gradients, rows: BucketRows, sizes, dim, rate, factors=None
):
    """Row-wise Adagrad, ALGORITHM.md (42), for the rows of a bucket; `sizes` are its
    numbers of slots and rows. D is the number of columns without padding. `factors` of
    the rows of `tables` scale the rate, (68); None: all are 1.

        a_r <- a_r + (1 / D) sum_d G_rd^2
        row_r <- row_r - rate G_r / (sqrt(a_r) + eps)

    Reference: Duchi, Hazan and Singer 2011, JMLR 12, section 1.
    """
    num_slots, num_rows = sizes
    for e in range(num_slots):
        if e + _SLOTS_AHEAD < num_slots:
            prefetch_row(tables, rows.keys[rows.rows[e + _SLOTS_AHEAD]])
            prefetch_row(gradients, rows.slots[e + _SLOTS_AHEAD])
        slot, head = rows.slots[e], rows.heads[rows.rows[e]]
        if slot != head:
            add_row(gradients, head, gradients, slot)
    for row in range(num_rows):
        key, head = rows.keys[row], rows.heads[row]
        if _moves(factors, key):
            square = _mean_square(gradients, head, dim)
            scale = accumulate(accumulators, key, square, rate)
            if factors is not None:
                scale *= factors[key]
            _subtract(tables, key, scale, gradients, head)


@compiled()
def _moves(factors, key):
    """Whether the row of a key takes steps: its factor is not 0."""
    if factors is None:
        return True
    return factors[key] > 0


@compiled()
def _subtract(tables, key, scale, gradients, slot):
    for d in range(0, tables.shape[1], LANES):
        delta = load(gradients, slot, d)
        store(tables, key, d, subtract_scaled(load(tables, key, d), scale, delta))


@compiled()
def _mean_square(gradients, slot, dim):
    """(1 / D) sum_d G_rd^2; the padding of a gradient is 0."""
    total = cast_like(0, gradients[0, 0])
    for d in range(gradients.shape[1]):
        total += gradients[slot, d] * gradients[slot, d]
    return total / cast_like(dim, total)


@compiled(fastmath={"contract"})  # "afn" would allow estimates of the root
def accumulate(accumulator, row, square, rate):
    """a <- a + square, in `accumulator[row]`; returns rate / (sqrt(a) + eps)."""
    accumulator[row] += square
    return rate / (np.sqrt(accumulator[row]) + cast_like(_ADAGRAD_EPS, rate))


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()
