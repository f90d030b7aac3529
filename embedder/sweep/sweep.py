"""Trains the trials of a sweep side by side, and keeps what is done."""

import contextlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from embedder.api.families import open_task
from embedder.base.threads import use_threads
from embedder.config import (
    Config,
    options_of,
    per_model_names,
    replicas_of,
    to_toml,
    with_options,
)
from embedder.config.encoder_options import parse_arguments
from embedder.disk.files import atomic_file
from embedder.disk.run_record import without_file_secrets
from embedder.disk.workdir import (
    Workdir,
    created_folder,
    locked,
    remove_parts,
    write_text,
)
from embedder.engine.checkpoints import (
    CheckpointError,
    Checkpoints,
    StoredCheckpoint,
    arrays_of,
    check_path,
    tree_of,
)
from embedder.engine.epochs import (
    Checkpoint,
    Progress,
    Status,
    is_finite,
    run_epochs,
)
from embedder.engine.memory import check_memory
from embedder.engine.replicas import stack_states, unstack_states
from embedder.engine.state import TrainState
from embedder.engine.task import Task
from embedder.errors import InputError
from embedder.metrics.scores import Score
from embedder.run.saving import Saver, checkpoint_of
from embedder.run.stopping import Stop, Stopped
from embedder.sweep.folder import SweepFolder, check_same, facts_of
from embedder.sweep.options import SweepOptions, checked, largest_models, scorer
from embedder.sweep.proposals import brackets
from embedder.sweep.space import Choices, Space, grid, is_grid, values_of, with_settings
from embedder.sweep.trials import (
    Result,
    Trial,
    newest,
    read_results,
    table,
    write_results,
)

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
    task = open_task(config, source, cache=cache)
    facts = facts_of(config, space, score, options, task)
    with locked(Workdir(workdir), force_lock):
        before = [] if overwrite else check_same(folder, facts)
        if before:
            facts["search"]["before"] = before
        remove_parts(Workdir(workdir))
        running = _Sweep(
            *(config, space, task, folder, options, score, cache or folder.cache),
            *(on_status, stop or Stop(), [*before, options.trials]),
        )
        running.check()
        if overwrite:
            folder.clear()
        if before or not folder.is_begun:
            write_text(folder.facts, json.dumps(facts, indent=2) + "\n")
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


