"""Subwords in the kernel: vectors of words are composed before an update's blocks are
computed, and the gradients of words go to the rows of their subwords after them.

Equations are those of `embedder/ALGORITHM.md`; `embedder/tokens/subwords.py` is the
same for XLA. All of it is done once for each word of an update, however often it
occurs.
"""

from typing import NamedTuple

import numpy as np

from embedder.tokens.cpu.block import add_row, read_only, round_up
from embedder.tokens.cpu.rows import BucketRows, Gathered, hash_key
from embedder.tokens.cpu.simd import (
    LANES,
    add,
    cast_like,
    compiled,
    fetch_add,
    load,
    prefetch_row,
    store,
    subtract_scaled,
    zeros,
)
from embedder.tokens.subwords import SubwordIndex

_WORDS = 16  # that a thread takes at once
_AHEAD = 8  # rows, from the one that is prefetched to the one that is used


class WordRows(NamedTuple):
    """The rows of subwords, and the words of S updates; all threads share it."""

    table: np.ndarray  # [V + K, D], padded
    starts: np.ndarray  # i32[V + 1], of each word in `rows`
    rows: np.ndarray  # i32[n]
    scale: np.ndarray  # [1], n of (95)
    first: np.ndarray  # i64[S + 1], of each update in `words`
    words: np.ndarray  # i32[m], the distinct words of each update, ascending
    heads: np.ndarray  # i64[V], slot of the sum of a word's gradients; -1: none
    weights: np.ndarray  # [V], c_w of these
    totals: np.ndarray  # [V + K], c_s; 0 from one bucket to the next


class Entries(NamedTuple):
    """The subwords of an update in one bucket; each thread has its own."""

    rows: np.ndarray  # i32[m]
    words: np.ndarray  # i32[m]


def word_rows(
    table: np.ndarray, index: SubwordIndex, ids: np.ndarray, num_words: int
) -> tuple[WordRows, int]:
    """The rows for S updates of tokens `ids` [S, N, T], and how many subwords the words
    of an update have, at most."""
    starts, rows, scale = map(read_only, index)
    distinct = [np.unique(each) for each in ids]
    first = np.cumsum([0, *map(len, distinct)])
    words = np.concatenate(distinct)
    sizes = np.add.reduceat(np.diff(starts)[words], first[:-1]) if len(ids) else [0]
    shared = WordRows(
        table,
        *(starts, rows, scale, first, words.astype(np.int32)),
        heads=np.full(num_words, -1),
        weights=np.zeros(num_words, table.dtype),
        totals=np.zeros(len(table), table.dtype),
    )
    return shared, int(max(sizes))


def new_entries(size: int) -> Entries:
    """Room for `size` subwords, or more."""
    size = round_up(max(size, 1), 2**12)
    return Entries(np.zeros(size, np.int32), np.zeros(size, np.int32))


@compiled()
def compose(s, taken, tables, shared: WordRows):
    """Writes the vectors of the words of update s to `tables`, (94), as many as this
    thread takes; `taken` i64[S] counts what the threads took."""
    begin, end = shared.first[s], shared.first[s + 1]
    start = begin + _WORDS * fetch_add(taken, s)
    while start < end:
        for i in range(start, min(start + _WORDS, end)):
            word = shared.words[i]
            shared.heads[word] = -1
            if i + 1 < end:
                after = shared.words[i + 1]
                for e in range(shared.starts[after], shared.starts[after + 1]):
                    prefetch_row(shared.table, shared.rows[e])
            _write_mean(tables, word, shared)
        start = begin + _WORDS * fetch_add(taken, s)


@compiled()
def _write_mean(tables, word, shared: WordRows):
    first, stop = shared.starts[word], shared.starts[word + 1]
    one = shared.scale[0]
    share = cast_like(-1, one) / cast_like(stop - first, one)
    for d in range(0, tables.shape[1], LANES):
        total = zeros(tables)
        for e in range(first, stop):
            total = add(total, load(shared.table, shared.rows[e], d))
        store(tables, word, d, subtract_scaled(zeros(tables), share, total))


@compiled()
def sum_words(gradients, rows: BucketRows, sizes, num_keys, shared: WordRows):
    """Sums the gradients of the words of a bucket, each in the first of its slots, and
    keeps which that is; `sizes` are the numbers of slots and rows of the bucket.
    Returns how many slots are of other rows; they come first then."""
    num_slots, num_rows = sizes
    for row in range(num_rows):
        key = rows.keys[row]
        if key < num_keys:
            shared.heads[key] = rows.heads[row]
            shared.weights[key] = rows.weights[row]
    left = 0
    for e in range(num_slots):
        slot, row = rows.slots[e], rows.rows[e]
        if rows.keys[row] >= num_keys:
            rows.slots[left], rows.rows[left] = slot, row
            left += 1
        elif slot != rows.heads[row]:
            add_row(gradients, rows.heads[row], gradients, slot)
    return left


@compiled()
def step_rows(
    s, bucket, gathered: Gathered, shared: WordRows, entries: Entries, cap, rate
):
    """e_s <- e_s - rate min(1, cap / c_s) G_s, (95), for the subwords in a bucket of
    rows of update s."""
    num = _find(s, bucket, gathered.starts.shape[1] - 2, shared, entries)
    scale, starts, totals = shared.scale[0], shared.starts, shared.totals
    for e in range(num):
        word = entries.words[e]
        share = scale / cast_like(starts[word + 1] - starts[word], scale)
        totals[entries.rows[e]] += share * shared.weights[word]
    for e in range(num):
        if e + _AHEAD < num:
            prefetch_row(shared.table, entries.rows[e + _AHEAD])
        row, word = entries.rows[e], entries.words[e]
        share = scale / cast_like(starts[word + 1] - starts[word], scale)
        step, total = rate * share, totals[row]
        if total > cap:
            step *= cap / total
        gradients, head = gathered.gradients, shared.heads[word]
        for d in range(0, gradients.shape[1], LANES):
            delta = load(gradients, head, d)
            moved = subtract_scaled(load(shared.table, row, d), step, delta)
            store(shared.table, row, d, moved)
    for e in range(num):
        totals[entries.rows[e]] = 0


@compiled()
def _find(s, bucket, mask, shared: WordRows, entries: Entries):
    """Lists the subwords of update s in a bucket; returns how many there are."""
    num = 0
    for i in range(shared.first[s], shared.first[s + 1]):
        word = shared.words[i]
        if shared.heads[word] >= 0:
            for e in range(shared.starts[word], shared.starts[word + 1]):
                row = shared.rows[e]
                if (hash_key(row) & mask) == bucket:
                    entries.rows[num], entries.words[num] = row, word
                    num += 1
    return num
