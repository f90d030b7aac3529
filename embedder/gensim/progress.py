"""Log lines while a model trains, as gensim has them."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_FIRST_REPORT = 1.0  # seconds, whatever `report_delay` is
_log = logging.getLogger("gensim.models.word2vec")


class Reports(NamedTuple):
    """When to log within an epoch, and of what."""

    seconds: float  # between lines, `report_delay`
    unit: str  # examples or words
    num_queued: int  # -1: gensim has no queue for a file


def reporter(
    reports: Reports, number: int, num_words: float, start: float, size: float
) -> Callable[[Any], None]:
    """A function that logs the progress of an epoch from the status of a training.

    Args:
      number: of the epoch.
      num_words: effective words of the epoch.
      start, size: of the epoch, in units of `status.progress`.
    """
    began = time.perf_counter()
    due = _FIRST_REPORT

    def report(status: Any) -> None:
        nonlocal due
        seconds = time.perf_counter() - began
        if seconds < due or status.is_epoch_end:
            return
        due = seconds + reports.seconds
        done = (status.progress - start) / size
        _log.info(
            "EPOCH %i - PROGRESS: at %.2f%% %s, %.0f words/s, in_qsize %i, out_qsize "
            "%i",
            *(number, 100 * done, reports.unit, done * num_words / seconds),
            *(reports.num_queued, 0),
        )

    return report


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Within the body the trainer logs each warning once, not in each epoch."""
    log = logging.getLogger("embedder.engine.epochs")
    seen = set()

    def is_new(record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        is_first = record.msg not in seen
        seen.add(record.msg)
        return is_first

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)
