"""A tile of an update on one core: its contexts, its rows and their weights.

Axis letters and numbered equations are those of embedder/ALGORITHM.md. Here M counts
the tiles of an update (N G), a dash marks a size that is padded to a multiple of four,
and rows are padded with zeros to a multiple of LANES. A position `c` of a tile is
counted from W before its first token.
"""

from typing import NamedTuple

import numpy as np

from embedder.tables.blocks import Blocks
from embedder.tables.cpu.simd import (
    LANES,
    compiled,
    load,
    prefetch_row,
    store,
)


class Tables(NamedTuple):
    """The tables [V, D], padded; or the accumulators of their rows, [V]."""

    input: np.ndarray
    output: np.ndarray


class TileIndex(NamedTuple):
    """Which tile, and its sizes."""

    update: int  # s, in the batch
    block: int  # n, in the update
    tile: int  # g, in the block
    number: int  # m, in the update
    size: int  # B
    window: int  # W


class Gathered(NamedTuple):
    """The rows that the tiles gathered, and their gradients: shared by all threads.

    A tile has room for R rows: B' of its tokens, C' of its positions, K' of noise. It
    lists those that have a gradient. The key of a row is its id; of the output table,
    its id plus V.
    """

    num_rows: np.ndarray  # i64[M], how many are listed
    keys: np.ndarray  # i64[M, R], listed
    weights: np.ndarray  # [M, R], listed
    gradient_slots: np.ndarray  # i64[M, R], listed: index in `gradients`
    gradients: np.ndarray  # [M R, D]


class TileBuffers(NamedTuple):
    """The memory in which a thread computes a tile."""

    tokens: np.ndarray  # [B', D], rows of its tokens
    positions: np.ndarray  # [C', D]
    noise: np.ndarray  # [K', D]
    means: np.ndarray  # [B', D], CBOW: h, means of contexts
    errors: np.ndarray  # [B', D], CBOW: dL/dh
    context_terms: np.ndarray  # [B', C'], scores, then derivatives; CBOW: 1/n_t
    noise_terms: np.ndarray  # [B', K'], scores, then derivatives
    noise_scale: np.ndarray  # [B'], how often each noise term counts
    token_weights: np.ndarray  # [B']
    position_weights: np.ndarray  # [C']
    first: np.ndarray  # i64[B'], first position among a token and its contexts
    last: np.ndarray  # i64[B'], last; where there is no context, not after the first
    begin: np.ndarray  # i64[T], first token of the sequence of each token of a block
    end: np.ndarray  # i64[T], and its last token


def tile_sizes(tile: int, window: int, num_noise: int) -> tuple[int, int, int]:
    """Room for the tokens, positions and noise of a tile: B', C' and K'.

    The contexts of four tokens are computed in fours from their first one, so positions
    need up to three rows more.
    """
    return round_up(tile, 4), round_up(tile + 2 * window, 4) + 4, round_up(num_noise, 4)


def new_gathered(num_tiles: int, num_rows: int, width: int, dtype) -> Gathered:
    """For M tiles of R rows; `width` is D, padded."""
    size = num_tiles, num_rows
    return Gathered(
        num_rows=np.zeros(num_tiles, np.int64),
        keys=np.zeros(size, np.int64),
        weights=np.zeros(size, dtype),
        gradient_slots=np.zeros(size, np.int64),
        gradients=np.zeros((num_tiles * num_rows, width), dtype),
    )


def new_buffers(
    sizes: tuple[int, int, int], width: int, block: int, dtype
) -> TileBuffers:
    """For tiles of `sizes` B', C', K' in blocks of T tokens; `width` is D, padded."""
    tile, positions, noise = sizes
    return TileBuffers(
        tokens=np.zeros((tile, width), dtype),
        positions=np.zeros((positions, width), dtype),
        noise=np.zeros((noise, width), dtype),
        means=np.zeros((tile, width), dtype),
        errors=np.zeros((tile, width), dtype),
        context_terms=np.zeros((tile, positions), dtype),
        noise_terms=np.zeros((tile, noise), dtype),
        noise_scale=np.zeros(tile, dtype),
        token_weights=np.zeros(tile, dtype),
        position_weights=np.zeros(positions, dtype),
        first=np.zeros(tile, np.int64),
        last=np.full(tile, -1),
        begin=np.zeros(block, np.int64),
        end=np.zeros(block, np.int64),
    )


