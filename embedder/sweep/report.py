"""What a finished sweep tells its user: the best trials, and if they are better."""

import logging
import math
from collections.abc import Iterator
from pathlib import Path

from embedder.errors import install_command
from embedder.sweep import picture
from embedder.sweep.folder import SweepFolder
from embedder.sweep.sweep import Outcome
from embedder.sweep.trials import Result

_SHOWN = 10  # trials; trials.csv has all
_log = logging.getLogger(__name__)


def draw_picture(workdir: Path, outcome: Outcome) -> None:
    """Draws trials.svg, or logs that matplotlib is missing."""
    if not picture.has_matplotlib():
        _log.info("trials.svg is not drawn: %s.", install_command("sweep"))
        return
    path = SweepFolder(workdir).picture
    try:
        picture.draw(path, outcome.space, outcome.results, outcome.score)
    except OSError as error:
        _log.warning("%s is not written: %s.", path, error.strerror or error)


def lines(outcome: Outcome) -> Iterator[str]:
    """The best trials and the given settings, a line each, and what follows."""
    shown = outcome.results[:_SHOWN]
    given = next(each for each in outcome.results if each.trial.number == 0)
    for result in shown if given in shown else [*shown, given]:
        yield f"{_described(result, outcome)}: {_settings(result)}"
    yield _conclusion(outcome.results[0], given, outcome)


def _conclusion(best: Result, given: Result, outcome: Outcome) -> str:
    if best is given:
        return "No trial is better than the settings as given."
    if given.score is None:
        return f"Trial {best.trial.number} is the best; the settings as given diverged."
    assert best.score is not None, "a sweep of diverged trials only raises"
    by = best.score - given.score
    text = (
        f"Trial {best.trial.number} is the best: {outcome.score.name} is better by "
        f"{by:.4g} than with the settings as given"
    )
    if best.spread is None or given.spread is None:
        advice = "--replicas 3 in another --workdir tells how much of that is chance."
        return f"{text}. {advice}"
    error = math.sqrt(
        best.spread**2 / len(best.scores) + given.spread**2 / len(given.scores)
    )
    if by < 2 * error:
        return f"{text}, which is less than twice its standard error, {error:.2g}."
    return f"{text}, with a standard error of {error:.2g}."


def _described(result: Result, outcome: Outcome) -> str:
    score = outcome.score
    text = "no score"
    if result.score is not None:
        text = f"{score.name} {score.sign * result.score:.4f}"
    if result.spread is not None:
        text += f" +- {result.spread:.4f}"
    epochs = f"{result.epochs} epoch{'s' * (result.epochs != 1)}"
    return f"trial {result.trial.number}, {epochs}, {text}"


def _settings(result: Result) -> str:
    found = ((name, x) for name, x in result.values.items() if x not in (None, ()))
    text = ", ".join(f"{name} {_shown(value)}" for name, value in found)
    return f"as given ({text})" if result.trial.number == 0 else text


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
