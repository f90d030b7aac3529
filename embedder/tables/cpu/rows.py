"""The rows of an update: which there are, where their gradients go, and the rule.

A row that only one slot of an update gathers is updated with its gradient at once: no
other block reads it. The other rows are *repeated*. Their gradients are written one
after the other, in the order of the blocks, and added when all are there. So the result
depends neither on the number of threads nor on which thread has which block.

Rows are assigned to buckets by a hash of their key. A thread takes whole buckets.
"""

from typing import NamedTuple

import numpy as np

from embedder.tables.blocks import Blocks
from embedder.tables.cpu.block import BlockBuffers, Contexts, Sizes, aligned_zeros
from embedder.tables.cpu.simd import (
    LANES,
    add,
    cast_like,
    compiled,
    fetch_add,
    load,
    prefetch_row,
    store,
    subtract_scaled,
)

_ADAGRAD_EPS = 1e-8
_ROWS_AHEAD = 8  # from the row that is prefetched to the one that is updated
_BUCKETS_OF_A_THREAD = 8  # so that threads finish at about the same time
_ALONE, _NO_GRADIENT = -1, -2


class Slots(NamedTuple):
    """The rows that the blocks of an update gather: shared by all threads.

    A block has R slots: G B' of its tokens, T' of its positions, G K' of noise. Slots
    with a gradient are listed, by bucket. The key of a row is its index in the tables.
    """

    keys: np.ndarray  # i64[N, R]
    weights: np.ndarray  # [N, R], of the slot; if it is alone, of the row
    targets: np.ndarray  # i64[N, R], row of `Repeated.gradients`, or one of the above
    listed: np.ndarray  # i64[N, R], slots of the block
    starts: np.ndarray  # i64[N, P + 1], index in `listed[n]` of the start of a bucket


class Repeated(NamedTuple):
    """The rows that several slots gather, M at most: shared by all threads."""

    gradients: np.ndarray  # [N R, D], of a row one after the other
    keys: np.ndarray  # i64[M]
    weights: np.ndarray  # [M], sum of the weights of the slots
    starts: np.ndarray  # i64[M], the first gradient
    stops: np.ndarray  # i64[M], the one after the last
    first: np.ndarray  # i64[P], the first row of each bucket
    last: np.ndarray  # i64[P], the one after the last row of each bucket


class BucketRows(NamedTuple):
    """The slots of a bucket, E at most, and its distinct rows; each thread has its own.

    `index` is a hash table of H entries, a power of two, of which a bucket uses the
    first, as many as it needs.
    """

    index: np.ndarray  # i32[H], number of the row, -1: empty
    keys: np.ndarray  # i64[E], of each row
    weights: np.ndarray  # [E], sum of the weights of each row
    counts: np.ndarray  # i64[E], slots of each row; then where its next gradient goes
    slots: np.ndarray  # i64[E], in the order of blocks
    rows: np.ndarray  # i32[E], the row of each of these slots


def new_slots(num_blocks: int, size: Sizes, dtype, threads: int) -> Slots:
    """For N blocks that are shared by `threads`."""
    shape = num_blocks, size.num_slots
    num_buckets = _power_of_two(_BUCKETS_OF_A_THREAD * threads)
    return Slots(
        keys=np.zeros(shape, np.int64),
        weights=np.zeros(shape, dtype),
        targets=np.zeros(shape, np.int64),
        listed=np.zeros(shape, np.int64),
        starts=np.zeros((num_blocks, num_buckets + 1), np.int64),
    )


def new_repeated(slots: Slots, width: int, dtype) -> Repeated:
    """For all rows of `slots`; `width` is D, padded."""
    num_slots, num_buckets = slots.keys.size, slots.starts.shape[1] - 1
    num_rows = num_slots // 2
    return Repeated(
        gradients=aligned_zeros((num_slots, width), dtype),
        keys=np.zeros(num_rows, np.int64),
        weights=np.zeros(num_rows, dtype),
        starts=np.zeros(num_rows, np.int64),
        stops=np.zeros(num_rows, np.int64),
        first=np.zeros(num_buckets, np.int64),
        last=np.zeros(num_buckets, np.int64),
    )


