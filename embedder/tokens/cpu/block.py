"""A block of an update on one core: its contexts, its rows and their weights.

Axis letters and numbered equations are those of embedder/ALGORITHM.md. A dash marks a
size that is padded to a multiple of four, and rows are padded with zeros to a multiple
of LANES. Rows of tokens are ordered by tile, and each tile is padded, so that four rows
never belong to two tiles; positions, the contexts of all tiles, are in the order of the
text.
"""

import math
from typing import NamedTuple

import numpy as np

from embedder.data.blocks import Blocks
from embedder.tokens.cpu.products import combine_band
from embedder.tokens.cpu.simd import (
    LANES,
    add,
    compiled,
    fetch_add,
    load,
    prefetch_row,
    prefetch_row_to_write,
    store,
)

_LINE = 64  # bytes of a cache line


class BlockIndex(NamedTuple):
    """Which block, and its sizes."""

    update: int  # s, in the batch
    block: int  # n, in the update
    taken: np.ndarray  # i64[S]: how many blocks of each update threads took
    tile: int  # B
    window: int  # W
    num_keys: int  # V


class BlockBuffers(NamedTuple):
    """The memory in which a thread computes a block.

    Row `row_of[t]` is that of token t. Its scores with positions are a band: position j
    is column `j - shift[t]`.
    """

    tokens: np.ndarray  # [G B', D]
    positions: np.ndarray  # [T', D]
    noise: np.ndarray  # [K', D], of one tile
    means: np.ndarray  # [G B', D], CBOW: h, means or sums of contexts
    errors: np.ndarray  # [G B', D], CBOW: dL/dh
    context_terms: np.ndarray  # [G B', columns], scores, errors; CBOW: 1/n_t or 1
    noise_terms: np.ndarray  # [B', K'], scores, then errors, of one tile
    noise_scale: np.ndarray  # [G B'], how often each noise term counts
    multiplicity: np.ndarray  # [G B'], m_t w_t of each token
    token_weights: np.ndarray  # [G B']
    position_weights: np.ndarray  # [T']
    tile_weights: np.ndarray  # [G], weight of each noise row of a tile
    first: np.ndarray  # i64[G B'], first position among a token and its contexts
    last: np.ndarray  # i64[G B'], last; where there is no context, not after the first
    next_block: np.ndarray  # i64[1], that the thread took; N or more: there was none
    begin: np.ndarray  # i64[T], first token of the sequence of each token
    end: np.ndarray  # i64[T], and its last token
    row_of: np.ndarray  # i64[T]
    shift: np.ndarray  # i64[T]
    listed: np.ndarray  # i64[R], see `Gathered`


class Sizes(NamedTuple):
    """Sizes of the buffers of a block."""

    block: int  # T
    tile: int  # B
    padded_tile: int  # B'
    num_tiles: int  # G
    positions: int  # T'
    noise: int  # K'
    window: int  # W
    depth: int = 0  # L, nodes of the longest path; 0: no hierarchical softmax

    @property
    def is_band(self) -> bool:
        """Whether contexts are a part of the block around each token."""
        return self.window < self.block - 1

    @property
    def columns(self) -> int:
        """Positions that a row of `context_terms` has."""
        return round_up(2 * self.window + 10, 4) if self.is_band else self.positions

    @property
    def num_slots(self) -> int:
        """R, room for the rows that a block gathers."""
        tokens = self.num_tiles * self.padded_tile
        others = self.positions + self.num_tiles * self.noise
        return tokens + others + self.num_nodes

    @property
    def num_nodes(self) -> int:
        """Inner nodes that the paths of a block may have, at most."""
        return self.block * self.depth


