"""Entry point of a run: opens the data, plans, trains, and writes the results."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from embedder.config import (
    Config,
    options_of,
    per_host_names,
    read_toml,
    with_options,
)
from embedder.disk.copies import keep_standard_input
from embedder.disk.files import name_file_in_errors
from embedder.disk.lock import LockedError
from embedder.engine.epochs import Status
from embedder.engine.memory import check_memory
from embedder.errors import InputError
from embedder.families import open_problem
from embedder.hosts import processes
from embedder.problem import AnyTraining, Base, Problem, Training, open_base
from embedder.report import of_projector, of_run
from embedder.run import inputs, longer
from embedder.run import mirror as mirrors
from embedder.run import workdir as folder
from embedder.run.checkpoints import Checkpoints, check_path
from embedder.run.ending import write_ending
from embedder.run.loop import Plan, RestartOptions, train_plan
from embedder.run.mirror import Mirror
from embedder.run.resuming import reproducibility_facts
from embedder.run.stopping import Stop, Stopped
from embedder.run.workdir import Workdir
from embedder.threads import use_threads
from embedder.vectors.export import read_vectors
from embedder.vectors.vectors import Vectors


class Result(NamedTuple):
    """A finished run."""

    workdir: Path
    vectors: Vectors | None  # None: in a process that does not see the folder
    was_finished: bool  # before: nothing was trained
    behind: str = ""  # why the mirror lacks files of the run; "": it has all
    report: Path | None = None  # None: none was written


def train(
    config: Config,
    workdir: str | Path,
    source: str | None = None,
    *,
    resume: str | Path | None = None,
    grow: bool = False,
    cache: Path | None = None,
    mirror: str | Path | None = None,
    overwrite: bool = False,
    step: int | None = None,
    force: bool = False,
    force_lock: bool = False,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
) -> Vectors | None:
    """Trains on the corpus at `source`, writes all results to `workdir`, returns them.

    An unfinished run with the same settings resumes from its last checkpoint; of a
    finished one the vectors are read, or None in a process that does not see them. Of
    several processes the first writes.

    Args:
      source: a text file, glob or folder, or examples, or a URL of them; "-" is
        standard input; None: the demo corpus.
      resume: the run, or model file, whose vectors are the start.
      grow: tokens that are new to `resume` get rows; else they are skipped.
      cache: folder of encoded corpora and copies of remote data; None: cache in
        `workdir`, for copies the cache folder of the user.
      mirror: folder or URL that gets a copy of the run, and from which it goes on if
        the copy is further than `workdir`.
      overwrite: start anew where there is a run.
      step: resume from the checkpoint after this many updates instead of the newest.
      force: resume although the corpus files have changed; tokens must be the same.
      force_lock: write to `workdir` although its lock names another host.
      on_status: called after each call of the compiled updates.
      stop: tells when to save and stop.

    Raises:
      OSError, InputError: bad input, or `workdir` holds something else, or another
        process writes there; nothing is lost.
      FloatingPointError: training diverged.
      Stopped: `stop` was requested, and the run is saved.
    """
    restart = RestartOptions(overwrite, step, force, force_lock)
    base = open_base(resume, grow, cache)
    return run_training(
        *(config, Path(workdir), source, base, cache, restart, on_status, stop),
        mirror=None if mirror is None else str(mirror),
    ).vectors


def run_training(
    config: Config,
    workdir: Path | None,
    source: str | None,
    base: Base | None = None,
    cache: Path | None = None,
    restart: RestartOptions = RestartOptions(),  # noqa: B008 - it is immutable
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
    mirror: str | None = None,
) -> Result:
    """`train` with its arguments parsed; no `workdir`: embedder-NAME of the corpus.

    Whether the run is finished is decided before the corpus is read.
    """
    use_threads()
    stop, copy = stop or Stop(), None
    with contextlib.ExitStack() as stack:
        with processes.fail_together():
            if workdir is not None:
                check_path(workdir)
            source = _source(source, cache)
            problem = open_problem(config, source, base, cache, workdir)
            run = Workdir(workdir or folder.default_workdir(problem.name))
            check_path(run.path)
            if base is not None:
                inputs.check_apart(run, base.path)
            is_same = is_locked = False
            of_longer, target = None, run
            if processes.is_first():
                folder.check_free(run)
                is_moving = longer.is_interrupted(run) and not restart.overwrite
                if restart.overwrite or not run.is_finished or is_moving:
                    stack.enter_context(folder.locked(run, restart.force_lock))
                    is_locked = True  # otherwise the run is only read
                    folder.remove_parts(run)
                if is_moving:
                    longer.replace(run)
                is_same = _is_finished_as_given(run, config, problem, restart)
                if not restart.overwrite and restart.lengthen:
                    of_longer = longer.open_settings(run, config)
                if of_longer is not None:
                    _check_no_mirror(run, mirror)
                    target = Workdir(run.longer)
                    if not is_locked:
                        stack.enter_context(folder.locked(run, restart.force_lock))
                        is_locked = True
                        folder.remove_parts(run)
                if mirror is None or run.is_finished or restart.overwrite:
                    _check_step(target, restart)
                if mirror is not None:
                    copy = Mirror(mirror, run)
        processes.check_agreement(_input_facts(config, problem))
        if processes.broadcast_flag(is_same):
            return _finished_before(run, copy, problem, stop)
        given, finished = config, None
        if processes.broadcast_flag(of_longer is not None):
            config = with_options(config, **processes.broadcast_facts(of_longer))
        training = _plan_together(config, run, problem, cache or run.cache)
        with processes.fail_together():
            if of_longer is not None:
                force = restart.force
                finished = longer.finished(run, problem, training, force=force)
                given = with_options(training.config, **inputs.open_settings(run))
            is_finished = (
                processes.is_first()
                and finished is None
                and _check_and_is_finished(
                    run, training.config, given, problem, restart
                )
            )
            if copy is not None and not is_finished:
                _open(copy, training.config, source, problem, restart)
                _check_step(run, restart)
                is_finished = _check_and_is_finished(
                    run, training.config, given, problem, restart
                )
            if processes.is_first() and not (is_finished or is_locked):
                raise LockedError(
                    f"{run.path} was finished, and now another process writes there: "
                    "give the same command again."
                )
        if processes.broadcast_flag(is_finished):
            return _finished_before(run, copy, problem, stop)
        plan = Plan(target, problem, training, given, source, finished)
        try:
            vectors = train_plan(plan, restart, on_status, stop, copy)
            if finished is not None:
                longer.replace(run)
            report = None
            if training.config.save.report and processes.is_first():
                if of_run.write_after_training(run.path, vectors):
                    report = run.report
                of_projector.write_after_training(run.path, vectors)
        except BaseException as error:
            if processes.is_first():
                write_ending(target, error)
            behind = _close(copy, stop)
            if isinstance(error, Stopped):
                message = f"{error} {behind}".strip()
                raise Stopped(error.number, message) from None
            raise
        return Result(run.path, vectors, False, _close(copy, stop), report)


def _check_no_mirror(run: Workdir, mirror: str | None) -> None:
    """Refuses a mirror of a run that gets longer: it has the run as it was."""
    if mirror is not None:
        raise InputError(
            f"`mirror` does not go with more epochs of the finished run {run.path}: "
            "train without it, and then give the same command with a new mirror."
        )


def _open(
    mirror: Mirror,
    config: Config,
    source: str | None,
    problem: Problem[Any],
    restart: RestartOptions,
) -> None:
    """Takes over the mirror of a run; `config` is resolved."""
    mirror.open(
        mirrors.Run(config, source, problem.manifest, problem.base),
        overwrite=restart.overwrite,
        force=restart.force,
        step=restart.step,
    )


def _close(mirror: Mirror | None, stop: Stop) -> str:
    """Waits for the mirror; returns why it is behind, "" if it is not."""
    if mirror is None:
        return ""
    stop.is_polled = True  # a signal does not end the waiting, a second one does
    try:
        return mirror.close()
    finally:
        stop.is_polled = False


def _source(source: str | None, cache: Path | None) -> str | None:
    """`source`; for standard input ("-") the path of a copy."""
    if source == "-" and processes.num_processes() > 1:
        raise InputError(
            "Corpus - is standard input, which only one process has: write it to a "
            "file that all processes see."
        )
    return keep_standard_input(source, cache)


def _finished_before(
    run: Workdir, mirror: Mirror | None, problem: Problem[Any], stop: Stop
) -> Result:
    """The result of a finished run, which the mirror gets if it has not."""
    vectors = read_vectors(run.vectors) if run.is_finished else None
    if mirror is not None:
        if not mirror.is_open:
            config, source = read_toml(run.config), inputs.source_of(run)
            _open(mirror, config, source, problem, RestartOptions())
        mirror.start(Checkpoints(run.checkpoints))
    return Result(run.path, vectors, True, _close(mirror, stop))


def _plan_together(
    config: Config, run: Workdir, problem: Problem[AnyTraining], cache: Path
) -> AnyTraining:
    """The training, equal in all processes; the first encodes, the others read that."""
    training = None
    with processes.fail_together():
        if processes.is_first():
            is_shared = cache != run.cache
            with folder.created_folder(cache, is_shared), name_file_in_errors(cache):
                training = problem.plan(config, cache)
                check_memory(training.memory, _memory_advice(config, training))
    with processes.fail_together():
        if training is None:  # memory is not shared with processes of other hosts
            training = problem.plan(config, cache if cache.exists() else None)
    processes.check_agreement(_training_facts(training))
    return training


def _memory_advice(config: Config, training: Training) -> str:
    """What to change where memory is short; of replicas their number first."""
    if config.run.replicas == 1:
        return training.memory_advice
    return f"give fewer `replicas`, {training.memory_advice.removeprefix('give ')}"


def _input_facts(config: Config, problem: Problem[Any]) -> dict[str, object]:
    """Facts about settings and data that must be equal in all processes of a run."""
    options, per_host = options_of(config).items(), per_host_names()
    return {
        **{f"`{name}`": value for name, value in options if name not in per_host},
        "`resume`": problem.base and {**problem.base, "path": None},
        "corpus": [{**file, "mtime_ns": None} for file in problem.manifest],
    }


def _training_facts(training: Training) -> dict[str, object]:
    """Facts about a training that must be equal in all processes of a run."""
    return {
        **reproducibility_facts(training),
        "superblock size": training.superblock_size,
        "epochs": [training.epochs.start, training.epochs.stop],
    }


def _is_finished_as_given(
    run: Workdir, given: Config, problem: Problem[Any], restart: RestartOptions
) -> bool:
    """Whether `run` is finished with these settings and data, told without planning.

    Raises:
      InputError: its files are damaged.
    """
    if restart.overwrite or not (run.is_started and run.is_finished):
        return False
    inputs.check_sound(run)
    return inputs.is_same(run, given, problem.manifest, problem.base)


def _check_and_is_finished(
    run: Workdir,
    config: Config,
    given: Config,
    problem: Problem[Any],
    restart: RestartOptions,
) -> bool:
    """Whether `run` is finished; `config` is `given`, resolved.

    Raises:
      InputError: its settings or data are others.
    """
    if not run.is_started or restart.overwrite:
        return False
    inputs.check_sound(run)
    data = problem.manifest, problem.base
    inputs.check_same(run, config, *data, given=given, force=restart.force)
    return run.is_finished


def _check_step(run: Workdir, restart: RestartOptions) -> None:
    """Refuses `step` for a run that does not resume."""
    if restart.step is None or (
        run.is_started and not run.is_finished and not restart.overwrite
    ):
        return
    why = "holds no run"
    if run.is_started:
        why = "is to be overwritten" if restart.overwrite else "is finished"
    raise InputError(
        f"`step` must be of a run that resumes, got {restart.step}: {run.path} {why}."
    )