def new_bucket_rows(slots: Slots, dtype) -> BucketRows:
    """For all rows of `slots`: a small vocabulary has them in one bucket."""
    size = slots.keys.size
    return BucketRows(
        index=np.zeros(_power_of_two(2 * size), np.int32),
        keys=np.zeros(size, np.int64),
        weights=np.zeros(size, dtype),
        counts=np.zeros(size, np.int64),
        slots=np.zeros(size, np.int64),
        rows=np.zeros(size, np.int32),
    )


@compiled()
def list_rows(
    s,
    n,
    token_table,
    num_keys,
    blocks: Blocks,
    contexts: Contexts,
    slots: Slots,
    buffers: BlockBuffers,
):
    """Lists the slots of block n that have a gradient, by bucket; writes the key, the
    weight and the target of every slot.

    Rows of tokens are in table `token_table`, 0 or 1, rows of positions in the other.
    """
    num_tokens, num_positions = len(buffers.tokens), len(buffers.positions)
    keys, weights = slots.keys[n], slots.weights[n]
    weights[:] = 0
    token_key, position_key = token_table * num_keys, (1 - token_table) * num_keys
    for t in range(len(buffers.row_of)):
        key, row = int(blocks.ids[s, n, t]), buffers.row_of[t]
        keys[row] = token_key + key
        weights[row] = contexts.token_weights[n, row]
        keys[num_tokens + t] = position_key + key
        weights[num_tokens + t] = contexts.position_weights[n, t]
    base = num_tokens + num_positions
    for g in range(blocks.noise.shape[2]):
        for k in range(blocks.noise.shape[3]):
            keys[base + k] = num_keys + int(blocks.noise[s, n, g, k])
            weights[base + k] = contexts.tile_weights[n, g]
        base += len(buffers.noise)
    _sort_by_bucket(keys, weights, slots.targets[n], slots.listed[n], slots.starts[n])


@compiled()
def _sort_by_bucket(keys, weights, targets, listed, starts):
    """Lists the slots that have a weight, by the buckets of their keys, and in their
    order within a bucket; `starts` says where each bucket starts."""
    mask = len(starts) - 2
    starts[:] = 0
    for slot in range(len(keys)):
        has_gradient = weights[slot] > 0
        targets[slot] = _ALONE if has_gradient else _NO_GRADIENT
        starts[(_hash(keys[slot]) & mask) + 1] += has_gradient
    for p in range(1, len(starts)):
        starts[p] += starts[p - 1]
    for slot in range(len(keys)):
        if weights[slot] > 0:
            bucket = _hash(keys[slot]) & mask
            listed[starts[bucket]] = slot
            starts[bucket] += 1
    for p in range(len(starts) - 1, 0, -1):
        starts[p] = starts[p - 1]
    starts[0] = 0


@compiled()
def _hash(key):
    return key * 0x9E3779B1 >> 12


@compiled()
def find_repeated(
    bucket, s, taken, slots: Slots, repeated: Repeated, bucket_rows: BucketRows
):
    """Finds the rows of a bucket that several slots gather, and gives their gradients
    targets; the other slots get the target that says so.

    `taken[0, s]` counts the rows of `repeated` that are taken in update s, by all
    threads, and `taken[1, s]` the gradients.
    """
    num_slots, num_rows = _find_rows(bucket, slots, bucket_rows)
    counts, num_repeated, num_gradients = bucket_rows.counts, 0, 0
    for row in range(num_rows):
        if counts[row] > 1:
            num_repeated += 1
            num_gradients += counts[row]
    number = fetch_add(taken, s, num_repeated)
    start = fetch_add(taken, taken.shape[1] + s, num_gradients)
    repeated.first[bucket] = number
    for row in range(num_rows):
        if counts[row] > 1:
            repeated.keys[number] = bucket_rows.keys[row]
            repeated.weights[number] = bucket_rows.weights[row]
            repeated.starts[number] = start
            repeated.stops[number] = start + counts[row]
            number += 1
            counts[row], start = start, start + counts[row]
        else:
            counts[row] = _ALONE
    repeated.last[bucket] = number
    targets = slots.targets.reshape(-1)
    for e in range(num_slots):
        row = bucket_rows.rows[e]
        if counts[row] != _ALONE:
            targets[bucket_rows.slots[e]] = counts[row]
            counts[row] += 1


