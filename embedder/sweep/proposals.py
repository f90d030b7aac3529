"""Which trials to make: a whole grid at once, or some at a time that optuna proposes.

Proposals are a pure function of the space, the seed and the results so far, so that a
sweep that was killed goes on as it would have.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from embedder.config import Config
from embedder.errors import InputError
from embedder.sweep.space import (
    Choices,
    Range,
    Settings,
    Space,
    grid,
    is_grid,
    with_settings,
)
from embedder.sweep.trials import Result, Trial, newest

_RANDOM = 10  # first trials, which are drawn at random

Brackets = Iterator[list[Trial]]
"""Trials that are compared with each other, some at a time."""


def brackets(
    space: Space,
    config: Config,
    num_trials: int,
    at_once: int,
    results: Callable[[], Sequence[Result]],
) -> Brackets:
    """The trials of a sweep, of which number 0 has the settings of `config`.

    Args:
      num_trials: of a search.
      at_once: trials of a search that are proposed together.
      results: all results so far.
    """
    first_trial = Trial(0, {})
    if is_grid(space):
        settings = [each for each in grid(space) if not _is_given(config, each)]
        yield [first_trial, *(Trial(n, each) for n, each in enumerate(settings, 1))]
        return
    start = 0
    while start < num_trials:
        numbers = range(start, min(start + at_once, num_trials))
        wanted = [number for number in numbers if number]
        before = [each for each in results() if each.trial.number < start]
        proposals = _proposals(space, config, wanted, before)
        trials = [Trial(n, each) for n, each in zip(wanted, proposals, strict=True)]
        yield trials if start else [first_trial, *trials]
        start = numbers.stop


def _is_given(config: Config, settings: Settings) -> bool:
    """Whether these are the settings of trial 0."""
    try:
        return with_settings(config, settings) == config
    except InputError:  # the trial will have no score
        return False


def _proposals(
    space: Space, config: Config, numbers: Sequence[int], before: Sequence[Result]
) -> list[Settings]:
    """Settings for the trials with these numbers, given the results `before`."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {name: _distribution(each) for name, each in space.items()}
    seed = (config.run.seed + numbers[0]) % 2**32 if numbers else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # options of the sampler are experimental
        sampler = optuna.samplers.TPESampler(
            seed=seed, constant_liar=True, n_startup_trials=_RANDOM
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    ranked = [each for each in newest(before) if each.trial.settings]
    for result in sorted(ranked, key=lambda each: each.trial.number):
        study.add_trial(_finished(space, distributions, result, ranked))
    return [
        {
            name: tried.values[proposed] if isinstance(tried, Choices) else proposed
            for name, proposed in study.ask(distributions).params.items()
            for tried in [space[name]]
        }
        for _ in numbers
    ]


def _finished(
    space: Space,
    distributions: dict[str, Any],
    result: Result,
    ranked: Sequence[Result],
) -> Any:
    """A result as a trial of optuna, pruned where others had more epochs."""
    from optuna.trial import TrialState, create_trial

    params = {
        name: each.values.index(result.trial.settings[name])
        if isinstance(each, Choices)
        else result.trial.settings[name]
        for name, each in space.items()
    }
    if result.score is None:
        state: dict[str, Any] = {"state": TrialState.FAIL}
    elif result.epochs < max(each.epochs for each in ranked):
        pruned = {result.epochs: result.score}
        state = {"state": TrialState.PRUNED, "intermediate_values": pruned}
    else:
        state = {"value": result.score}
    return create_trial(params=params, distributions=distributions, **state)


def _distribution(dimension: Choices | Range) -> Any:
    """Values are searched by their index, since optuna takes no lists."""
    from optuna import distributions as of

    if isinstance(dimension, Choices):
        return of.CategoricalDistribution(range(len(dimension.values)))
    low, high, is_log, is_integer = dimension
    if is_integer:
        return of.IntDistribution(int(low), int(high), log=is_log)
    return of.FloatDistribution(low, high, log=is_log)
