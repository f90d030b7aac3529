"""What a run writes for TensorBoard while it trains; `loop.py` writes metrics.jsonl."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from embedder.engine.epochs import Snapshot
from embedder.run.checkpoints import arrays_of

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

_BINS = 64  # of a histogram


class Events:
    """Writes events to `folder` in a thread, which imports the slow writer.

    The step of each is the number of updates. `start`: that where the run resumes;
    later events in the folder are hidden.
    """

    def __init__(self, folder: Path, start: int = 0):
        self._folder = folder
        self._start = start
        self._thread = ThreadPoolExecutor(1)
        self._writer: SummaryWriter | None = None
        self._newest = start  # updates of the newest histograms

    def add(self, updates: int, metrics: Mapping[str, float | None]) -> None:
        """Writes the metrics of an epoch, an evaluation, or a part of an epoch."""
        measured = {name: x for name, x in metrics.items() if x is not None}
        if measured:
            self._thread.submit(self._add, updates, measured, time.time())

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Writes histograms of the row norms of each table; see `row_norms`.

        The arrays of `snapshot` must not change until `close`.
        """
        state, position = snapshot
        if position.updates > self._newest:
            self._newest = position.updates
            arrays = arrays_of(state.params)
            at = time.time()
            self._thread.submit(self._add_norms, position.updates, arrays, at)

    def close(self) -> None:
        """Waits until all is written."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _open(self) -> "SummaryWriter":
        if self._writer is None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._start + 1)
        return self._writer

    def _add(self, updates: int, metrics: dict[str, float], at: float) -> None:
        writer = self._open()
        for name, value in metrics.items():
            writer.add_scalar(name, value, updates, at)
        writer.flush()

    def _add_norms(
        self, updates: int, arrays: dict[str, np.ndarray], at: float
    ) -> None:
        writer = self._open()
        for name, array in arrays.items():
            norms = row_norms(array)
            if norms.size:
                writer.add_histogram(f"row_norms/{name}", norms, updates, _BINS, at)
        writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def row_norms(array: np.ndarray) -> np.ndarray:
    """Norms f64[n] of the vectors along the last axis, of an array of two axes or more:
    rows of tables, of replicas too; weights of an input of a layer. Those that are not
    finite are left out; of arrays with fewer axes there are none."""
    if array.ndim < 2:
        return np.empty(0)
    squares = np.einsum("...d,...d->...", array, array)  # without a copy of a table
    norms = np.sqrt(squares.astype(np.float64)).ravel()
    return norms[np.isfinite(norms)]
