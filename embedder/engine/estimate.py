"""How long a training takes, by its first updates."""

import time

import jax

from embedder.engine.devices import fits
from embedder.engine.hosts import processes
from embedder.engine.memory import check_memory
from embedder.engine.trainer import Trainer
from embedder.errors import InputError

_SECONDS = 2.0  # of updates that are measured
_FEW_ITEMS = 100_000  # of all epochs, below which a training is over in no time


def is_worth_timing(training: Trainer) -> bool:
    """Whether a training takes some time, fits in memory, and is of one process."""
    num_items = training.items * len(training.epochs)
    if num_items < _FEW_ITEMS or processes.num_processes() > 1:
        return False
    try:
        check_memory(training.memory, training.memory_advice)
    except InputError:
        return False
    return fits(training.device_memory, jax.devices())


def time_lines(training: Trainer) -> list[str]:
    """A line about the time of a training on this machine.

    It compiles the updates and makes some seconds of them.
    """
    seconds = _seconds(training)
    if seconds is None:
        return []
    return [f"time: {_text(seconds)} on this machine, without evaluations and saves"]


def _seconds(training: Trainer) -> float | None:
    """Seconds of all updates, by those after the first call; None: there are none."""
    placed = training.program.place_state(training.initial_state())
    start, elapsed, done = None, 0.0, 0.0
    for epoch in training.epochs:
        for call in training.calls(placed, epoch, ()):
            placed = call.state
            jax.block_until_ready(call.sums)
            now = time.monotonic()
            if start is None:  # the first call compiled
                start = now, call.progress
            elapsed, done = now - start[0], call.progress - start[1]
            if elapsed >= _SECONDS:
                break
        if elapsed >= _SECONDS:
            break
    return elapsed / done if done else None


def _text(seconds: float) -> str:
    """A time to two digits."""
    if seconds < 1:
        return "below 1 s"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    if seconds < 6000:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.2g} h"
