"""A finished run that is given more epochs goes on in its own folder.

It goes on as the run of all epochs would after the last one of before: the same draws,
and the learning rate that is due there. The longer run is in the folder `longer` of the
run, with checkpoints of its own, until it is finished; then its files replace those of
the run. So a kill leaves the finished run as it was.
"""

import json
import logging
import os
import shutil
from typing import Any

from embedder.config import Config, read_toml, with_options
from embedder.engine.epochs import Metrics, RunPosition, Snapshot
from embedder.errors import InputError
from embedder.problem import Problem, Training
from embedder.run import inputs
from embedder.run.checkpoints import Checkpoints
from embedder.run.loop import Finished
from embedder.run.resuming import snapshot_of
from embedder.run.workdir import Workdir

_log = logging.getLogger(__name__)


def open_settings(run: Workdir, given: Config) -> dict[str, Any] | None:
    """The settings that `given` leaves open, as they are in the run; None: the run does
    not get longer, since it is not finished or `given` has no more epochs."""
    if not (run.is_started and run.is_finished):
        return None
    before = read_toml(run.config)
    is_longer = given.run.epochs > before.run.epochs
    if not is_longer or given.run.model != before.run.model:
        return None
    return inputs.still_open(run, given)


def finished(
    run: Workdir, problem: Problem[Any], training: Training, *, force: bool
) -> Finished:
    """The finished run, and where it goes on.

    Args:
      training: of all epochs, those that are done too.
      force: as of `inputs.check_same`.

    Raises:
      InputError: it has other settings than `training`, or does not know its end.
    """
    config = training.config
    before = read_toml(run.config)
    results = [path for path in (run.metrics, run.model) if path.exists()]
    inputs.check_sound(run, results)
    same = with_options(config, epochs=before.run.epochs)
    inputs.check_same(run, same, problem.manifest, problem.base, force=force)
    longer = Workdir(run.longer)
    if longer.is_started:
        inputs.check_sound(longer)
        _check_begun(run, longer, config)
    end = _end(run, before, problem, training)
    epochs = _range(end.position.epoch + 1, training.epochs.stop)
    rates = _rates(training, end.position.progress)
    _log.info("%s goes on with epoch%s: %s.", run.path, epochs, rates)
    parts = inputs.parts_of(run)
    return Finished(run, [*parts, config.run.epochs - sum(parts)], end)


def _range(first: int, last: int) -> str:
    return f" {first}" if first == last else f"s {first} to {last}"


def _rates(training: Training, progress: float) -> str:
    """The learning rate from `progress` to the end, in words."""
    name, first, last = training.rate_name, training.rate(progress), training.rate(1.0)
    if first == last:
        return f"{name} is {first:.4g} as before"
    num = len(training.epochs)
    return f"{name} falls from {first:.4g} to {last:.4g}, as in a run of {num} epochs"


def _check_begun(run: Workdir, longer: Workdir, config: Config) -> None:
    """Refuses to go on with a longer run of another number of epochs."""
    begun = read_toml(longer.config).run.epochs
    if begun != config.run.epochs:
        raise InputError(
            f"{run.path} is being trained to {begun} epochs, got `epochs` = "
            f"{config.run.epochs}: first end that (--workdir {run.path} alone), or "
            f"delete {longer.path}."
        )


def _end(
    run: Workdir, before: Config, problem: Problem[Any], training: Training
) -> Snapshot:
    """Where a finished run goes on.

    Its results have the state, or a checkpoint of its end. Scores of before are not
    compared with those of now: the best evaluation is one of the new part.
    """
    option = "--init-from" if before.run.model == "encoder" else "--resume"
    if before.save.result == "best":
        raise InputError(
            f"{run.path} has the vectors of its best evaluation, not of its end "
            f"(`result` best), and cannot go on: {option} it with --workdir NEW."
        )
    lines = _metrics(run)
    epochs = [line for line in lines if training.metrics[0] in line]
    if len(epochs) != before.run.epochs:
        raise InputError(
            f"{run.path} has metrics of {len(epochs)} of its {before.run.epochs} "
            f"epochs, so it ended early, and cannot go on: {option} it with "
            "--workdir NEW."
        )
    history = tuple(_history(training, line) for line in epochs)
    first = training.epochs.start
    position = RunPosition(
        first + before.run.epochs,
        progress=before.run.epochs / len(training.epochs),
        updates=max((line.get("updates", 0) for line in lines), default=0),
        history=history,
        evaluations=len(lines) - len(epochs),
    )
    state = problem.end_state(run, training)
    if state is not None:
        return Snapshot(state, position)
    return Snapshot(_saved_end(run, training, position), position)


def _saved_end(run: Workdir, training: Training, position: RunPosition) -> Any:
    """The state in the checkpoint of the end of a run.

    Raises:
      InputError: there is none.
    """
    found = Checkpoints(run.checkpoints).newest()
    if found is not None:
        state, saved = snapshot_of(found, training)
        if saved.epoch == position.epoch and not saved.position:
            return state
    raise InputError(
        f"{run.path} has no checkpoint of its end, with which replicas and encoders go "
        "on (--save-every 1epoch saves it): give --overwrite to train all epochs anew."
    )


def _metrics(run: Workdir) -> list[dict[str, Any]]:
    try:
        text = run.metrics.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]
    except FileNotFoundError:
        return []  # as of 0 epochs
    except ValueError as error:
        raise InputError(f"{run.metrics} is damaged: {error}.") from error


def _history(training: Training, line: dict[str, Any]) -> Metrics:
    return tuple(line.get(name) for name in training.metrics)


def is_interrupted(run: Workdir) -> bool:
    """Whether a longer run is finished, and was killed before it had replaced `run`."""
    return Workdir(run.longer).is_finished


def replace(run: Workdir) -> None:
    """Moves the files of the finished longer run over those of the run.

    The vectors are the last, so a move that was interrupted goes on.
    """
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
