"""How a space is tried: options, the epochs of rungs, and what would be trained."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedder.config import Config, options_of, per_model_names, replicas_of
from embedder.engine.memory import memory_lines
from embedder.errors import InputError
from embedder.families import open_problem
from embedder.options import RunOptions
from embedder.sweep.scores import Choice, Score, score_of, with_held_out
from embedder.sweep.search import brackets, check_optuna
from embedder.sweep.space import Choices, Space, grid, is_grid, with_settings

_MOST_GROUPS = 64  # whose memory is checked before any trial is trained


class SweepOptions(NamedTuple):
    """How a space is tried."""

    score: Choice = "auto"
    pairs: Path | None = None
    trials: int = 32  # of a search
    side_by_side: int = 8  # models that are trained at the same time
    halving: int = 0  # one of so many trials goes on; 0: all
    first_epochs: int = 1  # of the first rung


def checked(
    config: Config, space: Space, options: SweepOptions
) -> tuple[Config, Score, list[int]]:
    """The settings of trial 0, the score, and the epochs of the rungs.

    Raises:
      InputError: the options contradict each other, or `space`.
    """
    for name in ("trials", "side_by_side"):
        if getattr(options, name) < 1:
            raise InputError(
                f"`{name}` must be an integer >= 1, got {getattr(options, name)}."
            )
    replicas = config.run.replicas
    if replicas > 1 and options.side_by_side < replicas:
        raise InputError(
            f"`side_by_side` must hold the {replicas} `replicas` of a trial, got "
            f"{options.side_by_side}."
        )
    if not is_grid(space) and options.side_by_side // replicas < options.halving:
        raise InputError(
            "`side_by_side` must hold `halving` trials of a search, which are compared "
            f"with each other, got {options.side_by_side} models of {replicas} "
            f"replicas each with `halving` {options.halving}."
        )
    if not is_grid(space):
        check_optuna()
    if not config.run.epochs:
        raise InputError("`epochs` must be an integer >= 1 in a sweep, got 0.")
    _check_unevaluated(config)
    score = score_of(options.score, config, options.pairs)
    if score.name == "held_out" and "architecture" in space:
        raise InputError(
            "SPACE must not have `architecture` with `score` held-out: skip-gram and "
            "CBOW predict other things. Give --score next-item or pairs."
        )
    config = with_held_out(config, score)
    return config, score, rungs(config.run.epochs, options)


def _check_unevaluated(config: Config) -> None:
    """Refuses settings of evaluations while a single model is trained."""
    for name in ("eval_every", "patience"):
        if (value := getattr(config.run, name)) != getattr(RunOptions(), name):
            raise InputError(
                f"`{name}` applies only to train, got {value!r}: a sweep scores trials "
                "after their last epoch, and ends some early by --halving."
            )


def rungs(epochs: int, options: SweepOptions) -> list[int]:
    """The epochs after which trials are scored: with halving 1, 3, 9 of 9, say.

    Reference: successive halving, Jamieson and Talwalkar 2016, arXiv:1502.07943.

    Raises:
      InputError: `halving` or `first_epochs` do not fit `epochs`.
    """
    first, rate = options.first_epochs, options.halving
    if rate == 0:
        return [epochs]
    if rate < 2:
        raise InputError(f"`halving` must be 0 or an integer >= 2, got {rate}.")
    if not 1 <= first <= epochs:
        raise InputError(
            f"`first_epochs` must be from 1 to `epochs` {epochs}, got {first}."
        )
    found = [first]
    while found[-1] < epochs:
        found.append(min(found[-1] * rate, epochs))
    return found


def largest_models(
    config: Config, space: Space, options: SweepOptions, num_trials: int
) -> Iterator[list[Config]]:
    """For each group of trials, as many models as are trained side by side at most; of
    ranges that make groups, for their ends."""
    per_model = per_model_names() | ({*space} - {*options_of(config)})
    if "session" in getattr(space.get("window"), "values", ()):
        per_model = per_model - {"window"}  # its blocks are larger
    at_once = max(1, min(num_trials, options.side_by_side // config.run.replicas))
    ends: Space = {
        name: each if isinstance(each, Choices) else Choices((each.low, each.high))
        for name, each in space.items()
        if name not in per_model
    }
    for settings in [{}, *grid(ends)][: _MOST_GROUPS + 1]:
        try:
            largest = with_settings(config, settings)
        except InputError:  # such a trial will have no score
            continue
        yield replicas_of(largest) * at_once


def preview(
    config: Config,
    space: Space,
    source: str | None,
    options: SweepOptions,
    *,
    cache: Path | None = None,
) -> str:
    """What `sweep` would do, as text; only `cache` is written to, if it is given.

    Raises:
      OSError, InputError: bad input.
    """
    config, score, epochs = checked(config, space, options)
    first = next(brackets(space, config, options.trials, 1, list))
    num = len(first) if is_grid(space) else options.trials
    with tempfile.TemporaryDirectory() as temporary:
        problem = open_problem(config, source, cache=cache)
        largest = largest_models(config, space, options, num)
        training = max(
            (
                problem.plan(models[0], cache or Path(temporary), models)
                for models in largest
            ),
            key=lambda planned: sum(planned.memory.values()),
        )
        return "\n".join(
            [
                f"trials: {num}, compared by {score.name} after "
                f"{_counted(epochs[-1], 'epoch')}"
                + f", of some after {', '.join(map(str, epochs[:-1]))}"
                * (len(epochs) > 1),
                f"side by side: {_counted(len(training.replicas), 'model')}, at most",
                *training.description[:1],
                f"devices: {training.devices_line}",
                *memory_lines(training),
            ]
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
