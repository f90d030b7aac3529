"""The composition root: from a config and a source to a folder of results."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from embedder.config import Config, options_of, per_host_names, to_toml
from embedder.disk.files import name_file_in_errors
from embedder.engine.epochs import Snapshot, Status, run_epochs
from embedder.engine.memory import check_memory, memory_lines
from embedder.errors import InputError
from embedder.families import open_problem
from embedder.hosts import processes
from embedder.problem import Problem, Training, open_base
from embedder.run import workdir as folder
from embedder.run.checkpoints import CheckpointError, Checkpoints, check_path
from embedder.run.events import Events
from embedder.run.resuming import check_best, from_first, origin, snapshot_of, taken_up
from embedder.run.saving import Saver
from embedder.run.stopping import Stop
from embedder.run.workdir import Workdir
from embedder.threads import use_threads
from embedder.vectors.export import read_vectors
from embedder.vectors.vectors import Vectors

_RUINED = 10  # times the loss of the first vectors: far above all that learns
_log = logging.getLogger(__name__)


class _Again(NamedTuple):
    """What is to be done where a run was begun."""

    overwrite: bool = False  # start anew
    step: int | None = None  # go on from this checkpoint; None: from the newest
    force: bool = False  # go on though the corpus is another


def train(
    config: Config,
    workdir: str | Path,
    source: str | None = None,
    *,
    resume: str | Path | None = None,
    grow: bool = False,
    cache: Path | None = None,
    overwrite: bool = False,
    step: int | None = None,
    force: bool = False,
    force_lock: bool = False,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
) -> Vectors | None:
    """Trains on the corpus at `source` and leaves all results in `workdir`.

    On an unfinished run of the same settings it goes on from the last checkpoint; on a
    finished one it returns the vectors that are there; None in a process of several
    that does not see them. Of several processes the first writes.

    Args:
      source: a text file, glob or folder, or examples; None: the demo corpus.
      resume: the run, or model file, whose tables are the start.
      grow: tokens that are new to `resume` get rows; else they are left out.
      cache: folder of encoded corpora; None: cache in `workdir`.
      overwrite: start anew where there is a run.
      step: go on from the checkpoint of so many updates, not from the newest.
      force: go on though the files of the corpus are others, if its tokens are not.
      force_lock: write to `workdir` though its lock names another host.
      on_status: called after each step.
      stop: tells when to save and stop.

    Raises:
      OSError, ValueError: bad input, or `workdir` holds another thing, or another
        process writes there; nothing is lost.
      FloatingPointError: training diverged.
      Stopped: `stop` said so, and all that it takes to go on is saved.
    """
    use_threads()
    run, again = Workdir(workdir), _Again(overwrite, step, force)
    base = open_base(resume, grow)
    if base is not None:
        folder.check_apart(run, base.path)
    with contextlib.ExitStack() as stack:
        with processes.together():
            check_path(run.path)
            problem = open_problem(config, source, base)
            if processes.is_first():
                folder.check_free(run)
                _check_step(run, again)
                if overwrite or not run.is_finished:  # else it is only read
                    stack.enter_context(folder.locked(run, force_lock))
                    folder.remove_parts(run)
        training = _plan_together(config, run, problem, cache or run.cache)
        with processes.together():
            finished = processes.is_first() and _is_finished(
                run, training.config, problem, again
            )
        if processes.first_says(finished):
            return read_vectors(run.vectors) if run.is_finished else None
        return _train_into(
            run, problem, training, again, source, on_status, stop or Stop()
        )


def _plan_together(
    config: Config, run: Workdir, problem: Problem, cache: Path
) -> Training:
    """The training, the same in every process; the first encodes, others find it."""
    training = None
    with processes.together():
        if processes.is_first():
            is_shared = cache != run.cache
            with folder.made(cache, is_shared), name_file_in_errors(cache):
                training = problem.plan(config, cache)
                check_memory(training.memory, training.memory_advice)
    with processes.together():
        if training is None:  # memory is not shared with processes of other hosts
            training = problem.plan(config, cache if cache.exists() else None)
    processes.check_same(_facts(training, problem))
    return training


def _facts(training: Training, problem: Problem) -> dict[str, object]:
    """What has to be the same in all processes of a run."""
    options, per_host = options_of(training.config).items(), per_host_names()
    return {
        **origin(training),
        **{f"`{name}`": value for name, value in options if name not in per_host},
        "superblock size": training.superblock_size,
        "epochs": [training.epochs.start, training.epochs.stop],
        "`resume`": problem.base and {**problem.base, "path": None},
        "corpus": [{**file, "mtime_ns": None} for file in problem.manifest],
    }


def _is_finished(run: Workdir, config: Config, problem: Problem, again: _Again) -> bool:
    """Whether `run` holds what is asked for.

    Raises:
      ValueError: it holds another thing.
    """
    if not run.is_begun or again.overwrite:
        return False
    folder.check_sound(run)
    folder.check_same(run, config, problem.manifest, problem.base, force=again.force)
    return run.is_finished


def _check_step(run: Workdir, again: _Again) -> None:
    """Refuses a checkpoint of a run that does not go on."""
    if again.step is None or (
        run.is_begun and not run.is_finished and not again.overwrite
    ):
        return
    why = "holds no run"
    if run.is_begun:
        why = "is to be overwritten" if again.overwrite else "is finished"
    raise InputError(
        f"`step` must be of a run that goes on, got {again.step}: {run.path} {why}."
    )


def _train_into(
    run: Workdir,
    problem: Problem,
    training: Training,
    again: _Again,
    source: str | None,
    on_status: Callable[[Status], None],
    stop: Stop,
) -> Vectors:
    save = training.config.save
    checkpoints = Checkpoints(run.checkpoints, save.keep)
    with processes.together(), name_file_in_errors(run.path):
        start = None
        if processes.is_first():
            if run.is_begun and not again.overwrite:
                start = taken_up(checkpoints, training, again.step)
            if start is not None and save.result == "best":
                check_best(checkpoints, start.position)
            if start is None:
                folder.clear(run)
                problem.begin(run, training)
                folder.write_settings(
                    run, training.config, source, problem.manifest, problem.base
                )
                folder.seal(run)
            else:
                folder.cut_metrics(run, len(start.position.history))
    start = from_first(start, training)
    for line in memory_lines(training) if processes.is_first() else ():
        _log.info(line)
    interval = save.interval
    facts = {"origin": origin(training), "config": to_toml(training.config)}
    saver = Saver(
        *(checkpoints, interval, stop),
        saves_best=training.config.saves_best,
        start=start.position,
        facts=facts,
    )
    with name_file_in_errors(run.path):
        end = _run_epochs(run, training, start, saver, on_status)
        if save.result == "best" and end.position.best:
            end = _best(checkpoints, training, end)
        if processes.is_first():
            return problem.finish(run, training, end)
        return problem.vectors(training, end)


def _run_epochs(
    run: Workdir,
    training: Training,
    start: Snapshot,
    saver: Saver,
    on_status: Callable[[Status], None],
) -> Snapshot:
    """All epochs after `start`; they are saved, and told of in the folder."""
    is_first = processes.is_first()
    events = Events(run.events, start.position.epoch)

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
        return run_epochs(training, start.state, record, start.position, saver.pause)
    finally:
        saver.finish()
        events.close()


def _best(checkpoints: Checkpoints, training: Training, end: Snapshot) -> Snapshot:
    """What the best epoch before `end` led to; `end`, if that cannot be read."""
    score, updates = end.position.best
    best = None
    if processes.is_first():
        try:
            best = snapshot_of(checkpoints.read(updates), training)
            _log.info(
                "The best is epoch %d, with a score of %.4f.",
                best.position.epoch,
                score,
            )
        except CheckpointError as error:
            _log.warning("%s: the last epoch is the result, not the best.", error)
    if not processes.first_says(best is not None):
        return end
    return from_first(best, training)


def _check_ruined(training: Training, status: Status) -> None:
    if status.loss > _RUINED * training.start_loss:
        raise FloatingPointError(
            f"The loss of epoch {status.epoch + 1} is {status.loss:.4g}, of the first "
            f"parameters {training.start_loss:.4g}: {training.divergence_message}"
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
