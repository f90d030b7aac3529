"""Extends a finished run by more epochs, in its own folder.

The run goes on as one of all epochs would after its last epoch: with the same draws,
and the learning rate that is due there. It is in the folder `longer` of the run, with
checkpoints of its own, until it is finished; then its files replace those of the run.
So a kill leaves the finished run as it was.
"""

import logging
import os
import shutil
from typing import Any, NamedTuple

from embedder.config import Config, read_toml
from embedder.disk import run_record
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import Checkpoints
from embedder.engine.epochs import Checkpoint, Progress
from embedder.engine.task import Task, Trainer
from embedder.errors import InputError
from embedder.run.facts import metrics_lines
from embedder.run.saving import checkpoint_of

_log = logging.getLogger(__name__)


class Extension(NamedTuple):
    """A finished run that is extended."""

    run: Workdir
    parts: list[int]  # epochs of each part, the new one last
    end: Checkpoint  # where the new part starts


def plan_extension(run: Workdir, task: Task[Any], training: Trainer) -> Extension:
    """The finished run, and where it goes on.

    Args:
      training: of all epochs, also of those that are done.

    Raises:
      InputError: the run does not know its end.
    """
    end = _end(run, read_toml(run.config), task, training)
    first, last = end.position.epoch + 1, training.epochs.stop
    epochs = f" {first}" if first == last else f"s {first} to {last}"
    rate, rate_at_end = training.rate(end.position.progress), training.rate(1.0)
    rates = f"{training.rate_name} is {rate:.4g} as before"
    if rate != rate_at_end:
        rates = (
            f"{training.rate_name} falls from {rate:.4g} to {rate_at_end:.4g}, as in a "
            f"run of {len(training.epochs)} epochs"
        )
    _log.info("%s goes on with epoch%s: %s.", run.path, epochs, rates)
    parts = run_record.parts_of(run)
    return Extension(run, [*parts, training.config.run.epochs - sum(parts)], end)


def _end(
    run: Workdir, before: Config, task: Task[Any], training: Trainer
) -> Checkpoint:
    """Where a finished run goes on.

    Its results have the state, or a checkpoint of its end. The best evaluation is one
    of the new part: scores of before are not compared with it.
    """
    again = f"{training.base_flag} it with --workdir NEW"
    if before.save.result == "best":
        raise InputError(
            f"{run.path} has the vectors of its best evaluation, not of its end "
            f"(`result` best), and cannot go on: {again}."
        )
    lines = metrics_lines(run)
    epochs = [line for line in lines if training.metrics[0] in line]
    if len(epochs) != before.run.epochs:
        raise InputError(
            f"{run.path} has metrics of {len(epochs)} of its {before.run.epochs} "
            f"epochs, so it ended early, and cannot go on: {again}."
        )
    position = Progress(
        training.epochs.start + before.run.epochs,
        progress=before.run.epochs / len(training.epochs),
        updates=max((line.get("updates", 0) for line in lines), default=0),
        history=tuple(tuple(map(line.get, training.metrics)) for line in epochs),
        evaluations=len(lines) - len(epochs),
    )
    state = task.end_state(run, training)
    stored = Checkpoints(run.checkpoints).newest() if state is None else None
    if stored is not None:
        newest = checkpoint_of(stored, training)
        at = newest.position
        if at.epoch == position.epoch and not at.position:
            state = newest.state
    if state is None:
        raise InputError(
            f"{run.path} has no checkpoint of its end, with which replicas and encoders"
            " go on (--save-every 1epoch saves it): give --overwrite to train all "
            "epochs anew."
        )
    return Checkpoint(state, position)


def is_interrupted(run: Workdir) -> bool:
    """Whether a finished extension was killed before it had replaced `run`."""
    return Workdir(run.longer).is_finished


def replace(run: Workdir) -> None:
    """Moves the files of the finished extension over those of the run; the vectors are
    the last, so that a move that was interrupted is repeated."""
    longer = Workdir(run.longer)
    for new, old in (
        (longer.events, run.events),
        (longer.checkpoints, run.checkpoints),
    ):
        if new.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(new, old)
    for path in longer.files:
        os.replace(path, run.path / path.name)
    shutil.rmtree(longer.path)
