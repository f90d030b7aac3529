"""Time of each part of an update, in the kernel on one thread.

The parts run alone on the blocks of a real corpus: gradients, with rows gathered
before, and their matrix products; and rows, which are gathered, deduplicated and
updated. In a whole update the parts evict each other's data from the caches, so that
their times do not add up.
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
from embedder.tables.cpu import kernel, products, rows, skipgram, tiles
from embedder.tables.prepare import Batch
from embedder.tables.problem import open_corpus, plan
from embedder.tables.training import Training

_TOKEN_TABLE = 0  # the table with the rows of tokens, in skip-gram


@njit(nogil=True)
def _weigh(blocks, s, m, share, window, buffers):
    """Index and band of tile `m` of update `s`; its weights in `buffers`."""
    num_tiles = blocks.noise.shape[2]
    n, g = m // num_tiles, m % num_tiles
    at = tiles.TileIndex(s, n, g, m, blocks.ids.shape[2] // num_tiles, window)
    tiles.find_sequences(blocks.sequence, s, n, buffers.begin, buffers.end)
    tiles.find_contexts(at, blocks.radius, buffers)
    return at, skipgram.weigh(at, share, buffers)[0]


@njit(nogil=True)
def _gradients(blocks, share, window, gathered, buffers):
    num_updates, num_blocks, num_tiles, num_noise = blocks.noise.shape
    for s in range(num_updates):
        for m in range(num_blocks * num_tiles):
            at, band = _weigh(blocks, s, m, share, window, buffers)
            skipgram.differentiate(
                at, band, gathered.gradients, num_noise, False, buffers
            )


@njit(nogil=True)
def _products(blocks, window, gathered, buffers):
    """The matrix products of `skipgram.differentiate`."""
    num_updates, num_blocks, num_tiles, _ = blocks.noise.shape
    size = blocks.ids.shape[2] // num_tiles
    num_tokens, num_positions = buffers.context_terms.shape
    num_noise_rows = len(buffers.noise)
    contexts, negatives = buffers.context_terms, buffers.noise_terms
    for s in range(num_updates):
        for m in range(num_blocks * num_tiles):
            n, g = m // num_tiles, m % num_tiles
            at = tiles.TileIndex(s, n, g, m, size, window)
            tiles.find_sequences(blocks.sequence, s, n, buffers.begin, buffers.end)
            tiles.find_contexts(at, blocks.radius, buffers)
            base = m * (num_tokens + num_positions + num_noise_rows)
            low, high = num_positions, 0
            for i in range(0, num_tokens, 4):
                start, stop = tiles.band_of_four(buffers, i)
                low, high = min(low, start), max(high, stop)
                products.scores(
                    buffers.tokens, i, buffers.positions, start, stop, contexts
                )
                products.scores(
                    buffers.tokens, i, buffers.noise, 0, num_noise_rows, negatives
                )
                terms = contexts, buffers.positions, start, stop
                products.combine_rows(
                    gathered.gradients, base + i, i, terms, negatives, buffers.noise
                )
            base += num_tokens
            products.combine_columns(
                gathered.gradients,
                base,
                contexts,
                low - low % 4,
                high,
                2 * window,
                buffers.tokens,
            )
            base += num_positions
            products.combine_columns(
                gathered.gradients,
                base,
                negatives,
                0,
                num_noise_rows,
                -1,
                buffers.tokens,
            )


@njit(nogil=True)
def _rows(tables, blocks, share, window, gathered, buffers, row_table):
    num_updates, num_blocks, num_tiles, _ = blocks.noise.shape
    rate = share - share
    for s in range(num_updates):
        for m in range(num_blocks * num_tiles):
            at, band = _weigh(blocks, s, m, share, window, buffers)
            tiles.load_rows(
                at, band, _TOKEN_TABLE, share, tables, blocks, gathered, buffers
            )
        num_rows = rows.index_rows(gathered, row_table, s + 1, 1)
        rows.apply_capped_sgd(
            tables, gathered.gradients, row_table, num_rows, 0, share, rate
        )


def run(corpus: Path, samples: int, vector_size: int) -> Table:
    """Times each part, and whole updates with one thread and with all, in turns."""
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
    """A row for each part; FLOP/s for parts with matrix products, if known."""
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
    tables = tiles.Tables(
        *(kernel._padded(tables[name]) for name in ("input", "output"))
    )
    num_tiles = data.blocks_per_update * data.block // data.tile
    sizes = tiles.tile_sizes(data.tile, data.window, data.noise)
    width, dtype = tables.input.shape[1], tables.input.dtype
    gathered = tiles.new_gathered(num_tiles, sum(sizes), width, dtype)
    buffers = tiles.new_buffers(sizes, width, data.block, dtype)
    row_table = rows.new_row_table(num_tiles * sum(sizes), dtype)
    share = dtype.type(model.negative / data.noise)
    calls = {
        "gradients, rows at hand": lambda: _gradients(
            batch.blocks, share, data.window, gathered, buffers
        ),
        "of these the products": lambda: _products(
            batch.blocks, data.window, gathered, buffers
        ),
        "rows, gradients at hand": lambda: _rows(
            tables, batch.blocks, share, data.window, gathered, buffers, row_table
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
    """FLOPs of an update's products: four tokens each, with their band and noise."""
    data = model = training.config.tables
    radius = batch.blocks.radius.reshape(len(batch.rate), -1, 4).astype(int)
    place = np.arange(4)
    band = (place + radius).max(axis=2) - (place - radius).min(axis=2) + 1
    columns = band.mean() + data.noise
    tokens = data.blocks_per_update * data.block
    return 3 * 2 * tokens * columns * model.vector_size
