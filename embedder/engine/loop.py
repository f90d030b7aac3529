"""The training loop: a generator over calls of the compiled program, without I/O."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from embedder.engine.compiled_step import PlacedState


class StepBatches(Protocol):
    """The S consecutive updates of a call: their positions in the epoch and the run."""

    @property
    def position(self) -> np.ndarray:
        """i64[S, P]: the epoch, then the position of each update in it."""

    @property
    def progress(self) -> np.ndarray:
        """f64[S]: fraction of the run done before each update, in [0, 1)."""


class CallResult(NamedTuple):
    """The result of one call, S updates in one run of the compiled program."""

    state: PlacedState  # valid until the generator is resumed, which donates it
    position: tuple[int, ...]  # of the last update, within its epoch
    progress: float  # fraction of the run done before the last update
    num_updates: int  # the first ones of the S; the others are padding
    sums: Any  # arrays of the updates that report: loss, number of terms, and others
    call_seconds: float  # to dispatch the work; the first call also compiles
    input_seconds: float  # waited for the batch


class EpochSums:
    """Sums over the updates of an epoch, in float64 on the host.

    Arrays stay on the device until two newer calls were added, so that reading them
    does not block the loop; that also bounds how far the host runs ahead.

    Args:
      start: sums of the updates of the epoch that came before, when a run resumes.
    """

    def __init__(self, start: tuple[float, ...] = ()):
        self._waiting: list[tuple] = []
        self._sums = start
        self._last: tuple[float, ...] = ()

    def add(self, sums: tuple[jax.Array, ...]) -> None:
        """Adds the sums of a call: the loss, its number of terms, and others."""
        self._waiting.append(sums)
        while len(self._waiting) > 2:
            self._read(self._waiting.pop(0))

    def mean(self) -> float:
        """Mean loss of all that was read so far; 0 if there are no terms."""
        loss, num_terms = (*self._sums, 0.0, 0.0)[:2]
        return loss / num_terms if num_terms else 0.0

    @property
    def recent(self) -> float:
        """Mean loss of the call that was read last; 0 if there are no terms."""
        loss, num_terms = (*self._last, 0.0, 0.0)[:2]
        return loss / num_terms if num_terms else 0.0

    def result(self) -> tuple[float, ...]:
        """Sums of all that was added, after waiting for it; () if nothing was."""
        while self._waiting:
            self._read(self._waiting.pop(0))
        return self._sums

    def _read(self, sums: tuple) -> None:
        new = [float(np.sum(x, dtype=np.float64)) for x in jax.device_get(tuple(sums))]
        self._last = tuple(new)
        before = self._sums or (0.0,) * len(new)
        self._sums = tuple(a + b for a, b in zip(before, new, strict=True))


def run_calls(
    apply_updates: Callable[[PlacedState, Any], tuple[PlacedState, Any]],
    state: PlacedState,
    batches: Iterable[tuple[StepBatches, int, Any]],
) -> Iterator[CallResult]:
    """The result of `apply_updates` on each batch, one after the other.

    The state of a result is valid until the generator is resumed: the next call donates
    it.

    Args:
      batches: the S updates of each call, how many of them are real, and their arrays
        on the devices.
    """
    dtype = jax.tree.leaves(state.params)[0].dtype
    asked = time.perf_counter()
    for updates, num_updates, batch in batches:
        started = time.perf_counter()
        with jax.enable_x64(dtype == np.float64):
            state, sums = apply_updates(state, batch)
        last = num_updates - 1
        yield CallResult(
            state,
            tuple(updates.position[last, 1:].tolist()),
            float(updates.progress[last]),
            num_updates,
            sums,
            time.perf_counter() - started,
            started - asked,
        )
        asked = time.perf_counter()
