"""The report of a run by its files, of a finished one with its vectors, and of several
runs side by side."""

import logging
import os
import time
from pathlib import Path
from typing import Any

from embedder.base.stages import report_stage
from embedder.base.terminal import shown
from embedder.config import Config, read_toml
from embedder.data.kept_names import kept_names
from embedder.disk.files import short_reason
from embedder.disk.lock import ended_owner
from embedder.disk.run_record import (
    corpus_facts_of,
    manifest_of,
    noun_of,
    open_settings,
    source_of,
)
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.metrics.next_item_scores import read_weights, weights_text
from embedder.metrics.score_table import read_scores, score_rows
from embedder.report.metrics import Metrics, read_metrics
from embedder.report.page import Comparison, Page, make_report
from embedder.report.points import AFTER_TRAINING, Effort
from embedder.report.text import number, short
from embedder.report.timeline import read_progress
from embedder.report.tokens import NO_EXTRAS, Extras, with_names, with_tokens
from embedder.report.trained import curves, different, results, training_page
from embedder.run.stopping import read_ending
from embedder.vectors.ensemble_files import read_ensemble
from embedder.vectors.export import read_vectors
from embedder.vectors.vectors import Vectors

_NO_INTERVALS = (
    "Scores have no intervals: the run has no {name}, as one with replicas, or of an "
    "earlier version. `embedder evaluate RUN` with --text, --sessions, --edges, "
    "--labels, --pairs or --analogies FILE has them."
)
_FILES = 5  # of the data, whose sizes and digests are shown
_log = logging.getLogger(__name__)


def write_after_training(path: Path, vectors: Vectors) -> bool:
    """Writes report.html into the folder of a finished run with these vectors; returns
    whether it is written.

    A failure is a warning: the run is finished without it.
    """
    run, began = Workdir(path), time.perf_counter()
    report_stage(f"making {run.report.name}")
    try:
        extras = with_names(kept_names(path))
        page = run_page(path, AFTER_TRAINING, extras, vectors)
        report_stage(f"writing {run.report.name}")
        make_report(page).save(run.report)
    except Exception as error:  # also a bug: nothing that was trained may be lost
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        _log.warning(
            "%s is not written: %s. The run is finished; `embedder report %s` tries "
            "again.",
            *(run.report, short_reason(reason), path),
        )
        return False
    seconds = time.perf_counter() - began
    _log.debug("%s was written in %.1f s.", run.report, seconds)
    return True


def run_page(
    path: Path,
    effort: Effort,
    extras: Extras = NO_EXTRAS,
    vectors: Vectors | None = None,
) -> Page:
    """The parts of the report of a run; one that is not finished has no vectors.

    Args:
      vectors: of the run; None: they are read if it is finished.

    Raises:
      InputError: a file of it is damaged.
    """
    run = Workdir(path)
    config = read_toml(run.config)
    metrics, why = _metrics(run, config), _unfinished(run)
    if vectors is None and not why:
        vectors = read_vectors(run.vectors)
    page = training_page(
        f"Report of {path.resolve().name}",
        *(_facts(run, vectors), metrics, config, metrics.within),
        chosen=open_settings(run),
        ended=(config.run.epochs, config.run.patience, why),
    )
    notes = []
    if num := metrics.num_damaged:
        notes.append(f"{num} damaged lines of {run.metrics.name} are left out.")
    if not (metrics.lines or metrics.within):
        notes.append(f"There are no curves: the run has no {run.metrics.name}.")
    if vectors is None:
        notes.append(
            f"The run is not finished, after {number(metrics.updates or 0)} updates: it"
            " has no vectors yet, so there is neither a map nor are there neighbours, "
            "predictions or images."
        )
        return page._replace(notes=tuple(notes))
    if config.run.model == "encoder":
        from embedder.report.encoder_page import with_examples

        return with_examples(page, run, vectors, effort, notes)
    scores = read_scores(run)
    if metrics.has_held_out and not scores:
        notes.append(_NO_INTERVALS.format(name=run.scores.name))
    page = page.with_scores(scores)
    if run.mixture.exists():
        weights = weights_text(read_weights(run.mixture)["excluded"])
        notes.append(f"Weights of what comes next (`embedder next`): {weights}.")
    ensemble = read_ensemble(run.replicas) if run.replicas.exists() else None
    page = page._replace(notes=tuple(notes))
    return with_tokens(page, vectors, ensemble, effort, extras)