def sizes(
    block: int, num_tiles: int, num_noise: int, window: int, depth: int = 0
) -> Sizes:
    """For blocks of T tokens in G tiles with K noise ids each, and paths of L nodes.

    The contexts of four tokens are computed in fours from their first one, so positions
    need up to three rows more.
    """
    tile = block // num_tiles
    return Sizes(
        block=block,
        tile=tile,
        padded_tile=round_up(tile, 4),
        num_tiles=num_tiles,
        positions=round_up(block, 4) + 4,
        noise=round_up(num_noise, 4),
        window=window,
        depth=depth,
    )


def new_buffers(size: Sizes, width: int, dtype) -> BlockBuffers:
    """Empty buffers; `width` is D, padded."""
    rows = size.num_tiles * size.padded_tile
    token = np.arange(size.block)
    row_of = token // size.tile * size.padded_tile + token % size.tile
    return BlockBuffers(
        tokens=aligned_zeros((rows, width), dtype),
        positions=aligned_zeros((size.positions, width), dtype),
        noise=aligned_zeros((size.noise, width), dtype),
        means=aligned_zeros((rows, width), dtype),
        errors=aligned_zeros((rows, width), dtype),
        context_terms=aligned_zeros((rows, size.columns), dtype),
        noise_terms=aligned_zeros((size.padded_tile, size.noise), dtype),
        noise_scale=np.zeros(rows, dtype),
        multiplicity=np.zeros(rows, dtype),
        token_weights=np.zeros(rows, dtype),
        position_weights=np.zeros(size.positions, dtype),
        tile_weights=np.zeros(size.num_tiles, dtype),
        first=np.zeros(rows, np.int64),
        last=np.full(rows, -1),
        next_block=np.zeros(1, np.int64),
        begin=np.zeros(size.block, np.int64),
        end=np.zeros(size.block, np.int64),
        row_of=row_of,
        shift=(token - token % size.tile % 4 - (size.window + 3)) * size.is_band,
        listed=np.zeros(size.num_slots, np.int64),
    )


@compiled()
def find_contexts(at: BlockIndex, blocks: Blocks, buffers: BlockBuffers):
    """First and last position of each token and its contexts, ALGORITHM.md (6)."""
    sequence, radius = blocks.sequence[at.update, at.block], blocks.radius
    begin, end, block = buffers.begin, buffers.end, len(buffers.begin)
    begin[0] = 0
    for t in range(1, block):
        begin[t] = begin[t - 1] if sequence[t] == sequence[t - 1] else t
    end[block - 1] = block - 1
    for t in range(block - 2, -1, -1):
        end[t] = end[t + 1] if sequence[t] == sequence[t + 1] else t
    for t in range(block):
        r = min(int(radius[at.update, at.block, t]), at.window)
        row = buffers.row_of[t]
        buffers.first[row] = max(t - r, begin[t])
        buffers.last[row] = min(t + r, end[t])


@compiled()
def find_multiplicities(at: BlockIndex, blocks: Blocks, buffers: BlockBuffers):
    """m_t w_t of each token, ALGORITHM.md (67); 1 where blocks have no weights."""
    weight = blocks.weight[at.update, at.block]
    for t in range(len(buffers.row_of)):
        buffers.multiplicity[buffers.row_of[t]] = weight[t] if len(weight) else 1


@compiled()
def band_of_four(buffers: BlockBuffers, row):
    """First position of the contexts of four tokens, and the one after the last."""
    start, stop = len(buffers.position_weights), 0
    for q in range(row, row + 4):
        if buffers.last[q] > buffers.first[q]:
            start, stop = min(start, buffers.first[q]), max(stop, buffers.last[q] + 1)
    return start, stop


@compiled()
def tokens_near(at: BlockIndex, buffers: BlockBuffers, j):
    """The first token that one of the positions j : j + 4 may be a context of, and the
    one after the last."""
    last = min(j + 3, len(buffers.row_of) - 1)
    return (
        max(j - at.window, buffers.begin[j]),
        min(last + at.window, buffers.end[last]) + 1,
    )


