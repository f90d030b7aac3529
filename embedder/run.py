"""The composition root: from a config and a source to a folder of results."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from embedder import processes
from embedder import workdir as folder
from embedder.checks import read_interval
from embedder.config import Config, options_of
from embedder.encoder_run import EncoderJob
from embedder.epochs import Snapshot, Status, Trainable, run_epochs
from embedder.events import Events
from embedder.files import errors_named
from embedder.memory import check_memory
from embedder.resuming import from_first, origin, taken_up
from embedder.saving import Saver
from embedder.stopping import Stop
from embedder.tables_run import TablesJob
from embedder.train.checkpoint import Checkpoints
from embedder.vectors.export import read_vectors
from embedder.vectors.vectors import Vectors
from embedder.workdir import Workdir

_OF_A_HOST = {"loader", "workers", "threads"}  # each may have its own
_RUINED = 10  # times the loss of the first vectors: far above all that learns
_log = logging.getLogger(__name__)


class Job(Protocol):
    """What a run is of: tables over a text, or an encoder over examples."""

    name: str
    manifest: list[dict]  # of the files that it reads

    def plan(self, config: Config, cache: Path | None) -> Trainable:
        """What is to be trained, in all."""

    def begin(self, run: Workdir, training: Trainable) -> None:
        """Writes what is known before the first update."""

    def vectors(self, training: Trainable, end: Snapshot) -> Vectors:
        """What was learned."""

    def finish(self, run: Workdir, training: Trainable, end: Snapshot) -> Vectors:
        """Writes all results; the vectors last, with which the run is finished."""


def open_job(config: Config, source: str | None) -> Job:
    """What is to be done with `source`: text, or for an encoder examples.

    Raises:
      OSError, ValueError: there is no such thing.
    """
    if config.model.model == "tables":
        return TablesJob(source)
    return EncoderJob(config, source)


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
        job = open_job(config, source)
    training = _plan_together(config, run, job, cache or run.cache)
    with processes.together():
        finished = processes.is_first() and _is_finished(
            run, training.config, job, overwrite
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
                folder.write_settings(run, training.config, source, job.manifest)
                job.begin(run, training)
            else:
                folder.cut_metrics(run, len(start.place.history))
    start = from_first(start, training)
    interval = read_interval(save.save_every)
    facts = {"origin": origin(training)}
    saver = Saver(checkpoints, interval, stop, start=start.place, facts=facts)
    with errors_named(run.path):
        return _train_into(run, job, training, start, saver, on_status)


def _plan_together(config: Config, run: Workdir, job: Job, cache: Path) -> Trainable:
    """The training, the same in every process; the first encodes, others find it."""
    training = None
    with processes.together():
        if processes.is_first():
            with folder.made(run.path), folder.made(cache), errors_named(cache):
                training = job.plan(config, cache)
                check_memory(training.memory)
    with processes.together():
        if training is None:  # memory is not shared with processes of other hosts
            training = job.plan(config, cache if cache.exists() else None)
    processes.check_same(_facts(training, job))
    return training


def _facts(training: Trainable, job: Job) -> dict[str, object]:
    """What has to be the same in all processes of a run."""
    options = options_of(training.config).items()
    return {
        **origin(training),
        **{f"`{name}`": value for name, value in options if name not in _OF_A_HOST},
        "superblock size": training.superblock_size,
        "corpus": [{**file, "mtime_ns": None} for file in job.manifest],
    }


def _is_finished(run: Workdir, config: Config, job: Job, overwrite: bool) -> bool:
    """Whether `run` holds what is asked for.

    Raises:
      ValueError: it holds another thing.
    """
    if not run.is_begun or overwrite:
        return False
    folder.check_same(run, config, job.manifest)
    return run.is_finished


def _train_into(
    run: Workdir,
    job: Job,
    training: Trainable,
    start: Snapshot,
    saver: Saver,
    on_status: Callable[[Status], None],
) -> Vectors:
    is_first = processes.is_first()
    events = Events(run.events, len(start.place.history))

    def record(status: Status) -> None:
        if status.is_epoch_end:
            _check_ruined(training, status)
            if is_first:
                folder.append_metrics(run, _metrics(status))
                rates = {status.rate_name: status.rate}
                events.add(status.epoch + 1, status.metrics | rates)
        on_status(status)
        saver(status)

    try:
        end = run_epochs(training, start.state, record, start.place)
    finally:
        saver.finish()
        events.close()
    if is_first:
        return job.finish(run, training, end)
    return job.vectors(training, end)


def _check_ruined(training: Trainable, status: Status) -> None:
    if status.loss > _RUINED * training.start_loss:
        raise FloatingPointError(
            f"The loss of epoch {status.epoch + 1} is {status.loss:.4g}, of the first "
            f"parameters {training.start_loss:.4g}: {training.diverged}"
        )


def _metrics(status: Status) -> dict:
    return {
        "epoch": status.epoch + 1,
        **status.metrics,
        status.rate_name: status.rate,
        status.unit: status.items,
        "seconds": round(status.seconds, 3),
        "compile_seconds": round(status.compile_seconds, 3),
        f"{status.unit}_per_second": round(status.items_per_second),
    }
