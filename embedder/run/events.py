"""Metrics of a run as TensorBoard events; `loop.py` writes metrics.jsonl."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class Events:
    """Writes events to `folder` in a thread, which imports the slow writer.

    Each has a step, epochs or updates done. `start`: that where the run resumes; later
    events in the folder are hidden.
    """

    def __init__(self, folder: Path, start: int = 0):
        self._folder = folder
        self._start = start
        self._thread = ThreadPoolExecutor(1)
        self._writer: SummaryWriter | None = None

    def add(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Writes the metrics of an epoch or an evaluation."""
        self._thread.submit(self._add, step, dict(metrics))

    def close(self) -> None:
        """Waits until all is written."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _add(self, step: int, metrics: dict[str, float | None]) -> None:
        if self._writer is None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._start + 1)
        for name, value in metrics.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
