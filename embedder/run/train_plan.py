"""Trains a planned run: starts or resumes it, saves, and writes the results."""

import contextlib
import logging
from collections.abc import Callable
from typing import Generic, NamedTuple

import jax
from rich import filesize

from embedder.base.stages import report_stage
from embedder.base.terminal import shown
from embedder.config import to_toml
from embedder.config.run_options import RunOptions
from embedder.disk import workdir as folder
from embedder.disk.files import name_file_in_errors
from embedder.disk.run_names import keep_names
from embedder.disk.run_record import RunInputs, write_inputs
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import CheckpointError, Checkpoints
from embedder.engine.epochs import (
    Checkpoint,
    Evaluations,
    Progress,
    Status,
    run_epochs,
)
from embedder.engine.hosts import processes
from embedder.engine.memory import memory_lines
from embedder.engine.task import AnyTraining, Task, Trainer
from embedder.run.curves import Events, Points, metrics_line
from embedder.run.extend import Extension
from embedder.run.mirror import Mirror
from embedder.run.progress import log_description
from embedder.run.run_state import RestartOptions
from embedder.run.saving import (
    MEET_EVERY,
    Saver,
    check_best,
    checkpoint_of,
    checkpoint_to_resume,
    reproducibility_facts,
    start_or_broadcast,
)
from embedder.run.stopping import Stop
from embedder.vectors.vectors import Vectors

_DIVERGED = 10  # times the loss of the initial vectors: far above any useful loss
_log = logging.getLogger(__name__)


class Plan(NamedTuple, Generic[AnyTraining]):
    """A run before its first update."""

    run: Workdir
    task: Task[AnyTraining]
    training: AnyTraining
    inputs: RunInputs
    extension: Extension | None = None  # of the finished run that goes on
    names: bytes | None = None  # of names.parquet; None: the run keeps what it has


def train_plan(
    plan: Plan[AnyTraining],
    restart: RestartOptions,
    on_status: Callable[[Status], None],
    stop: Stop,
    mirror: Mirror | None = None,
) -> Vectors:
    """Trains to the end and writes the results; returns the vectors.

    Raises:
      FloatingPointError: training diverged.
      Stopped: `stop` was requested, and the run is saved.
    """
    run, task, training = plan.run, plan.task, plan.training
    save = training.config.save
    checkpoints = Checkpoints(
        run.checkpoints, save.keep, mirror.notify if mirror else lambda: None
    )
    with processes.fail_together(), name_file_in_errors(run.path):
        resumed = None
        if processes.is_first():
            resumed = _resumed(plan, checkpoints, restart)
            if resumed is None:
                _write_start(plan)
                resumed = plan.extension and plan.extension.end
            keep_names(run, plan.names)
            run.ended.unlink(missing_ok=True)  # of a process before this one
            if mirror is not None:
                mirror.start(checkpoints)
    start = start_or_broadcast(resumed, training)
    if processes.is_first():
        _log_plan(plan)
    events = Events(run.events, start.position.updates)
    saver = Saver(
        *(checkpoints, save.interval, stop),
        saves_best=training.config.saves_best,
        start=start.position,
        facts={
            "origin": reproducibility_facts(training),
            "config": to_toml(training.config),
        },
        on_save=events.add_histograms,
    )
    with name_file_in_errors(run.path):
        end = _run_epochs(run, training, start, saver, events, on_status)
        if save.result == "best":
            end = _best(checkpoints, training, end)
        if processes.is_first():
            report_stage("writing the results")
            return task.finish(run, training, end)
        return task.vectors(training, end)


def _log_plan(plan: Plan[AnyTraining]) -> None:
    """Logs what is trained on, and for experts what that takes."""
    source = shown(without_secrets(plan.inputs.source or "the demo corpus"))
    if size := sum(file.get("bytes", 0) for file in plan.task.manifest):
        source += f" ({filesize.decimal(size)})"
    log_description(plan.training, f"{source}: ", memory_lines(plan.training))