@compiled()
def prefetch(tables: Tables, blocks: Blocks, s, n, g):
    """Prefetches the rows of a tile; its contexts are near its tokens."""
    size = blocks.ids.shape[2] // blocks.noise.shape[2]
    for t in range(g * size, (g + 1) * size):
        prefetch_row(tables[0], blocks.ids[s, n, t])
        prefetch_row(tables[1], blocks.ids[s, n, t])
    for k in range(blocks.noise.shape[3]):
        prefetch_row(tables[1], blocks.noise[s, n, g, k])


@compiled()
def find_sequences(sequence, s, n, begin, end):
    """First and last token of the sequence of each token of a block."""
    block = len(begin)
    begin[0] = 0
    for t in range(1, block):
        same = sequence[s, n, t] == sequence[s, n, t - 1]
        begin[t] = begin[t - 1] if same else t
    end[block - 1] = block - 1
    for t in range(block - 2, -1, -1):
        same = sequence[s, n, t] == sequence[s, n, t + 1]
        end[t] = end[t + 1] if same else t


@compiled()
def find_contexts(at: TileIndex, radius, buffers: TileBuffers):
    """First and last position of each token and its contexts, ALGORITHM.md (6)."""
    offset = at.window - at.tile * at.size
    for i in range(at.size):
        t = at.tile * at.size + i
        r = min(int(radius[at.update, at.block, t]), at.window)
        buffers.first[i] = max(t - r, buffers.begin[t]) + offset
        buffers.last[i] = min(t + r, buffers.end[t]) + offset


@compiled()
def band_of_four(buffers: TileBuffers, i):
    """First position of the contexts of four tokens, and the one after the last."""
    start, stop = buffers.context_terms.shape[1], 0
    for q in range(i, i + 4):
        if buffers.last[q] > buffers.first[q]:
            start, stop = min(start, buffers.first[q]), max(stop, buffers.last[q] + 1)
    return start, stop


@compiled()
def load_rows(
    at: TileIndex,
    band,
    token_table,
    noise_weight,
    tables: Tables,
    blocks: Blocks,
    gathered: Gathered,
    buffers: TileBuffers,
):
    """Copies the rows of a tile to its buffers, and lists them in `gathered`.

    Rows of tokens are in table `token_table`, 0 or 1, rows of positions in the other.
    """
    s, n, m = at.update, at.block, at.number
    position_table, start = 1 - token_table, at.tile * at.size
    num_tokens, num_positions = buffers.context_terms.shape
    num_keys, base = len(tables[0]), m * gathered.keys.shape[1]
    count = 0
    for i in range(at.size):
        if buffers.token_weights[i] > 0:
            row = blocks.ids[s, n, start + i]
            _copy(tables[token_table], row, buffers.tokens, i)
            gathered.keys[m, count] = token_table * num_keys + row
            gathered.weights[m, count] = buffers.token_weights[i]
            gathered.gradient_slots[m, count] = base + i
            count += 1
    base += num_tokens
    for c in range(band[0], band[1]):
        if buffers.position_weights[c] > 0:
            row = blocks.ids[s, n, start - at.window + c]
            _copy(tables[position_table], row, buffers.positions, c)
            gathered.keys[m, count] = position_table * num_keys + row
            gathered.weights[m, count] = buffers.position_weights[c]
            gathered.gradient_slots[m, count] = base + c
            count += 1
    base += num_positions
    if noise_weight > 0:
        for k in range(blocks.noise.shape[3]):
            row = blocks.noise[s, n, at.tile, k]
            _copy(tables[1], row, buffers.noise, k)
            gathered.keys[m, count] = num_keys + row
            gathered.weights[m, count] = noise_weight
            gathered.gradient_slots[m, count] = base + k
            count += 1
    gathered.num_rows[m] = count


@compiled()
def _copy(table, row, out, i):
    for d in range(0, table.shape[1], LANES):
        store(out, i, d, load(table, row, d))


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple
