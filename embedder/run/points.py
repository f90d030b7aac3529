"""progress.jsonl: how a run goes within its epochs, a line every few seconds."""

import json
import logging
import time
from pathlib import Path

from embedder.engine.epochs import Status
from embedder.run.events import Events
from embedder.threads import available_cores

_EVERY = 2.0  # seconds between two lines
_SHARE = 0.002  # of the time so far: a run of a week has some 4,000 lines
_log = logging.getLogger(__name__)


class Points:
    """Adds a line to `path` after the first call of updates, and then every 2 seconds;
    of a long run every 0.2 % of its time.

    A line has the position (epoch, updates, progress in [0, 1], items), the mean loss
    since the line before, the learning rate, items per second since that line, seconds
    since this part of the run began, those of each activity of
    `engine.stopwatch.ACTIVITIES`, and the time in seconds since 1970; on a CPU also
    cpu_busy, the share of all cores that the process had since the line before.
    `events` get loss and speed as recent/NAME. A file that cannot be written is logged
    once: no training depends on it.
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
        self._write(status, loss, speed, busy if self._is_on_cpu else None)
        name = f"{status.unit}_per_second"
        self._events.add(status.updates, {"recent/loss": loss, f"recent/{name}": speed})

    def _write(
        self,
        status: Status,
        loss: float | None,
        speed: int | None,
        busy: float | None,
    ) -> None:
        point = {
            "epoch": status.epoch + 1,
            "updates": status.updates,
            "progress": round(status.progress, 9),
            status.unit: status.items,
            "loss": loss,
            status.rate_name: status.rate,
            f"{status.unit}_per_second": speed,
            "seconds": round(status.seconds, 3),
            **seconds_by_activity(status),
            **({} if busy is None else {"cpu_busy": round(busy, 4)}),
            "time": round(time.time(), 3),
        }
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(point) + "\n")
        except OSError as error:
            if not self._failed:
                _log.warning(
                    "%s: %s: `embedder watch` will not see what comes within epochs.",
                    *(self._path, error.strerror),
                )
            self._failed = True


def seconds_by_activity(status: Status) -> dict[str, float]:
    """How long each activity took so far: `input_seconds` and so on."""
    spent = status.seconds_of.items()
    return {f"{name}_seconds": round(seconds, 3) for name, seconds in spent}


def timed(status: Status) -> dict[str, float]:
    """When a status was, and how long each activity took until then."""
    seconds = {"seconds": round(status.seconds, 3)}
    return {"updates": status.updates, **seconds, **seconds_by_activity(status)}


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
        "seconds": round(status.seconds, 3),
        **seconds_by_activity(status),
        f"{status.unit}_per_second": round(status.items_per_second),
    }
