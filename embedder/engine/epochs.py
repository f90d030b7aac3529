"""Runs the epochs of a training, reports its status, and makes checkpoints of it."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from embedder.base.stages import report_stage
from embedder.config.settings import Interval
from embedder.engine.compiled_step import PlacedState
from embedder.engine.loop import EpochSums
from embedder.engine.state import TrainState
from embedder.engine.stopwatch import Stopwatch
from embedder.engine.trainer import Trainer
from embedder.metrics.score_table import Metrics

_CHUNK_VALUES = 2**20  # that are looked at together for one that is not finite
_log = logging.getLogger(__name__)


class Evaluations(NamedTuple):
    """How often a training is evaluated, and how long it waits for a better score.

    The end of the last epoch is always evaluated.
    """

    interval: Interval = Interval(epochs=1)
    patience: int = 0  # evaluations without a better score until it ends; 0: never
    agree: Callable[[Any], Any] = lambda value: value
    """A value that JSON can hold -> that of the first process, in all processes."""
    meet_every: int = 1  # calls after which the processes agree on the time

    def is_over(self, waits: int) -> bool:
        """Whether a training ends after `waits` evaluations without a better score."""
        return 0 < self.patience <= waits


class Timer:
    """Tells when an evaluation is due; its clock starts when it is made.

    Must be called after each call of updates, and after each epoch.
    """

    def __init__(self, evaluations: Evaluations):
        self._evaluations = evaluations
        self._calls = 0
        self._evaluated = time.monotonic()

    def is_due(self, before: int, updates: int) -> bool:
        """Whether one is due after a call, from update `before` to `updates`.

        By updates that depends on nothing else, so a run that resumes is evaluated
        where it would have been.
        """
        interval = self._evaluations.interval
        if interval.updates < float("inf"):
            return updates // interval.updates > before // interval.updates
        if interval.seconds == float("inf"):
            return False
        self._calls += 1
        if self._calls % self._evaluations.meet_every:
            return False
        waited = time.monotonic() - self._evaluated
        return bool(self._evaluations.agree(waited >= interval.seconds))

    def is_due_at_end(self, num_epochs: int, of: int) -> bool:
        """Whether one is due after `num_epochs` epochs of all, `of`."""
        epochs = self._evaluations.interval.epochs
        return num_epochs == of or num_epochs % epochs == 0

    def restart(self) -> None:
        """Must be called after each evaluation."""
        self._evaluated = time.monotonic()


class Progress(NamedTuple):
    """How far a run is after an update, and what it has reached.

    Checkpoints store the fields by name.
    """

    epoch: int  # from 0
    position: tuple[int, ...] = ()  # of that update in its epoch; (): before the first
    progress: float = 0.0  # fraction of the run done before that update, in [0, 1]
    updates: int = 0  # of all epochs so far
    history: tuple[Metrics, ...] = ()  # of the epochs that are done
    sums: tuple[float, ...] = ()  # of this epoch so far; see EpochSums
    best: tuple[float, int] | tuple[()] = ()  # score and updates of the best evaluation
    scores: Metrics = ()  # of the newest evaluation
    evaluated: int = -1  # updates up to that one; -1: there was none
    evaluations: int = 0  # within epochs, so far
    waits: int = 0  # evaluations since the best

    @property
    def losses(self) -> list[float]:
        """Mean losses of the epochs that are done."""
        losses = [metrics[0] for metrics in self.history]
        return [loss for loss in losses if loss is not None]  # always measured

    @property
    def text(self) -> str:
        """The epoch that ends here, or the update within one."""
        if not self.position:
            return f"epoch {self.epoch}"
        return f"update {self.updates}, in epoch {self.epoch + 1}"


class Checkpoint(NamedTuple):
    """All that a training needs to resume."""

    state: TrainState  # of NumPy
    position: Progress


class Status(NamedTuple):
    """How far a run is."""

    epoch: int  # from 0
    epochs: int
    progress: float  # fraction of the whole run, in [0, 1]
    is_epoch_end: bool
    loss: float  # mean, of this epoch so far
    recent_loss: float  # mean, of a recent call
    metrics: dict[str, float | None]  # of this epoch at its end; else empty
    scores: dict[str, float | None]  # of an evaluation just made; else empty
    rate: float  # learning rate
    rate_name: str
    updates: int  # of all epochs so far
    best: int | None  # updates up to the best evaluation so far
    unit: str  # of the items, in files
    noun: str  # of the items, in messages
    items: int  # trained on in all epochs so far
    items_per_second: float  # since `run_epochs` began
    seconds: float  # since `run_epochs` began
    seconds_of: dict[str, float]  # of these, by activity; see `ACTIVITIES`
    snapshot: Callable[[], Checkpoint]  # a copy; raises if parameters are not finite

    @property
    def compile_seconds(self) -> float:
        """Seconds of the first call, which compiles."""
        return self.seconds_of["compile"]


class Listener(Protocol):
    """What follows a training by its losses, and may stop it."""

    is_stopped: bool
    """Whether to stop; it is read after each `on_status`."""

    def is_due(self, updates: int) -> bool:
        """Whether the status of a call must have the loss of that call, for which
        training waits then; it is asked after each call, with the updates so far."""


def run_epochs(
    training: Trainer,
    state: TrainState,
    on_status: Callable[[Status], None] = lambda status: None,
    start: Progress | None = None,
    on_pause: Callable[[], None] = lambda: None,
    until: int | None = None,
    evaluations: Evaluations = Evaluations(),  # noqa: B008 - it is immutable
    listener: Listener | None = None,
) -> Checkpoint:
    """The checkpoint after all epochs of `training`, or where `evaluations` or
    `listener` end it.

    Args:
      state: arrays of NumPy, at `start`; they are not changed.
      on_status: called after each call and each epoch.
      start: None: before the first update.
      on_pause: called before slow work outside the loop of calls.
      until: the epoch before which to end; None: all epochs.
      listener: where it asks for no loss, a status may have that of two calls before,
        and 0 where an epoch has no such call.

    Raises:
      FloatingPointError: a loss or a parameter is not finite, unless `may_diverge`.
    """
    is_plain = jax.default_backend() == "cpu" and jax.device_count() == 1
    level = logging.DEBUG if is_plain else logging.INFO
    devices = training.devices_line, training.backend
    _log.log(level, "devices: %s; compiled by %s", *devices)
    placed = training.program.place_state(state)
    at = start or Progress(training.epochs.start)
    stopwatch = Stopwatch()

    def pause() -> None:
        with stopwatch.measure("other"):
            on_pause()

    reporter = _Reporter(training, on_status, at, stopwatch)
    evaluator = _Evaluator(training, evaluations, pause, stopwatch)

    def is_stopped() -> bool:
        return listener is not None and listener.is_stopped

    def is_over() -> bool:
        return evaluations.is_over(at.waits) or is_stopped()

    report_stage("compiling")
    for epoch in range(at.epoch, training.epochs.stop if until is None else until):
        if is_over():  # it was stopped after its last evaluation, or at an epoch's end
            break
        sums = EpochSums(at.sums)
        for call in training.calls(placed, epoch, at.position):
            placed = call.state
            stopwatch.add("input", call.input_seconds)
            sums.add(call.sums)
            _check_loss(training, sums.recent, f"near update {at.updates}", at.losses)
            before = at.updates
            at = at._replace(
                position=call.position,
                progress=call.progress,
                updates=before + call.num_updates,
            )
            if is_due := evaluator.is_due(before, at):
                at = evaluator.evaluated(at, placed)
                at = at._replace(evaluations=at.evaluations + 1)
            if listener is not None and listener.is_due(at.updates):
                sums.result()
            reporter.report_call(placed, at, sums, call.call_seconds, is_due)
            if is_over():
                break
        pause()
        if is_over():
            _check_parameters(training, placed, f"{at.updates} updates")
            at = at._replace(sums=sums.result())
            break
        if epoch + 1 == training.epochs.stop:  # the bar is at 100 % from here on
            report_stage("finishing the last epoch")
        at = evaluator.at_epoch_end(at, placed)
        metrics = *training.summary(sums.result()), *evaluator.scores(at)
        at = _at_start_of_next(training, at, metrics)
        of_epoch = f"epoch {epoch + 1}"
        _check_loss(training, at.losses[-1], f"of {of_epoch}", at.losses[:-1])
        _check_parameters(training, placed, of_epoch)
        reporter.report_epoch(placed, at)
    report_stage("taking the result from the device")
    pause()
    compiling = stopwatch.seconds_of["compile"]
    _log.debug("The first call took %.2f s, mostly to compile.", compiling)
    if evaluations.is_over(at.waits) and at.epoch < training.epochs.stop:
        _log_early_end(training, at)
    elif is_stopped() and at.epoch < training.epochs.stop:
        done = at.updates, 100 * at.progress
        _log.info("Stopped by a callback after %d updates, %.1f %% of the run.", *done)
    if at.losses and not any(at.losses):
        _log.warning(training.zero_loss_message)
    return Checkpoint(training.program.whole_state(placed), at)


def _at_start_of_next(training: Trainer, at: Progress, metrics: Metrics) -> Progress:
    """The start of the next epoch, after one with `metrics`."""
    _warn_of_equal_losses(metrics, at.losses[-2:], at.epoch)
    epoch = at.epoch + 1
    return at._replace(
        epoch=epoch,
        position=(),
        progress=(epoch - training.epochs.start) / len(training.epochs),
        history=(*at.history, metrics),
        sums=(),
    )


class _Evaluator:
    """Evaluates a training when it is time."""

    def __init__(
        self,
        training: Trainer,
        evaluations: Evaluations,
        on_pause: Callable[[], None],
        stopwatch: Stopwatch,
    ):
        self._training = training
        self._agree = evaluations.agree
        self._stopwatch = stopwatch
        self._on_pause = on_pause
        self._timer = Timer(evaluations)

    def is_due(self, before: int, at: Progress) -> bool:
        """Whether to evaluate after a call that started after update `before`."""
        return bool(self._training.scores) and self._timer.is_due(before, at.updates)

    def at_epoch_end(self, at: Progress, state: PlacedState) -> Progress:
        """`at`, the end of an epoch, with an evaluation of `state` if one is due that
        was not made after the last call."""
        epochs = self._training.epochs
        done = at.epoch + 1 - epochs.start
        is_due = self._timer.is_due_at_end(done, len(epochs))
        if not (self._training.scores and is_due) or at.evaluated == at.updates:
            return at
        return self.evaluated(at, state)

    def scores(self, at: Progress) -> Metrics:
        """The scores after the update of `at`; None where it was not evaluated."""
        names = self._training.scores
        return at.scores if at.evaluated == at.updates else (None,) * len(names)

    def evaluated(self, at: Progress, state: PlacedState) -> Progress:
        """`at` with an evaluation of `state`."""
        self._on_pause()
        report_stage("measuring scores")
        jax.block_until_ready(state.params)  # updates are no part of it
        with self._stopwatch.measure("evaluation"):
            scores = tuple(self._agree(self._training.evaluate(state)))
        best, score = at.best, self._training.score(scores)
        is_measured = score is not None and math.isfinite(score)
        if score is not None and is_measured and not (best and best[0] >= score):
            best = score, at.updates
        waits = 0 if best != at.best else at.waits + 1
        self._timer.restart()
        return at._replace(scores=scores, evaluated=at.updates, best=best, waits=waits)


def _warn_of_equal_losses(metrics: Metrics, before: list[float], epoch: int) -> None:
    """`before`: the losses of the two epochs before."""
    loss = metrics[0]
    if loss and before[-1:] == [loss] and before != [loss, loss]:  # say it once
        _log.warning(
            "The loss of epoch %d equals that of the epoch before to the last bit: "
            "nothing is learned.",
            epoch + 1,
        )


def _log_early_end(training: Trainer, at: Progress) -> None:
    better = "had a finite score"
    if at.best:
        score, updates = at.best
        better = (
            f"was better than {training.score_text(score)}, after {updates} updates"
        )
    _log.info(
        "Ends early, after %d updates, %.1f %% of the run: none of the last %d "
        "evaluations %s. The schedule is cut: %s is still %.4g.",
        *(at.updates, 100 * at.progress, at.waits, better),
        *(training.rate_name, training.rate(at.progress)),
    )


class _Reporter:
    """Calls `on_status` with the status of a run, timed since this was made."""

    def __init__(
        self,
        training: Trainer,
        on_status: Callable[[Status], None],
        start: Progress,
        stopwatch: Stopwatch,
    ):
        self._training = training
        self._on_status = on_status
        self._start = start
        self._stopwatch = stopwatch

    def report_call(
        self,
        state: PlacedState,
        at: Progress,
        sums: EpochSums,
        call_seconds: float,
        is_evaluated: bool,
    ) -> None:
        """Reports within an epoch."""
        if not self._stopwatch.seconds_of["compile"]:
            self._stopwatch.add("compile", call_seconds)

        def snapshot() -> Checkpoint:
            position = at._replace(sums=sums.result())
            _check_parameters(self._training, state, f"{at.updates} updates")
            return Checkpoint(self._training.program.whole_state(state), position)

        status = self._status(at, sums.mean(), sums.recent, snapshot)
        if is_evaluated:
            scores = dict(zip(self._training.scores, at.scores, strict=True))
            status = status._replace(scores=scores)
        self._tell(status)

    def report_epoch(self, state: PlacedState, at: Progress) -> None:
        """Reports the end of an epoch; `at` is the start of the next."""

        def snapshot() -> Checkpoint:
            return Checkpoint(self._training.program.whole_state(state), at)

        metrics = dict(zip(self._training.metrics, at.history[-1], strict=True))
        loss, num_scores = at.losses[-1], len(self._training.scores)
        measured = at.history[-1][len(metrics) - num_scores :]
        scores = dict(zip(self._training.scores, measured, strict=True))
        status = self._status(at, loss, loss, snapshot)._replace(
            epoch=at.epoch - 1,
            is_epoch_end=True,
            metrics=metrics,
            scores=scores if any(x is not None for x in measured) else {},
        )
        self._tell(status)

    def _tell(self, status: Status) -> None:
        with self._stopwatch.measure("other"):
            self._on_status(status)

    def _status(
        self,
        at: Progress,
        loss: float,
        recent_loss: float,
        snapshot: Callable[[], Checkpoint],
    ) -> Status:
        training = self._training
        items = training.items * len(training.epochs)
        seconds = self._stopwatch.seconds
        new = items * (at.progress - self._start.progress)
        return Status(
            epoch=at.epoch,
            epochs=training.epochs.stop,
            progress=at.progress,
            is_epoch_end=False,
            loss=loss,
            recent_loss=recent_loss,
            metrics={},
            scores={},
            rate=float(training.rate(at.progress)),
            rate_name=training.rate_name,
            updates=at.updates,
            best=at.best[1] if at.best else None,
            unit=training.item_key,
            noun=training.item_name,
            items=round(items * at.progress),
            items_per_second=new / max(seconds, 1e-9),
            seconds=seconds,
            seconds_of=self._stopwatch.seconds_of,
            snapshot=snapshot,
        )


def _check_loss(training: Trainer, loss: float, when: str, losses: list[float]) -> None:
    """Stops a diverged training, also within an epoch, which may take days; `losses`
    are of the epochs before."""
    if not (training.may_diverge or np.isfinite(loss)):
        before = f"{losses[-1]:.4f}" if losses else "none"
        raise FloatingPointError(
            f"The loss {when} is {loss}, of the epoch before {before}: "
            f"{training.divergence_message}"
        )


def _check_parameters(training: Trainer, state: PlacedState, when: str) -> None:
    if not (training.may_diverge or is_finite((state.params, state.opt_state))):
        raise FloatingPointError(
            f"Parameters or the optimizer's state after {when} are not finite: "
            f"{training.divergence_message}"
        )


def is_finite(tree: Any) -> bool:
    """Whether all numbers in the arrays of a tree are finite; those of JAX may be on
    many devices."""
    on_host, placed = [], []
    for leaf in jax.tree.leaves(tree):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue  # counts, random keys
        if isinstance(leaf, np.ndarray):
            on_host.append(leaf)
        elif leaf.is_fully_addressable and _is_on_cpu(leaf):
            # NumPy reads them where they are, and has no program to compile.
            shards = (x for x in leaf.addressable_shards if not x.replica_id)
            on_host += [np.asarray(shard.data) for shard in shards]
        else:
            placed.append(leaf)
    if not all(map(_is_finite_array, on_host)):
        return False
    with jax.enable_x64(any(leaf.dtype == np.float64 for leaf in placed)):
        return not placed or bool(_are_finite(placed))


def _is_on_cpu(array: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in array.devices())


def _is_finite_array(array: np.ndarray) -> bool:
    """In chunks: a table may leave no memory for a flag for each of its numbers."""
    flat = array.reshape(-1)
    starts = range(0, flat.size, _CHUNK_VALUES)
    return all(np.isfinite(flat[x : x + _CHUNK_VALUES]).all() for x in starts)


@jax.jit
def _are_finite(arrays: list[jax.Array]) -> jax.Array:
    """One program for all arrays, which compiles faster than one for each."""
    return jnp.stack([jnp.isfinite(array).all() for array in arrays]).all()
