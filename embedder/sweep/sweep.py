"""Trains the trials of a sweep side by side, and keeps what is done."""

import contextlib
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from embedder.config import (
    Config,
    options_of,
    per_model_names,
    replicas_of,
    to_toml,
    with_options,
)
from embedder.encoders.options import parse_arguments
from embedder.engine.epochs import (
    RunPosition,
    Snapshot,
    Status,
    is_finite,
    run_epochs,
)
from embedder.engine.memory import check_memory
from embedder.engine.replicas import stack_states, unstack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.families import open_problem
from embedder.problem import Problem
from embedder.run.checkpoints import (
    Checkpoint,
    CheckpointError,
    Checkpoints,
    arrays_of,
    check_path,
    tree_of,
)
from embedder.run.inputs import without_file_secrets
from embedder.run.resuming import snapshot_of
from embedder.run.saving import Saver
from embedder.run.stopping import Stop, Stopped
from embedder.run.workdir import Workdir, locked, remove_parts, write_text
from embedder.sweep.folder import SweepFolder, begin, facts_of
from embedder.sweep.options import SweepOptions, checked, largest_models
from embedder.sweep.scores import Score
from embedder.sweep.search import brackets
from embedder.sweep.space import (
    Choices,
    Space,
    grid,
    is_grid,
    values_of,
    with_settings,
)
from embedder.sweep.trials import (
    Result,
    Trial,
    newest,
    read_results,
    table,
    write_results,
    write_table,
)
from embedder.threads import use_threads

_log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """A finished sweep."""

    results: list[Result]  # the newest of each trial, the best first
    score: Score
    config: Config  # of the best trial
    space: Space


def sweep(
    config: Config,
    space: Space,
    source: str | None,
    workdir: Path,
    options: SweepOptions = SweepOptions(),  # noqa: B008 - it is immutable
    *,
    cache: Path | None = None,
    overwrite: bool = False,
    force_lock: bool = False,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
) -> Outcome:
    """Trains and scores the trials of `space` on the data at `source`.

    Trial 0 has the settings of `config`. What an unfinished sweep in `workdir` has done
    is not done again.

    Args:
      cache: folder of encoded corpora; None: in `workdir`.
      overwrite: start anew where there is a sweep.
      force_lock: write to `workdir` although its lock names another host.

    Raises:
      OSError, InputError: bad input, or `workdir` holds something else.
      FloatingPointError: all trials diverged.
      Stopped: `stop` was requested; what is done is saved.
    """
    use_threads()
    check_path(workdir)
    folder = SweepFolder(workdir)
    folder.check_free()
    config, score, epochs = checked(config, space, options)
    problem = open_problem(config, source, cache=cache)
    facts = facts_of(config, space, score, options, problem)
    with locked(Workdir(workdir), force_lock):
        if overwrite:
            folder.clear()
        begin(folder, facts)
        remove_parts(Workdir(workdir))
        running = _Sweep(
            *(config, space, problem, folder, options, score, cache or folder.cache),
            *(on_status, stop or Stop()),
        )
        running.run(epochs)
        return running.finish()


class _Batch(NamedTuple):
    """Trials that are trained side by side, from one number of epochs to another."""

    trials: list[Trial]
    configs: list[Config]
    start: int  # epochs that are done
    until: int

    @property
    def models(self) -> list[Config]:
        """The settings of each model: of every replica of every trial."""
        return [model for config in self.configs for model in replicas_of(config)]

    @property
    def description(self) -> str:
        """Which trials and epochs, as text."""
        numbers = ", ".join(str(trial.number) for trial in self.trials)
        trials = f"trial{'s' * (len(self.trials) > 1)} {numbers}"
        num = len(self.models)
        beside = f" ({num} models side by side)" if num > 1 else ""
        if self.until == self.start + 1:
            return f"{trials}{beside}: epoch {self.until}"
        return f"{trials}{beside}: epochs {self.start + 1} to {self.until}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint of this batch is recognised by."""
        numbers = [trial.number for trial in self.trials]
        return {"trials": numbers, "start": self.start, "until": self.until}


