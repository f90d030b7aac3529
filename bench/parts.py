"""Time of each part of an update in the Numba kernel, on the blocks of a real corpus.

One thread applies updates with a clock between the parts (`timed.py`); whole updates
are timed without, with one thread and with all.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.results import Results, Table, data_folder, write_results
from bench.stages import first_chunks
from bench.timed import BLOCK_PARTS, BUCKET_PARTS, TimedUpdates
from embedder.config import Config, with_options
from embedder.tokens.cpu import kernel
from embedder.tokens.plan import TrainingInputs, plan
from embedder.tokens.prepare import Batch
from embedder.tokens.task import open_corpus
from embedder.tokens.trainer import TokensTrainer

_PRODUCTS = "products and errors"
_LOSS_INTERVAL = 16  # as in a long training

Trainings = dict[int, tuple[TokensTrainer, Batch]]
"""Blocks of an update -> a training, and some of its updates."""


def run(
    corpus: Path | None = None,
    samples: int = 9,
    vector_size: int = 100,
    blocks_per_update: tuple[int, ...] = (1, 16, 64),
) -> Table:
    """Time of each part of an update.

    Args:
      corpus: a text file; none: 17 M words of Wikipedia.
      samples: number of measurements of each part.
      vector_size: dimensions of a vector.
      blocks_per_update: blocks of an update; each number is measured.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    given = trainings(corpus, vector_size, blocks_per_update)
    calls = {num: _calls(*each) for num, each in given.items()}
    times: dict[int, dict[str, list[float]]] = {num: {} for num in calls}
    for number in range(samples + 1):
        for num_blocks, of_blocks in calls.items():
            for call in of_blocks:
                for name, seconds in call().items():
                    if number:  # the first compiles
                        times[num_blocks].setdefault(name, []).append(seconds)
    settings = {"corpus": corpus.name, "vector_size": vector_size}
    flops = {num: _flops(*each) for num, each in given.items()}
    return table(
        write_results("parts", settings=settings, flops_per_update=flops, samples=times)
    )


def trainings(
    corpus: Path, vector_size: int, blocks_per_update: tuple[int, ...]
) -> Trainings:
    """The first chunk of an epoch of `corpus`, for each number of blocks."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for num_blocks in blocks_per_update:
            config = with_options(
                Config(),
                epochs=1,
                backend="numba",
                loader="memory",
                vector_size=vector_size,
                blocks_per_update=num_blocks,
            )
            source, cache = open_corpus(str(corpus)), Path(folder)
            inputs = TrainingInputs(config=config, source=source, cache=cache)
            training = TokensTrainer(plan(inputs))
            found[num_blocks] = training, first_chunks(training)[0][0]
    return found


def table(results: Results) -> Table:
    """Rows for each number of blocks; FLOP/s where there are products."""
    rows = []
    for num_blocks, parts in results["samples"].items():
        flops = results["flops_per_update"][num_blocks]
        for name, seconds in parts.items():
            middle = statistics.median(seconds)
            has_products = name == _PRODUCTS or name.startswith("all")
            rate = f"{flops / middle / 1e9:.0f}" if has_products else ""
            each = f"{middle / int(num_blocks) * 1e6:.1f}"
            rows.append([num_blocks, name, f"{middle * 1e6:.1f}", each, rate])
    columns = ["blocks an update", "part", "us an update", "us a block"]
    return Table([*columns, "GFLOP/s"], rows)


def whole_call(
    training: TokensTrainer, batch: Batch, threads: int
) -> Callable[[], dict[str, float]]:
    """A function that applies the updates of `batch`, and returns seconds of one."""
    updates = kernel.place(
        training.program.model,
        training.config.tables.max_pairs_per_row,
        loss_interval=_LOSS_INTERVAL,
        threads=threads,
    ).apply_updates
    state = training.program.place_state(training.initial_state())
    name = f"all, {threads} thread{'s' if threads > 1 else ''}"

    def call() -> dict[str, float]:
        nonlocal state
        start = time.perf_counter()
        state, _ = updates(state, batch)
        return {name: (time.perf_counter() - start) / len(batch.rate)}

    return call


def _calls(
    training: TokensTrainer, batch: Batch
) -> list[Callable[[], dict[str, float]]]:
    """Functions that return seconds of an update, by the names of parts."""
    timed = TimedUpdates(training)

    def parts() -> dict[str, float]:
        total = np.zeros(len(BLOCK_PARTS) + len(BUCKET_PARTS))
        for s in range(len(batch.rate)):
            update = timed.apply(batch, s)
            times = update.blocks.sum(axis=0), update.buckets.sum(axis=0)
            total += np.concatenate(times)
        seconds = (total / len(batch.rate) / 1e9).tolist()
        return dict(zip(BLOCK_PARTS + BUCKET_PARTS, seconds, strict=True))

    num_blocks = training.config.tables.blocks_per_update
    threads = dict.fromkeys((1, min(num_blocks, kernel.available_cores())))
    return [parts, *(whole_call(training, batch, number) for number in threads)]


def _flops(training: TokensTrainer, batch: Batch) -> float:
    """FLOPs of an update's products: four tokens each, with their band and noise."""
    data = training.config.tables
    assert data.block is not None
    radius = batch.blocks.radius.reshape(len(batch.rate), -1, 4).astype(int)
    token = np.arange(4)
    band = (token + radius).max(axis=2) - (token - radius).min(axis=2) + 1
    columns = band.mean() + data.noise
    tokens = data.blocks_per_update * data.block
    return 3 * 2 * tokens * columns * data.vector_size


BENCHES = {"parts": run}
TABLES = {"parts": table}
