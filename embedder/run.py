"""The composition root: alone sees the whole config, and puts the rooms together."""

import functools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optax

from embedder import workdir as folder
from embedder.config import Config, ModelConfig, TrainConfig, resolve, to_toml
from embedder.data import loader
from embedder.data.blocks import BlockShape, BlockSource, block_source
from embedder.data.corpus import Corpus, text_corpus
from embedder.data.demo import demo_corpus
from embedder.data.encode import Encoded, encode_cached
from embedder.data.vocabulary import expected_tokens, write_vocabulary
from embedder.model.tables import tables
from embedder.train.loop import EpochLoss, Step, steps
from embedder.train.optimizer import capped_sgd, linear_rate
from embedder.train.update import Model, TrainState, initial_state, make_updates
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from embedder.workdir import Workdir


_DIVERGED = "training diverged. Give a smaller `alpha` or `cap`."


class Status(NamedTuple):
    """How far a run is."""

    epoch: int  # from 0
    epochs: int
    progress: float  # share of the whole run, in [0, 1]
    is_epoch_end: bool
    loss: float  # mean per pair, of this epoch so far
    alpha: float
    words: int  # raw tokens trained on since the start of this call
    seconds: float  # since the start of this call


class Training:
    """What a run is made of, but for its state: a resolved config over a corpus."""

    def __init__(self, config: Config, encoded: Encoded, epochs: range):
        data = config.data
        tokens_per_update = data.block * data.blocks_per_update
        interval = loader.loss_interval(encoded.num_tokens, tokens_per_update)
        self.config = config
        self.encoded = encoded
        self.epochs = epochs
        self.source = _source(config, encoded, epochs)
        self.superblock_size = loader.superblock_size(
            _kept_tokens(config, encoded), tokens_per_update
        )
        self.program = _program(
            len(encoded.vocabulary), data.window, interval, config.model, config.train
        )

    def initial_state(self) -> TrainState:
        """The state before the first update."""
        return initial_state(self.program.model, self.program.optimizer)

    def rate(self, progress):
        """Learning rate at `progress`."""
        train = self.config.train
        return linear_rate(progress, alpha=train.alpha, min_alpha=train.min_alpha)

    def steps(self, state: TrainState, epoch: int) -> Iterator[Step]:
        """The superblocks of one epoch; see `embedder.train.loop.steps`."""
        superblocks = loader.epoch_superblocks(
            self.config.data.loader,
            self.source,
            epoch,
            size=self.superblock_size,
            workers=self.config.data.workers,
        )
        return steps(self.program.apply_updates, state, superblocks, self.rate)


class _Program(NamedTuple):
    model: Model
    optimizer: optax.GradientTransformationExtraArgs
    apply_updates: Callable


@functools.lru_cache(maxsize=8)
def _program(
    num_rows: int, window: int, interval: int, model: ModelConfig, train: TrainConfig
) -> _Program:
    """The compiled part of a run, kept so that the same again does not compile again."""
    dtype = np.dtype(model.dtype)
    lookup = tables(num_rows, model.vector_size, dtype=dtype, seed=train.seed)
    module = Model(lookup, model.architecture, window, model.negative)
    optimizer = capped_sgd(train.cap)
    updates = make_updates(
        module, optimizer, update=train.update, loss_interval=interval
    )
    return _Program(module, optimizer, updates)


def _kept_tokens(config: Config, encoded: Encoded) -> float:
    """Tokens of the corpus that an epoch keeps on average."""
    counts = encoded.vocabulary.counts
    share = expected_tokens(counts, config.data.sample) / counts.sum()
    return share * encoded.num_tokens


def _source(config: Config, encoded: Encoded, epochs: range) -> BlockSource:
    data = config.data
    shape = BlockShape(
        data.window, data.block, data.tile, data.noise, data.blocks_per_update
    )
    return block_source(
        encoded,
        shape,
        sample=data.sample,
        ns_exponent=data.ns_exponent,
        seed=config.train.seed,
        epochs=epochs,
    )


def run_epochs(
    training: Training,
    state: TrainState,
    on_status: Callable[[Status], None] = lambda status: None,
) -> tuple[TrainState, list[float]]:
    """The state after all epochs of `training`, and the loss of each.

    Raises:
      FloatingPointError: the loss of an epoch is not finite.
    """
    started = time.perf_counter()
    losses = []
    for epoch in training.epochs:
        loss = EpochLoss()
        for step in training.steps(state, epoch):
            state = step.state
            loss.add(step.loss)
            on_status(_status(training, step, epoch, loss.mean(), started))
        losses.append(loss.result())
        _check_finite(losses, epoch)
        on_status(_epoch_end(training, epoch, losses[-1], started))
    return state, losses


def _status(training: Training, step: Step, epoch, loss, started) -> Status:
    progress = float(step.updates.progress[step.num_updates - 1])
    return Status(
        epoch=epoch,
        epochs=training.epochs.stop,
        progress=progress,
        is_epoch_end=False,
        loss=loss,
        alpha=float(training.rate(progress)),
        words=_raw_tokens(training, progress),
        seconds=time.perf_counter() - started,
    )


def _epoch_end(training: Training, epoch: int, loss: float, started) -> Status:
    progress = (epoch + 1 - training.epochs.start) / len(training.epochs)
    return Status(
        epoch=epoch,
        epochs=training.epochs.stop,
        progress=progress,
        is_epoch_end=True,
        loss=loss,
        alpha=float(training.rate(progress)),
        words=_raw_tokens(training, progress),
        seconds=time.perf_counter() - started,
    )


