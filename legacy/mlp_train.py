"""Training of an encoder, by one process or by several that share each batch.

Processes add their gradients up before any weight is changed: any number of them
computes the same, but for rounding.
"""

import multiprocessing
from typing import Any, NamedTuple

import numpy as np

from legacy.hogwild import run_workers
from legacy.network import (
    OPTIMIZERS,
    Layer,
    Sums,
    activations,
    apply_update,
    batches,
    gradients,
    initial_layers,
    layers_of,
    loss_sums,
    num_parameters,
    num_slots,
    scaled,
    split,
)

AT_ONCE = 1024  # examples that are looked at together where nothing is trained


class _Plan(NamedTuple):
    """What every worker has to know."""

    settings: dict[str, Any]
    options: dict[str, float]  # of the optimizer
    widths: tuple[int, ...]
    barrier: Any  # None: there is one worker


def train(settings, widths, x, y) -> tuple[list[Layer], list[dict[str, float]]]:
    """The layers after all epochs, and what each epoch came to."""
    workers, optimizer = settings["workers"], settings["optimizer"]
    dtype, size = settings["dtype"], num_parameters(widths)
    # Parameters, what the optimizer keeps, and the gradients of each worker.
    rows = np.zeros((1 + num_slots(optimizer) + workers, size), dtype)
    first = initial_layers(widths, dtype, settings["seed"])
    for own, layer in zip(layers_of(rows[0], widths), first, strict=True):
        own.weights[:], own.biases[:] = layer
    options = OPTIMIZERS[optimizer] | (settings["optimizer_args"] or {})
    if workers == 1:
        plan = _Plan(settings, options, widths, None)
        sums = [_work([rows], [x, y], plan, 0, 1)]
    else:
        barrier = multiprocessing.get_context("spawn").Barrier(workers)
        plan = _Plan(settings, options, widths, barrier)
        sums = run_workers(_work, [rows], [x, y], plan, workers)
    history = [_summary(parts) for parts in zip(*sums, strict=True)]
    _check_finite(history, rows[0])
    return layers_of(rows[0].copy(), widths), history


def _work(state, arrays, plan: _Plan, worker: int, num_workers: int):
    """Trains all epochs with the others; the sums of this worker's own examples."""
    with np.errstate(all="ignore"):  # what diverges is told at the end
        return _epochs(*state, arrays, plan, worker, num_workers)


def _epochs(rows, arrays, plan: _Plan, worker: int, num_workers: int):
    (x, y), settings = arrays, plan.settings
    train, held = split(len(x), settings["validation_fraction"])
    layers = layers_of(rows[0], plan.widths)
    slots, every = rows[1:-num_workers], rows[-num_workers:]
    own = layers_of(every[worker], plan.widths)
    part = _part(rows.shape[1], worker, num_workers)
    step, epochs = 0, []
    for epoch in range(settings["epochs"]):
        trained = Sums(0.0, 0, 0)
        for batch in batches(train, settings["batch_size"], settings["seed"], epoch):
            step += 1
            mine = batch[_part(len(batch), worker, num_workers)]
            inputs = scaled(x[mine], settings["dtype"])
            found = gradients(layers, inputs, y[mine], len(batch), own)
            trained = _added(trained, found)
            _meet(plan)
            apply_update(
                *(settings["optimizer"], plan.options, settings["learning_rate"], step),
                *(rows[0, part], slots[:, part], every[:, part].sum(axis=0)),
            )
            _meet(plan)
        mine = held[_part(len(held), worker, num_workers)]
        epochs.append((trained, _evaluated(layers, x, y, mine, settings["dtype"])))
        _meet(plan)
    return epochs


def _part(size: int, worker: int, num_workers: int) -> slice:
    return slice(size * worker // num_workers, size * (worker + 1) // num_workers)


def _meet(plan: _Plan) -> None:
    if plan.barrier is not None:
        plan.barrier.wait()


def _added(first: Sums, second: Sums) -> Sums:
    return Sums(*(a + b for a, b in zip(first, second, strict=True)))


def _evaluated(layers, x, y, which: np.ndarray, dtype: str) -> Sums:
    total = Sums(0.0, 0, 0)
    for start in range(0, len(which), AT_ONCE):
        part = which[start : start + AT_ONCE]
        scores = activations(layers, scaled(x[part], dtype))[-1]
        total = _added(total, loss_sums(scores, y[part]))
    return total


def _summary(parts: tuple[tuple[Sums, Sums], ...]) -> dict[str, float | None]:
    """What the workers' sums of an epoch come to."""
    summary = {}
    for name, sums in zip(("train", "val"), zip(*parts, strict=True), strict=True):
        total = Sums(*(sum(values) for values in zip(*sums, strict=True)))
        has_any = total.examples > 0
        loss, accuracy = total.loss, float(total.correct)
        summary[f"{name}_loss"] = loss / total.examples if has_any else None
        summary[f"{name}_accuracy"] = accuracy / total.examples if has_any else None
    return summary


def _check_finite(history, parameters: np.ndarray) -> None:
    losses = [each["train_loss"] for each in history]
    if not (np.isfinite(losses).all() and np.isfinite(parameters).all()):
        number = int(np.argmin(np.isfinite(losses)))
        raise FloatingPointError(
            f"Training diverged in epoch {number + 1}: give a smaller `learning_rate`."
        )
