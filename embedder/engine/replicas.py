"""K replicas of a model: their states with a leading axis K, trained by one program.

A replica is the model that a run of its own seed trains. Replicas share nothing but the
program and the data: XLA applies the updates of all of them at once (`vmap`), the CPU
kernel those of each on a thread.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from embedder.engine.compiled_step import CompiledStep, PlacedState, Placement
from embedder.engine.loop import StepBatches
from embedder.engine.state import TrainState

Tree = TypeVar("Tree")
"""A state, or a part of one."""

Call = tuple[StepBatches, int, Any]
"""The S updates of a call, how many are real, and their arrays of NumPy."""


class ReplicaUpdates(NamedTuple):
    """The S updates of a call of every replica, as the loop reads them."""

    position: np.ndarray  # i64[S, 1 + K P]: the epoch, then the positions of replicas
    progress: np.ndarray  # f64[S], mean of the replicas


def stack_states(states: Sequence[Tree]) -> Tree:
    """The states of K replicas, or parts of them, as one: arrays have K first."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *states)


def unstack_states(state: Tree) -> list[Tree]:
    """The state of each replica, or that part of it, as views."""
    num_replicas = len(jax.tree.leaves(state)[0])
    return [jax.tree.map(lambda x, k=k: x[k], state) for k in range(num_replicas)]


def vmap_updates(updates: Callable, placement: Placement, axes: Any):
    """The `updates` of K replicas by `vmap`, and the placement of their arrays.

    Arrays of a state have K first. Arrays of a batch have K last of their common axes,
    [S, K] or [S, N, K, ...], so that what shards and pads blocks stays as it is.

    Args:
      axes: a batch with the axis of replicas of each array.
    """
    mapped = jax.vmap(updates, in_axes=(0, axes))

    def pad_state(state: TrainState) -> TrainState:
        return stack_states([*map(placement.pad_state, unstack_states(state))])

    def unpad_state(state: TrainState) -> TrainState:
        return stack_states([*map(placement.unpad_state, unstack_states(state))])

    return mapped, placement._replace(
        pad_state=pad_state, unpad_state=unpad_state, replica_axes=axes
    )


def stack_batches(batches: Sequence[Any], axes: Any) -> Any:
    """The batches of K replicas as one; `axes` as in `vmap_updates`."""

    def stack(axis: int, *arrays: Any) -> Any:
        return None if arrays[0] is None else np.stack(arrays, axis)

    return jax.tree.map(stack, axes, *batches)


def on_threads(programs: Sequence[CompiledStep], threads: int) -> CompiledStep:
    """The program of replicas, each of which has a program and runs on one thread.

    Batches are lists with a batch for each replica. Up to `threads` replicas are
    updated at the same time.
    """
    pool = ThreadPoolExecutor(threads, "replica")

    def each(call: Callable, *arguments: Sequence) -> list:
        return [*pool.map(call, programs, *arguments)]

    def place_state(state: TrainState) -> PlacedState:
        return _listed(each(lambda p, one: p.place_state(one), unstack_states(state)))

    def apply_updates(state: PlacedState, batches: list) -> tuple[PlacedState, Any]:
        results = each(lambda p, *one: p.apply_updates(*one), _members(state), batches)
        states, sums = zip(*results, strict=True)
        return _listed(states), jax.tree.map(lambda *x: np.stack(x), *sums)

    def whole_state(state: PlacedState) -> TrainState:
        members = zip(programs, _members(state), strict=True)
        return stack_states([program.whole_state(each) for program, each in members])

    return CompiledStep(
        apply_updates=apply_updates,
        place_state=place_state,
        place_batch=lambda batches: batches,
        whole_state=whole_state,
    )


def _listed(states: Sequence[PlacedState]) -> PlacedState:
    """A state whose fields are lists of the fields of `states`."""
    fields: Any = map(list, zip(*states, strict=True))
    return PlacedState(TrainState._make(fields))


def _members(state: PlacedState) -> list[PlacedState]:
    fields: Any = zip(*state, strict=True)
    return [PlacedState(TrainState._make(each)) for each in fields]


def side_by_side(
    calls: Sequence[Iterator[Call]],
    after: Sequence[tuple[int, ...]],
    empty: Callable[[Any], Call],
) -> Generator[tuple[ReplicaUpdates, int, list[Any]]]:
    """Calls with the updates of all replicas, and a list of the batches of each.

    The epochs of replicas differ by some updates, since each leaves out other tokens;
    one that has no more gets empty updates, and keeps its position.

    Args:
      after: the position of the last update of each replica before these calls.
      empty: makes a call like another, of no real updates.
    """
    last = [*after]
    while any(newest := [next(call, None) for call in calls]):
        some = next(filter(None, newest))
        members = [call or empty(some) for call in newest]
        positions = []
        for k, (updates, num, _) in enumerate(members):
            positions.append(_positions(updates, num, last[k]))
            last[k] = tuple(positions[-1][-1].tolist())
        progress = [
            updates.progress[_real(updates, num)] for updates, num, _ in members if num
        ]
        yield (
            ReplicaUpdates(
                np.concatenate([some[0].position[:, :1], *positions], axis=1),
                np.mean(progress, axis=0),
            ),
            max(num for _, num, _ in members),
            [batch for _, _, batch in members],
        )


def _positions(updates: StepBatches, num: int, before: tuple[int, ...]) -> np.ndarray:
    """Positions within the epoch, [S, P]; after the real updates that of the last."""
    if not num:
        return np.tile(np.array(before, np.int64), (len(updates.position), 1))
    return updates.position[_real(updates, num), 1:]


def _real(updates: StepBatches, num: int) -> np.ndarray:
    """The number of each update, or of the last real one before it, i64[S]."""
    return np.minimum(np.arange(len(updates.position)), num - 1)
