"""Where the time of an update goes, in the kernel on one thread.

Parts are run alone on the blocks of a real corpus: gradients, with rows that are at
hand already, and of these the matrix products; and rows, read from the tables, found
again, and stepped. Gradients and rows spoil the caches for each other in the whole.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from bench.results import Results, Table, write_results
from bench.stages import first_superblocks
from embedder.config import Config, with_options
from embedder.tables.cpu import kernel, products, tiles
from embedder.tables.problem import open_corpus, plan
from embedder.tables.training import Training
from embedder.tables.update import Batch

_OF_TOKENS = 0  # the table of their rows, in skip-gram


@njit(nogil=True)
def _weigh(batch, s, m, share, window, own):
    """Place and band of tile `m` of update `s`, its contexts and weights in `own`."""
    ids, sequence, radius, noise, _ = batch
    num_tiles = noise.shape[2]
    n, g = m // num_tiles, m % num_tiles
    place = s, n, g, m, ids.shape[2] // num_tiles, window
    tiles.find_sequences(sequence, s, n, own.begin, own.end)
    tiles.find_contexts(place, radius, own)
    return place, tiles.weigh_skipgram(place, share, own)[0]


@njit(nogil=True)
def _gradients(batch, share, window, gathered, own):
    num_updates, num_blocks, num_tiles, num_noise = batch[3].shape
    for s in range(num_updates):
        for m in range(num_blocks * num_tiles):
            place, band = _weigh(batch, s, m, share, window, own)
            tiles.differentiate_skipgram(
                place, band, gathered.gradients, num_noise, False, own
            )


@njit(nogil=True)
def _products(batch, window, gathered, own):
    """Those of `tiles.differentiate_skipgram`."""
    ids, sequence, radius, noise, _ = batch
    num_updates, num_blocks, num_tiles, _ = noise.shape
    size = ids.shape[2] // num_tiles
    num_tokens, num_positions = own.context_terms.shape
    num_noise_rows = len(own.noise)
    contexts, negatives = own.context_terms, own.noise_terms
    for s in range(num_updates):
        for m in range(num_blocks * num_tiles):
            n, g = m // num_tiles, m % num_tiles
            tiles.find_sequences(sequence, s, n, own.begin, own.end)
            tiles.find_contexts((s, n, g, m, size, window), radius, own)
            base = m * (num_tokens + num_positions + num_noise_rows)
            low, high = num_positions, 0
            for i in range(0, num_tokens, 4):
                start, stop = tiles.band_of_four(own, i)
                low, high = min(low, start), max(high, stop)
                products.scores(own.tokens, i, own.positions, start, stop, contexts)
                products.scores(own.tokens, i, own.noise, 0, num_noise_rows, negatives)
                terms = contexts, own.positions, start, stop
                products.combine_rows(
                    gathered.gradients, base + i, i, terms, negatives, own.noise
                )
            base += num_tokens
            products.combine_columns(
                gathered.gradients,
                base,
                contexts,
                low - low % 4,
                high,
                2 * window,
                own.tokens,
            )
            base += num_positions
            products.combine_columns(
                gathered.gradients, base, negatives, 0, num_noise_rows, -1, own.tokens
            )


@njit(nogil=True)
def _rows(tables, batch, share, window, gathered, own, found):
    ids, noise = batch[0], batch[3]
    num_updates, num_blocks, num_tiles, _ = noise.shape
    rate = share - share
    for s in range(num_updates):
        for m in range(num_blocks * num_tiles):
            place, band = _weigh(batch, s, m, share, window, own)
            tiles.load_rows(
                place, band, _OF_TOKENS, share, tables, ids, noise, gathered, own
            )
        num_rows = kernel._find_rows(gathered, found, s + 1, 1)
        kernel._step_rows(tables, gathered.gradients, found, num_rows, 0, share, rate)


def run(corpus: Path, samples: int, vector_size: int) -> Table:
    """Times each half, and the whole with one thread and with all, turn by turn."""
    config = with_options(
        Config(), epochs=1, backend="numba", loader="memory", vector_size=vector_size
    )
    with tempfile.TemporaryDirectory() as folder:
        training = plan(config, open_corpus(str(corpus)), Path(folder))
        batch = first_superblocks(training)[0][0]
    calls = _calls(training, batch)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(samples + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number:  # the first compiles
                seconds = (time.perf_counter() - start) / len(batch.rate)
                times[name].append(seconds)
    settings = {"corpus": corpus.name, "vector_size": vector_size}
    flops = _flops(training, batch)
    return table(
        write_results("parts", settings=settings, flops_per_update=flops, samples=times)
    )


def table(results: Results) -> Table:
    """A row for each part; FLOP/s for those that have products, where known."""
    flops = results.get("flops_per_update")
    rows = []
    for name, seconds in results["samples"].items():
        middle = statistics.median(seconds)
        has_rate = flops and not name.startswith("rows")
        rate = f"{flops / middle / 1e9:.0f}" if has_rate else ""
        rows.append([name, f"{middle * 1e6:.1f}", rate])
    return Table(["part", "us an update", "GFLOP/s"], rows)


def _calls(training: Training, batch: Batch) -> dict[str, Any]:
    data = model = training.config.tables
    tables = training.initial_state().params["tables"]
    tables = tuple(kernel._filled_up(tables[name]) for name in ("input", "output"))
    num_tiles = data.blocks_per_update * data.block // data.tile
    sizes = tiles.tile_sizes(data.tile, data.window, data.noise)
    width, dtype = tables[0].shape[1], tables[0].dtype
    gathered = tiles.new_gathered(num_tiles, sum(sizes), width, dtype)
    own = tiles.new_tile(sizes, width, data.block, dtype)
    found = kernel._new_found(num_tiles * sum(sizes), dtype)
    share = dtype.type(model.negative / data.noise)
    calls = {
        "gradients, rows at hand": lambda: _gradients(
            tuple(batch), share, data.window, gathered, own
        ),
        "of these the products": lambda: _products(
            tuple(batch), data.window, gathered, own
        ),
        "rows, gradients at hand": lambda: _rows(
            tables, tuple(batch), share, data.window, gathered, own, found
        ),
    }
    for threads in dict.fromkeys((1, kernel.available_cores())):
        name = f"all, {threads} thread{'s' if threads > 1 else ''}"
        calls[name] = _whole(training, batch, threads)
    return calls


def _whole(training: Training, batch: Batch, threads: int):
    updates = kernel.make_updates(
        training.program.model,
        training.config.tables.max_pairs_per_row,
        loss_interval=16,
        threads=threads,
    )
    state = training.initial_state()

    def call() -> None:
        nonlocal state
        state, _ = updates(state, batch)

    return call


def _flops(training: Training, batch: Batch) -> float:
    """Of the products of an update: four tokens, with their band and their noise."""
    data = model = training.config.tables
    radius = batch.blocks.radius.reshape(len(batch.rate), -1, 4).astype(int)
    place = np.arange(4)
    band = (place + radius).max(axis=2) - (place - radius).min(axis=2) + 1
    columns = band.mean() + data.noise
    tokens = data.blocks_per_update * data.block
    return 3 * 2 * tokens * columns * model.vector_size
