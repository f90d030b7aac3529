"""Time of each stage of a training, each alone in one process.

The stages: reading and encoding the text; an epoch of blocks from each loader, without
training; tracing and compiling; updates on blocks made before. Throughput is in raw
words, so that stages can be compared.
"""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from bench.results import Results, Table, data_folder, spread, write_results
from embedder.config import Config, with_options
from embedder.data.tfdata import import_tensorflow
from embedder.engine.epochs import run_epochs
from embedder.tokens import loader
from embedder.tokens.plan import TrainingInputs, TrainingPlan, plan
from embedder.tokens.prepare import Batch
from embedder.tokens.task import open_corpus
from embedder.tokens.trainer import TokensTrainer

_CHUNKS = 8


def run(
    corpus: Path | None = None,
    samples: int = 3,
    vector_size: int = 100,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
) -> Table:
    """Time of each stage of a training.

    Args:
      corpus: a text file; none: 17 M words of Wikipedia.
      samples: number of measurements of each stage.
      vector_size: dimensions of a vector.
      architecture: skipgram or cbow.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    options = {"vector_size": vector_size, "architecture": architecture}
    jax.config.update("jax_enable_compilation_cache", False)  # to measure compilation
    config = with_options(Config(), epochs=1, **options)
    stages: dict[str, list[float]] = {}
    started = time.perf_counter()
    import_tensorflow()
    stages["import TensorFlow"] = [time.perf_counter() - started]
    with tempfile.TemporaryDirectory() as folder:

        def plan_in(number: int) -> TrainingPlan:
            source, cache = open_corpus(str(corpus)), Path(folder, str(number))
            return plan(TrainingInputs(config=config, source=source, cache=cache))

        stages["vocabulary and encoding"] = _times(samples, plan_in)
        training = TokensTrainer(plan_in(0))
        for kind in ("tfdata", "memory"):
            stages[f"loader, {kind}"] = _times(
                samples, lambda _, kind=kind: _drain(_chunks(training, kind))
            )
        for backend in ("xla", "numba"):
            of_backend = with_options(training.config, backend=backend)
            training = TokensTrainer(
                dataclasses.replace(training.plan, config=of_backend)
            )
            for stage, times in _program_stages(training, samples).items():
                stages[f"{backend}: {stage}"] = times
            stages[f"{backend}: training, all together"] = _times(
                samples,
                lambda _, training=training: run_epochs(
                    training, training.initial_state()
                ),
            )
    words = training.encoded.raw_tokens
    settings = {"corpus": corpus.name, "words": words, **options}
    return table(write_results("stages", settings=settings, samples=stages))


def _program_stages(training: TokensTrainer, samples: int) -> dict[str, list[float]]:
    """Seconds to compile, and seconds per epoch of updates on blocks made before."""
    batches, num_updates = first_chunks(training)
    updates = training.program.apply_updates
    state = training.program.place_state(training.initial_state())
    stages = {}
    started = time.perf_counter()
    if training.backend == "xla":
        lowered = updates.lower(state, batches[0])
        stages["trace"] = [time.perf_counter() - started]
        started = time.perf_counter()
        updates = lowered.compile()
        stages["compile"] = [time.perf_counter() - started]
    else:
        state, _ = updates(state, batches[0])
        stages["compile, or find in the cache"] = [time.perf_counter() - started]
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        for batch in batches:
            state, _ = updates(state, batch)
        jax.block_until_ready(state)
        times.append(time.perf_counter() - start)
    data = training.config.tables
    tokens = num_updates * data.block * data.blocks_per_update
    per_epoch = training.plan.kept_tokens / tokens
    return stages | {"updates alone": [seconds * per_epoch for seconds in times]}


def first_chunks(training: TokensTrainer) -> tuple[list[Batch], int]:
    """Some chunks as batches of the program, and their number of updates."""
    batches, num_updates = [], 0
    for updates, real in _chunks(training, "memory"):
        rate = training.rate(updates.progress).astype(np.float32)
        batch = Batch(updates.blocks, rate)
        batches.append(jax.device_put(batch) if training.backend == "xla" else batch)
        num_updates += real
        if len(batches) == _CHUNKS:
            break
    return batches, num_updates


def _chunks(training: TokensTrainer, kind: str):
    return loader.epoch_chunks(
        kind,
        training.sources[0],
        0,
        size=training.updates_per_call,
        workers=training.config.run.workers,
    )


def _drain(values: Iterable) -> None:
    for _ in values:
        pass


def _times(samples: int, stage: Callable[[int], object]) -> list[float]:
    times = []
    for number in range(samples):
        start = time.perf_counter()
        stage(number)
        times.append(time.perf_counter() - start)
    return times


def table(results: Results) -> Table:
    """A row for each stage; no throughput for stages that happen once."""
    words = results["settings"]["words"]
    rows = []
    for stage, times in results["samples"].items():
        seconds = statistics.median(times)
        once = any(word in stage for word in ("import", "trace", "compile"))
        speed = "" if once else f"{words / seconds / 1e6:.2f}"
        rows.append([stage, spread(times, 2), speed])
    return Table(["stage", "seconds", "M words/s"], rows)


BENCHES = {"stages": run}
TABLES = {"stages": table}
