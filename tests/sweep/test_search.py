"""Which trials are made: a grid at once, or proposals from the results so far."""

import sys

import pytest
from optuna.trial import TrialState

from embedder.config import Config, with_options
from embedder.errors import InputError
from embedder.sweep.search import (
    _distribution,
    _finished,
    brackets,
    check_optuna,
)
from embedder.sweep.space import Choices, Range
from embedder.sweep.trials import Result, Trial

CONFIG = with_options(Config(), seed=3)
SEARCHED = {
    "alpha": Range(0.01, 0.1, is_log=True, is_integer=False),
    "window": Range(2, 9, is_log=False, is_integer=True),
    "architecture": Choices(("skipgram", "cbow")),
}


def scored(trial: Trial, epochs: int = 2) -> Result:
    """Best where alpha is 0.02; window 9 diverges."""
    given = {"alpha": 0.05, "window": 5, "architecture": "skipgram"}
    settings = trial.settings or given
    score = -abs(settings["alpha"] - 0.02)
    scores = () if settings["window"] == 9 else (score,)
    return Result(trial, epochs, scores, settings, 1.0)


def searched(num_trials: int, at_once: int, results: list[Result]) -> list[list[Trial]]:
    """The brackets of a search, which adds to `results` all that they lack."""
    found = []
    so_far = results.copy
    for trials in brackets(SEARCHED, CONFIG, num_trials, at_once, so_far):
        found.append(trials)
        known = {result.trial.number for result in results}
        results += [scored(each) for each in trials if each.number not in known]
    return found


def test_a_grid_is_one_bracket_with_the_given_settings_first():
    space = {"window": Choices((2, 5)), "negative": Choices((5, 10))}
    (trials,) = brackets(space, CONFIG, 99, 1, list)
    assert [each.number for each in trials] == [0, 1, 2, 3]
    assert trials[0].settings == {}
    settings = [{"window": 2, "negative": 5}, {"window": 2, "negative": 10}]
    settings += [{"window": 5, "negative": 10}]  # window 5 and negative 5 are given
    assert [each.settings for each in trials[1:]] == settings


def test_a_search_proposes_some_at_a_time_within_the_ranges():
    found = searched(23, 5, [])
    assert [len(each) for each in found] == [5, 5, 5, 5, 3]
    trials = [trial for each in found for trial in each]
    assert [each.number for each in trials] == [*range(23)]
    assert trials[0].settings == {}
    for trial in trials[1:]:
        assert 0.01 <= trial.settings["alpha"] <= 0.1
        assert trial.settings["window"] in range(2, 10)
        assert trial.settings["architecture"] in ("skipgram", "cbow")
    assert len({trial.settings["alpha"] for trial in trials[1:]}) == 22


def test_a_search_learns_from_results():
    trials = [trial for each in searched(60, 5, []) for trial in each]
    late = [abs(each.settings["alpha"] - 0.02) for each in trials[40:]]
    early = [abs(each.settings["alpha"] - 0.02) for each in trials[1:11]]
    assert sorted(late)[10] < sorted(early)[5]


def test_a_search_goes_on_as_it_would_have():
    """With the results of a whole bracket, or of one that a kill has cut."""
    whole: list[Result] = []
    expected = searched(20, 4, whole)
    for known in (4, 8, 11, 20):
        assert searched(20, 4, whole[:known]) == expected


def test_dropped_trials_count_as_pruned():
    results: list[Result] = []
    first = brackets(SEARCHED, CONFIG, 12, 6, lambda: results)
    results += [scored(each, 1 + each.number % 2) for each in next(first)]
    assert len(next(first)) == 6
    pruned = [
        _finished(SEARCHED, _distributions(), each, results) for each in results[1:]
    ]
    states = {each.state for each in pruned}
    assert states <= {TrialState.PRUNED, TrialState.COMPLETE, TrialState.FAIL}
    assert TrialState.PRUNED in states and TrialState.COMPLETE in states


def _distributions():
    return {name: _distribution(each) for name, each in SEARCHED.items()}


@pytest.mark.row("B8")
def test_without_optuna_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"`steps` .*Optuna.*'embedder-jax\[sweep\]'"):
        check_optuna()
