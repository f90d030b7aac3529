"""Throughput of the updates on the device that JAX has, by tokens of an update.

For a machine with jax, numpy, haiku and optax alone: the corpus is a file of ids
(`python -m bench encoded`), and the memory loader makes the blocks. Reports FLOP/s (2
FLOPs for each multiply-add of a tile's three matrix products) and bytes of rows read
and written per second.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bench.results import Results, Table, write_results
from bench.systems import machine
from embedder.config import Config, resolve, with_options
from embedder.disk.arrays import pack_strings, unpack_strings
from embedder.engine.compilation import avoid_slow_scatters
from embedder.engine.epochs import run_epochs
from embedder.engine.layout import Layout
from embedder.tables.encoded import Encoded
from embedder.tables.training import Training
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.array_formats import write_npz
from embedder.vectors.vectors import Vectors

_SUPERBLOCKS = 4


def write_encoded(encoded: Encoded, path: Path) -> None:
    """Writes a corpus as one compressed .npz file."""
    shards = [encoded.read(shard) for shard in range(len(encoded.shard_tokens))]
    tokens, ends = pack_strings(encoded.vocabulary.tokens)
    np.savez_compressed(
        path,
        ids=np.concatenate([ids for ids, _ in shards]),
        lengths=np.concatenate([lengths for _, lengths in shards]),
        shard_tokens=encoded.shard_tokens,
        shard_sequences=encoded.shard_sequences,
        tokens=tokens,
        token_ends=ends,
        counts=encoded.vocabulary.counts,
        raw_tokens=encoded.raw_tokens,
    )


def run_encoded(corpus: Path, to: Path) -> None:
    """Write a corpus as the file of ids that `bench gpu` reads.

    Args:
      corpus: a text file.
      to: the .npz file to write.
    """
    from embedder.tables.encode import encode  # needs what `bench gpu` does without
    from embedder.tables.problem import open_corpus

    write_encoded(encode(open_corpus(str(corpus)), Config().tables.min_count), to)


def read_encoded(path: Path) -> Encoded:
    """The corpus in a file that `write_encoded` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    tokens = unpack_strings(arrays["tokens"], arrays["token_ends"])
    ids = np.split(arrays["ids"], np.cumsum(arrays["shard_tokens"])[:-1])
    lengths = np.split(arrays["lengths"], np.cumsum(arrays["shard_sequences"])[:-1])
    return Encoded(
        Vocabulary(tokens, arrays["counts"]),
        arrays["shard_tokens"],
        arrays["shard_sequences"],
        lambda shard: (ids[shard], lengths[shard]),
        int(arrays["raw_tokens"]),
    )


def run(
    encoded: Encoded,
    sizes: list[int],
    blocks: list[int],
    samples: int,
    options: dict[str, Any],
    vectors: Path | None = None,
    devices: list[int] | None = None,
) -> Table:
    """Times updates on superblocks that are on the device, and trainings with a loader.

    Args:
      sizes: dimensions of vectors.
      blocks: numbers of blocks of an update.
      vectors: folder for the vectors of each training, vectors-SIZE-DEVICES-BLOCKS.npz,
        to evaluate elsewhere.
      devices: numbers of devices that share an update; None: 1, 2, 4 and so on.
        Updates with fewer blocks than devices are skipped.
    """
    avoid_slow_scatters()  # before the first use of a device
    jax.config.update("jax_enable_compilation_cache", False)  # to measure compilation
    devices = devices or [2**n for n in range(len(jax.devices()).bit_length())]
    results = []
    for size, num_devices, num_blocks in itertools.product(sizes, devices, blocks):
        if num_blocks < num_devices:
            continue
        mode = "jit" if num_devices == 1 else "sharded"
        settings = {"mode": mode, "devices": num_devices, **options}
        settings |= {"vector_size": size, "blocks_per_update": num_blocks}
        training = make_training(encoded, settings)
        about = {"vector_size": size, "devices": num_devices}
        about |= {"blocks_per_update": num_blocks}
        name = f"vectors-{'-'.join(map(str, about.values()))}.npz"
        result = about | time_updates(training, samples)
        result |= time_training(training, vectors and vectors / name)
        print(result, flush=True)
        results.append(result)
    device = f"{len(jax.devices())} x {jax.devices()[0].device_kind}"
    about = machine() | {"device": device}
    return table(write_results("gpu", machine=about, settings=options, samples=results))


def make_training(encoded: Encoded, options: dict[str, Any]) -> Training:
    """A training by XLA and the loader memory; `options` by the names of settings."""
    config = with_options(Config(), loader="memory", backend="xla", **options)
    config = resolve(config, encoded.num_tokens)
    return Training(config, encoded, range(config.run.epochs))


def time_updates(training: Training, samples: int) -> dict[str, Any]:
    """Seconds to trace, to compile and to run; FLOPs and bytes of an update."""
    batches, num_updates = [], 0
    calls = training.host_calls(0)
    for _, real, batch in calls:
        placed = training.program.place_batch(batch)
        batches.append(
            jax.device_put(placed) if training.layout == Layout() else placed
        )
        num_updates += real
        if len(batches) == _SUPERBLOCKS:
            break
    calls.close()
    state = training.program.place_state(training.initial_state())
    started = time.perf_counter()
    lowered = training.program.apply_updates.lower(state, batches[0])
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    seconds = []
    for _ in range(samples + 1):
        start = time.perf_counter()
        for batch in batches:
            state, _ = compiled(state, batch)
        jax.block_until_ready(state)
        seconds.append((time.perf_counter() - start) / num_updates)
    data = model = training.config.tables
    tiles = data.blocks_per_update * data.block // data.tile
    positions = data.tile + 2 * data.window
    products = 3 * 2 * data.tile * (positions + data.noise) * model.vector_size
    rows = data.tile + positions + data.noise
    row_bytes = model.vector_size * np.dtype(training.config.run.dtype).itemsize
    tokens = data.blocks_per_update * data.block
    raw = training.encoded.raw_tokens / training.kept_tokens
    return {
        "trace_seconds": traced - started,
        "compile_seconds": done - traced,
        "update_seconds": seconds[1:],
        "words_per_update": tokens * raw,
        "flops_per_update": tiles * products,
        "bytes_per_update": 3 * tiles * rows * row_bytes,
    }


def time_training(training: Training, path: Path | None = None) -> dict[str, float]:
    """A training as a user runs it, with its loader and transfers to the device.

    Its vectors are written to `path`.
    """
    last = []
    state, place = run_epochs(training, training.initial_state(), last.append)
    if path is not None:
        table = np.asarray(state.params["tables"]["input"])
        vocabulary = training.encoded.vocabulary
        write_npz(Vectors(vocabulary.tokens, table, vocabulary.counts), path)
    status = last[-1]
    memory = jax.devices()[0].memory_stats() or {}
    return {
        "training_words_per_second": status.items
        / (status.seconds - status.compile_seconds),
        "loss": place.losses[-1],
        "device_peak_bytes": memory.get("peak_bytes_in_use", 0),
    }


def table(results: Results) -> Table:
    """A row for each vector size, number of devices and of blocks."""
    rows = []
    for result in results["samples"]:
        seconds = statistics.median(result["update_seconds"])
        rows.append(
            [
                f"{result['vector_size']}",
                f"{result['devices']}",
                f"{result['blocks_per_update']}",
                f"{seconds * 1e6:.0f}",
                f"{result['words_per_update'] / seconds / 1e6:.2f}",
                f"{result['training_words_per_second'] / 1e6:.2f}",
                f"{result['flops_per_update'] / seconds / 1e9:.0f}",
                f"{result['bytes_per_update'] / seconds / 1e9:.1f}",
                f"{result['trace_seconds']:.2f}",
                f"{result['compile_seconds']:.2f}",
                f"{result['loss']:.4f}",
            ]
        )
    columns = ["dimensions", "devices", "blocks an update", "us an update"]
    columns += [
        "M words/s, updates alone",
        "M words/s, training",
        "GFLOP/s",
        "GB/s",
        "trace s",
        "compile s",
    ]
    return Table([*columns, "loss"], rows)


def main(arguments: list[str]) -> None:
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser("python -m bench gpu", description=run.__doc__)
    parser.add_argument("corpus", type=Path, help="file of `python -m bench encoded`")
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 16, 64, 256, 1024])
    parser.add_argument("--devices", type=int, nargs="+")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--vector-sizes", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--architecture", default="skipgram")
    parser.add_argument("--vectors", type=Path, help="folder for vectors")
    given = parser.parse_args(arguments)
    table = run(
        read_encoded(given.corpus),
        given.vector_sizes,
        given.blocks,
        given.samples,
        {"epochs": given.epochs, "architecture": given.architecture},
        given.vectors,
        given.devices,
    )
    print(table.markdown())


BENCHES = {"encoded": run_encoded}
TABLES = {"gpu": table}
