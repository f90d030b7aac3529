"""A tile of an update on one core: its rows, their weights, gradients and loss.

Axis letters are those of `embedder.tables.objective`. Here M counts the tiles of an
update (N G), sizes with a dash are filled up for work in fours, and all vectors are
filled up with zeros to a multiple of LANES. `m` is a tile of its update, `c` one of its
positions, counted from W before its first token; `place` is (update, block, tile of the
block, tile of the update, B, W).
"""

from typing import NamedTuple

import numpy as np

from embedder.tables.cpu.products import (
    combine_columns,
    combine_rows,
    context_errors,
    context_loss,
    noise_errors,
    noise_loss,
    scores,
    sigmoid,
    softplus,
)
from embedder.tables.cpu.simd import (
    LANES,
    cast_like,
    compiled,
    load,
    prefetch_row,
    store,
)


class Gathered(NamedTuple):
    """What the threads leave for each other: the rows that the tiles gathered.

    A tile has room for R rows: B' for its tokens, C' for its positions, K' for noise.
    Those that are there are listed. The key of a row is its id, for the output table
    plus V.
    """

    count: np.ndarray  # i64[M], how many are listed
    keys: np.ndarray  # i64[M, R], listed
    weights: np.ndarray  # [M, R], listed
    places: np.ndarray  # i64[M, R], listed: where their gradients are
    gradients: np.ndarray  # [M R, D]


class Tile(NamedTuple):
    """What a thread needs for a tile."""

    tokens: np.ndarray  # [B', D], rows of its tokens
    positions: np.ndarray  # [C', D]
    noise: np.ndarray  # [K', D]
    means: np.ndarray  # [B', D], CBOW: means of contexts
    errors: np.ndarray  # [B', D], CBOW: gradients of the means
    context_terms: np.ndarray  # [B', C'], scores, then derivatives; CBOW: 1/n_t
    noise_terms: np.ndarray  # [B', K'], scores, then derivatives
    noise_scale: np.ndarray  # [B'], how often each noise term counts
    token_weights: np.ndarray  # [B']
    position_weights: np.ndarray  # [C']
    first: np.ndarray  # i64[B'], first position among a token and its contexts
    last: np.ndarray  # i64[B'], last; where there is no context, not after the first
    begin: np.ndarray  # i64[T], where the sequence of each token begins in the block
    end: np.ndarray  # i64[T], and its last token


def tile_sizes(tile: int, window: int, num_noise: int) -> tuple[int, int, int]:
    """Room for the tokens, positions and noise of a tile: B', C' and K'.

    The contexts of four tokens are worked on in fours from wherever they begin, so that
    positions need up to three rows beyond their own.
    """
    return round_up(tile, 4), round_up(tile + 2 * window, 4) + 4, round_up(num_noise, 4)


def new_gathered(num_tiles: int, num_rows: int, width: int, dtype) -> Gathered:
    size = num_tiles, num_rows
    return Gathered(
        np.zeros(num_tiles, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, dtype),
        np.zeros(size, np.int64),
        np.zeros((num_tiles * num_rows, width), dtype),
    )


def new_tile(sizes: tuple[int, int, int], width: int, block: int, dtype) -> Tile:
    tile, positions, noise = sizes
    return Tile(
        *(np.zeros((rows, width), dtype) for rows in (*sizes, tile, tile)),
        *(np.zeros((tile, columns), dtype) for columns in (positions, noise)),
        *(np.zeros(size, dtype) for size in (tile, tile, positions)),
        np.zeros(tile, np.int64),
        np.full(tile, -1),
        *(np.zeros(block, np.int64) for _ in range(2)),
    )


@compiled()
def prefetch(tables, ids, noise, s, n, g):
    """Asks the memory for the rows of a tile; its positions are near its tokens."""
    size = ids.shape[2] // noise.shape[2]
    for t in range(g * size, (g + 1) * size):
        prefetch_row(tables[0], ids[s, n, t])
        prefetch_row(tables[1], ids[s, n, t])
    for k in range(noise.shape[3]):
        prefetch_row(tables[1], noise[s, n, g, k])


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
def find_contexts(place, radius, own):
    """First and last position of each token and its contexts, in a tile."""
    s, n, g, m, size, window = place
    offset = window - g * size
    for i in range(size):
        t = g * size + i
        r = min(np.int64(radius[s, n, t]), window)
        own.first[i] = max(t - r, own.begin[t]) + offset
        own.last[i] = min(t + r, own.end[t]) + offset


@compiled()
def weigh_skipgram(place, share, own):
    """Weights of tokens and positions; positions of contexts, from and to; pairs."""
    s, n, g, m, size, window = place
    one = cast_like(1, share)
    own.position_weights[:] = 0
    start, stop, pairs = len(own.position_weights), 0, 0
    for i in range(size):
        first, last = own.first[i], own.last[i]
        count = last - first
        own.token_weights[i] = count
        own.noise_scale[i] = share * cast_like(count, share)
        if count > 0:
            start, stop = min(start, first), max(stop, last + 1)
            pairs += count
            for c in range(first, last + 1):
                own.position_weights[c] += one
            own.position_weights[window + i] -= one
    return (start, stop), pairs


