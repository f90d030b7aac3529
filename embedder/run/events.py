"""Metrics of a run as TensorBoard events; `loop.py` writes metrics.jsonl."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class Events:
    """Writes events to `folder` in a thread, which imports the slow writer.

    `epochs`: done before this run resumed; later events in the folder are hidden.
    """

    def __init__(self, folder: Path, epochs: int = 0):
        self._folder = folder
        self._epochs = epochs
        self._thread = ThreadPoolExecutor(1)
        self._writer: SummaryWriter | None = None

    def add(self, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Writes the metrics of an epoch, counted from 1."""
        self._thread.submit(self._add, epoch, dict(metrics))

    def close(self) -> None:
        """Waits until all is written."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _add(self, epoch: int, metrics: dict[str, float | None]) -> None:
        if self._writer is None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._epochs + 1)
        for name, value in metrics.items():
            if value is not None:
                self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
