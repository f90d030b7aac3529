"""Trains a planned run: starts or resumes it, saves, and writes the results."""

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple

import jax
from rich import filesize

from embedder.config import Config, to_toml
from embedder.disk.files import name_file_in_errors
from embedder.disk.urls import without_secrets
from embedder.engine.epochs import RunPosition, Snapshot, Status, run_epochs
from embedder.engine.evaluations import Evaluations
from embedder.engine.memory import memory_lines
from embedder.hosts import processes
from embedder.options import RunOptions
from embedder.problem import AnyTraining, Problem, Training
from embedder.run import workdir as folder
from embedder.run.checkpoints import CheckpointError, Checkpoints
from embedder.run.events import Events
from embedder.run.inputs import write_settings
from embedder.run.mirror import Mirror
from embedder.run.points import Points, metrics_line
from embedder.run.progress import data_line, level_of
from embedder.run.resuming import (
    check_best,
    reproducibility_facts,
    resume_snapshot,
    snapshot_of,
    start_or_broadcast,
)
from embedder.run.saving import MEET_EVERY, Saver
from embedder.run.stopping import Stop
from embedder.run.workdir import Workdir
from embedder.stages import report_stage
from embedder.terminal import shown
from embedder.vectors.vectors import Vectors

_DIVERGED = 10  # times the loss of the initial vectors: far above any useful loss
_log = logging.getLogger(__name__)


class Finished(NamedTuple):
    """A finished run that is made longer."""

    run: Workdir
    parts: list[int]  # epochs of each part, the new one last
    end: Snapshot  # where the new part starts


class RestartOptions(NamedTuple):
    """What to do where a run was started before."""

    overwrite: bool = False  # start anew
    step: int | None = None  # resume from this checkpoint; None: the newest
    force: bool = False  # resume although the corpus files have changed
    force_lock: bool = False  # although the lock names another host
    lengthen: bool = True  # a finished run goes on if it is given more epochs


class Plan(NamedTuple, Generic[AnyTraining]):
    """A run before its first update."""

    run: Workdir
    problem: Problem[AnyTraining]
    training: AnyTraining
    given: Config  # settings before `plan` resolved them
    source: str | None
    finished: Finished | None = None  # the run that this one makes longer


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
    run, problem, training = plan.run, plan.problem, plan.training
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
                resumed = plan.finished and plan.finished.end
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
        on_save=events.add_snapshot,
    )
    with name_file_in_errors(run.path):
        end = _run_epochs(run, training, start, saver, events, on_status)
        if save.result == "best":
            end = _best(checkpoints, training, end)
        if processes.is_first():
            report_stage("writing the results")
            return problem.finish(run, training, end)
        return problem.vectors(training, end)


def _log_plan(plan: Plan[AnyTraining]) -> None:
    """Says what is trained on, and for experts what that takes."""
    training = plan.training
    source = shown(without_secrets(plan.source or "the demo corpus"))
    if size := sum(file.get("bytes", 0) for file in plan.problem.manifest):
        source += f" ({filesize.decimal(size)})"
    first, *others = training.description
    _log.info("%s: %s", source, data_line(first, training.epochs))
    for line in *others, *memory_lines(training):
        _log.log(level_of(line, training.start_lines), "%s", line)


def _resumed(
    plan: Plan[AnyTraining], checkpoints: Checkpoints, restart: RestartOptions
) -> Snapshot | None:
    """Where the run in the folder resumes; None: it starts."""
    if restart.overwrite or not plan.run.is_started:
        return None
    start = resume_snapshot(checkpoints, plan.training, restart.step)
    if start is None:
        return None
    if plan.training.config.save.result == "best":
        check_best(checkpoints, start.position)
    num_lines = len(start.position.history) + start.position.evaluations
    folder.truncate_metrics(plan.run, num_lines, start.position.updates)
    return start


def _write_start(plan: Plan[AnyTraining]) -> None:
    """Writes what is known before the first update, into a cleared folder."""
    run, problem, training = plan.run, plan.problem, plan.training
    folder.clear(run)
    run.path.mkdir(exist_ok=True)
    problem.begin(run, training)
    write_settings(
        run,
        training.config,
        plan.source,
        problem.manifest,
        problem.base,
        given=plan.given,
        parts=plan.finished and plan.finished.parts,
        facts=training.corpus_facts,
    )
    folder.write_checksums(run)
    if plan.finished is not None:  # last: checksums are of files that stay as they are
        folder.copy_curves(plan.finished.run, run)


def _run_epochs(
    run: Workdir,
    training: Training,
    start: Snapshot,
    saver: Saver,
    events: Events,
    on_status: Callable[[Status], None],
) -> Snapshot:
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

    try:
        end = run_epochs(
            *(training, start.state, handle, start.position, saver.pause, None),
            _evaluations(training.config.run),
        )
        if is_first:
            report_stage("writing the last checkpoint and curves")
            events.add_snapshot(end)
        return end
    finally:
        saver.finish()
        events.close()


def _evaluations(options: RunOptions) -> Evaluations:
    """When to evaluate, as the first process tells."""
    found = Evaluations(options.evaluation_interval, options.patience)
    if processes.num_processes() == 1:
        return found
    return found._replace(agree=processes.broadcast_facts, meet_every=MEET_EVERY)


def _best(checkpoints: Checkpoints, training: Training, end: Snapshot) -> Snapshot:
    """The snapshot of the best evaluation; `end` if it cannot be read."""
    if not end.position.best:
        return end
    score, updates = end.position.best
    best = None
    if processes.is_first():
        try:
            best = _at_epoch_end(snapshot_of(checkpoints.read(updates), training), end)
            text = training.score_text(score)
            _log.info("The best is %s, with %s.", best.position.text, text)
        except CheckpointError as error:
            _log.warning("%s: the last epoch is the result, not the best.", error)
    if not processes.broadcast_flag(best is not None):
        return end
    return start_or_broadcast(best, training)


def _at_epoch_end(best: Snapshot, end: Snapshot) -> Snapshot:
    """`best`, which a stop may have saved after the last update of its epoch, before
    the evaluation of that epoch."""
    place = best.position
    if not place.position or place.evaluated == place.updates:
        return best
    history = end.position.history[: len(place.history) + 1]
    ended = RunPosition(
        place.epoch + 1,
        progress=place.progress,
        updates=place.updates,
        history=history,
        best=end.position.best,
    )
    return best._replace(position=ended)


def _check_diverged(training: Training, status: Status) -> None:
    if status.loss > _DIVERGED * training.start_loss:
        raise FloatingPointError(
            f"The loss of epoch {status.epoch + 1} is {status.loss:.4g}, of the "
            f"initial parameters {training.start_loss:.4g}: "
            f"{training.divergence_message}"
        )
