"""Time of an update as a function of the vocabulary size, for equal tokens.

Ids are drawn with probability proportional to rank ** -0.8, as in text: a larger
vocabulary has more rare rows and larger tables, and nothing else changes.
"""

import statistics
import time

import jax
import numpy as np

from bench.results import Results, Table, write_results
from embedder.config import Config, resolve, with_options
from embedder.data.blocks import Blocks
from embedder.tokens.backends import make_program
from embedder.tokens.prepare import Batch
from embedder.tokens.train_step import host_state

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def run(samples: int = 9, sizes: tuple[int, ...] = SIZES, updates: int = 1024) -> Table:
    """Time of an update as a function of the vocabulary size.

    Args:
      samples: number of measurements of each size.
      sizes: vocabulary sizes.
      updates: updates of a call.
    """
    times: dict[str, dict[int, list[float]]] = {}
    for backend in ("xla", "numba"):
        config = resolve(with_options(Config(), sample=0, backend=backend), 10**7)
        times[backend] = {size: [] for size in sizes}
        calls = {size: updates_call(config, size, updates) for size in sizes}
        for _ in range(samples):
            for size, call in calls.items():
                start = time.perf_counter()
                call()
                seconds = (time.perf_counter() - start) / updates
                times[backend][size].append(seconds)
    settings = {"sizes": sizes, "updates": updates}
    return table(write_results("vocabulary", settings=settings, samples=times))


def table(results: Results) -> Table:
    """A row for each size, with the ratio to the first."""
    times: dict[str, dict[str, list[float]]] = results["samples"]
    sizes = [int(size) for size in next(iter(times.values()))]
    columns, rows = ["V"], [[f"{size:,}"] for size in sizes]
    for backend, of_size in times.items():
        columns += [f"{backend}, us an update", f"to V = {sizes[0]:,}"]
        middles = [statistics.median(seconds) for seconds in of_size.values()]
        first = middles[0]
        for row, middle in zip(rows, middles, strict=True):
            row += [f"{middle * 1e6:.0f}", f"{middle / first:.2f}"]
    return Table(columns, rows)


def updates_call(config: Config, size: int, updates: int):
    """A function that runs `updates` updates on tables of `size` rows."""
    rng = np.random.default_rng(0)
    weight = np.arange(1, size + 1) ** -0.8
    data, dim = config.tables, config.tables.vector_size
    shape = updates, data.blocks_per_update, data.block
    noise = *shape[:2], data.block // data.tile, data.noise
    probability = weight / weight.sum()
    draw = np.random.Generator.choice
    blocks = Blocks(
        ids=draw(rng, size, shape, p=probability).astype(np.int32),
        sequence=np.zeros(shape, np.int32),
        radius=rng.integers(1, data.window + 1, shape, dtype=np.int8),
        noise=draw(rng, size, noise, p=probability).astype(np.int32),
    )
    rate = np.full(updates, config.tables.alpha, np.float32)
    program = make_program(size, 16, config)
    table = rng.random((size, dim), dtype=np.float32) - np.float32(0.5)
    state = program.place_state(host_state(program.optimizer, table / dim, 0 * table))
    batch = jax.device_put(Batch(blocks, rate))

    def call() -> None:
        nonlocal state
        state, _ = program.apply_updates(state, batch)
        jax.block_until_ready(state)

    call()  # compiles
    return call


BENCHES = {"vocabulary": run}
TABLES = {"vocabulary": table}
