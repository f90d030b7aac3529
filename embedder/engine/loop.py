"""The training loop: a generator over superblocks, without I/O."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from embedder.engine.program import PlacedState


class Updates(Protocol):
    """Consecutive updates of a call: where they are in their epoch and in the run."""

    @property
    def position(self) -> np.ndarray:
        """i64[S, P], the epoch first."""

    @property
    def progress(self) -> np.ndarray:
        """f64[S], share of the run done before each, in [0, 1)."""


class Step(NamedTuple):
    """What one superblock gave."""

    state: PlacedState  # valid until the generator is resumed, which consumes it
    position: tuple[int, ...]  # within the epoch, of its last update
    progress: float  # of the run, before its last update
    num_updates: int  # real ones: those after them are empty
    sums: Any  # of the updates that reported: loss, its number of terms, and others
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


def steps(
    apply_updates: Callable[[PlacedState, Any], tuple[PlacedState, Any]],
    state: PlacedState,
    batches: Iterable[tuple[Updates, int, Any]],
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
