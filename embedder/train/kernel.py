"""The updates of `embedder.train.update` by rows, written out for the threads of a CPU.

XLA leaves more than half the speed of a CPU with products as small as these. Here each
tile is worked on in the caches of one core, its contexts as a band; gradients are by
hand. The parity suite holds them to the oracle as it does those that JAX derives.
Results are equal to the last bit for any number of threads.

An update has two parts, with a barrier after each: every thread leaves the gradients of
its tiles; then every row is stepped by the one thread that it is dealt to.

Axis letters are those of `embedder.model.objective`. Here M counts the tiles of an
update (N G), sizes with a dash are filled up for work in fours, and all vectors are
filled up with zeros to a multiple of LANES. `m` is a tile of its update, `c` one of its
positions, counted from W before its first token.
"""

import functools
import hashlib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from embedder.train import simd
from embedder.train.simd import (
    LANES,
    add_product,
    add_scaled,
    cast_like,
    give_way,
    increment,
    load,
    prefetch_row,
    read,
    store,
    store_sums,
    subtract_scaled,
    two_to_the,
    zeros,
)
from embedder.train.update import Batch, Loss, Model, TrainState

_SOURCES = hashlib.sha256(
    b"".join(Path(path).read_bytes() for path in (__file__, simd.__file__))
).hexdigest()[:16]
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container, on Linux
_LINE = 64  # bytes of a cache line
_FACTORS = 512  # of at most 2 each, whose product is a float64
_SPINS = 1_000  # readings of the counter before a waiting thread gives way
# No flag that would let a NaN or an infinity vanish.
_compile = functools.partial(
    njit,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz", "arcp", "afn"},
)


class _Gathered(NamedTuple):
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


class _Tile(NamedTuple):
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


class _Found(NamedTuple):
    """The different rows of an update: a hash table, which a thread keeps for itself.

    It has H slots, a power of two, and is empty again with the next update.
    """

    update: np.ndarray  # i64[H], the update that took the slot, from 1
    key: np.ndarray  # i64[H]
    weight: np.ndarray  # [H], sum of the weights of the row
    owner: np.ndarray  # i64[H], the thread that steps the row
    slots: np.ndarray  # i64[M R], slot of each gathered row
    places: np.ndarray  # i64[M R], and where its gradient is


def make_updates(
    model: Model, cap: float, *, loss_interval: int, threads: int
) -> Callable[[TrainState, Batch], tuple[TrainState, Loss]]:
    """As `embedder.train.update.make_updates`, for arrays of NumPy and capped SGD.

    The tables of a state that it returns are arrays of NumPy, which the next call
    changes in place. Tokens of a sequence stand together in their block.
    """

    def updates(state: TrainState, batch: Batch) -> tuple[TrainState, Loss]:
        tables = {name: _filled_up(x) for name, x in state.params["tables"].items()}
        batch = Batch(*map(_read_only, batch))
        loss = _apply(model, cap, loss_interval, threads, tables, batch)
        step = np.asarray(state.step + len(batch.rate), np.int32)
        dim = state.params["tables"]["input"].shape[1]
        tables = {name: _cut(whole, dim) for name, whole in tables.items()}
        return TrainState({"tables": tables}, state.opt_state, step), loss

    return updates


def available_cores() -> int:
    """Cores that this process may use, by its affinity and the quota of its group."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such group, or "max": no quota
        return cores


def _read_only(array) -> np.ndarray:
    """`array` as all are given to the kernel: it is compiled for that."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


class _Table(np.ndarray):
    """A table [V, D]: the first columns of `whole`."""

    whole: np.ndarray | None = None  # not of what is derived from it


def _filled_up(table) -> np.ndarray:
    """`table` with its rows filled up with zeros, each on cache lines of its own."""
    whole = getattr(table, "whole", None)
    if whole is not None:
        return whole
    num_rows, dim = table.shape
    width, size = _up(dim, LANES), table.dtype.itemsize
    memory = np.zeros(num_rows * width * size + _LINE, np.uint8)
    offset = -memory.ctypes.data % _LINE
    whole = np.ndarray((num_rows, width), table.dtype, memory, offset)
    whole[:, :dim] = table
    return whole