def _metrics(run: Workdir, config: Config) -> Metrics:
    """The metrics of a run, with those within its epochs."""
    within, noun = read_progress(run.progress), noun_of(run)
    metrics = read_metrics(run.metrics)
    return metrics._replace(within=within, epochs=config.run.epochs, noun=noun)


def _unfinished(run: Workdir) -> str:
    """Why a run is not finished, a text of one line; "": it is finished."""
    if run.is_finished:
        return ""
    if run.lock.exists() and ended_owner(run.lock) is None:
        return "not finished: a process trains it"
    ending = read_ending(run)
    if ending is not None:
        return shown(f"{ending.how}: {ending.message}")
    return "not finished: its process has ended; the same command resumes it"


def _facts(run: Workdir, vectors: Vectors | None) -> list[tuple[str, str]]:
    source = source_of(run)
    name = "the demo corpus" if source is None else without_secrets(source)
    rows = [("data", short(name)), *corpus_rows(corpus_facts_of(run))]
    if vectors is not None:
        num, size = vectors.matrix.shape
        if vectors.counts is None:
            rows.append(("examples", number(num)))
        else:
            tokens = number(int(vectors.counts.sum()))
            rows += [("tokens of the vocabulary", tokens), ("types", number(num))]
        rows.append(("vectors", f"{num:,} of {size} numbers"))
    files = [each for each in manifest_of(run) if isinstance(each, dict)]
    rows += [_file(each) for each in files[:_FILES] if "file" in each]
    if len(files) > _FILES:
        rows.append(("more files", number(len(files) - _FILES)))
    return rows


def corpus_rows(facts: dict[str, float]) -> list[tuple[str, str]]:
    """Rows about a corpus, of `run_record.CORPUS_FACTS` as far as they are known."""
    texts = {"sequences": "sequences with known tokens", "tokens": "tokens"}
    rows = [
        (text, number(facts[name])) for name, text in texts.items() if name in facts
    ]
    if {"tokens", "known_tokens"} <= {*facts} and facts["tokens"] > 0:
        outside = facts["tokens"] - facts["known_tokens"]
        share = f"{number(outside)}, {100 * outside / facts['tokens']:.3g} %"
        rows.append(("tokens outside the vocabulary (min_count)", share))
    if "kept_share" in facts:
        share = f"{100 * facts['kept_share']:.4g} % of the vocabulary"
        rows.append(("tokens kept in an epoch (sample)", share))
    return rows


def _file(facts: dict[str, Any]) -> tuple[str, str]:
    digest = next((x for n, x in facts.items() if n.endswith("sha256")), None)
    about = f"{facts['bytes']:,} bytes" if isinstance(facts.get("bytes"), int) else ""
    if digest:
        about += f", SHA-256 of its ends {str(digest)[:16]}"
    return f"file {short(str(facts['file']))}", about


def compare(paths: list[Path]) -> Comparison:
    """The comparison of runs, finished or not; each has its own name."""
    runs = [Workdir(path) for path in paths]
    names = _names(paths)
    configs = [read_toml(run.config) for run in runs]
    metrics = [*map(_metrics, runs, configs)]
    scores = [
        dict(results(each, config.run.epochs, config.run.patience, _unfinished(run)))
        | {f"{name} of the vectors": x for name, x in score_rows(read_scores(run))}
        for run, each, config in zip(runs, metrics, configs, strict=True)
    ]
    rows = dict.fromkeys(name for each in scores for name in each)
    return Comparison(
        names,
        different(configs),
        [(name, [each.get(name, "–") for each in scores]) for name in rows],
        curves(list(zip(names, metrics, strict=True))),
    )


def _names(paths: list[Path]) -> list[str]:
    """The names of folders, or where two are the same their paths."""
    names = [path.resolve().name for path in paths]
    if len({*names}) < len(names):
        names = [os.fspath(path) for path in paths]
    return [short(name) for name in names]