def _raw_tokens(training: Training, progress: float) -> int:
    return round(training.encoded.raw_tokens * len(training.epochs) * progress)


def _check_finite(losses: list[float], epoch: int) -> None:
    if not np.isfinite(losses[-1]):
        before = f"{losses[-2]:.4f}" if len(losses) > 1 else "none"
        raise FloatingPointError(
            f"The loss of epoch {epoch + 1} is {losses[-1]}, of the epoch before "
            f"{before}: {_DIVERGED}"
        )


def open_corpus(source: str | None) -> Corpus:
    """The corpus at `source`: a file, a glob or a folder; None: the demo corpus."""
    return demo_corpus() if source is None else text_corpus(source)


def plan(config: Config, corpus: Corpus, cache: Path) -> Training:
    """The training that `config` and `corpus` give, with the corpus encoded in `cache`."""
    encoded = encode_cached(corpus, config.data.min_count, cache)
    resolved = resolve(config, encoded.num_tokens)
    return Training(resolved, encoded, range(config.train.epochs))


def train(
    config: Config,
    workdir: str | Path,
    source: str | None = None,
    *,
    cache: Path | None = None,
    overwrite: bool = False,
    on_status: Callable[[Status], None] = lambda status: None,
) -> Vectors:
    """Trains on the corpus at `source` and leaves all results in `workdir`.

    On a finished run of the same settings it returns the vectors that are there.

    Raises:
      OSError, ValueError: bad input, or `workdir` holds something else; nothing is lost.
      FloatingPointError: training diverged.
    """
    run = Workdir(workdir)
    folder.check_free(run)
    corpus = open_corpus(source)
    if config.data.loader == "tfdata":  # takes seconds: let it load while we encode
        threading.Thread(target=loader.import_tensorflow, daemon=True).start()
    with folder.made(run.path), folder.made(cache or run.cache):
        training = plan(config, corpus, cache or run.cache)
    if run.is_begun and not overwrite:
        folder.check_same(run, training.config, corpus.manifest)
        if run.is_finished:
            return read_vectors(run.vectors)
    folder.clear(run)
    folder.write_settings(run, training.config, source, corpus.manifest)
    write_vocabulary(training.encoded.vocabulary, run.vocabulary)

    def record(status: Status) -> None:
        if status.is_epoch_end:
            folder.append_metrics(run, _metrics(status))
        on_status(status)

    state, _ = run_epochs(training, training.initial_state(), record)
    vectors = _vectors(training, state)
    write_vectors(vectors, run.text_vectors)
    write_vectors(vectors, run.vectors)
    return vectors


def _vectors(training: Training, state: TrainState) -> Vectors:
    vocabulary = training.encoded.vocabulary
    matrix = np.array(state.params["tables"]["input"])
    if not np.isfinite(matrix).all():
        raise FloatingPointError(f"The vectors are not finite: {_DIVERGED}")
    return Vectors(vocabulary.tokens, matrix, vocabulary.counts)


def _metrics(status: Status) -> dict:
    return {
        "epoch": status.epoch + 1,
        "loss": status.loss,
        "alpha": status.alpha,
        "words": status.words,
        "seconds": round(status.seconds, 3),
        "words_per_second": round(status.words / status.seconds),
    }


def dry_run(config: Config, source: str | None, *, cache: Path | None = None) -> str:
    """What `train` would do, as text; nothing is written but to `cache`, if given.

    Raises:
      OSError, ValueError: bad input.
    """
    with tempfile.TemporaryDirectory() as temporary:
        training = plan(config, open_corpus(source), cache or Path(temporary))
    config, encoded = training.config, training.encoded
    kept = _kept_tokens(config, encoded)
    updates = -int(-kept // (config.data.block * config.data.blocks_per_update))
    rates = ", ".join(f"{training.rate(p):.4g}" for p in (0, 0.25, 0.5, 0.75, 1))
    memory = ", ".join(
        f"{name} {size / 2**20:.0f} MiB" for name, size in _memory(training).items()
    )
    return (
        f"{to_toml(config)}\n"
        f"vocabulary: {len(encoded.vocabulary)} tokens, {encoded.num_tokens} of "
        f"{encoded.raw_tokens} occurrences\n"
        f"updates: {updates} an epoch on average, "
        f"{updates * config.train.epochs} in all, of "
        f"{config.data.block * config.data.blocks_per_update} tokens each; "
        f"sample keeps {kept / max(encoded.num_tokens, 1):.1%}\n"
        f"learning rate at 0, 25, 50, 75, 100 %: {rates}\n"
        f"memory: {memory}"
    )


def _memory(training: Training) -> dict[str, int]:
    """Bytes that a run needs at most, by what needs them, before Python and JAX."""
    data, model = training.config.data, training.config.model
    num_rows = len(training.encoded.vocabulary)
    table = num_rows * model.vector_size * np.dtype(model.dtype).itemsize
    shard = int(max(training.encoded.shard_tokens, default=0))
    per_token = 25 + 4 * data.noise / data.tile  # draws, ids, sequence, radius; noise
    return {
        "tables": 2 * table,
        "vectors to write": 2 * table,
        "vocabulary": 150 * num_rows,
        "blocks": int((data.workers + 2) * shard * per_token),
        "TensorFlow": 650 * 2**20 if data.loader == "tfdata" else 0,
    }
