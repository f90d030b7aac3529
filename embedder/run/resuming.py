"""Resumes a stopped run from its last whole checkpoint."""

import logging
from importlib.metadata import version
from typing import Any

from embedder import __version__
from embedder.config import different_options, from_toml, options_of
from embedder.engine.epochs import RunPosition, Snapshot
from embedder.hosts import processes
from embedder.problem import Training
from embedder.run.checkpoints import (
    Checkpoint,
    CheckpointError,
    Checkpoints,
    arrays_of,
    tree_of,
)
from embedder.run.inputs import COLUMNS, START_FILES

_log = logging.getLogger(__name__)


def reproducibility_facts(training: Training) -> dict[str, str]:
    """What the last bits of the vectors depend on, besides the settings."""
    layout = training.layout
    groups = layout.replica_devices
    replicas = f", replicas over {groups}" if groups > 1 else ""
    packages = ("jax", "jaxlib", "numpy")
    return {
        "the version of embedder": __version__,
        **{f"the version of {name}": version(name) for name in packages},
        "layout": f"{layout.mode} {layout.tables} "
        f"{layout.data_devices} x {layout.table_devices}{replicas}",
        "backend": training.backend,
        training.unit: training.content,
    }


def resume_snapshot(
    checkpoints: Checkpoints, training: Training, step: int | None = None
) -> Snapshot | None:
    """The snapshot in the newest whole checkpoint; None: there is none.

    Args:
      step: read the checkpoint of this number instead.

    Raises:
      CheckpointError: it is of another training, or that of `step` is damaged.
    """
    checkpoints.remove_parts()
    found = checkpoints.newest() if step is None else _at(checkpoints, step)
    if found is None:
        _log.info(
            "%s holds an unfinished run without a checkpoint: it starts anew.",
            checkpoints.folder.parent,
        )
        return None
    try:
        _check_settings(found, training)
        snapshot = snapshot_of(found, training)
    except CheckpointError as error:
        raise CheckpointError(
            f"Checkpoint {checkpoints.folder / str(found.step)} is of another "
            f"training, {error}: give another --workdir, or --overwrite to start anew."
        ) from error
    position = snapshot.position
    _log.info(
        "Resumes after %d updates, %.1f %% of the run.",
        position.updates,
        100 * position.progress,
    )
    _compare(found.facts["origin"], reproducibility_facts(training), training.unit)
    return snapshot


def _check_settings(found: Checkpoint, training: Training) -> None:
    if "config" not in found.facts:
        raise CheckpointError("of an earlier version")
    # Columns and files are those of the run, by its manifest and its base.
    before, now = (
        {
            name: value
            for name, value in options_of(config).items()
            if name not in COLUMNS | START_FILES
        }
        for config in (from_toml(found.facts["config"]), training.config)
    )
    if different := different_options(before, now):
        raise CheckpointError(", ".join(different))


def check_best(checkpoints: Checkpoints, position: RunPosition) -> None:
    """Refuses `result` best if the checkpoint of the best epoch is missing.

    Raises:
      CheckpointError: it is missing.
    """
    if position.best and position.best[1] not in checkpoints.steps():
        raise CheckpointError(
            f"`result` best needs checkpoint {position.best[1]} of the best epoch so "
            "far, which was not kept: give --result last, or --overwrite to start anew."
        )


def snapshot_of(found: Checkpoint, training: Training) -> Snapshot:
    """The snapshot in a checkpoint of `training`.

    Raises:
      CheckpointError: the checkpoint is of another training.
    """
    state = tree_of(found.arrays, training.initial_state())
    return Snapshot(state, _position(found.facts["place"]))


def _at(checkpoints: Checkpoints, step: int) -> Checkpoint:
    if step not in (steps := checkpoints.steps()):
        there = ", ".join(map(str, sorted(steps))) or "there is none"
        raise CheckpointError(
            f"`step` must be of a checkpoint in {checkpoints.folder} ({there}), got "
            f"{step}."
        )
    return checkpoints.read(step)


def start_or_broadcast(start: Snapshot | None, training: Training) -> Snapshot:
    """`start` of the first process, in all; the initial state if it has none."""
    if not processes.broadcast_flag(start is not None):
        return Snapshot(training.initial_state(), RunPosition(training.epochs.start))
    if start is not None and processes.num_processes() == 1:
        return start
    state, position = start or (training.initial_state(), RunPosition(0))
    facts = processes.broadcast_facts(position._asdict())
    arrays = processes.broadcast_arrays(arrays_of(state))
    return Snapshot(tree_of(arrays, state), _position(facts))


def _position(facts: dict[str, Any]) -> RunPosition:
    lists: dict[str, Any] = {
        name: tuple(facts.get(name, ()))  # earlier versions have no scores
        for name in ("position", "sums", "best", "scores")
    }
    lists["history"] = tuple(map(tuple, facts["history"]))
    return RunPosition(**facts | lists)


def _compare(before: dict[str, str], now: dict[str, str], unit: str) -> None:
    """Warns of what may change the last bits of the vectors.

    Raises:
      CheckpointError: the data are others.
    """
    different = [name for name in now if now[name] != before.get(name)]
    if unit in different:
        raise CheckpointError(
            f"The run was started with other {unit}: give another --workdir, or "
            "--overwrite to start anew."
        )
    if different:
        changes = (f"{name}: {before.get(name)}, now {now[name]}" for name in different)
        _log.warning(
            "Vectors may differ in their last bits from those of an uninterrupted run "
            "(%s).",
            "; ".join(changes),
        )