class _Sweep:
    """A sweep that is being run."""

    def __init__(
        self,
        config: Config,
        space: Space,
        problem: Problem[Any],
        folder: SweepFolder,
        options: SweepOptions,
        score: Score,
        cache: Path,
        on_status: Callable[[Status], None],
        stop: Stop,
    ):
        self._config = config
        self._space = space
        self._problem = problem
        self._folder = folder
        self._options = options
        self._score = score
        self._cache = cache
        self._on_status = on_status
        self._stop = stop
        self._results = read_results(folder.results)
        replicas = config.run.replicas
        self._at_once = max(1, options.side_by_side // replicas)

    def run(self, rungs: Sequence[int]) -> None:
        """Runs what is not done yet."""
        options = self._options
        self._check_memory()
        for trials in brackets(
            *(self._space, self._config, options.trials, self._at_once),
            lambda: self._results,
        ):
            self._run_bracket(trials, rungs)

    def _check_memory(self) -> None:
        """Refuses a space whose largest models do not fit, before any is trained."""
        num = self._options.trials
        if is_grid(self._space):
            num = 1 + len(grid(self._space))
        for models in largest_models(self._config, self._space, self._options, num):
            self._plan(models[0], models)

    def finish(self) -> Outcome:
        """Writes best.toml, and the table, which a kill may have prevented.

        Raises:
          FloatingPointError: all trials diverged.
        """
        ranked = newest(self._results)
        if ranked[0].score is None:
            raise FloatingPointError(
                f"None of {len(ranked)} trials has a score, since all diverged: try "
                "smaller rates."
            )
        best = with_settings(self._config, ranked[0].trial.settings)
        self._write()
        write_text(self._folder.best, to_toml(without_file_secrets(best)))
        return Outcome(ranked, self._score, best, self._space)

    def _run_bracket(self, trials: list[Trial], rungs: Sequence[int]) -> None:
        start = 0
        trials = [trial for trial in trials if self._fits(trial, rungs[0])]
        for until in rungs:
            for batch in self._batches(trials, start, until):
                if missing := self._missing(batch):
                    self._run_batch(missing, keeps_states=until != rungs[-1])
            trials = self._survivors(trials, until)
            for path in self._states(self._dropped(trials)):
                shutil.rmtree(path, ignore_errors=True)
            start = until
        shutil.rmtree(self._folder.states, ignore_errors=True)

    def _fits(self, trial: Trial, epochs: int) -> bool:
        """Whether its settings fit together; if not it has a result without a score."""
        try:
            with_settings(self._config, trial.settings)
        except InputError as error:
            if self._result(trial, epochs) is None:
                _log.warning("trial %d has no score: %s", trial.number, error)
                values = dict.fromkeys(self._space) | trial.settings
                self._results.append(Result(trial, epochs, (), values, 0.0))
                self._write()
            return False
        return True

    def _missing(self, batch: _Batch) -> _Batch | None:
        """The trials of a batch that have no result yet; None: there are none."""
        pairs = zip(batch.trials, batch.configs, strict=True)
        kept = [(t, c) for t, c in pairs if self._result(t, batch.until) is None]
        if not kept:
            return None
        return batch._replace(trials=[t for t, _ in kept], configs=[c for _, c in kept])

    def _survivors(self, trials: Sequence[Trial], epochs: int) -> list[Trial]:
        """The best of each `halving` trials, and trial 0 to compare them with."""
        rate = self._options.halving
        results = [self._result(trial, epochs) for trial in trials]
        ranked = newest([result for result in results if result is not None])
        sound = [each.trial for each in ranked if each.score is not None]
        kept = sound[: math.ceil(len(trials) / rate)] if rate else sound
        given = [trial for trial in sound if trial.number == 0 and trial not in kept]
        return sorted(kept + given, key=lambda trial: trial.number)

    def _dropped(self, kept: Sequence[Trial]) -> set[int]:
        """The numbers of the trials with states that are not `kept`."""
        there = self._folder.states
        names = [path.name for path in there.iterdir()] if there.exists() else []
        numbers = {int(name) for name in names if name.isdecimal()}
        return numbers - {trial.number for trial in kept}

    def _states(self, numbers: Iterable[int]) -> Iterator[Path]:
        return (self._folder.states / f"{number:04}" for number in numbers)

    def _result(self, trial: Trial, epochs: int) -> Result | None:
        found = (
            each
            for each in self._results
            if (each.trial.number, each.epochs) == (trial.number, epochs)
        )
        return next(found, None)

    def _batches(
        self, trials: Sequence[Trial], start: int, until: int
    ) -> Iterator[_Batch]:
        """Trials that one program trains, as many at a time as are to be."""
        groups: dict[Any, list[tuple[Trial, Config]]] = {}
        for trial in trials:
            config = with_settings(self._config, trial.settings)
            groups.setdefault(_group(config, self._config), []).append((trial, config))
        for group in groups.values():
            for first in range(0, len(group), self._at_once):
                part = group[first : first + self._at_once]
                yield _Batch([t for t, _ in part], [c for _, c in part], start, until)

    def _run_batch(self, batch: _Batch, keeps_states: bool) -> None:
        """Trains and scores a batch; it counts as done once its results are written."""
        began = time.monotonic()
        _log.info("%s of %d", batch.description, self._config.run.epochs)
        training = self._plan(self._shared(batch), batch.models)
        scorer = self._score.scorer(training)
        end = self._trained(training, batch)
        states = _each(end.state, len(batch.models))
        scores = [
            scorer(model, state) if is_finite(state.params) else math.nan
            for model, state in zip(training.replicas, states, strict=True)
        ]
        replicas = self._config.run.replicas
        parts = [slice(k, k + replicas) for k in range(0, len(batch.models), replicas)]
        if keeps_states:
            for trial, part in zip(batch.trials, parts, strict=True):
                self._save(trial, states[part], end.position)
        seconds = round((time.monotonic() - began) / len(batch.trials), 3)
        shared = options_of(training.config)  # `layers` are resolved there
        for trial, part in zip(batch.trials, parts, strict=True):
            values = values_of(training.replicas[part.start], self._space)
            values |= {name: shared[name] for name in values if name == "layers"}
            scored = _finite(scores[part])
            self._results.append(Result(trial, batch.until, scored, values, seconds))
        self._write()
        self._log_best()
        shutil.rmtree(self._folder.running, ignore_errors=True)

    def _plan(self, config: Config, models: list[Config]) -> Any:
        """A training of `models`; InputError if they do not fit into the memory."""
        try:
            training = self._problem.plan(config, self._cache, models)
            check_memory(training.memory, training.memory_advice)
        except InputError as error:
            if len(models) == 1:
                raise
            raise InputError(
                f"{error} Of {len(models)} models side by side: see --side-by-side."
            ) from error
        return training

    def _shared(self, batch: _Batch) -> Config:
        """The settings of all models of a batch; the window is the largest of all
        trials, so that batches share a program."""
        config = batch.configs[0]
        if config.run.model != "tokens" or "window" not in self._space:
            return config
        window = self._space["window"]
        tried = window.values if isinstance(window, Choices) else (window.high,)
        fitting = []
        for each in (*tried, self._config.tables.window):
            with contextlib.suppress(InputError):  # no trial has it with these blocks
                fitting.append(with_options(config, window=each))
        alike = (x for x in fitting if _block_sizes(x) == _block_sizes(config))
        return max(alike, key=lambda each: each.tables.max_distance)

    def _trained(self, training: Any, batch: _Batch) -> Snapshot:
        """The models of a batch after its last epoch."""
        checkpoints = Checkpoints(self._folder.running / "checkpoints", keep=1)
        start = self._start(training, batch, checkpoints)
        self._folder.running.mkdir(exist_ok=True)
        saver = Saver(
            *(checkpoints, self._config.save.interval, self._stop),
            start=start.position,
            facts={"batch": batch.facts},
        )

        def handle(status: Status) -> None:
            self._on_status(status)
            saver(status)

        try:
            return run_epochs(
                *(training, start.state, handle, start.position, saver.pause),
                until=batch.until,
            )
        except Stopped as stop:
            text = "Stopped; what is done is saved. The same command again resumes."
            raise Stopped(stop.number, text) from stop
        finally:
            saver.finish()

    def _start(
        self, training: Any, batch: _Batch, checkpoints: Checkpoints
    ) -> Snapshot:
        """Where a batch starts: in a checkpoint of itself, at the states of its trials,
        or before the first update."""
        checkpoints.remove_parts()
        found = checkpoints.newest()
        if found is not None and found.facts.get("batch") == batch.facts:
            snapshot = snapshot_of(found, training)
            _log.info("Resumes after %d updates.", snapshot.position.updates)
            return snapshot
        shutil.rmtree(self._folder.running, ignore_errors=True)
        initial = training.initial_state()
        if not batch.start:
            return Snapshot(initial, RunPosition(0))
        replicas = self._config.run.replicas
        like = _joined(_each(initial, len(batch.models))[:replicas])
        saved = [self._saved(trial, batch.start) for trial in batch.trials]
        states = [tree_of(each.arrays, like) for each in saved]
        place = saved[0].facts["place"]
        position = RunPosition(
            batch.start,
            progress=place["progress"],
            updates=max(each.facts["place"]["updates"] for each in saved),
            history=tuple(map(tuple, place["history"])),
        )
        models = [model for state in states for model in _each(state, replicas)]
        return Snapshot(_joined(models), position)

    def _saved(self, trial: Trial, epochs: int) -> Checkpoint:
        (path,) = self._states([trial.number])
        try:
            return Checkpoints(path).read(epochs)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}: give another --workdir, or --overwrite to start anew."
            ) from error

    def _save(
        self, trial: Trial, states: list[TrainState], position: RunPosition
    ) -> None:
        (path,) = self._states([trial.number])
        path.mkdir(parents=True, exist_ok=True)
        checkpoints = Checkpoints(path)
        arrays = arrays_of(_joined(states))
        checkpoints.save(position.epoch, arrays, {"place": position._asdict()})
        checkpoints.wait()

    def _log_best(self) -> None:
        best, score = newest(self._results)[0], self._score
        if best.score is not None:
            _log.info(
                "best so far: trial %d, %s %.4f",
                *(best.trial.number, score.name, score.sign * best.score),
            )

    def _write(self) -> None:
        write_results(self._folder.results, self._results)
        frame = table(self._results, self._score.name, self._score.sign)
        write_table(self._folder.table, frame)


