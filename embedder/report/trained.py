"""The parts of a page about any training, and the reports of trainings in Python, which
have no folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from embedder.config import Config, make_config, options_of
from embedder.metrics.score_table import ScoreTable
from embedder.report.chart import Chart, Series, line_chart
from embedder.report.metrics import Metrics
from embedder.report.page import Page, Report, Setting, Settings, make_report
from embedder.report.points import FULL, Map
from embedder.report.predictions import Predictions
from embedder.report.text import duration, end_of, number, short
from embedder.report.timeline import ProgressLine, timeline
from embedder.report.tokens import NO_EXTRAS, Extras, with_tokens
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.vectors import Vectors

History = Sequence[Mapping[str, float | None]]
"""The lines of epochs, as in metrics.jsonl; at least with the loss of each."""


def training_page(
    title: str,
    facts: list[tuple[str, str]],
    metrics: Metrics,
    config: Config,
    progress: Sequence[ProgressLine],
    *,
    chosen: dict[str, Any] | None = None,
    ended: tuple[int, int, str] | None = None,
) -> Page:
    """A page with the results, the settings and the curves of a training.

    Args:
      progress: lines of times within epochs, as in progress.jsonl.
      chosen: see `settings_of`.
      ended: `epochs`, `patience` and `unfinished` of `results`; None: all epochs of
        `metrics` are done.
    """
    chart, shares = timeline(metrics, progress)
    return Page(
        title=title,
        facts=facts,
        results=results(metrics, *(ended or (len(metrics.lines), 0, ""))),
        settings=settings_of(config, chosen),
        curves=tuple(curves([("", metrics)])),
        time=chart,
        timings=tuple((name, f"{100 * x:.3g} %") for name, x in shares.items()),
    )


def curves(runs: list[tuple[str, Metrics]]) -> list[Chart]:
    """A chart of each metric, with a line for each run.

    A metric of training and of validation, `train_loss` and `val_loss`, share a chart,
    and so do a score and its baseline, `held_out by frequencies alone`.
    """
    series_by_chart: dict[str, list[Series]] = {}
    for run, metrics in runs:
        for name in [*metrics.scores, *metrics.others]:
            known = metrics.shown_name(name)
            title = known.removeprefix("val_").removeprefix("train_").split(" by ")[0]
            label = known if not run else run if known == title else f"{run}, {known}"
            series = Series(label, metrics.points(name))
            series_by_chart.setdefault(title, []).append(series)
    order = sorted(series_by_chart, key=lambda name: name != "loss")
    charts = (line_chart(name, series_by_chart[name]) for name in order)
    return [chart for chart in charts if chart is not None]


def results(
    metrics: Metrics, epochs: int, patience: int, unfinished: str = ""
) -> list[tuple[str, str]]:
    """How a training ended, as names and texts.

    Args:
      unfinished: why it is not finished; "": it is.
    """
    done = len(metrics.epoch_ends)
    end = unfinished or end_of(done, epochs, patience)
    rows = [("epochs", f"{done} of {epochs}"), ("end", end)]
    if metrics.lines or metrics.within:
        compiling = metrics.last("compile_seconds")
        about = f", {compiling:.1f} s of it to compile" if compiling else ""
        rows.append(("time", duration(metrics.seconds) + about))
        if metrics.updates is not None:
            rows.append(("updates", number(metrics.updates)))
        speed = metrics.last(f"{metrics.unit}_per_second")
        if metrics.unit and speed is not None:
            rows.append((f"{metrics.items_name}/s", number(speed)))
        if metrics.cpu_busy is not None:
            rows.append(("CPU busy", f"{100 * metrics.cpu_busy:.0f} % of all cores"))
    at = ", the last" if unfinished else " at the end"
    for name in metrics.scores:
        value = metrics.last(name)
        if value is not None:
            rows.append((name + ("" if " by " in name else at), f"{value:.4f}"))
    return rows


def settings_of(config: Config, chosen: dict[str, Any] | None = None) -> Settings:
    """The settings of `config`.

    Args:
      chosen: those that were left open, as `run_record.open_settings` returns them.
    """
    values = options_of(config)
    defaults = options_of(make_config({"model": config.run.model}))
    settings = Settings([], [], [])
    for name, value in values.items():
        texts = (_text(_rounded(each)) for each in (value, defaults[name]))
        setting = Setting(name, *texts)
        if name in (chosen or {}):
            settings.chosen.append(setting)
        elif value != defaults[name]:
            settings.changed.append(setting)
        else:
            settings.defaults.append(setting)
    return settings


def different(configs: list[Config]) -> list[tuple[str, list[str]]]:
    """Each setting in which runs differ, with its value in each of them, rounded if the
    values differ still."""
    values = [options_of(config) for config in configs]
    rows = []
    for name in dict.fromkeys(name for each in values for name in each):
        of_runs = [each.get(name) for each in values]
        exact = [*map(_text, of_runs)]
        rounded = [_text(_rounded(each)) for each in of_runs]
        if len({*exact}) > 1:
            is_same = len({*rounded}) == len({*exact})
            rows.append((name, rounded if is_same else exact))
    return rows


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _text(value: Any) -> str:
    if value is None or value == "" or value == ():
        return "–"
    if isinstance(value, tuple | list):
        return short(" ".join(map(str, value)))
    return short(str(value).lower() if isinstance(value, bool) else str(value))


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
    metrics = Metrics(_lines(history), noun=noun)
    page = training_page("Report of a training", facts, metrics, config, progress)
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
    metrics = Metrics(_lines(history))
    page = training_page("Report of an encoder", facts, metrics, config, progress)
    page = page.with_scores(scores or {})
    return make_report(page._replace(predictions=predictions, map=of_map))


def _lines(history: History) -> list[dict[str, float | None]]:
    return [{"epoch": epoch, **line} for epoch, line in enumerate(history, 1)]
