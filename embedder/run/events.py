"""Metrics of a run as events that TensorBoard shows."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class Events:
    """Events in `folder`, written by a thread: what writes them takes a while to load.

    Those of a run that goes on after so many `epochs` hide what came later before.
    """

    def __init__(self, folder: Path, epochs: int = 0):
        self._folder = folder
        self._epochs = epochs
        self._thread = ThreadPoolExecutor(1)
        self._writer = None

    def add(self, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Writes what an epoch, from 1, came to."""
        self._thread.submit(self._add, epoch, dict(metrics))

    def close(self) -> None:
        """Until all is written."""
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
