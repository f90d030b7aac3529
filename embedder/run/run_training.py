"""A run from its command to its results: see `run_training`."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from embedder.base.terminal import shown
from embedder.base.threads import use_threads
from embedder.config import Config, options_of, per_host_names, with_options
from embedder.disk import workdir as folder
from embedder.disk.copies import keep_standard_input
from embedder.disk.files import name_file_in_errors
from embedder.disk.run_names import keep_names, read_content
from embedder.disk.run_record import RunInputs, read_inputs, source_of
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import Checkpoints, check_path
from embedder.engine.epochs import Status
from embedder.engine.hosts import processes
from embedder.engine.memory import check_memory
from embedder.engine.task import PretrainedRun, Task
from embedder.errors import InputError
from embedder.run import extend
from embedder.run.mirror import Mirror
from embedder.run.run_state import RestartOptions, RunState, decide
from embedder.run.saving import reproducibility_facts
from embedder.run.stopping import Stop, Stopped, write_ending
from embedder.run.train_plan import Plan, train_plan
from embedder.vectors.export import read_vectors
from embedder.vectors.vectors import Vectors


class Result(NamedTuple):
    """A finished run."""

    workdir: Path
    vectors: Vectors | None  # None: in a process that does not see the folder
    was_finished: bool  # before: nothing was trained
    behind: str = ""  # why the mirror lacks files of the run; "": it has all
    report: Path | None = None  # None: none was written


class OpenTask(Protocol):
    """Opens the data at `source`, and says what the family of `config` trains there."""

    def __call__(
        self,
        config: Config,
        source: str | None,
        base: PretrainedRun | None,
        cache: Path | None,
        workdir: Path | None,
    ) -> Task[Any]: ...


class Command(NamedTuple):
    """What is asked for: arguments of `api.train.train`, which describes them."""

    config: Config
    workdir: Path | None  # None: embedder-NAME of the corpus
    source: str | None
    base: PretrainedRun | None = None
    cache: Path | None = None
    restart: RestartOptions = RestartOptions()
    mirror: str | None = None


class _Lock(contextlib.ExitStack):
    """The lock of the folder of a run, which is held from `take` to the end."""

    is_held = False

    def take(self, run: Workdir, force: bool) -> None:
        """Locks the folder, unless it is locked, and removes what a kill left."""
        if not self.is_held:
            self.enter_context(folder.locked(run, force))
            self.is_held = True
            folder.remove_parts(run)


class _Opened(NamedTuple):
    """A command with its folder and its data, which are not read yet."""

    command: Command
    run: Workdir
    task: Task[Any]
    inputs: RunInputs
    lock: _Lock


def run_training(
    open_task: OpenTask,
    write_pages: Callable[[Path, Vectors], bool],
    command: Command,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
) -> Result:
    """Trains as `command` asks, and writes all results to its folder; see
    `api.train.train`.

    Args:
      write_pages: called with the folder of a run that has just been finished, unless
        `report` is off; returns whether there is a report.
    """
    use_threads()
    stop = stop or Stop()
    state, mirror, plan = RunState("new"), None, None
    with _Lock() as lock:
        with processes.fail_together():
            opened = _open(open_task, command, lock)
            if processes.is_first():
                state, mirror = _decide(opened)
        processes.check_agreement(_input_facts(command.config, opened.task))
        state = state.shared()
        if not state.is_finished:
            plan = _plan_together(opened, state)
            with processes.fail_together():
                if processes.is_first():
                    state, plan = _confirm(opened, state, plan, mirror)
            state = state.shared()
        if plan is None or state.is_finished:
            return _finish_again(opened, mirror, stop)
        if state.kind == "extend":
            plan = plan._replace(run=Workdir(opened.run.longer))

        def train() -> Result:
            run = opened.run
            vectors = train_plan(plan, command.restart, on_status, stop, mirror)
            if plan.extension is not None:
                extend.replace(run)
            report = None
            if plan.training.config.save.report and processes.is_first():
                report = run.report if write_pages(run.path, vectors) else None
            return Result(run.path, vectors, False, report=report)

        return _with_ending(train, plan.run, mirror, stop)


def _open(open_task: OpenTask, command: Command, lock: _Lock) -> _Opened:
    """Opens the data, and names the folder.

    Raises:
      OSError, InputError: there are no such data, or no run can be in the folder.
    """
    config, base, cache = command.config, command.base, command.cache
    if command.workdir is not None:
        check_path(command.workdir)
    source = command.source
    if source == "-" and processes.num_processes() > 1:
        raise InputError(
            "Corpus - is standard input, which only one process has: write it to a "
            "file that all processes see."
        )
    source = keep_standard_input(source, cache)
    task = open_task(config, source, base, cache, command.workdir)
    run = Workdir(command.workdir or folder.default_workdir(task.name))
    check_path(run.path)
    if base is not None:
        _check_apart(run, base.path)
    inputs = RunInputs(config, None, task.manifest, task.base, source)
    return _Opened(command, run, task, inputs, lock)


def _check_apart(run: Workdir, base: Path) -> None:
    """Refuses a base in the folder of the run, which would overwrite it."""
    path, here = base.resolve(), run.path.resolve()
    if here in (path, *path.parents) and path != run.base.resolve():
        raise InputError(
            "`workdir` must be another folder than that of the run to resume, "
            f"{base}: give --workdir NEW."
        )


def _input_facts(config: Config, task: Task[Any]) -> dict[str, object]:
    """Facts about settings and data that must be equal in all processes of a run."""
    options, per_host = options_of(config).items(), per_host_names()
    return {
        **{f"`{name}`": value for name, value in options if name not in per_host},
        "`resume`": task.base and {**task.base, "path": None},
        "corpus": [{**file, "mtime_ns": None} for file in task.manifest],
    }


def _decide(opened: _Opened) -> tuple[RunState, Mirror | None]:
    """What to do with the run in the folder, and the mirror; on the first process.

    The folder is locked, unless the run is finished and is not extended.
    """
    command, run, _, inputs, lock = opened
    restart = command.restart
    folder.check_free(run)
    _check_has_corpus(run, inputs.source)
    is_moving = extend.is_interrupted(run) and not restart.overwrite
    if restart.overwrite or not run.is_finished or is_moving:
        lock.take(run, restart.force_lock)
    if is_moving:
        extend.replace(run)
    state, target = decide(run, inputs, restart), run
    if state.kind == "extend":
        if command.mirror is not None:
            raise InputError(
                f"`mirror` does not go with more epochs of the finished run {run.path}:"
                " train without it, and then give the same command with a new mirror."
            )
        if not lock.is_held:
            lock.take(run, restart.force_lock)
            state = decide(run, inputs, restart)  # another process may have extended it
        if state.kind == "extend":
            target = Workdir(run.longer)
    if command.mirror is None or run.is_finished or restart.overwrite:
        _check_step(target, restart)
    return state, None if command.mirror is None else Mirror(command.mirror, run)


def _check_has_corpus(run: Workdir, source: str | None) -> None:
    """Refuses to train on the demo corpus in the folder of a run on another corpus that
    has lost its settings."""
    if source is not None or run.is_started or not run.corpus.exists():
        return
    if before := source_of(run):
        raise InputError(
            f"{run.path} has no {run.config.name}, which a run on {shown(before)} "
            "has lost: give the corpus to start anew, or another --workdir."
        )


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


def _plan_together(opened: _Opened, state: RunState) -> Plan:
    """The plan, equal in all processes; the first encodes, the others read that."""
    command, run, task, inputs, _ = opened
    config = with_options(command.config, **state.chosen)
    cache, training = command.cache or run.cache, None
    with processes.fail_together():
        if processes.is_first():
            is_shared = cache != run.cache
            with folder.created_folder(cache, is_shared), name_file_in_errors(cache):
                training = task.plan(config, cache)
                advice = training.memory_advice
                if config.run.replicas > 1:
                    advice = f"give fewer `replicas`, {advice.removeprefix('give ')}"
                check_memory(training.memory, advice)
    with processes.fail_together():
        if training is None:  # memory is not shared with processes of other hosts
            training = task.plan(config, cache if cache.exists() else None)
    processes.check_agreement(
        {
            **reproducibility_facts(training),
            "superblock size": training.updates_per_call,
            "epochs": [training.epochs.start, training.epochs.stop],
        }
    )
    inputs = inputs._replace(resolved=training.config)
    return Plan(run, task, training, inputs, names=task.names)


def _confirm(
    opened: _Opened, state: RunState, plan: Plan, mirror: Mirror | None
) -> tuple[RunState, Plan]:
    """The state and the plan once all settings are known; on the first process.

    A mirror that is further replaces the run.
    """
    command, run = opened.command, opened.run
    restart, training = command.restart, plan.training
    state = state.confirmed(run, plan.inputs, restart)
    recorded = state.recorded_settings(command.config, training.config)
    plan = plan._replace(inputs=plan.inputs._replace(given=recorded))
    if mirror is not None and not state.is_finished:
        mirror.open(plan.inputs, restart)
        _check_step(run, restart)
        if run.is_finished and not restart.overwrite:
            state = RunState("finished")
    if state.kind == "extend":
        extension = extend.plan_extension(run, opened.task, training)
        plan = plan._replace(extension=extension)
        if opened.task.names is None:
            plan = plan._replace(names=read_content(run))
    return state, plan


def _with_ending(
    train: Callable[[], Result], run: Workdir, mirror: Mirror | None, stop: Stop
) -> Result:
    """The result of `train`, after waiting for the mirror; the first process writes an
    error to `run`."""
    try:
        result = train()
    except BaseException as error:
        if processes.is_first():
            write_ending(run, error)
        behind = _close(mirror, stop)
        if isinstance(error, Stopped):
            raise Stopped(error.number, f"{error} {behind}".strip()) from None
        raise
    return result._replace(behind=_close(mirror, stop))


def _close(mirror: Mirror | None, stop: Stop) -> str:
    """Waits for the mirror; returns why it is behind, "" if it is not."""
    if mirror is None:
        return ""
    stop.is_polled = True  # only a second signal ends the waiting
    try:
        return mirror.close()
    finally:
        stop.is_polled = False


def _finish_again(opened: _Opened, mirror: Mirror | None, stop: Stop) -> Result:
    """The result of a finished run: its names and its mirror become those of now."""
    run, names = opened.run, opened.task.names
    with processes.fail_together():
        is_same = names is None or read_content(run, is_checked=False) == names
        if processes.is_first() and not is_same:
            opened.lock.take(run, opened.command.restart.force_lock)
            with name_file_in_errors(run.path):
                keep_names(run, names)
    vectors = read_vectors(run.vectors) if run.is_finished else None
    if mirror is not None:
        if not mirror.is_open:
            mirror.open(read_inputs(run), RestartOptions())
        mirror.start(Checkpoints(run.checkpoints))
    return Result(run.path, vectors, True, _close(mirror, stop))
