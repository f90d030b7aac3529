"""The curves of a run while it trains: TensorBoard's events, lines of progress.jsonl
and of metrics.jsonl."""

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embedder.base.threads import available_cores
from embedder.engine.checkpoints import arrays_of
from embedder.engine.epochs import Checkpoint, Status

if TYPE_CHECKING:
    from tensorboardX.record_writer import RecordWriter

_BINS = 64  # of a histogram
_EVERY = 2.0  # seconds between two lines of progress.jsonl
_SHARE = 0.002  # of the time so far: a run of a week has some 4,000 lines
_log = logging.getLogger(__name__)


class Events:
    """Writes events to `folder` in a thread, which imports the slow writer.

    The step of an event is the number of updates. A run that resumes after `start`
    updates hides later events in the folder. If events cannot be written, one warning
    is logged, and no more are written: no training depends on them. Records are written
    here, since tensorboardX's `SummaryWriter` would wait for ever then.
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

            def scalars() -> list[Any]:
                from tensorboardX.summary import scalar

                return [scalar(name, x) for name, x in measured.items()]

            self._submit(updates, scalars)

    def add_histograms(self, checkpoint: Checkpoint) -> None:
        """Writes histograms of the row norms of each table; see `row_norms`.

        The arrays of `checkpoint` must not change until `close`.
        """
        state, position = checkpoint
        if position.updates > self._newest:
            self._newest = position.updates
            arrays = arrays_of(state.params)
            self._submit(position.updates, lambda: _histograms(arrays))

    def close(self) -> None:
        """Waits until all is written."""
        try:
            self._thread.submit(self._close).result()
        finally:
            # Again, as a signal may have come before it was submitted.
            self._thread.submit(self._close)
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
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):  # it was logged
                writer.close()


def _histograms(arrays: Mapping[str, np.ndarray]) -> list[Any]:
    from tensorboardX.summary import histogram

    return [
        histogram(f"row_norms/{name}", norms, _BINS)
        for name, array in arrays.items()
        if (norms := row_norms(array)).size
    ]


def row_norms(array: np.ndarray) -> np.ndarray:
    """Norms f64[n] of the vectors along the last axis, without those that are not
    finite: of rows of tables, or of the weights of a layer's inputs. Arrays of fewer
    than two axes have none."""
    if array.ndim < 2:
        return np.empty(0)
    squares = np.einsum("...d,...d->...", array, array)  # without a copy of a table
    norms = np.sqrt(squares.astype(np.float64)).ravel()
    return norms[np.isfinite(norms)]


class Points:
    """Adds a line to progress.jsonl at `path` after the first call of updates, and then
    every 2 seconds; in a long run every 0.2 % of its time.

    A line has the position (epoch, updates, progress in [0, 1], items), the mean loss
    and the items per second since the line before, the learning rate, the seconds since
    this part of the run began and those of each of `stopwatch.ACTIVITIES`, and the time
    in seconds since 1970. On a CPU it has cpu_busy, the share of all cores that the
    process used since the line before. `events` get loss and speed as recent/NAME. One
    warning is logged if the file cannot be written: no training depends on it.
    """

    def __init__(self, path: Path, events: Events, is_on_cpu: bool = False):
        self._path = path
        self._is_on_cpu = is_on_cpu
        self._cores = available_cores()
        self._cpu_seconds = 0.0  # of the process, at the last line
        self._events = events
        self._losses: list[float] = []  # of the calls since the last line
        self._last: tuple[float, int] | None = None  # seconds, items of the last line
        self._failed = False

    def add(self, status: Status) -> None:
        """Adds a line if it is time for one."""
        if status.is_epoch_end:  # metrics.jsonl has a line about that
            return
        if status.recent_loss:
            self._losses.append(status.recent_loss)
        speed = busy = None
        cpu_seconds = time.process_time()
        if self._last is not None:
            seconds, items = self._last
            passed = status.seconds - seconds
            if passed < max(_EVERY, _SHARE * status.seconds):
                return
            speed = round((status.items - items) / passed)
            busy = (cpu_seconds - self._cpu_seconds) / (passed * self._cores)
        loss = sum(self._losses) / len(self._losses) if self._losses else None
        self._last, self._losses = (status.seconds, status.items), []
        self._cpu_seconds = cpu_seconds
        name = f"{status.unit}_per_second"
        point = {
            "epoch": status.epoch + 1,
            "updates": status.updates,
            "progress": round(status.progress, 9),
            status.unit: status.items,
            "loss": loss,
            status.rate_name: status.rate,
            name: speed,
            **_seconds(status),
        }
        if self._is_on_cpu and busy is not None:
            point["cpu_busy"] = round(busy, 4)
        self._write(json.dumps(point | {"time": round(time.time(), 3)}) + "\n")
        self._events.add(status.updates, {"recent/loss": loss, f"recent/{name}": speed})

    def _write(self, line: str) -> None:
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            if not self._failed:
                _log.warning(
                    "%s: %s: `embedder watch` will not see what comes within epochs.",
                    *(self._path, error.strerror),
                )
            self._failed = True


def _seconds(status: Status) -> dict[str, float]:
    """When a status was, and how long each activity took until then, such as
    `input_seconds`."""
    spent = {f"{name}_seconds": x for name, x in status.seconds_of.items()}
    return {n: round(x, 3) for n, x in {"seconds": status.seconds, **spent}.items()}


def timed(status: Status) -> dict[str, float]:
    """The updates and the times of a status, as in a line of metrics.jsonl."""
    return {"updates": status.updates, **_seconds(status)}


def metrics_line(status: Status) -> dict[str, float | None]:
    """The line of an epoch in metrics.jsonl, or of an evaluation within one, which has
    no loss."""
    return {
        "epoch": status.epoch + 1,
        "updates": status.updates,
        **status.metrics,
        **status.scores,
        status.rate_name: status.rate,
        status.unit: status.items,
        **_seconds(status),
        f"{status.unit}_per_second": round(status.items_per_second),
    }
