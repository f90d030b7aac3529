"""What a run writes for TensorBoard while it trains; `loop.py` writes metrics.jsonl."""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.engine.epochs import Snapshot
from embedder.run.checkpoints import arrays_of

if TYPE_CHECKING:
    from tensorboardX.record_writer import RecordWriter

_BINS = 64  # of a histogram
_log = logging.getLogger(__name__)


class Events:
    """Writes events to `folder` in a thread, which imports the slow writer.

    The step of each is the number of updates. `start`: that where the run resumes;
    later events in the folder are hidden. If they cannot be written, one warning is
    logged, and no more are: no training depends on them. tensorboardX's `SummaryWriter`
    would wait for ever then, for a thread of its own that has ended: records are
    written here.
    """

    def __init__(self, folder: Path, start: int = 0):
        self._folder = folder
        self._start = start
        self._thread = ThreadPoolExecutor(1)
        self._writer: RecordWriter | None = None
        self._failed = False
        self._newest = start  # updates of the newest histograms

    def add(self, updates: int, metrics: Mapping[str, float | None]) -> None:
        """Writes the metrics of an epoch, an evaluation, or a part of an epoch."""
        measured = {name: x for name, x in metrics.items() if x is not None}
        if measured:
            self._submit(updates, lambda: _scalars(measured))

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Writes histograms of the row norms of each table; see `row_norms`.

        The arrays of `snapshot` must not change until `close`.
        """
        state, position = snapshot
        if position.updates > self._newest:
            self._newest = position.updates
            arrays = arrays_of(state.params)
            self._submit(position.updates, lambda: _histograms(arrays))

    def close(self) -> None:
        """Waits until all is written."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _submit(self, updates: int, summaries: Callable[[], list[Any]]) -> None:
        self._thread.submit(self._write, updates, time.time(), summaries)

    def _write(
        self, updates: int, at: float, summaries: Callable[[], list[Any]]
    ) -> None:
        if self._failed:
            return
        from tensorboardX.proto.event_pb2 import Event

        try:
            writer = self._open()
            for summary in summaries():
                event = Event(wall_time=at, step=updates, summary=summary)
                writer.write(event.SerializeToString())
            writer.flush()
        except OSError as error:
            self._failed = True
            self._close()
            reason = error.strerror or error
            _log.warning(
                "%s: %s: TensorBoard will lack the rest.", self._folder, reason
            )

    def _open(self) -> "RecordWriter":
        if self._writer is None:
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.record_writer import RecordWriter

            self._folder.mkdir(parents=True, exist_ok=True)
            now = time.time()
            name = f"{int(now)}.{socket.gethostname()}.{os.getpid()}"
            path = self._folder / f"events.out.tfevents.{name}"
            self._writer = RecordWriter(str(path))
            began = SessionLog(status=SessionLog.START)
            for event in (
                Event(wall_time=now, file_version="brain.Event:2"),
                Event(wall_time=now, step=self._start + 1, session_log=began),
            ):
                self._writer.write(event.SerializeToString())
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):  # it was logged
                self._writer.close()


def _scalars(metrics: Mapping[str, float]) -> list[Any]:
    from tensorboardX.summary import scalar

    return [scalar(name, value) for name, value in metrics.items()]


def _histograms(arrays: Mapping[str, np.ndarray]) -> list[Any]:
    from tensorboardX.summary import histogram

    norms = {name: row_norms(array) for name, array in arrays.items()}
    return [
        histogram(f"row_norms/{name}", values, _BINS)
        for name, values in norms.items()
        if values.size
    ]


def row_norms(array: np.ndarray) -> np.ndarray:
    """Norms f64[n] of the vectors along the last axis, of an array of two axes or more:
    rows of tables, of replicas too; weights of an input of a layer. Those that are not
    finite are left out; of arrays with fewer axes there are none."""
    if array.ndim < 2:
        return np.empty(0)
    squares = np.einsum("...d,...d->...", array, array)  # without a copy of a table
    norms = np.sqrt(squares.astype(np.float64)).ravel()
    return norms[np.isfinite(norms)]
