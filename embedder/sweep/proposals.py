"""Which trials to make: a whole grid at once, or some at a time that optuna proposes.

Proposals are a pure function of the space, the seed and the results so far, so that a
sweep that was killed goes on as it would have. No settings are proposed twice.
"""

import itertools
import logging
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
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

_log = logging.getLogger(__name__)
_RANDOM = 10  # first trials, which are drawn at random
_ASKED = 16  # times that optuna is asked for settings which are not tried yet
_LISTED = 2**16  # settings of a space without fractions that are listed, at most

Brackets = Iterator[list[Trial]]
"""Trials that are compared with each other, some at a time."""


def brackets(
    space: Space,
    config: Config,
    num_trials: Sequence[int],
    at_once: int,
    results: Callable[[], Sequence[Result]],
) -> Brackets:
    """The trials of a sweep, of which number 0 has the settings of `config`.

    Args:
      num_trials: of a search, rising; the last are all, those before it are where an
        earlier search ended, of which this one is the continuation.
      at_once: trials of a search that are proposed together.
      results: all results so far.
    """
    first_trial = Trial(0, {})
    if is_grid(space):
        settings = [each for each in grid(space) if not _is_given(config, each)]
        yield [first_trial, *(Trial(n, each) for n, each in enumerate(settings, 1))]
        return
    start = 0
    while start < num_trials[-1]:
        end = next(each for each in num_trials if each > start)
        numbers = range(start, min(start + at_once, end))
        wanted = [number for number in numbers if number]
        before = [each for each in results() if each.trial.number < start]
        proposals = _proposals(space, config, wanted, before)
        done = {each.trial.number: each.trial for each in results()}
        pairs = zip(wanted, proposals, strict=False)
        trials = [done.get(number, Trial(number, each)) for number, each in pairs]
        if trials or not start:
            yield trials if start else [first_trial, *trials]
        if len(trials) < len(wanted):
            tried = start + len(trials) + (not start)
            text = "All settings of SPACE are tried: %d trials, not %d."
            _log.warning(text, tried, num_trials[-1])
            return
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
    """Settings for the trials with these numbers, given the results `before`; fewer
    where all are tried."""
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
    tried = [each.trial.settings for each in before]

    def is_new(settings: Settings) -> bool:
        return settings not in tried and not _is_given(config, settings)

    for _ in numbers:
        asked = (
            _settings(space, study.ask(distributions).params) for _ in range(_ASKED)
        )
        found = next(filter(is_new, asked), None)
        found = found or next(filter(is_new, _listed(space)), None)
        if found is None:
            break
        tried.append(found)
    return tried[len(before) :]


def _settings(space: Space, params: dict[str, Any]) -> Settings:
    """What optuna proposes, as settings."""
    return {
        name: tried.values[proposed] if isinstance(tried, Choices) else proposed
        for name, proposed in params.items()
        for tried in [space[name]]
    }


def _listed(space: Space) -> Iterator[Settings]:
    """All settings of a space, none if these are not few."""
    values: list[Collection[Any]] = []
    for each in space.values():
        if isinstance(each, Choices):
            values.append(each.values)
        elif each.is_integer:
            values.append(range(int(each.low), int(each.high) + 1))
        else:
            return
    if math.prod(map(len, values)) <= _LISTED:
        for chosen in itertools.product(*values):
            yield dict(zip(space, chosen, strict=True))


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
