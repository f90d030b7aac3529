"""The composition root: alone sees the whole config, and puts the rooms together."""

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optax

from embedder import workdir as folder
from embedder.config import Config, ModelConfig, TrainConfig, options_of, resolve
from embedder.data import loader
from embedder.data.blocks import BlockShape, BlockSource, block_source
from embedder.data.corpus import Corpus, text_corpus
from embedder.data.demo import demo_corpus
from embedder.data.encode import Encoded, encode_cached
from embedder.data.vocabulary import (
    NoTokensError,
    expected_tokens,
    write_vocabulary,
)
from embedder.files import errors_named
from embedder.memory import check_memory, memory_needed
from embedder.model.file import MODEL_SETTINGS, ModelFile, write_model
from embedder.model.tables import tables
from embedder.train.compilation import keep_compiled_programs
from embedder.train.loop import EpochLoss, Step, steps
from embedder.train.optimizer import capped_sgd, linear_rate
from embedder.train.update import Model, TrainState, initial_state, make_updates
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from embedder.workdir import Workdir

_DIVERGED = "training diverged. Give a smaller `alpha` or `cap`."
_RUINED = 10  # times the loss of the first vectors: far above all that learns
_log = logging.getLogger(__name__)


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
    compile_seconds: float  # of these, what the program took to trace and compile


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
            self.kept_tokens, tokens_per_update
        )
        self.program = make_program(
            len(encoded.vocabulary), data.window, interval, config.model, config.train
        )

    @property
    def kept_tokens(self) -> float:
        """Tokens of the corpus that an epoch keeps on average."""
        counts = self.encoded.vocabulary.counts
        share = expected_tokens(counts, self.config.data.sample) / counts.sum()
        return share * self.encoded.num_tokens

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that a run needs at most, by what needs them, beside Python and JAX."""
        return memory_needed(self.config, self.encoded, self.superblock_size)

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


class Program(NamedTuple):
    """The compiled part of a run."""

    model: Model
    optimizer: optax.GradientTransformationExtraArgs
    apply_updates: Callable


@functools.lru_cache(maxsize=8)
def make_program(
    num_rows: int, window: int, interval: int, model: ModelConfig, train: TrainConfig
) -> Program:
    """The compiled part of a run, kept so that the same again is not compiled again."""
    keep_compiled_programs()
    dtype = np.dtype(model.dtype)
    lookup = tables(num_rows, model.vector_size, dtype=dtype, seed=train.seed)
    module = Model(lookup, model.architecture, window, model.negative)
    optimizer = capped_sgd(train.cap)
    updates = make_updates(
        module, optimizer, update=train.update, loss_interval=interval
    )
    return Program(module, optimizer, updates)


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
    losses, compiling = [], 0.0
    for epoch in training.epochs:
        loss = EpochLoss()
        for step in training.steps(state, epoch):
            state = step.state
            loss.add(step.loss)
            compiling = compiling or step.call_seconds
            progress = float(step.updates.progress[step.num_updates - 1])
            on_status(
                _status(training, epoch, progress, loss.mean(), started, compiling)
            )
        losses.append(loss.result())
        _check_finite(state, losses, epoch)
        progress = (epoch + 1 - training.epochs.start) / len(training.epochs)
        status = _status(training, epoch, progress, losses[-1], started, compiling)
        on_status(status._replace(is_epoch_end=True))
    _log.info("The first call of the program took %.2f s, to compile it.", compiling)
    if losses and not any(losses):
        _log.warning("No token has another in its window: nothing is learned.")
    return state, losses


def _status(
    training: Training,
    epoch: int,
    progress: float,
    loss: float,
    started: float,
    compiling: float,
) -> Status:
    raw_tokens = training.encoded.raw_tokens * len(training.epochs)
    return Status(
        epoch=epoch,
        epochs=training.epochs.stop,
        progress=progress,
        is_epoch_end=False,
        loss=loss,
        alpha=float(training.rate(progress)),
        words=round(raw_tokens * progress),
        seconds=time.perf_counter() - started,
        compile_seconds=compiling,
    )


def _check_finite(state: TrainState, losses: list[float], epoch: int) -> None:
    if not np.isfinite(losses[-1]):
        before = f"{losses[-2]:.4f}" if len(losses) > 1 else "none"
        raise FloatingPointError(
            f"The loss of epoch {epoch + 1} is {losses[-1]}, of the epoch before "
            f"{before}: {_DIVERGED}"
        )
    if not all(np.isfinite(table).all() for table in state.params["tables"].values()):
        raise FloatingPointError(
            f"The vectors after epoch {epoch + 1} are not finite: {_DIVERGED}"
        )


def open_corpus(source: str | None) -> Corpus:
    """The corpus at `source`: a file, a glob or a folder; None: the demo corpus."""
    return demo_corpus() if source is None else text_corpus(source)


def plan(config: Config, corpus: Corpus, cache: Path) -> Training:
    """The training of `config` over `corpus`, which is encoded in `cache`.

    Raises:
      OSError, ValueError: the corpus cannot be read, or leaves no token to train.
    """
    try:
        encoded = encode_cached(corpus, config.data.min_count, cache)
    except NoTokensError as error:
        raise ValueError(f"Corpus {corpus.source}: {error}") from error
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
      OSError, ValueError: bad input, or `workdir` holds another thing; nothing is lost.
      FloatingPointError: training diverged.
    """
    run = Workdir(workdir)
    folder.check_free(run)
    corpus = open_corpus(source)
    if config.data.loader == "tfdata":  # takes seconds: let it load while we encode
        threading.Thread(target=loader.import_tensorflow).start()
    cache = cache or run.cache
    with folder.made(run.path), folder.made(cache), errors_named(cache):
        training = plan(config, corpus, cache)
        check_memory(training.memory)
    if run.is_begun and not overwrite:
        folder.check_same(run, training.config, corpus.manifest)
        if run.is_finished:
            return read_vectors(run.vectors)
        _log.warning("%s holds an unfinished run: it is begun anew.", run.path)
    with errors_named(run.path):
        folder.clear(run)
        folder.write_settings(run, training.config, source, corpus.manifest)
        return _train_into(run, training, on_status)


