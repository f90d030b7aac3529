"""The report of a run, by its files; of a finished one with its vectors."""

import logging
import time
from pathlib import Path
from typing import Any

from embedder.config import read_toml
from embedder.disk.files import short_reason
from embedder.disk.urls import without_secrets
from embedder.report.metrics import Metrics
from embedder.report.page import Page, curves, make_report, results
from embedder.report.points import AFTER_TRAINING, Effort
from embedder.report.settings import settings_of
from embedder.report.state import metrics_of, no_vectors, unfinished
from embedder.report.text import number, short
from embedder.report.timeline import shares, timeline
from embedder.report.tokens import NO_EXTRAS, Extras, with_tokens
from embedder.run.inputs import corpus_facts_of, manifest_of, open_settings, source_of
from embedder.run.score_file import read_scores
from embedder.run.workdir import Workdir
from embedder.stages import report_stage
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

    If that fails, a warning says so: the run is finished without it.
    """
    run, began = Workdir(path), time.perf_counter()
    report_stage(f"making {run.report.name}")
    try:
        page = run_page(path, AFTER_TRAINING, vectors=vectors)
        report_stage(f"writing {run.report.name}")
        make_report(page).save(run.report)
    except Exception as error:  # also a bug: nothing that was trained may be lost
        _log.warning(
            "%s is not written: %s. The run is finished; `embedder report %s` tries "
            "again.",
            *(run.report, short_reason(_reason(error)), path),
        )
        return False
    seconds = time.perf_counter() - began
    _log.debug("%s was written in %.1f s.", run.report, seconds)
    return True


def _reason(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) and error.strerror else error


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
    metrics, why = metrics_of(run, config), unfinished(run)
    if vectors is None and not why:
        vectors = read_vectors(run.vectors)
    notes = _notes(run, metrics)
    page = Page(
        title=f"Report of {path.resolve().name}",
        facts=_facts(run, vectors),
        results=[
            *results(metrics, config.run.epochs, config.run.patience, why),
            *(
                (f"time: {name}", f"{100 * share:.3g} %")
                for name, share in shares(metrics, metrics.within).items()
            ),
        ],
        settings=settings_of(config, open_settings(run)),
        curves=tuple(curves([("", metrics)])),
        time=timeline(metrics, metrics.within),
    )
    if vectors is None:
        return page._replace(notes=(*notes, no_vectors(metrics)))
    if config.run.model == "encoder":
        from embedder.report.of_encoder import with_examples

        return with_examples(page, run, vectors, effort, notes)
    scores = read_scores(run)
    if metrics.has_held_out and not scores:
        notes.append(_NO_INTERVALS.format(name=run.scores.name))
    page = page.with_scores(scores)
    ensemble = read_ensemble(run.replicas) if run.replicas.exists() else None
    page = page._replace(notes=tuple(notes))
    return with_tokens(page, vectors, ensemble, effort, extras)


def _notes(run: Workdir, metrics: Metrics) -> list[str]:
    found = []
    if metrics.num_damaged:
        found.append(
            f"{metrics.num_damaged} damaged lines of {run.metrics.name} are left out."
        )
    if not (metrics.lines or metrics.within):
        found.append(f"There are no curves: the run has no {run.metrics.name}.")
    return found


def _facts(run: Workdir, vectors: Vectors | None) -> list[tuple[str, str]]:
    source = source_of(run)
    name = "the demo corpus" if source is None else without_secrets(source)
    found = [("data", short(name))]
    found += corpus_rows(corpus_facts_of(run))
    if vectors is not None:
        found += _facts_of_vectors(vectors)
    files = [each for each in manifest_of(run) if isinstance(each, dict)]
    found += [_file(each) for each in files[:_FILES] if "file" in each]
    if len(files) > _FILES:
        found.append(("more files", number(len(files) - _FILES)))
    return found


def corpus_rows(facts: dict[str, float]) -> list[tuple[str, str]]:
    """Rows about a corpus, of `run.inputs.CORPUS_FACTS` as far as they are known."""
    rows = {"sequences": "sequences with known tokens", "tokens": "tokens"}
    found = [
        (text, number(facts[name])) for name, text in rows.items() if name in facts
    ]
    if {"tokens", "known_tokens"} <= {*facts} and facts["tokens"] > 0:
        left = facts["tokens"] - facts["known_tokens"]
        share = f"{number(left)}, {100 * left / facts['tokens']:.3g} %"
        found.append(("tokens outside the vocabulary (min_count)", share))
    if "kept_share" in facts:
        kept = f"{100 * facts['kept_share']:.4g} % of the vocabulary"
        found.append(("tokens kept in an epoch (sample)", kept))
    return found


def _facts_of_vectors(vectors: Vectors) -> list[tuple[str, str]]:
    num, size = vectors.matrix.shape
    of_vectors = "vectors", f"{num:,} of {size} numbers"
    if vectors.counts is None:
        return [("examples", number(num)), of_vectors]
    tokens = number(int(vectors.counts.sum()))
    return [("tokens of the vocabulary", tokens), ("types", number(num)), of_vectors]


def _file(facts: dict[str, Any]) -> tuple[str, str]:
    digest = next((x for n, x in facts.items() if n.endswith("sha256")), None)
    about = f"{facts['bytes']:,} bytes" if isinstance(facts.get("bytes"), int) else ""
    if digest:
        about += f", SHA-256 of its ends {str(digest)[:16]}"
    return f"file {short(str(facts['file']))}", about
