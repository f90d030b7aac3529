"""The training loop: a generator over superblocks, without I/O."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from embedder.data.blocks import Updates
from embedder.train.update import Batch, Loss, TrainState


class Step(NamedTuple):
    """What one superblock gave."""

    state: TrainState  # valid until the generator is resumed, which donates it
    position: tuple[int, ...]  # within the epoch, of its last update
    progress: float  # of the run, before its last update
    num_updates: int  # real ones: those after them are empty
    loss: Loss  # of the updates that reported
    call_seconds: float  # to hand over the work; the first time, to compile the program


class EpochLoss:
    """Mean loss of an epoch, summed in float64 on the host.

    Values wait on the device until two newer ones have come, so that reading them does
    not hold up the steps; that also bounds how far the host runs ahead.
    """

    def __init__(self, total: float = 0.0, num_terms: float = 0.0):
        self._waiting: list[Loss] = []
        self._total = total
        self._num_terms = num_terms

    def add(self, loss: Loss) -> None:
        """Takes the losses of a superblock."""
        self._waiting.append(loss)
        while len(self._waiting) > 2:
            self._read(self._waiting.pop(0))

    def mean(self) -> float:
        """Mean of all that was read so far; 0 where there are no terms."""
        return self._total / self._num_terms if self._num_terms else 0.0

    def sums(self) -> tuple[float, float]:
        """Total and number of terms of all that was added."""
        while self._waiting:
            self._read(self._waiting.pop(0))
        return self._total, self._num_terms

    def result(self) -> float:
        """Mean of all that was added."""
        self.sums()
        return self.mean()

    def _read(self, loss: Loss) -> None:
        loss = jax.device_get(loss)
        self._total += float(np.sum(loss.total, dtype=np.float64))
        self._num_terms += float(np.sum(loss.num_terms, dtype=np.float64))


def host_batches(
    superblocks: Iterable[tuple[Updates, int]],
    rate: Callable[[np.ndarray], np.ndarray],
    dtype: np.dtype,
) -> Generator[tuple[Updates, int, Batch]]:
    """Superblocks as what updates take, still in NumPy.

    `rate` gives the learning rate f64[S] at each update's progress.
    """
    for updates, num_updates in superblocks:
        batch = Batch(
            ids=updates.ids,
            sequence=updates.sequence,
            radius=updates.radius,
            noise=updates.noise,
            rate=rate(updates.progress).astype(dtype),
        )
        yield updates, num_updates, batch


def steps(
    apply_updates: Callable[[TrainState, Batch], tuple[TrainState, Loss]],
    state: TrainState,
    batches: Iterable[tuple[Updates, int, Batch]],
) -> Iterator[Step]:
    """Applies superblock after superblock.

    The state of a yielded `Step` lives until the generator is resumed.
    """
    dtype = jax.tree.leaves(state.params)[0].dtype
    for updates, num_updates, batch in batches:
        started = time.perf_counter()
        with jax.enable_x64(dtype == np.float64):
            state, loss = apply_updates(state, batch)
        last = num_updates - 1
        yield Step(
            state,
            tuple(updates.position[last, 1:].tolist()),
            float(updates.progress[last]),
            num_updates,
            loss,
            time.perf_counter() - started,
        )
