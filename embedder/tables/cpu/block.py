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

from embedder.tables.blocks import Blocks
from embedder.tables.cpu.simd import LANES, compiled, load, prefetch_row, store

_LINE = 64  # bytes of a cache line


class BlockIndex(NamedTuple):
    """Which block of an update, and its sizes."""

    block: int  # n
    next_block: int  # that this thread computes; N: none
    tile: int  # B
    window: int  # W
    num_noise: int  # K


class Contexts(NamedTuple):
    """The contexts of the tokens of an update and its weights: shared by all threads.

    Rows are those of `BlockBuffers`.
    """

    first: np.ndarray  # i64[N, G B'], first position among a token and its contexts
    last: (
        np.ndarray
    )  # i64[N, G B'], last; where there is no context, not after the first
    num_terms: np.ndarray  # i64[N], positive terms of the loss
    noise_scale: np.ndarray  # [N, G B'], how often each noise term counts
    token_weights: np.ndarray  # [N, G B']
    position_weights: np.ndarray  # [N, T']
    tile_weights: np.ndarray  # [N, G], weight of each noise row of a tile


class BlockBuffers(NamedTuple):
    """The memory in which a thread computes a block.

    Row `row_of[t]` is that of token t. Its scores with positions are a band: position j
    is column `j - shift[t]`.
    """

    tokens: np.ndarray  # [G B', D]
    positions: np.ndarray  # [T', D]
    noise: np.ndarray  # [K', D], of one tile
    means: np.ndarray  # [G B', D], CBOW: h, means of contexts
    errors: np.ndarray  # [G B', D], CBOW: dL/dh
    gradients: np.ndarray  # [R, D], of each slot, see `rows.Slots`
    context_terms: np.ndarray  # [G B', 2 W + 10], scores, errors; CBOW: 1/n_t
    noise_terms: np.ndarray  # [B', K'], scores, then errors, of one tile
    begin: np.ndarray  # i64[T], first token of the sequence of each token
    end: np.ndarray  # i64[T], and its last token
    row_of: np.ndarray  # i64[T]
    shift: np.ndarray  # i64[T]


class Sizes(NamedTuple):
    """Sizes of the buffers of a block."""

    block: int  # T
    tile: int  # B
    padded_tile: int  # B'
    num_tiles: int  # G
    positions: int  # T'
    noise: int  # K'
    window: int  # W

    @property
    def num_slots(self) -> int:
        """R, room for the rows that a block gathers."""
        tokens = self.num_tiles * self.padded_tile
        return tokens + self.positions + self.num_tiles * self.noise


def sizes(block: int, num_tiles: int, num_noise: int, window: int) -> Sizes:
    """For blocks of T tokens in G tiles with K noise ids each.

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
    )


def new_contexts(num_blocks: int, size: Sizes, dtype) -> Contexts:
    """For N blocks."""
    rows = num_blocks, size.num_tiles * size.padded_tile
    return Contexts(
        first=np.zeros(rows, np.int64),
        last=np.full(rows, -1),
        num_terms=np.zeros(num_blocks, np.int64),
        noise_scale=np.zeros(rows, dtype),
        token_weights=np.zeros(rows, dtype),
        position_weights=np.zeros((num_blocks, size.positions), dtype),
        tile_weights=np.zeros((num_blocks, size.num_tiles), dtype),
    )


def new_buffers(size: Sizes, width: int, dtype) -> BlockBuffers:
    """Empty buffers; `width` is D, padded."""
    rows = size.num_tiles * size.padded_tile
    token = np.arange(size.block)
    row_of = token // size.tile * size.padded_tile + token % size.tile
    columns = round_up(2 * size.window + 10, 4)
    return BlockBuffers(
        tokens=aligned_zeros((rows, width), dtype),
        positions=aligned_zeros((size.positions, width), dtype),
        noise=aligned_zeros((size.noise, width), dtype),
        means=aligned_zeros((rows, width), dtype),
        errors=aligned_zeros((rows, width), dtype),
        gradients=aligned_zeros((size.num_slots, width), dtype),
        context_terms=aligned_zeros((rows, columns), dtype),
        noise_terms=aligned_zeros((size.padded_tile, size.noise), dtype),
        begin=np.zeros(size.block, np.int64),
        end=np.zeros(size.block, np.int64),
        row_of=row_of,
        shift=token - token % size.tile % 4 - (size.window + 3),
    )


@compiled()
def find_contexts(
    s, n, window, blocks: Blocks, contexts: Contexts, buffers: BlockBuffers
):
    """First and last position of each token and its contexts, ALGORITHM.md (6)."""
    sequence, radius = blocks.sequence[s, n], blocks.radius[s, n]
    begin, end, block = buffers.begin, buffers.end, len(buffers.begin)
    begin[0] = 0
    for t in range(1, block):
        begin[t] = begin[t - 1] if sequence[t] == sequence[t - 1] else t
    end[block - 1] = block - 1
    for t in range(block - 2, -1, -1):
        end[t] = end[t + 1] if sequence[t] == sequence[t + 1] else t
    for t in range(block):
        r = min(int(radius[t]), window)
        contexts.first[n, buffers.row_of[t]] = max(t - r, begin[t])
        contexts.last[n, buffers.row_of[t]] = min(t + r, end[t])


@compiled()
def band_of_four(first, last, row):
    """First position of the contexts of four tokens, and the one after the last."""
    start, stop = np.iinfo(np.int64).max, 0
    for q in range(row, row + 4):
        if last[q] > first[q]:
            start, stop = min(start, first[q]), max(stop, last[q] + 1)
    return start, stop


@compiled()
def load_rows(tables, keys, start, size, out):
    """Copies the rows of `size` keys, from `start` on, to the first rows of `out`."""
    for e in range(size):
        for d in range(0, tables.shape[1], LANES):
            store(out, e, d, load(tables, keys[start + e], d))


@compiled()
def prefetch(tables, keys, part, num_parts):
    """Prefetches one of `num_parts` parts of the rows of `keys`."""
    size = len(keys)
    for e in range(size * part // num_parts, size * (part + 1) // num_parts):
        prefetch_row(tables, keys[e])


def aligned_zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
    """As `np.zeros`, from the start of a cache line on: a vector that is in two lines
    takes twice as long to load."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + _LINE, np.uint8)
    offset = -memory.ctypes.data % _LINE
    return np.ndarray(shape, dtype, memory, offset)


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple
