"""Throughput of the updates on the device that JAX has.

The corpus is a file of ids, and the memory loader makes the blocks, so that the base
packages alone are needed. FLOPs are 2 for each multiply-add of a tile's three matrix
products.
"""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from embedder.config import Config, resolve, with_options
from embedder.data.encoded import Encoded
from embedder.data.vocabulary import Vocabulary
from embedder.disk.arrays import pack_strings, unpack_strings
from embedder.engine.epochs import run_epochs
from embedder.engine.mesh_layout import MeshLayout
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer
from embedder.vectors.array_formats import write_npz
from embedder.vectors.vectors import Vectors

_CHUNKS = 4


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


def make_training(encoded: Encoded, options: dict[str, Any]) -> TokensTrainer:
    """A training by XLA and the loader memory; `options` by the names of settings."""
    config = with_options(Config(), loader="memory", backend="xla", **options)
    config = resolve(config, encoded.num_tokens)
    return TokensTrainer(TrainingPlan(config, encoded, range(config.run.epochs)))


def time_updates(training: TokensTrainer, samples: int) -> dict[str, Any]:
    """Seconds to trace, to compile and to run; FLOPs and bytes of an update."""
    batches, num_updates = [], 0
    calls = training.host_calls(0)
    for _, real, batch in calls:
        placed = training.program.place_batch(batch)
        batches.append(
            jax.device_put(placed) if training.layout == MeshLayout() else placed
        )
        num_updates += real
        if len(batches) == _CHUNKS:
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
    raw = training.encoded.raw_tokens / training.plan.kept_tokens
    return {
        "trace_seconds": traced - started,
        "compile_seconds": done - traced,
        "update_seconds": seconds[1:],
        "words_per_update": tokens * raw,
        "flops_per_update": tiles * products,
        "bytes_per_update": 3 * tiles * rows * row_bytes,
    }


def time_training(
    training: TokensTrainer, path: Path | None = None
) -> dict[str, float]:
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
