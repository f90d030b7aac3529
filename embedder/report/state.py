"""How far a run is that may not be finished, by its files."""

from embedder.config import Config
from embedder.disk.lock import ended_owner
from embedder.report.metrics import Metrics, read_metrics
from embedder.report.text import number
from embedder.report.timeline import read_progress
from embedder.run.ending import read_ending
from embedder.run.inputs import noun_of
from embedder.run.workdir import Workdir
from embedder.terminal import shown


def metrics_of(run: Workdir, config: Config) -> Metrics:
    """The metrics of a run, with those within its epochs."""
    found = read_metrics(run.metrics)
    within = read_progress(run.progress)
    return found._replace(within=within, epochs=config.run.epochs, noun=noun_of(run))


def unfinished(run: Workdir) -> str:
    """Why a run is not finished, a text of one line; "": it is finished."""
    if run.is_finished:
        return ""
    if run.lock.exists() and ended_owner(run.lock) is None:
        return "not finished: a process trains it"
    ending = read_ending(run)
    if ending is not None:
        return shown(f"{ending.how}: {ending.message}")
    return "not finished: its process has ended; the same command resumes it"


def end_of(done: int, epochs: int, patience: int) -> str:
    """Why a finished run ended after `done` epochs."""
    if done >= epochs:
        return "all epochs are done" if epochs else "no epochs: the initial vectors"
    if patience:
        return f"early: {patience} evaluations in a row were no better (patience)"
    return "metrics.jsonl lacks epochs"


def no_vectors(metrics: Metrics) -> str:
    """What a report of a run that is not finished lacks, and why."""
    updates = number(metrics.updates or 0)
    return (
        f"The run is not finished, after {updates} updates: it has no vectors yet, so "
        "there is neither a map nor are there neighbours, predictions or images."
    )