def _group(config: Config, given: Config) -> tuple[Config, Any]:
    """What models that are trained side by side have in common."""
    names = per_model_names() & {*options_of(config)}
    common = {name: options_of(given)[name] for name in names}
    if config.run.model != "encoder":  # an integer is a window for any block
        return with_options(config, **common | {"window": 1}), _block_sizes(config)
    shared = with_options(config, **common)
    arguments = parse_arguments(config.encoder.optimizer_args)
    return shared, frozenset(
        (name, value if isinstance(value, bool) else None)
        for name, value in arguments.items()
    )


def _block_sizes(config: Config) -> tuple[int, int]:
    """Tokens of a block and noise tokens of a tile, whose defaults are others with
    `window` session."""
    return config.tables.block_or_default, config.tables.num_noise


def _each(state: TrainState, num: int) -> list[TrainState]:
    """The states of `num` models."""
    return unstack_states(state) if num > 1 else [state]


def _joined(states: Sequence[TrainState]) -> TrainState:
    """Some states as that of a training of as many models."""
    return stack_states(states) if len(states) > 1 else states[0]


def _finite(scores: Sequence[float]) -> tuple[float, ...]:
    """`scores`, or none if one is not finite."""
    return tuple(scores) if all(map(math.isfinite, scores)) else ()