def write_results(run: Workdir, model: ModelFile) -> Vectors:
    """Writes the vectors of a trained model; the run is finished with that."""
    vectors = Vectors(model.tokens, model.input, model.counts)
    if any(len(token.encode().split()) > 1 for token in model.tokens):
        _log.warning("Tokens have white space: there is no vectors.txt.")
    else:
        write_vectors(vectors, run.text_vectors)
    write_vectors(vectors, run.vectors)  # the last: it tells that the run is finished
    return vectors


def _train_into(
    run: Workdir, training: Training, on_status: Callable[[Status], None]
) -> Vectors:
    write_vocabulary(training.encoded.vocabulary, run.vocabulary)

    def record(status: Status) -> None:
        if status.is_epoch_end:
            _check_ruined(training, status)
            folder.append_metrics(run, _metrics(status))
        on_status(status)

    state, losses = run_epochs(training, training.initial_state(), record)
    model = _model(training, state, losses)
    write_model(run.model, model)
    return write_results(run, model)


def _model(training: Training, state: TrainState, losses: list[float]) -> ModelFile:
    """The model file of a run. `workers` are threads here, processes in `legacy`."""
    options = options_of(training.config) | {"workers": 1}
    tables = state.params["tables"]
    return ModelFile(
        settings={name: options[name] for name in MODEL_SETTINGS},
        block=training.config.data.block,
        tokens=training.encoded.vocabulary.tokens,
        counts=training.encoded.vocabulary.counts,
        input=np.asarray(tables["input"]),
        output=np.asarray(tables["output"]),
        loss_history=losses,
    )


def _check_ruined(training: Training, status: Status) -> None:
    start = (1 + training.config.model.negative) * math.log(2)
    if status.loss > _RUINED * start:
        raise FloatingPointError(
            f"The loss of epoch {status.epoch + 1} is {status.loss:.4g}, of the first "
            f"vectors {start:.4g}: {_DIVERGED}"
        )


def _metrics(status: Status) -> dict:
    return {
        "epoch": status.epoch + 1,
        "loss": status.loss,
        "alpha": status.alpha,
        "words": status.words,
        "seconds": round(status.seconds, 3),
        "compile_seconds": round(status.compile_seconds, 3),
        "words_per_second": round(status.words / status.seconds),
    }