def _cut(whole: np.ndarray, dim: int) -> _Table:
    table = whole[:, :dim].view(_Table)
    table.whole = whole
    return table


def _apply(
    model: Model, cap: float, interval: int, threads: int, tables, batch: Batch
) -> Loss:
    """Applies the updates of `batch` to `tables`, in place."""
    width = tables["input"].shape[1]
    dtype = tables["input"].dtype
    num_updates, num_blocks, num_tiles, num_noise = batch.noise.shape
    block = batch.ids.shape[2]
    num_tiles *= num_blocks
    threads = min(threads, num_tiles)
    tile = block * num_blocks // num_tiles
    sizes = _sizes(tile, model.window, num_noise)
    gathered = _new_gathered(num_tiles, sum(sizes), width, dtype)
    reports = tuple(
        np.zeros((-(-num_updates // interval), num_tiles)) for _ in range(2)
    )
    counter = np.zeros(2, np.int64)  # arrivals at the barrier; whether to give up
    is_skipgram = model.architecture == "skipgram"
    work = _work(dtype.name)

    scratch = [
        (
            _new_tile(sizes, width, block, dtype),
            _new_found(num_tiles * sum(sizes), dtype),
        )
        for _ in range(threads)
    ]

    def take_part(thread: int) -> None:
        try:
            work(
                (thread, threads, counter),
                (tables["input"], tables["output"]),
                tuple(batch),
                (dtype.type(cap), dtype.type(model.negative / num_noise)),
                (is_skipgram, model.window, interval),
                gathered,
                *scratch[thread],
                reports,
            )
        except BaseException:  # the others would wait for this one
            counter[1] = 1
            raise

    with ThreadPoolExecutor(threads) as pool:
        try:
            parts = [pool.submit(take_part, thread) for thread in range(threads)]
            for part in parts:
                part.result()
        except BaseException:
            counter[1] = 1
            raise
    return Loss(*(report.sum(axis=1).astype(dtype) for report in reports))


def _sizes(tile: int, window: int, num_noise: int) -> tuple[int, int, int]:
    """Room for the tokens, positions and noise of a tile: B', C' and K'.

    The contexts of four tokens are worked on in fours from wherever they begin, so that
    positions need up to three rows beyond their own.
    """
    return _up(tile, 4), _up(tile + 2 * window, 4) + 4, _up(num_noise, 4)


def _new_gathered(num_tiles: int, num_rows: int, width: int, dtype) -> _Gathered:
    size = num_tiles, num_rows
    return _Gathered(
        np.zeros(num_tiles, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, dtype),
        np.zeros(size, np.int64),
        np.zeros((num_tiles * num_rows, width), dtype),
    )


def _new_tile(sizes: tuple[int, int, int], width: int, block: int, dtype) -> _Tile:
    tile, positions, noise = sizes
    return _Tile(
        *(np.zeros((rows, width), dtype) for rows in (*sizes, tile, tile)),
        *(np.zeros((tile, columns), dtype) for columns in (positions, noise)),
        *(np.zeros(size, dtype) for size in (tile, tile, positions)),
        np.zeros(tile, np.int64),
        np.full(tile, -1),
        *(np.zeros(block, np.int64) for _ in range(2)),
    )


def _new_found(num_gathered: int, dtype) -> _Found:
    size = 1 << (2 * num_gathered).bit_length()
    return _Found(
        update=np.zeros(size, np.int64),
        key=np.zeros(size, np.int64),
        weight=np.zeros(size, dtype),
        owner=np.zeros(size, np.int64),
        slots=np.zeros(num_gathered, np.int64),
        places=np.zeros(num_gathered, np.int64),
    )


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@functools.cache
def _work(dtype: str) -> Callable:
    """The part of one thread in a batch of updates, compiled or from Numba's cache.

    Numba looks up what it has compiled before by the name and the file of a function,
    not by what that calls; and two processes that compile a function for two dtypes at
    once may take each other's. So the name tells of the dtype and of all sources.
    """

    def work(team, tables, batch, constants, settings, gathered, own, found, reports):
        thread, threads, counter = team
        ids, sequence, radius, noise, rate = batch
        cap, share = constants
        is_skipgram, window, interval = settings
        num_updates, num_blocks, num_tiles, num_noise = noise.shape
        size = ids.shape[2] // num_tiles
        all_tiles = num_blocks * num_tiles
        first_tile = all_tiles * thread // threads
        last_tile = all_tiles * (thread + 1) // threads
        arrivals = 0
        for s in range(num_updates):
            report = s % interval == 0
            for m in range(first_tile, last_tile):
                n, g = m // num_tiles, m % num_tiles
                place = s, n, g, m, size, window
                if m == first_tile or g == 0:
                    _find_sequences(sequence, s, n, own.begin, own.end)
                if s + 1 < num_updates:
                    _prefetch(tables, ids, noise, s + 1, n, g)
                _find_contexts(place, radius, own)
                if is_skipgram:
                    band, terms = _weigh_skipgram(place, share, own)
                else:
                    band, terms = _weigh_cbow(place, share, own)
                of_tokens = 0 if is_skipgram else 1
                weight = share * cast_like(terms, share)
                _load_rows(
                    place, band, of_tokens, weight, tables, ids, noise, gathered, own
                )
                gradients = gathered.gradients
                if is_skipgram:
                    loss = _differentiate_skipgram(
                        place, band, gradients, num_noise, report, own
                    )
                else:
                    loss = _differentiate_cbow(
                        place, band, gradients, num_noise, report, own
                    )
                if report:
                    reports[0][s // interval, m] = loss
                    reports[1][s // interval, m] = terms
            arrivals += threads
            _wait(counter, arrivals)
            if counter[1]:
                return
            num_rows = _find_rows(gathered, found, s + 1, threads)
            _step_rows(
                tables, gathered.gradients, found, num_rows, thread, cap, rate[s]
            )
            arrivals += threads
            _wait(counter, arrivals)
            if counter[1]:
                return

    work.__qualname__ = f"work_{dtype}_{_SOURCES}"
    try:
        return _compile(cache=True)(work)
    except RuntimeError:  # no folder that it could be kept in
        return _compile(work)


@_compile()
def _wait(counter, arrivals):
    """Returns when so many have come to the barrier, or all is given up."""
    increment(counter)
    spins = 0
    while read(counter) < arrivals and not counter[1]:
        spins += 1
        if spins > _SPINS:
            give_way()


@_compile()
def _prefetch(tables, ids, noise, s, n, g):
    """Asks the memory for the rows of a tile; its positions are near its tokens."""
    size = ids.shape[2] // noise.shape[2]
    for t in range(g * size, (g + 1) * size):
        prefetch_row(tables[0], ids[s, n, t])
        prefetch_row(tables[1], ids[s, n, t])
    for k in range(noise.shape[3]):
        prefetch_row(tables[1], noise[s, n, g, k])


@_compile()
def _find_sequences(sequence, s, n, begin, end):
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


@_compile()
def _find_contexts(place, radius, own):
    """First and last position of each token and its contexts, in a tile."""
    s, n, g, m, size, window = place
    offset = window - g * size
    for i in range(size):
        t = g * size + i
        r = min(np.int64(radius[s, n, t]), window)
        own.first[i] = max(t - r, own.begin[t]) + offset
        own.last[i] = min(t + r, own.end[t]) + offset


@_compile()
def _weigh_skipgram(place, share, own):
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


@_compile()
def _weigh_cbow(place, share, own):
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


@_compile()
def _load_rows(place, band, of_tokens, noise_weight, tables, ids, noise, gathered, own):
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


@_compile()
def _copy(table, row, out, i):
    for d in range(0, table.shape[1], LANES):
        store(out, i, d, load(table, row, d))


@_compile()
def _differentiate_skipgram(place, band, gradients, num_noise, report, own):
    """Leaves the gradients of the rows of a tile; its loss, where it is reported."""
    s, n, g, m, size, window = place
    num_tokens, num_positions = own.context_terms.shape
    num_noise_rows = len(own.noise)
    base = m * (num_tokens + num_positions + num_noise_rows)
    contexts, negatives = own.context_terms, own.noise_terms
    loss = 0.0
    for i in range(0, num_tokens, 4):
        start, stop = _band_of_four(own, i)
        _scores(own.tokens, i, own.positions, start, stop, contexts)
        _scores(own.tokens, i, own.noise, 0, num_noise_rows, negatives)
        if report:
            loss += _context_loss(contexts, i, own.first, own.last, window)
            loss += _noise_loss(negatives, i, own.noise_scale, num_noise)
        _context_errors(contexts, i, own.first, own.last, window)
        _noise_errors(negatives, i, own.noise_scale, num_noise)
        terms = contexts, own.positions, start, stop
        _combine_rows(gradients, base + i, i, terms, negatives, own.noise)
    base += num_tokens
    start, reach = band[0] - band[0] % 4, 2 * window
    _combine_columns(gradients, base, contexts, start, band[1], reach, own.tokens)
    base += num_positions
    _combine_columns(gradients, base, negatives, 0, num_noise_rows, -1, own.tokens)
    return loss


@_compile()
def _differentiate_cbow(place, band, gradients, num_noise, report, own):
    """Leaves the gradients of the rows of a tile; its loss, where it is reported."""
    s, n, g, m, size, window = place
    num_tokens, num_positions = own.context_terms.shape
    num_noise_rows = len(own.noise)
    base = m * (num_tokens + num_positions + num_noise_rows)
    shares, negatives = own.context_terms, own.noise_terms
    loss = 0.0
    for i in range(0, num_tokens, 4):
        start, stop = _band_of_four(own, i)
        terms = shares, own.positions, start, stop
        _combine_rows(own.means, i, i, terms, negatives, own.noise[:0])
        _scores(own.means, i, own.noise, 0, num_noise_rows, negatives)
        if report:
            loss += _noise_loss(negatives, i, own.noise_scale, num_noise)
        _noise_errors(negatives, i, own.noise_scale, num_noise)
        terms = shares, own.positions, 0, 0
        _combine_rows(own.errors, i, i, terms, negatives, own.noise)
    for i in range(size):
        if own.last[i] > own.first[i]:
            score = cast_like(0, own.noise_scale[i])
            for d in range(own.means.shape[1]):
                score += own.means[i, d] * own.tokens[i, d]
            if report:
                loss += _softplus(-score)
            error = -_sigmoid(-score)
            for d in range(own.means.shape[1]):
                own.errors[i, d] += error * own.tokens[i, d]
                gradients[base + i, d] = error * own.means[i, d]
    base += num_tokens
    start, reach = band[0] - band[0] % 4, 2 * window
    _combine_columns(gradients, base, shares, start, band[1], reach, own.errors)
    base += num_positions
    _combine_columns(gradients, base, negatives, 0, num_noise_rows, -1, own.means)
    return loss


@_compile()
def _band_of_four(own, i):
    """Positions of the contexts of four tokens, from and to."""
    start, stop = own.context_terms.shape[1], 0
    for q in range(i, i + 4):
        if own.last[q] > own.first[q]:
            start, stop = min(start, own.first[q]), max(stop, own.last[q] + 1)
    return start, stop


@_compile()
def _scores(x, i, y, start, stop, out):
    """out[i : i + 4, start:stop] = x[i : i + 4] @ y[start:stop].T, in fours."""
    for j in range(start, stop, 4):
        a0 = a1 = a2 = a3 = zeros(x)
        b0 = b1 = b2 = b3 = zeros(x)
        c0 = c1 = c2 = c3 = zeros(x)
        e0 = e1 = e2 = e3 = zeros(x)
        for d in range(0, x.shape[1], LANES):
            y0, y1 = load(y, j, d), load(y, j + 1, d)
            y2, y3 = load(y, j + 2, d), load(y, j + 3, d)
            v = load(x, i, d)
            a0, a1 = add_product(a0, v, y0), add_product(a1, v, y1)
            a2, a3 = add_product(a2, v, y2), add_product(a3, v, y3)
            v = load(x, i + 1, d)
            b0, b1 = add_product(b0, v, y0), add_product(b1, v, y1)
            b2, b3 = add_product(b2, v, y2), add_product(b3, v, y3)
            v = load(x, i + 2, d)
            c0, c1 = add_product(c0, v, y0), add_product(c1, v, y1)
            c2, c3 = add_product(c2, v, y2), add_product(c3, v, y3)
            v = load(x, i + 3, d)
            e0, e1 = add_product(e0, v, y0), add_product(e1, v, y1)
            e2, e3 = add_product(e2, v, y2), add_product(e3, v, y3)
        upper = a0, a1, a2, a3, b0, b1, b2, b3
        lower = c0, c1, c2, c3, e0, e1, e2, e3
        store_sums(out, i, j, upper + lower)


@_compile()
def _combine_rows(out, o, i, terms, f, z):
    """out[o : o + 4] = g[i : i + 4, j:stop] @ y[j:stop] + f[i : i + 4] @ z, with
    `terms` = (g, y, j, stop)."""
    g, y, j, stop = terms
    for d in range(0, out.shape[1], LANES):
        a = b = c = e = zeros(out)
        for r in range(j, stop):
            v = load(y, r, d)
            a, b = add_scaled(a, g, i, r, v), add_scaled(b, g, i + 1, r, v)
            c, e = add_scaled(c, g, i + 2, r, v), add_scaled(e, g, i + 3, r, v)
        for r in range(len(z)):
            v = load(z, r, d)
            a, b = add_scaled(a, f, i, r, v), add_scaled(b, f, i + 1, r, v)
            c, e = add_scaled(c, f, i + 2, r, v), add_scaled(e, f, i + 3, r, v)
        store(out, o, d, a)
        store(out, o + 1, d, b)
        store(out, o + 2, d, c)
        store(out, o + 3, d, e)


@_compile()
def _combine_columns(out, base, g, start, stop, reach, x):
    """out[base + j] = g[:, j].T @ x for j of start:stop, in fours. With a reach >= 0,
    column j is zero but in rows j - reach to j."""
    for j in range(start, stop, 4):
        first, last = 0, len(x)
        if reach >= 0:
            first, last = max(0, j - reach), min(len(x), j + 4)
        o = base + j
        for d in range(0, out.shape[1], LANES):
            a = b = c = e = zeros(out)
            for q in range(first, last):
                v = load(x, q, d)
                a, b = add_scaled(a, g, q, j, v), add_scaled(b, g, q, j + 1, v)
                c, e = add_scaled(c, g, q, j + 2, v), add_scaled(e, g, q, j + 3, v)
            store(out, o, d, a)
            store(out, o + 1, d, b)
            store(out, o + 2, d, c)
            store(out, o + 3, d, e)


@_compile()
def _context_errors(g, i, first, last, window):
    """Scores of four tokens to derivatives of softplus(-score), 0 where no pair is."""
    for q in range(i, i + 4):
        low, high, own = first[q], last[q], window + q
        for c in range(g.shape[1]):
            error = -_sigmoid(-g[q, c])
            is_pair = (c >= low) & (c <= high) & (c != own)
            g[q, c] = error if is_pair else cast_like(0, error)


@_compile()
def _noise_errors(f, i, scale, num_noise):
    """Scores of four tokens to derivatives of scale softplus(score)."""
    for q in range(i, i + 4):
        of_token = scale[q]
        for k in range(f.shape[1]):
            error = of_token * _sigmoid(f[q, k])
            f[q, k] = error if k < num_noise else cast_like(0, error)


@_compile()
def _context_loss(scores, i, first, last, window):
    """Sum of softplus(-score) over the pairs of four tokens; see `_noise_loss`.

    A token has at most 254 contexts, and as many factors.
    """
    loss = 0.0
    for q in range(i, i + 4):
        product = 1.0
        for c in range(first[q], last[q] + 1):
            if c != window + q:
                score = scores[q, c]
                loss += max(-score, cast_like(0, score))
                product *= 1 + np.float64(_exp(-abs(score)))
        loss += math.log(product)
    return loss


@_compile()
def _noise_loss(scores, i, scale, num_noise):
    """Sum of scale softplus(score) over the noise of four tokens.

    log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), and logarithms of factors up to 2
    are that of their product, which has room for a thousand.
    """
    loss = 0.0
    for q in range(i, i + 4):
        for start in range(0, num_noise, _FACTORS):
            linear, product = 0.0, 1.0
            for k in range(start, min(start + _FACTORS, num_noise)):
                score = scores[q, k]
                linear += max(score, cast_like(0, score))
                product *= 1 + np.float64(_exp(-abs(score)))
            loss += scale[q] * (linear + math.log(product))
    return loss


@_compile()
def _softplus(x):
    """log(1 + exp(x))"""
    return max(x, cast_like(0, x)) + math.log1p(math.exp(-abs(x)))


@_compile()
def _sigmoid(x):
    """1 / (1 + exp(-x))"""
    return cast_like(1, x) / (cast_like(1, x) + _exp(-x))


# Without "reassoc", which would add up the two parts of ln 2.
@_compile(fastmath={"contract"})
def _exp(x):
    """exp(x) to some units in the last place, of x held to -87 and 87.

    exp(x) = 2^n exp(r) with r = x - n ln 2, ln 2 in two parts (Cody and Waite), and
    |r| <= ln(2) / 2, where 14 terms of the series are enough for float64. Numba has no
    exp for vectors of its own.
    """
    x = min(max(x, cast_like(-87, x)), cast_like(87, x))
    n = np.floor(x * cast_like(1.4426950408889634, x) + cast_like(0.5, x))
    r = x - n * cast_like(0.693359375, x) + n * cast_like(2.1219444005469058e-4, x)
    p = cast_like(1 / 6227020800, x)
    p = p * r + cast_like(1 / 479001600, x)
    p = p * r + cast_like(1 / 39916800, x)
    p = p * r + cast_like(1 / 3628800, x)
    p = p * r + cast_like(1 / 362880, x)
    p = p * r + cast_like(1 / 40320, x)
    p = p * r + cast_like(1 / 5040, x)
    p = p * r + cast_like(1 / 720, x)
    p = p * r + cast_like(1 / 120, x)
    p = p * r + cast_like(1 / 24, x)
    p = p * r + cast_like(1 / 6, x)
    p = p * r + cast_like(1 / 2, x)
    p = p * r + cast_like(1, x)
    p = p * r + cast_like(1, x)
    return p * two_to_the(n)


@_compile()
def _find_rows(gathered, found, update, threads):
    """Lists the gathered rows, sums their weights, and deals them to threads.

    A row is dealt to a thread that has its gradients at hand: the only one, or the
    first or last, that gathered it in this update. All threads find the same.
    """
    num_tiles = len(gathered.count)
    mask = len(found.key) - 1
    num_rows = 0
    for thread in range(threads):
        first = num_tiles * thread // threads
        for m in range(first, num_tiles * (thread + 1) // threads):
            for r in range(gathered.count[m]):
                key = gathered.keys[m, r]
                slot = (key * 0x9E3779B1 >> 12) & mask
                while found.update[slot] == update and found.key[slot] != key:
                    slot = (slot + 1) & mask
                if found.update[slot] != update:
                    found.update[slot] = update
                    found.key[slot] = key
                    found.weight[slot] = 0
                    found.owner[slot] = thread
                found.weight[slot] += gathered.weights[m, r]
                if key & 1:  # of odd rows the last thread, for balance
                    found.owner[slot] = thread
                found.slots[num_rows] = slot
                found.places[num_rows] = gathered.places[m, r]
                num_rows += 1
    return num_rows


@_compile()
def _step_rows(tables, gradients, found, num_rows, thread, cap, rate):
    """row -= rate min(1, cap / weight of the row) gradient, in the order of tiles."""
    num_keys = len(tables[0])
    for e in range(num_rows):
        slot = found.slots[e]
        if found.owner[slot] == thread:
            key, weight = found.key[slot], found.weight[slot]
            scale = rate * (cap / weight) if weight > cap else rate
            if key < num_keys:
                _subtract(tables[0], key, scale, gradients, found.places[e])
            else:
                _subtract(tables[1], key - num_keys, scale, gradients, found.places[e])


@_compile()
def _subtract(table, row, scale, gradients, place):
    for d in range(0, table.shape[1], LANES):
        gradient = load(gradients, place, d)
        store(table, row, d, subtract_scaled(load(table, row, d), scale, gradient))