def _resumed(
    plan: Plan[AnyTraining], checkpoints: Checkpoints, restart: RestartOptions
) -> Checkpoint | None:
    """Where the run in the folder resumes; None: it starts."""
    if restart.overwrite or not plan.run.is_started:
        return None
    start = checkpoint_to_resume(checkpoints, plan.training, restart.step)
    if start is None:
        return None
    if plan.training.config.save.result == "best":
        check_best(checkpoints, start.position)
    num_lines = len(start.position.history) + start.position.evaluations
    folder.truncate_metrics(plan.run, num_lines, start.position.updates)
    return start


def _write_start(plan: Plan[AnyTraining]) -> None:
    """Writes what is known before the first update, into a cleared folder."""
    run, task, training = plan.run, plan.task, plan.training
    folder.clear(run)
    run.path.mkdir(exist_ok=True)
    task.begin(run, training)
    parts = plan.extension and plan.extension.parts
    write_inputs(run, plan.inputs, parts=parts, facts=training.corpus_facts)
    folder.write_checksums(run)
    if plan.extension is not None:  # last: checksums are of files that stay as they are
        folder.copy_curves(plan.extension.run, run)


def _run_epochs(
    run: Workdir,
    training: Trainer,
    start: Checkpoint,
    saver: Saver,
    events: Events,
    on_status: Callable[[Status], None],
) -> Checkpoint:
    """Trains after `start` to the end, with metrics and checkpoints in the folder."""
    is_first = processes.is_first()
    points = Points(run.progress, events, jax.default_backend() == "cpu")

    def handle(status: Status) -> None:
        if status.is_epoch_end:
            _check_diverged(training, status)
        if is_first:
            points.add(status)
        if is_first and (status.is_epoch_end or status.scores):
            baselines = training.baselines if status.scores else {}
            folder.append_metrics(run, metrics_line(status) | baselines)
            measured = status.metrics | status.scores
            events.add(status.updates, measured | {status.rate_name: status.rate})
        on_status(status)
        saver(status)

    with contextlib.closing(events):  # also if a signal comes while the saver ends
        try:
            end = run_epochs(
                *(training, start.state, handle, start.position, saver.pause, None),
                _evaluations(training.config.run),
            )
            if is_first:
                report_stage("writing the last checkpoint and curves")
                events.add_histograms(end)
            return end
        finally:
            saver.finish()


def _evaluations(options: RunOptions) -> Evaluations:
    """When to evaluate; the first process decides for all."""
    interval, patience = options.evaluation_interval, options.patience
    if processes.num_processes() == 1:
        return Evaluations(interval, patience)
    return Evaluations(interval, patience, processes.broadcast_facts, MEET_EVERY)


def _best(checkpoints: Checkpoints, training: Trainer, end: Checkpoint) -> Checkpoint:
    """The checkpoint of the best evaluation; `end` if it cannot be read."""
    if not end.position.best:
        return end
    score, updates = end.position.best
    best = None
    if processes.is_first():
        try:
            stored = checkpoints.read(updates)
            best = _at_epoch_end(checkpoint_of(stored, training), end)
            text = training.score_text(score)
            _log.info("The best is %s, with %s.", best.position.text, text)
        except CheckpointError as error:
            _log.warning("%s: the last epoch is the result, not the best.", error)
    if not processes.broadcast_flag(best is not None):
        return end
    return start_or_broadcast(best, training)


def _at_epoch_end(best: Checkpoint, end: Checkpoint) -> Checkpoint:
    """`best` after the evaluation of its epoch, if a stop has saved it before."""
    at = best.position
    if not at.position or at.evaluated == at.updates:
        return best
    ended = Progress(
        at.epoch + 1,
        progress=at.progress,
        updates=at.updates,
        history=end.position.history[: len(at.history) + 1],
        best=end.position.best,
    )
    return best._replace(position=ended)


def _check_diverged(training: Trainer, status: Status) -> None:
    if status.loss <= _DIVERGED * training.usual_loss:
        return  # nearly always: that of the start need not be measured
    if status.loss > _DIVERGED * training.start_loss:
        raise FloatingPointError(
            f"The loss of epoch {status.epoch + 1} is {status.loss:.4g}, of the "
            f"initial parameters {training.start_loss:.4g}: "
            f"{training.divergence_message}"
        )