@compiled()
def weigh_cbow(place, share, own):
    """Weights of tokens and positions; positions of contexts, from and to; active
    tokens. It leaves 1/n_t in `own.context_terms`."""
    s, n, g, m, size, window = place
    own.position_weights[:] = 0
    own.context_terms[:] = 0
    start, stop, active = len(own.position_weights), 0, 0
    for i in range(size):
        first, last = own.first[i], own.last[i]
        is_active = last > first
        own.token_weights[i] = is_active
        own.noise_scale[i] = share if is_active else cast_like(0, share)
        if is_active:
            start, stop = min(start, first), max(stop, last + 1)
            active += 1
            each = cast_like(1, share) / cast_like(last - first, share)
            for c in range(first, last + 1):
                if c != window + i:
                    own.context_terms[i, c] = each
                    own.position_weights[c] += each
    return (start, stop), active


@compiled()
def load_rows(place, band, of_tokens, noise_weight, tables, ids, noise, gathered, own):
    """Copies the rows of a tile, and lists them.

    Rows of tokens are of table `of_tokens`, 0 or 1, those of positions of the other.
    """
    of_positions = 1 - of_tokens
    s, n, g, m, size, window = place
    num_tokens, num_positions = own.context_terms.shape
    num_keys, base = len(tables[0]), m * gathered.keys.shape[1]
    count = 0
    for i in range(size):
        if own.token_weights[i] > 0:
            row = ids[s, n, g * size + i]
            _copy(tables[of_tokens], row, own.tokens, i)
            gathered.keys[m, count] = of_tokens * num_keys + row
            gathered.weights[m, count] = own.token_weights[i]
            gathered.places[m, count] = base + i
            count += 1
    base += num_tokens
    for c in range(band[0], band[1]):
        if own.position_weights[c] > 0:
            row = ids[s, n, g * size - window + c]
            _copy(tables[of_positions], row, own.positions, c)
            gathered.keys[m, count] = of_positions * num_keys + row
            gathered.weights[m, count] = own.position_weights[c]
            gathered.places[m, count] = base + c
            count += 1
    base += num_positions
    if noise_weight > 0:
        for k in range(noise.shape[3]):
            row = noise[s, n, g, k]
            _copy(tables[1], row, own.noise, k)
            gathered.keys[m, count] = num_keys + row
            gathered.weights[m, count] = noise_weight
            gathered.places[m, count] = base + k
            count += 1
    gathered.count[m] = count


@compiled()
def _copy(table, row, out, i):
    for d in range(0, table.shape[1], LANES):
        store(out, i, d, load(table, row, d))


@compiled()
def differentiate_skipgram(place, band, gradients, num_noise, report, own):
    """Leaves the gradients of the rows of a tile; its loss, where it is reported."""
    s, n, g, m, size, window = place
    num_tokens, num_positions = own.context_terms.shape
    num_noise_rows = len(own.noise)
    base = m * (num_tokens + num_positions + num_noise_rows)
    contexts, negatives = own.context_terms, own.noise_terms
    loss = 0.0
    for i in range(0, num_tokens, 4):
        start, stop = band_of_four(own, i)
        scores(own.tokens, i, own.positions, start, stop, contexts)
        scores(own.tokens, i, own.noise, 0, num_noise_rows, negatives)
        if report:
            loss += context_loss(contexts, i, own.first, own.last, window)
            loss += noise_loss(negatives, i, own.noise_scale, num_noise)
        context_errors(contexts, i, own.first, own.last, window)
        noise_errors(negatives, i, own.noise_scale, num_noise)
        terms = contexts, own.positions, start, stop
        combine_rows(gradients, base + i, i, terms, negatives, own.noise)
    base += num_tokens
    start, reach = band[0] - band[0] % 4, 2 * window
    combine_columns(gradients, base, contexts, start, band[1], reach, own.tokens)
    base += num_positions
    combine_columns(gradients, base, negatives, 0, num_noise_rows, -1, own.tokens)
    return loss


@compiled()
def differentiate_cbow(place, band, gradients, num_noise, report, own):
    """Leaves the gradients of the rows of a tile; its loss, where it is reported."""
    s, n, g, m, size, window = place
    num_tokens, num_positions = own.context_terms.shape
    num_noise_rows = len(own.noise)
    base = m * (num_tokens + num_positions + num_noise_rows)
    shares, negatives = own.context_terms, own.noise_terms
    loss = 0.0
    for i in range(0, num_tokens, 4):
        start, stop = band_of_four(own, i)
        terms = shares, own.positions, start, stop
        combine_rows(own.means, i, i, terms, negatives, own.noise[:0])
        scores(own.means, i, own.noise, 0, num_noise_rows, negatives)
        if report:
            loss += noise_loss(negatives, i, own.noise_scale, num_noise)
        noise_errors(negatives, i, own.noise_scale, num_noise)
        terms = shares, own.positions, 0, 0
        combine_rows(own.errors, i, i, terms, negatives, own.noise)
    for i in range(size):
        if own.last[i] > own.first[i]:
            score = cast_like(0, own.noise_scale[i])
            for d in range(own.means.shape[1]):
                score += own.means[i, d] * own.tokens[i, d]
            if report:
                loss += softplus(-score)
            error = -sigmoid(-score)
            for d in range(own.means.shape[1]):
                own.errors[i, d] += error * own.tokens[i, d]
                gradients[base + i, d] = error * own.means[i, d]
    base += num_tokens
    start, reach = band[0] - band[0] % 4, 2 * window
    combine_columns(gradients, base, shares, start, band[1], reach, own.errors)
    base += num_positions
    combine_columns(gradients, base, negatives, 0, num_noise_rows, -1, own.means)
    return loss


@compiled()
def band_of_four(own, i):
    """Positions of the contexts of four tokens, from and to."""
    start, stop = own.context_terms.shape[1], 0
    for q in range(i, i + 4):
        if own.last[q] > own.first[q]:
            start, stop = min(start, own.first[q]), max(stop, own.last[q] + 1)
    return start, stop


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