@compiled()
def _find_rows(bucket, slots: Slots, rows: BucketRows):
    """Numbers of slots and of distinct rows of a bucket; lists both, in the order of
    the blocks, with the number of slots of each row and the sum of their weights."""
    starts, num_slots = slots.starts, 0
    for n in range(len(starts)):
        for e in range(starts[n, bucket], starts[n, bucket + 1]):
            rows.slots[num_slots] = n * slots.keys.shape[1] + slots.listed[n, e]
            num_slots += 1
    size = 2
    while size < 2 * num_slots:
        size *= 2
    rows.index[:size] = -1
    keys, weights = slots.keys.reshape(-1), slots.weights.reshape(-1)
    num_rows = 0
    for e in range(num_slots):
        key, weight = keys[rows.slots[e]], weights[rows.slots[e]]
        at = (_hash(key) >> 8) & (size - 1)
        while rows.index[at] >= 0 and rows.keys[rows.index[at]] != key:
            at = (at + 1) & (size - 1)
        row = int(rows.index[at])
        if row < 0:
            row = num_rows
            num_rows += 1
            rows.index[at] = row
            rows.keys[row] = key
            rows.weights[row] = weight
            rows.counts[row] = 1
        else:
            rows.weights[row] += weight
            rows.counts[row] += 1
        rows.rows[e] = row
    return num_slots, num_rows


class Rule(NamedTuple):
    """What the rule of an optimizer takes beside a row and its gradient."""

    rate: np.floating
    cap: np.floating  # of SGD
    dim: int  # D, columns of a table without padding


class Destination(NamedTuple):
    """Where gradients go."""

    tables: np.ndarray  # [2 V, D], input and output, padded
    accumulators: np.ndarray | None  # [2 V], of Adagrad
    rule: Rule
    slots: Slots
    repeated: Repeated


@compiled()
def update_slots(n, first, size, to: Destination, gradients):
    """Puts the gradients of `size` slots of block n, from `first` on, where they
    belong: rows that are alone are updated, other gradients are kept for
    `update_repeated`. `gradients` are those of the block, [R, D]."""
    for slot in range(first, first + size):
        target = to.slots.targets[n, slot]
        if target == _ALONE:
            key, weight = to.slots.keys[n, slot], to.slots.weights[n, slot]
            _update(to.tables, to.accumulators, to.rule, key, weight, gradients, slot)
        elif target != _NO_GRADIENT:
            for d in range(0, gradients.shape[1], LANES):
                store(to.repeated.gradients, target, d, load(gradients, slot, d))


@compiled()
def update_repeated(bucket, to: Destination):
    """Updates the repeated rows of a bucket by the sums of their gradients, (41)."""
    repeated, gradients = to.repeated, to.repeated.gradients
    last = repeated.last[bucket]
    for row in range(repeated.first[bucket], last):
        if row + _ROWS_AHEAD < last:
            prefetch_row(to.tables, repeated.keys[row + _ROWS_AHEAD])
        start, stop = repeated.starts[row], repeated.stops[row]
        for d in range(0, gradients.shape[1], LANES):
            total = load(gradients, start, d)
            for e in range(start + 1, stop):
                total = add(total, load(gradients, e, d))
            store(gradients, start, d, total)
        key, weight = repeated.keys[row], repeated.weights[row]
        _update(to.tables, to.accumulators, to.rule, key, weight, gradients, start)


@compiled()
def _update(tables, accumulators, rule: Rule, key, weight, gradients, g):
    """Updates one row by its gradient `gradients[g]`: by Adagrad if there are
    accumulators, else by SGD with a limit on pairs per row.

        row_r <- row_r - rate min(1, cap / c_r) G_r         ALGORITHM.md (18)

        a_r <- a_r + (1 / D) sum_d G_rd^2                   (42)
        row_r <- row_r - rate G_r / (sqrt(a_r) + eps)

    Reference: Duchi, Hazan and Singer 2011, JMLR 12, section 1.
    """
    rate, cap = rule.rate, rule.cap
    if accumulators is None:
        scale = rate * (cap / weight) if weight > cap else rate
    else:
        square = _mean_square(gradients, g, rule.dim)
        scale = accumulate(accumulators, key, square, rate)
    for d in range(0, tables.shape[1], LANES):
        delta = load(gradients, g, d)
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
