"""Epochs of a training: how far they are, and where they can be taken up again."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from embedder.engine.loop import EpochSums, Step
from embedder.engine.program import Program
from embedder.engine.state import TrainState

_log = logging.getLogger(__name__)


Metrics = tuple[float | None, ...]
"""What an epoch came to; None: there is nothing to tell."""


class Trainable(Protocol):
    """A training of any family, as far as its epochs go."""

    epochs: range
    program: Program
    unit: str  # what it is trained on
    items: int  # of these, in an epoch
    metrics: tuple[str, ...]  # names of what `summary` returns; the first is a loss
    diverged: str  # what happened where a loss is not finite, and what to do
    idle: str  # what a loss of 0 means
    rate_name: str  # of the learning rate
    backend: str
    devices_line: str

    def steps(
        self, state: TrainState, epoch: int, after: tuple[int, ...]
    ) -> Iterator[Step]:
        """The steps of an epoch after a position."""

    def rate(self, progress: float) -> float:
        """Learning rate."""

    def summary(self, sums: tuple[float, ...], state: TrainState) -> Metrics:
        """What an epoch came to."""

    def score(self, metrics: Metrics) -> float | None:
        """How good an epoch was: more is better; None: nothing tells."""


class Place(NamedTuple):
    """Where in its epochs a training is, after an update."""

    epoch: int  # from 0
    position: tuple[int, ...] = ()  # of that update in its epoch; (): before the first
    progress: float = 0.0  # share of the run done before that update, in [0, 1]
    updates: int = 0  # of all epochs so far
    history: tuple[Metrics, ...] = ()  # of the epochs that are over
    sums: tuple[float, ...] = ()  # of this epoch so far
    best: tuple[float, int] | tuple[()] = ()  # score of the best epoch, updates to it

    @property
    def losses(self) -> list[float]:
        """Of the epochs that are over."""
        return [metrics[0] for metrics in self.history]


class Snapshot(NamedTuple):
    """All that a training needs to go on."""

    state: TrainState  # of NumPy
    place: Place


class Status(NamedTuple):
    """How far a run is."""

    epoch: int  # from 0
    epochs: int
    progress: float  # share of the whole run, in [0, 1]
    is_epoch_end: bool
    loss: float  # mean, of this epoch so far
    recent_loss: float  # mean, of some steps before this one
    metrics: dict[str, float | None]  # of this epoch, where it is over
    rate: float  # learning rate
    rate_name: str
    updates: int  # of all epochs so far
    best: int | None  # of these, up to the end of the best epoch
    unit: str  # of the items
    items: int  # trained on in all epochs so far
    items_per_second: float  # since the start of this call
    seconds: float  # since the start of this call
    compile_seconds: float  # of these, the first call of the program, which compiles
    snapshot: Callable[[], Snapshot]  # a copy; of finite vectors, or it raises


def run_epochs(
    training: Trainable,
    state: TrainState,
    on_status: Callable[[Status], None] = lambda status: None,
    place: Place | None = None,
    on_pause: Callable[[], None] = lambda: None,
) -> Snapshot:
    """What all epochs of `training` lead to.

    `on_pause` is called before what takes its time besides the steps.

    `state` stays as it is; arrays are of NumPy before and after. It is the state at
    `place`; None: before the first update.

    Raises:
      FloatingPointError: the loss of an epoch is not finite.
    """
    _log.info("devices: %s; compiled by %s", training.devices_line, training.backend)
    state = training.program.place_state(state)
    place = place or Place(training.epochs.start)
    clock = _Clock(training, on_status, place)
    for epoch in range(place.epoch, training.epochs.stop):
        sums = EpochSums(place.sums)
        for step in training.steps(state, epoch, place.position):
            state = step.state
            sums.add(step.sums)
            _check_recent(training, sums, place)
            place = place._replace(
                position=step.position,
                progress=step.progress,
                updates=place.updates + step.num_updates,
            )
            clock.tell(state, place, sums, step.call_seconds)
        on_pause()
        metrics = training.summary(sums.result(), state)
        history = (*place.history, metrics)
        if place.losses and place.losses[-1] == metrics[0] != 0:
            _log.warning(
                "The loss of epoch %d is that of the epoch before, to the last bit: "
                "nothing is learned.",
                epoch + 1,
            )
        _check_finite(training, state, epoch, history)
        done = (epoch + 1 - training.epochs.start) / len(training.epochs)
        best = _better(place.best, training.score(metrics), place.updates)
        place = Place(epoch + 1, (), done, place.updates, history, best=best)
        clock.tell_end(state, place)
    on_pause()
    clock.tell_compiling()
    if place.losses and not any(place.losses):
        _log.warning(training.idle)
    return Snapshot(training.program.whole_state(state), place)


def _better(best: tuple, score: float | None, updates: int) -> tuple:
    """The better of the best so far and an epoch that ended after `updates`."""
    if score is None or not math.isfinite(score) or (best and best[0] >= score):
        return best
    return score, updates


class _Clock:
    """Tells how far a training is, and how long that took since this was made."""

    def __init__(self, training: Trainable, on_status, start: Place):
        self._training = training
        self._on_status = on_status
        self._start = start
        self._began = time.perf_counter()
        self._compiling = 0.0

    def tell(
        self, state: TrainState, place: Place, sums: EpochSums, call_seconds: float
    ) -> None:
        """Within an epoch."""
        self._compiling = self._compiling or call_seconds

        def snapshot() -> Snapshot:
            here = place._replace(sums=sums.result())
            _check_parameters(self._training, state, f"{place.updates} updates")
            return Snapshot(self._training.program.whole_state(state), here)

        self._on_status(self._status(place, sums.mean(), sums.recent, snapshot))

    def tell_compiling(self) -> None:
        """In the log."""
        _log.debug(
            "The first call of the program took %.2f s, to compile it.", self._compiling
        )

    def tell_end(self, state: TrainState, place: Place) -> None:
        """After an epoch: `place` is the beginning of the next."""

        def snapshot() -> Snapshot:
            return Snapshot(self._training.program.whole_state(state), place)

        metrics = dict(zip(self._training.metrics, place.history[-1], strict=True))
        loss = place.losses[-1]
        status = self._status(place, loss, loss, snapshot)
        self._on_status(
            status._replace(epoch=place.epoch - 1, is_epoch_end=True, metrics=metrics)
        )

    def _status(
        self, place: Place, loss: float, recent_loss: float, snapshot
    ) -> Status:
        training = self._training
        items = training.items * len(training.epochs)
        seconds = time.perf_counter() - self._began
        new = items * (place.progress - self._start.progress)
        return Status(
            epoch=place.epoch,
            epochs=training.epochs.stop,
            progress=place.progress,
            is_epoch_end=False,
            loss=loss,
            recent_loss=recent_loss,
            metrics={},
            rate=float(training.rate(place.progress)),
            rate_name=training.rate_name,
            updates=place.updates,
            best=place.best[1] if place.best else None,
            unit=training.unit,
            items=round(items * place.progress),
            items_per_second=new / max(seconds, 1e-9),
            seconds=seconds,
            compile_seconds=self._compiling,
            snapshot=snapshot,
        )


def _check_recent(training: Trainable, sums: EpochSums, place: Place) -> None:
    """Ends a training within an epoch, not days later."""
    if not np.isfinite(sums.recent):
        before = f"{place.losses[-1]:.4f}" if place.losses else "none"
        raise FloatingPointError(
            f"The loss near update {place.updates} is {sums.recent}, of the epoch "
            f"before {before}: {training.diverged}"
        )


def _check_finite(training: Trainable, state: TrainState, epoch: int, history) -> None:
    loss = history[-1][0]
    if not np.isfinite(loss):
        before = f"{history[-2][0]:.4f}" if len(history) > 1 else "none"
        raise FloatingPointError(
            f"The loss of epoch {epoch + 1} is {loss}, of the epoch before {before}: "
            f"{training.diverged}"
        )
    _check_parameters(training, state, f"epoch {epoch + 1}")


def _check_parameters(training: Trainable, state: TrainState, when: str) -> None:
    if not all(map(_is_finite, jax.tree.leaves(state.params))):
        raise FloatingPointError(
            f"The parameters after {when} are not finite: {training.diverged}"
        )


def _is_finite(array) -> bool:
    """Whether an array is, be it on many devices or of NumPy."""
    if isinstance(array, np.ndarray):
        return bool(np.isfinite(array).all())
    with jax.enable_x64(array.dtype == np.float64):
        return bool(jnp.isfinite(array).all())
