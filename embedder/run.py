"""The composition root: from a config and a corpus to a folder of results."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from embedder import processes
from embedder import workdir as folder
from embedder.checks import read_interval
from embedder.config import Config, options_of, resolve
from embedder.data import loader
from embedder.data.corpus import Corpus, text_corpus
from embedder.data.demo import demo_corpus
from embedder.data.encode import encode, encode_cached
from embedder.data.vocabulary import NoTokensError, write_vocabulary
from embedder.epochs import Snapshot, Status, run_epochs
from embedder.files import errors_named
from embedder.memory import check_memory
from embedder.model.file import MODEL_SETTINGS, ModelFile, write_model
from embedder.resuming import from_first, origin, taken_up
from embedder.saving import Saver
from embedder.stopping import Stop
from embedder.train.checkpoint import Checkpoints
from embedder.train.update import TrainState
from embedder.training import Training
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from embedder.workdir import Workdir

_OF_A_HOST = {"loader", "workers", "threads"}  # each may have its own
_RUINED = 10  # times the loss of the first vectors: far above all that learns
_log = logging.getLogger(__name__)


def open_corpus(source: str | None) -> Corpus:
    """The corpus at `source`: a file, a glob or a folder; None: the demo corpus."""
    return demo_corpus() if source is None else text_corpus(source)


def plan(config: Config, corpus: Corpus, cache: Path | None) -> Training:
    """The training of `config` over `corpus`, encoded in `cache` or, None, in memory.

    Raises:
      OSError, ValueError: the corpus cannot be read, or leaves no token to train.
    """
    min_count = config.data.min_count
    try:
        if cache is None:
            encoded = encode(corpus, min_count)
        else:
            encoded = encode_cached(corpus, min_count, cache)
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
    stop: Stop | None = None,
) -> Vectors | None:
    """Trains on the corpus at `source` and leaves all results in `workdir`.

    On an unfinished run of the same settings it goes on from the last checkpoint; on a
    finished one it returns the vectors that are there; None in a process of several
    that does not see them. Of several processes the first writes.

    Raises:
      OSError, ValueError: bad input, or `workdir` holds another thing; nothing is lost.
      FloatingPointError: training diverged.
      Stopped: `stop` said so, and all that it takes to go on is saved.
    """
    stop = stop or Stop()
    run = Workdir(workdir)
    with processes.together():
        if processes.is_first():
            folder.check_free(run)
            folder.remove_parts(run)
        corpus = open_corpus(source)
    if config.data.loader == "tfdata":  # takes seconds: let it load while we encode
        threading.Thread(target=loader.import_tensorflow).start()
    training = _plan_together(config, run, corpus, cache or run.cache)
    with processes.together():
        finished = processes.is_first() and _is_finished(
            run, training.config, corpus, overwrite
        )
    if processes.first_says(finished):
        return read_vectors(run.vectors) if run.is_finished else None
    save = training.config.save
    checkpoints = Checkpoints(run.checkpoints, save.keep)
    with processes.together(), errors_named(run.path):
        start = None
        if processes.is_first():
            if run.is_begun and not overwrite:
                start = taken_up(checkpoints, training)
            if start is None:
                folder.clear(run)
                folder.write_settings(run, training.config, source, corpus.manifest)
                write_vocabulary(training.encoded.vocabulary, run.vocabulary)
            else:
                folder.cut_metrics(run, len(start.place.history))
    start = from_first(start, training)
    interval = read_interval(save.save_every)
    facts = {"origin": origin(training)}
    saver = Saver(checkpoints, interval, stop, start=start.place, facts=facts)
    with errors_named(run.path):
        return _train_into(run, training, start, saver, on_status)


def _plan_together(config: Config, run: Workdir, corpus: Corpus, cache: Path):
    """The training, the same in every process; the first encodes, others find it."""
    training = None
    with processes.together():
        if processes.is_first():
            with folder.made(run.path), folder.made(cache), errors_named(cache):
                training = plan(config, corpus, cache)
                check_memory(training.memory)
    with processes.together():
        if training is None:  # memory is not shared with processes of other hosts
            training = plan(config, corpus, cache if cache.exists() else None)
    processes.check_same(_facts(training, corpus))
    return training


def _facts(training: Training, corpus: Corpus) -> dict[str, object]:
    """What has to be the same in all processes of a run."""
    options = options_of(training.config).items()
    return {
        **origin(training),
        **{f"`{name}`": value for name, value in options if name not in _OF_A_HOST},
        "superblock size": training.superblock_size,
        "corpus": [{**file, "mtime_ns": None} for file in corpus.manifest],
    }


def _is_finished(run: Workdir, config: Config, corpus: Corpus, overwrite: bool) -> bool:
    """Whether `run` holds what is asked for.

    Raises:
      ValueError: it holds another thing.
    """
    if not run.is_begun or overwrite:
        return False
    folder.check_same(run, config, corpus.manifest)
    return run.is_finished


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
    run: Workdir,
    training: Training,
    start: Snapshot,
    saver: Saver,
    on_status: Callable[[Status], None],
) -> Vectors:
    is_first = processes.is_first()

    def record(status: Status) -> None:
        if status.is_epoch_end:
            _check_ruined(training, status)
            if is_first:
                folder.append_metrics(run, _metrics(status))
        on_status(status)
        saver(status)

    try:
        state, place = run_epochs(training, start.state, record, start.place)
    finally:
        saver.finish()
    model = _model(training, state, place.losses)
    if not is_first:
        return Vectors(model.tokens, model.input, model.counts)
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
    if status.loss > _RUINED * training.start_loss:
        raise FloatingPointError(
            f"The loss of epoch {status.epoch + 1} is {status.loss:.4g}, of the first "
            f"parameters {training.start_loss:.4g}: {training.diverged}"
        )


def _metrics(status: Status) -> dict:
    return {
        "epoch": status.epoch + 1,
        **status.metrics,
        "alpha": status.rate,
        status.unit: status.items,
        "seconds": round(status.seconds, 3),
        "compile_seconds": round(status.compile_seconds, 3),
        f"{status.unit}_per_second": round(status.items_per_second),
    }
