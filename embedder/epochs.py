"""Epochs of a training: how far they are, and where they can be taken up again."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from embedder.train.loop import EpochLoss
from embedder.train.update import TrainState
from embedder.training import Training

DIVERGED = "training diverged. Give a smaller `alpha` or `cap`."
_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where in its epochs a training is, after an update."""

    epoch: int  # from 0
    position: tuple[int, ...] = ()  # of that update in its epoch; (): before the first
    progress: float = 0.0  # share of the run done before that update, in [0, 1]
    updates: int = 0  # of all epochs so far
    losses: tuple[float, ...] = ()  # of the epochs that are over
    loss_total: float = 0.0  # of this epoch so far
    loss_terms: float = 0.0


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
    loss: float  # mean per pair, of this epoch so far
    alpha: float
    updates: int  # of all epochs so far
    words: int  # raw tokens trained on in all epochs so far
    words_per_second: float  # since the start of this call
    seconds: float  # since the start of this call
    compile_seconds: float  # of these, the first call of the program, which compiles
    snapshot: Callable[[], Snapshot]  # a copy; of finite vectors, or it raises


def run_epochs(
    training: Training,
    state: TrainState,
    on_status: Callable[[Status], None] = lambda status: None,
    place: Place | None = None,
) -> tuple[TrainState, list[float]]:
    """The state after all epochs of `training`, and the loss of each.

    `state` stays as it is; tables are of NumPy before and after. It is the state at
    `place`; None: before the first update.

    Raises:
      FloatingPointError: the loss of an epoch is not finite.
    """
    _log.info("devices: %s; compiled by %s", training.devices_line, training.backend)
    state = training.program.place_state(state)
    place = place or Place(training.epochs.start)
    clock = _Clock(training, on_status, place)
    for epoch in range(place.epoch, training.epochs.stop):
        loss = EpochLoss(place.loss_total, place.loss_terms)
        for step in training.steps(state, epoch, place.position):
            state = step.state
            loss.add(step.loss)
            place = place._replace(
                position=step.position,
                progress=step.progress,
                updates=place.updates + step.num_updates,
            )
            clock.tell(state, place, loss, step.call_seconds)
        losses = (*place.losses, loss.result())
        _check_finite(state, epoch, losses)
        done = (epoch + 1 - training.epochs.start) / len(training.epochs)
        place = Place(epoch + 1, (), done, place.updates, losses)
        clock.tell_end(state, place)
    clock.tell_compiling()
    if place.losses and not any(place.losses):
        _log.warning("No token has another in its window: nothing is learned.")
    return training.program.whole_state(state), list(place.losses)


class _Clock:
    """Tells how far a training is, and how long that took since this was made."""

    def __init__(self, training: Training, on_status, start: Place):
        self._training = training
        self._on_status = on_status
        self._start = start
        self._began = time.perf_counter()
        self._compiling = 0.0

    def tell(
        self, state: TrainState, place: Place, loss: EpochLoss, call_seconds: float
    ) -> None:
        """Within an epoch."""
        self._compiling = self._compiling or call_seconds

        def snapshot() -> Snapshot:
            total, terms = loss.sums()
            here = place._replace(loss_total=total, loss_terms=terms)
            _check_tables(state, f"{place.updates} updates")
            return Snapshot(self._training.program.whole_state(state), here)

        self._on_status(self._status(place, loss.mean(), snapshot))

    def tell_compiling(self) -> None:
        """In the log."""
        _log.debug(
            "The first call of the program took %.2f s, to compile it.", self._compiling
        )

    def tell_end(self, state: TrainState, place: Place) -> None:
        """After an epoch: `place` is the beginning of the next."""

        def snapshot() -> Snapshot:
            return Snapshot(self._training.program.whole_state(state), place)

        status = self._status(place, place.losses[-1], snapshot)
        self._on_status(status._replace(epoch=place.epoch - 1, is_epoch_end=True))

    def _status(self, place: Place, loss: float, snapshot) -> Status:
        training = self._training
        raw_tokens = training.encoded.raw_tokens * len(training.epochs)
        seconds = time.perf_counter() - self._began
        new = raw_tokens * (place.progress - self._start.progress)
        return Status(
            epoch=place.epoch,
            epochs=training.epochs.stop,
            progress=place.progress,
            is_epoch_end=False,
            loss=loss,
            alpha=float(training.rate(place.progress)),
            updates=place.updates,
            words=round(raw_tokens * place.progress),
            words_per_second=new / max(seconds, 1e-9),
            seconds=seconds,
            compile_seconds=self._compiling,
            snapshot=snapshot,
        )


def _check_finite(state: TrainState, epoch: int, losses: tuple[float, ...]) -> None:
    if not np.isfinite(losses[-1]):
        before = f"{losses[-2]:.4f}" if len(losses) > 1 else "none"
        raise FloatingPointError(
            f"The loss of epoch {epoch + 1} is {losses[-1]}, of the epoch before "
            f"{before}: {DIVERGED}"
        )
    _check_tables(state, f"epoch {epoch + 1}")


def _check_tables(state: TrainState, when: str) -> None:
    if not all(map(_is_finite, state.params["tables"].values())):
        raise FloatingPointError(f"The vectors after {when} are not finite: {DIVERGED}")


def _is_finite(table) -> bool:
    """Whether a table is, be it on many devices or of NumPy."""
    if isinstance(table, np.ndarray):
        return bool(np.isfinite(table).all())
    with jax.enable_x64(table.dtype == np.float64):
        return bool(jnp.isfinite(table).all())
