"""The training loop: a generator over superblocks, without I/O."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from embedder.engine.state import TrainState
from embedder.tables.blocks import Updates
from embedder.tables.update import Batch, Loss


class Step(NamedTuple):
    """What one superblock gave."""

    state: TrainState  # valid until the generator is resumed, which donates it
    position: tuple[int, ...]  # within the epoch, of its last update
    progress: float  # of the run, before its last update
    num_updates: int  # real ones: those after them are empty
    sums: Loss  # over the updates that reported
    call_seconds: float  # to hand over the work; the first time, to compile the program


class EpochSums:
    """What the updates of an epoch add up to, in float64 on the host.

    Values wait on the device until two newer ones have come, so that reading them does
    not hold up the steps; that also bounds how far the host runs ahead.
    """

    def __init__(self, start: tuple[float, ...] = ()):
        self._waiting: list[tuple] = []
        self._sums = start
        self._last: tuple[float, ...] = ()

    def add(self, sums: tuple[jax.Array, ...]) -> None:
        """Takes those of a superblock: the loss, over how many terms, and others."""
        self._waiting.append(sums)
        while len(self._waiting) > 2:
            self._read(self._waiting.pop(0))

    def mean(self) -> float:
        """Mean loss of all that was read so far; 0 where there are no terms."""
        loss, num_terms = (*self._sums, 0.0, 0.0)[:2]
        return loss / num_terms if num_terms else 0.0

    @property
    def recent(self) -> float:
        """Mean loss of what was read last; 0 where there are no terms."""
        loss, num_terms = (*self._last, 0.0, 0.0)[:2]
        return loss / num_terms if num_terms else 0.0

    def result(self) -> tuple[float, ...]:
        """All that was added; (): nothing."""
        while self._waiting:
            self._read(self._waiting.pop(0))
        return self._sums

    def _read(self, sums: tuple) -> None:
        new = [float(np.sum(x, dtype=np.float64)) for x in jax.device_get(tuple(sums))]
        self._last = tuple(new)
        before = self._sums or (0.0,) * len(new)
        self._sums = tuple(a + b for a, b in zip(before, new, strict=True))


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
