"""The rows of an update: which there are, which thread updates each, and the rule.

A row that several tiles gathered has several gradients. They are added in the order of
tiles, so that the result does not depend on the number of threads.
"""

from typing import NamedTuple

import numpy as np

from embedder.tables.cpu.simd import (
    LANES,
    add,
    cast_like,
    compiled,
    load,
    store,
    subtract_scaled,
)
from embedder.tables.cpu.tiles import Gathered, Tables

_ADAGRAD_EPS = 1e-8


class RowTable(NamedTuple):
    """The distinct rows of an update, as a hash table; each thread has one.

    It has H slots, a power of two. An entry of an earlier update counts as empty.
    """

    update: np.ndarray  # i64[H], the update that filled the slot, from 1
    key: np.ndarray  # i64[H]
    weight: np.ndarray  # [H], sum of the weights of the row
    owner: np.ndarray  # i64[H], the thread that updates the row
    first: np.ndarray  # i64[H], Adagrad: slot of the row's first gradient
    row_slots: np.ndarray  # i64[M R], slot here of each gathered row
    gradient_slots: np.ndarray  # i64[M R], and the slot of its gradient


def new_row_table(num_gathered: int, dtype) -> RowTable:
    """An empty table for at most `num_gathered` rows."""
    size = 1 << (2 * num_gathered).bit_length()
    return RowTable(
        update=np.zeros(size, np.int64),
        key=np.zeros(size, np.int64),
        weight=np.zeros(size, dtype),
        owner=np.zeros(size, np.int64),
        first=np.zeros(size, np.int64),
        row_slots=np.zeros(num_gathered, np.int64),
        gradient_slots=np.zeros(num_gathered, np.int64),
    )


@compiled()
def index_rows(gathered: Gathered, rows: RowTable, update, threads):
    """Lists the gathered rows, sums their weights, and assigns them to threads.

    A row is assigned to a thread that has its gradients in its cache: the only one, or
    the first or last, that gathered it in this update. All threads get the same result.
    """
    num_tiles = len(gathered.num_rows)
    mask = len(rows.key) - 1
    num_rows = 0
    for thread in range(threads):
        first = num_tiles * thread // threads
        for m in range(first, num_tiles * (thread + 1) // threads):
            for r in range(gathered.num_rows[m]):
                key = gathered.keys[m, r]
                slot = (key * 0x9E3779B1 >> 12) & mask
                while rows.update[slot] == update and rows.key[slot] != key:
                    slot = (slot + 1) & mask
                if rows.update[slot] != update:
                    rows.update[slot] = update
                    rows.key[slot] = key
                    rows.weight[slot] = 0
                    rows.owner[slot] = thread
                rows.weight[slot] += gathered.weights[m, r]
                if key & 1:  # of odd rows the last thread, for balance
                    rows.owner[slot] = thread
                rows.row_slots[num_rows] = slot
                rows.gradient_slots[num_rows] = gathered.gradient_slots[m, r]
                num_rows += 1
    return num_rows


@compiled()
def apply_capped_sgd(
    tables: Tables, gradients, rows: RowTable, num_rows, thread, cap, rate
):
    """row_r <- row_r - rate min(1, cap / c_r) G_r, ALGORITHM.md (18), for the rows of a
    thread; the gradients in G_r, (41), are subtracted one by one."""
    num_keys = len(tables.input)
    for e in range(num_rows):
        slot = rows.row_slots[e]
        if rows.owner[slot] == thread:
            key, weight = rows.key[slot], rows.weight[slot]
            scale = rate * (cap / weight) if weight > cap else rate
            gradient = rows.gradient_slots[e]
            if key < num_keys:
                _subtract(tables.input, key, scale, gradients, gradient)
            else:
                _subtract(tables.output, key - num_keys, scale, gradients, gradient)


@compiled()
def apply_adagrad(
    tables: Tables,
    accumulators: Tables,
    gradients,
    rows: RowTable,
    num_rows,
    thread,
    dim,
    rate,
):
    """Row-wise Adagrad, ALGORITHM.md (42), for the rows of a thread. D is the number of
    columns without padding.

        a_r <- a_r + (1 / D) sum_d G_rd^2
        row_r <- row_r - rate G_r / (sqrt(a_r) + eps)

    Reference: Duchi, Hazan and Singer 2011, JMLR 12, section 1.
    """
    _sum_gradients(gradients, rows, num_rows, thread)
    num_keys = len(tables.input)
    for e in range(num_rows):
        slot, gradient = rows.row_slots[e], rows.gradient_slots[e]
        if rows.owner[slot] == thread and rows.first[slot] == gradient:
            key = rows.key[slot]
            square = _mean_square(gradients, gradient, dim)
            if key < num_keys:
                scale = accumulate(accumulators.input, key, square, rate)
                _subtract(tables.input, key, scale, gradients, gradient)
            else:
                scale = accumulate(accumulators.output, key - num_keys, square, rate)
                _subtract(tables.output, key - num_keys, scale, gradients, gradient)


@compiled()
def _sum_gradients(gradients, rows: RowTable, num_rows, thread):
    """Adds the gradients of each row of a thread to its first one: G_r, (41)."""
    for e in range(num_rows - 1, -1, -1):
        slot = rows.row_slots[e]
        if rows.owner[slot] == thread:
            rows.first[slot] = rows.gradient_slots[e]
    for e in range(num_rows):
        slot, gradient = rows.row_slots[e], rows.gradient_slots[e]
        if rows.owner[slot] == thread and rows.first[slot] != gradient:
            total = rows.first[slot]
            for d in range(0, gradients.shape[1], LANES):
                added = add(load(gradients, total, d), load(gradients, gradient, d))
                store(gradients, total, d, added)


@compiled()
def _mean_square(gradients, gradient, dim):
    """(1 / D) sum_d G_rd^2; the padding of a gradient is 0."""
    total = cast_like(0, gradients[0, 0])
    for d in range(gradients.shape[1]):
        total += gradients[gradient, d] * gradients[gradient, d]
    return total / cast_like(dim, total)


@compiled(fastmath={"contract"})  # "afn" would allow estimates of the root
def accumulate(accumulator, row, square, rate):
    """a <- a + square, in `accumulator[row]`; returns rate / (sqrt(a) + eps)."""
    accumulator[row] += square
    return rate / (np.sqrt(accumulator[row]) + cast_like(_ADAGRAD_EPS, rate))


@compiled()
def _subtract(table, row, scale, gradients, gradient):
    for d in range(0, table.shape[1], LANES):
        delta = load(gradients, gradient, d)
        store(table, row, d, subtract_scaled(load(table, row, d), scale, delta))
