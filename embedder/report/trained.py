"""Reports of trainings in Python, which have no folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from embedder.config import Config
from embedder.evaluation.score_table import ScoreTable
from embedder.report.metrics import Metrics
from embedder.report.page import Page, Report, curves, make_report, results
from embedder.report.points import FULL, Map
from embedder.report.predictions import Predictions
from embedder.report.settings import settings_of
from embedder.report.text import number
from embedder.report.timeline import ProgressLine, shares, timeline
from embedder.report.tokens import NO_EXTRAS, Extras, with_tokens
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.vectors import Vectors

History = Sequence[Mapping[str, float | None]]
"""The lines of epochs, as in metrics.jsonl; at least with the loss of each."""


def report_of_tokens(
    config: Config,
    history: History,
    vectors: Vectors,
    ensemble: Ensemble | None,
    names: Mapping[Any, str] | None = None,
    progress: Sequence[ProgressLine] = (),
    noun: str = "",
    scores: ScoreTable | None = None,
) -> Report:
    """The report of vectors of tokens.

    Args:
      names: of keys, which may be integers.
      progress: lines of times within epochs, as in progress.jsonl.
      noun: what messages call the tokens; "": as the lines do.
      scores: of the vectors, with intervals.
    """
    counts = vectors.counts
    facts = [("types", number(len(vectors)))]
    if counts is not None:
        facts.insert(0, ("tokens of the vocabulary", number(int(counts.sum()))))
    extras = NO_EXTRAS
    if names is not None:
        texts = {str(key): str(name) for key, name in names.items()}
        extras = Extras(lambda keys: [texts.get(key, "") for key in keys])
    page = _page("Report of a training", config, history, facts, progress, noun)
    page = page.with_scores(scores or {})
    return make_report(with_tokens(page, vectors, ensemble, FULL, extras))


def report_of_examples(
    config: Config,
    history: History,
    facts: list[tuple[str, str]],
    predictions: Predictions | None,
    of_map: Map | None,
    progress: Sequence[ProgressLine] = (),
    scores: ScoreTable | None = None,
) -> Report:
    """The report of an encoder."""
    page = _page("Report of an encoder", config, history, facts, progress)
    page = page.with_scores(scores or {})
    return make_report(page._replace(predictions=predictions, map=of_map))


def _page(
    title: str,
    config: Config,
    history: History,
    facts: list[tuple[str, str]],
    progress: Sequence[ProgressLine],
    noun: str = "",
) -> Page:
    lines = [{"epoch": epoch, **line} for epoch, line in enumerate(history, 1)]
    metrics = Metrics(lines, noun=noun)
    return Page(
        title=title,
        facts=facts,
        results=[
            *results(metrics, len(lines), 0),
            *(
                (f"time: {name}", f"{100 * share:.3g} %")
                for name, share in shares(metrics, progress).items()
            ),
        ],
        settings=settings_of(config),
        curves=tuple(curves([("", metrics)])),
        time=timeline(metrics, progress),
    )