@dataclass
class _Sweep:
    """A sweep that is being run."""

    config: Config
    space: Space
    task: Task[Any]
    folder: SweepFolder
    options: SweepOptions
    score: Score
    cache: Path
    on_status: Callable[[Status], None]
    stop: Stop
    num_trials: list[int]  # see `brackets`
    results: list[Result] = field(default_factory=list)

    @property
    def _at_once(self) -> int:
        """Trials that are trained side by side."""
        return max(1, self.options.side_by_side // self.config.run.replicas)

    def run(self, rungs: Sequence[int]) -> None:
        """Runs what is not done yet."""
        self.results = read_results(self.folder.results)
        about = self.space, self.config, self.num_trials, self._at_once
        for trials in brackets(*about, lambda: self.results):
            self._run_bracket(trials, rungs)

    def check(self) -> None:
        """Refuses a space whose largest models do not fit, and data that cannot be
        scored, before anything is written but the cache, which is removed then."""
        is_all = is_grid(self.space)
        num = 1 + len(grid(self.space)) if is_all else self.options.trials
        largest = largest_models(self.config, self.space, self.options, num)
        with created_folder(self.cache, self.cache != self.folder.cache):
            for index, models in enumerate(largest):
                training = self._plan(models[0], models)
                if index == 0:
                    scorer(self.score, training, self.options.pairs)

    def finish(self) -> Outcome:
        """Writes best.toml, and the table, which a kill may have prevented.

        Raises:
          FloatingPointError: all trials diverged.
        """
        # A kill after the last trial leaves it.
        shutil.rmtree(self.folder.running, ignore_errors=True)
        ranked = newest(self.results)
        if ranked[0].score is None:
            raise FloatingPointError(
                f"None of {len(ranked)} trials has a score, since all diverged: try "
                "smaller rates."
            )
        best = with_settings(self.config, ranked[0].trial.settings)
        self._write_results()
        write_text(self.folder.best, to_toml(without_file_secrets(best)))
        return Outcome(ranked, self.score, best, self.space)

    def _run_bracket(self, trials: list[Trial], rungs: Sequence[int]) -> None:
        start = 0
        trials = [trial for trial in trials if self._fits(trial, rungs[0])]
        for until in rungs:
            for batch in self._batches(trials, start, until):
                if missing := self._without_results(batch):
                    self._run_batch(missing, keeps_states=until != rungs[-1])
            trials = self._survivors(trials, until)
            numbers = {trial.number for trial in trials}
            for path in self.folder.states.glob("*"):
                if path.name.isdecimal() and int(path.name) not in numbers:
                    shutil.rmtree(path, ignore_errors=True)
            start = until
        shutil.rmtree(self.folder.states, ignore_errors=True)

    def _fits(self, trial: Trial, epochs: int) -> bool:
        """Whether its settings fit together; if not it has a result without a score."""
        try:
            with_settings(self.config, trial.settings)
        except InputError as error:
            if self._result(trial, epochs) is None:
                _log.warning("trial %d has no score: %s", trial.number, error)
                values = dict.fromkeys(self.space) | trial.settings
                self.results.append(Result(trial, epochs, (), values, 0.0))
                self._write_results()
            return False
        return True

    def _without_results(self, batch: _Batch) -> _Batch | None:
        """The trials of a batch that have no result yet; None: there are none."""
        pairs = zip(batch.trials, batch.configs, strict=True)
        missing = [(t, c) for t, c in pairs if self._result(t, batch.until) is None]
        if not missing:
            return None
        trials, configs = [t for t, _ in missing], [c for _, c in missing]
        return batch._replace(trials=trials, configs=configs)

    def _survivors(self, trials: Sequence[Trial], epochs: int) -> list[Trial]:
        """The best of each `halving` trials, and trial 0 to compare them with."""
        rate = self.options.halving
        results = [self._result(trial, epochs) for trial in trials]
        ranked = newest([result for result in results if result is not None])
        sound = [each.trial for each in ranked if each.score is not None]
        best = sound[: math.ceil(len(trials) / rate)] if rate else sound
        first = [trial for trial in sound if trial.number == 0 and trial not in best]
        return sorted(best + first, key=lambda trial: trial.number)

    def _states_folder(self, trial: Trial) -> Path:
        """Where the models of a trial are between two rungs."""
        return self.folder.states / f"{trial.number:04}"

    def _result(self, trial: Trial, epochs: int) -> Result | None:
        key = trial.number, epochs
        results = (x for x in self.results if (x.trial.number, x.epochs) == key)
        return next(results, None)

    def _batches(
        self, trials: Sequence[Trial], start: int, until: int
    ) -> Iterator[_Batch]:
        """Trials that one program trains, as many at a time as are to be."""
        groups: dict[Any, list[tuple[Trial, Config]]] = {}
        for trial in trials:
            config = with_settings(self.config, trial.settings)
            groups.setdefault(_group(config, self.config), []).append((trial, config))
        for group in groups.values():
            for first in range(0, len(group), self._at_once):
                part = group[first : first + self._at_once]
                yield _Batch([t for t, _ in part], [c for _, c in part], start, until)

    def _run_batch(self, batch: _Batch, keeps_states: bool) -> None:
        """Trains and scores a batch; it counts as done once its results are written."""
        began = time.monotonic()
        _log.info("%s of %d", batch.description, self.config.run.epochs)
        training = self._plan(self._shared_config(batch), batch.models)
        score_model = scorer(self.score, training, self.options.pairs)
        end = self._train_batch(training, batch)
        states = _unstacked(end.state, len(batch.models))
        scores = [
            score_model(model, state) if is_finite(state.params) else math.nan
            for model, state in zip(training.replicas, states, strict=True)
        ]
        replicas = self.config.run.replicas
        parts = [slice(k, k + replicas) for k in range(0, len(batch.models), replicas)]
        if keeps_states:
            for trial, part in zip(batch.trials, parts, strict=True):
                self._write_states(trial, states[part], end.position)
        seconds = round((time.monotonic() - began) / len(batch.trials), 3)
        shared = options_of(training.config)  # `layers` are resolved there
        for trial, part in zip(batch.trials, parts, strict=True):
            values = values_of(training.replicas[part.start], self.space)
            values |= {name: shared[name] for name in values if name == "layers"}
            own = tuple(scores[part])
            scored = own if all(map(math.isfinite, own)) else ()  # (): it diverged
            self.results.append(Result(trial, batch.until, scored, values, seconds))
        self._write_results()
        best, score = newest(self.results)[0], self.score
        if best.score is not None:
            shown = f"{score.name} {score.sign * best.score:.4f}"
            _log.info("best so far: trial %d, %s", best.trial.number, shown)
        shutil.rmtree(self.folder.running, ignore_errors=True)

    def _plan(self, config: Config, models: list[Config]) -> Any:
        """A training of `models`; InputError if they do not fit into the memory."""
        try:
            training = self.task.plan(config, self.cache, models)
            check_memory(training.memory, training.memory_advice)
        except InputError as error:
            if len(models) == 1:
                raise
            self._plan(config, models[:1])  # it may be refused alone, too
            raise InputError(
                f"{error} Of {len(models)} models side by side: see --side-by-side."
            ) from error
        return training

    def _shared_config(self, batch: _Batch) -> Config:
        """The settings of all models of a batch; the window is the largest of all
        trials, so that batches share a program."""
        config = batch.configs[0]
        if config.run.model != "tokens" or "window" not in self.space:
            return config
        window = self.space["window"]
        tried = window.values if isinstance(window, Choices) else (window.high,)
        fitting = []
        for each in (*tried, self.config.tables.window):
            with contextlib.suppress(InputError):  # no trial has it with these blocks
                fitting.append(with_options(config, window=each))
        alike = (x for x in fitting if _block_sizes(x) == _block_sizes(config))
        return max(alike, key=lambda each: each.tables.max_distance)

    def _train_batch(self, training: Any, batch: _Batch) -> Checkpoint:
        """The models of a batch after its last epoch."""
        checkpoints = Checkpoints(self.folder.running / "checkpoints", keep=1)
        start = self._starting_checkpoint(training, batch, checkpoints)
        self.folder.running.mkdir(exist_ok=True)
        saver = Saver(
            *(checkpoints, self.config.save.interval, self.stop),
            start=start.position,
            facts={"batch": batch.facts},
        )

        def handle(status: Status) -> None:
            self.on_status(status)
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

    def _starting_checkpoint(
        self, training: Any, batch: _Batch, checkpoints: Checkpoints
    ) -> Checkpoint:
        """Where a batch starts: in a checkpoint of itself, at the states of its trials,
        or before the first update."""
        checkpoints.remove_parts()
        stored = checkpoints.newest()
        if stored is not None and stored.facts.get("batch") == batch.facts:
            checkpoint = checkpoint_of(stored, training)
            _log.info("Resumes after %d updates.", checkpoint.position.updates)
            return checkpoint
        shutil.rmtree(self.folder.running, ignore_errors=True)
        initial = training.initial_state()
        if not batch.start:
            return Checkpoint(initial, Progress(0))
        replicas = self.config.run.replicas
        like = _stacked(_unstacked(initial, len(batch.models))[:replicas])
        saved = [self._read_states(trial, batch.start) for trial in batch.trials]
        states = [tree_of(each.arrays, like) for each in saved]
        place = saved[0].facts["place"]
        position = Progress(
            batch.start,
            progress=place["progress"],
            updates=max(each.facts["place"]["updates"] for each in saved),
            history=tuple(map(tuple, place["history"])),
        )
        models = [model for state in states for model in _unstacked(state, replicas)]
        return Checkpoint(_stacked(models), position)

    def _read_states(self, trial: Trial, epochs: int) -> StoredCheckpoint:
        try:
            return Checkpoints(self._states_folder(trial)).read(epochs)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}: give another --workdir, or --overwrite to start anew."
            ) from error

    def _write_states(
        self, trial: Trial, states: list[TrainState], position: Progress
    ) -> None:
        path = self._states_folder(trial)
        path.mkdir(parents=True, exist_ok=True)
        checkpoints, arrays = Checkpoints(path), arrays_of(_stacked(states))
        checkpoints.save(position.epoch, arrays, {"place": position._asdict()})
        checkpoints.wait()

    def _write_results(self) -> None:
        write_results(self.folder.results, self.results)
        frame = table(self.results, self.score.name, self.score.sign)
        with atomic_file(self.folder.table) as part:
            frame.write_csv(part)


def _group(config: Config, of_sweep: Config) -> tuple[Config, Any]:
    """What models that are trained side by side have in common."""
    names = per_model_names() & {*options_of(config)}
    common = {name: options_of(of_sweep)[name] for name in names}
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


def _unstacked(state: TrainState, num: int) -> list[TrainState]:
    """The states of `num` models."""
    return unstack_states(state) if num > 1 else [state]


def _stacked(states: Sequence[TrainState]) -> TrainState:
    """Some states as that of a training of as many models."""
    return stack_states(states) if len(states) > 1 else states[0]