@compiled()
def load_rows(tables, keys, start, size, out):
    """Copies the rows of `size` keys, from `start` on, to the first rows of `out`."""
    for e in range(size):
        load_row(out, e, tables, keys[start + e])


@compiled()
def load_row(to, i, rows, j):
    """Copies row j of `rows` to row i of `to`."""
    for d in range(0, to.shape[1], LANES):
        store(to, i, d, load(rows, j, d))


@compiled()
def add_row(to, i, rows, j):
    """Adds row j of `rows` to row i of `to`."""
    for d in range(0, to.shape[1], LANES):
        total = add(load(to, i, d), load(rows, j, d))
        store(to, i, d, total)


@compiled()
def prefetch_four(
    at: BlockIndex, o, noise_slot, tables, blocks: Blocks, gradients, buffers
):
    """Prefetches for the four tokens from row `o` on the gradients that they write, of
    their rows and of their part of the noise of a tile, from `noise_slot` on; and their
    part of the next block."""
    tile, num_noise = len(buffers.noise_terms), len(buffers.noise)
    num_parts, i = len(buffers.tokens) // 4, o % tile
    prefetch(at, o // 4, num_parts, tables, blocks, buffers.next_block)
    slot = at.block * len(buffers.listed) + o
    prefetch_to_write(gradients, slot, slot + 4)
    start, stop = num_noise * i // tile, num_noise * (i + 4) // tile
    prefetch_to_write(gradients, noise_slot + start, noise_slot + stop)


@compiled()
def combine_positions(at: BlockIndex, gradients, buffers: BlockBuffers, x):
    """Gradients of the rows of positions: for each the sum over the tokens that it is a
    context of, of their `context_terms` times their rows `x`."""
    base = at.block * len(buffers.listed) + len(buffers.tokens)
    for j in range(0, len(buffers.row_of), 4):
        prefetch_to_write(gradients, base + j + 4, base + j + 8)
        near, terms = tokens_near(at, buffers, j), buffers.context_terms
        rows = buffers.row_of, buffers.shift
        combine_band(gradients, base + j, terms, j, near, *rows, x)


@compiled()
def prefetch(at: BlockIndex, part, num_parts, tables, blocks: Blocks, next_block):
    """Does one of `num_parts` parts of what is done ahead within a block: takes the
    next block, and prefetches its rows.

    `tables` are the input table and after it the output table. A thread takes its next
    block late, so that there is one for each thread first.
    """
    first, (num_blocks, block) = num_parts // 4, blocks.ids.shape[1:]
    if part == first:
        next_block[0] = fetch_add(at.taken, at.update)
    s, n = at.update, next_block[0]
    if part >= first and n < num_blocks:
        part, num_parts = part - first, num_parts - first
        num_keys, num_noise = at.num_keys, blocks.noise.shape[3]
        for t in range(block * part // num_parts, block * (part + 1) // num_parts):
            row = int(blocks.ids[s, n, t])
            prefetch_row(tables, row)
            prefetch_row(tables, num_keys + row)
        size = blocks.noise.shape[2] * num_noise
        for e in range(size * part // num_parts, size * (part + 1) // num_parts):
            row = int(blocks.noise[s, n, e // num_noise, e % num_noise])
            prefetch_row(tables, num_keys + row)


@compiled()
def prefetch_to_write(gradients, start, stop):
    """Prefetches the rows start:stop, which this core writes next.

    A large update has more gradients than the caches hold; a store that misses them
    waits.
    """
    for row in range(start, stop):
        prefetch_row_to_write(gradients, row)


def aligned_zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
    """As `np.zeros`, from the start of a cache line on: a vector that is in two lines
    takes twice as long to load."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + _LINE, np.uint8)
    offset = -memory.ctypes.data % _LINE
    return np.ndarray(shape, dtype, memory, offset)


def read_only(array) -> np.ndarray:
    """`array` without leave to write to it: the kernel is compiled for that."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple
