"""Where a run that was stopped goes on: at its last whole checkpoint."""

import logging
from importlib.metadata import version

from embedder.config import differences, from_toml
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

_log = logging.getLogger(__name__)


def origin(training: Training) -> dict[str, str]:
    """What the last bits of the vectors come from, beside the settings."""
    layout = training.layout
    packages = ("embedder", "jax", "jaxlib", "numpy")
    return {
        **{f"the version of {name}": version(name) for name in packages},
        "layout": f"{layout.mode} {layout.tables} "
        f"{layout.data_devices} x {layout.table_devices}",
        "backend": training.backend,
        training.unit: training.content,
    }


def taken_up(
    checkpoints: Checkpoints, training: Training, step: int | None = None
) -> Snapshot | None:
    """Where the newest whole checkpoint is; None: there is none.

    Args:
      step: take this one and no other.

    Raises:
      CheckpointError: it is of another training, or that of `step` is not whole.
    """
    checkpoints.remove_parts()
    found = checkpoints.newest() if step is None else _at(checkpoints, step)
    if found is None:
        _log.info(
            "%s holds an unfinished run without a checkpoint: it is begun anew.",
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
    place = snapshot.position
    _log.info(
        "Goes on after %d updates, %.1f %% of the run.",
        place.updates,
        100 * place.progress,
    )
    _compare(found.facts["origin"], origin(training), training.unit)
    return snapshot


def _check_settings(found: Checkpoint, training: Training) -> None:
    if "config" not in found.facts:
        raise CheckpointError("of an earlier version")
    different = differences(from_toml(found.facts["config"]), training.config)
    if different:
        raise CheckpointError(", ".join(different))


def check_best(checkpoints: Checkpoints, place: RunPosition) -> None:
    """Refuses to end with the best epoch where what it led to was not kept.

    Raises:
      CheckpointError: as said.
    """
    if place.best and place.best[1] not in checkpoints.steps():
        raise CheckpointError(
            f"`result` best needs checkpoint {place.best[1]} of the best epoch so far, "
            "which was not kept: give --result last, or --overwrite to start anew."
        )


def snapshot_of(found: Checkpoint, training: Training) -> Snapshot:
    """What a checkpoint of `training` holds.

    Raises:
      CheckpointError: it is of another.
    """
    state = tree_of(found.arrays, training.initial_state())
    return Snapshot(state, _place(found.facts["place"]))


def _at(checkpoints: Checkpoints, step: int) -> Checkpoint:
    if step not in (steps := checkpoints.steps()):
        there = ", ".join(map(str, sorted(steps))) or "there is none"
        raise CheckpointError(
            f"`step` must be of a checkpoint in {checkpoints.folder} ({there}), got "
            f"{step}."
        )
    return checkpoints.read(step)


def from_first(start: Snapshot | None, training: Training) -> Snapshot:
    """What the first process has, or the beginning, in all processes."""
    if not processes.first_says(start is not None):
        return Snapshot(training.initial_state(), RunPosition(training.epochs.start))
    if processes.num_processes() == 1:
        return start
    state, place = start or (training.initial_state(), RunPosition(0))
    place = processes.facts_from_first(place._asdict())
    arrays = processes.from_first(arrays_of(state))
    return Snapshot(tree_of(arrays, state), _place(place))


def _place(facts: dict) -> RunPosition:
    lists = {name: tuple(facts[name]) for name in ("position", "sums", "best")}
    lists["history"] = tuple(map(tuple, facts["history"]))
    return RunPosition(**facts | lists)


def _compare(before: dict[str, str], now: dict[str, str], unit: str) -> None:
    """Says what may change the last bits; what is trained on has to be the same.

    Raises:
      CheckpointError: it is not.
    """
    different = [name for name in now if now[name] != before.get(name)]
    if unit in different:
        raise CheckpointError(
            f"The run was begun with other {unit}: give another --workdir, or "
            "--overwrite to start anew."
        )
    if different:
        changes = (f"{name}: {before.get(name)}, now {now[name]}" for name in different)
        _log.warning(
            "Vectors may differ in their last bits from those of a run that was never "
            "stopped (%s).",
            "; ".join(changes),
        )
