"""What tests of blocks and of their weights check alike: loaders, and going on."""

import functools

import jax
import numpy as np

from embedder.tables.blocks import BlockSource, Updates
from embedder.tables.loader import cut, epoch_superblocks
from embedder.tables.training import Training


def check_loaders(made: BlockSource, after: tuple[int, int]) -> Updates:
    """Asserts that both loaders give the same updates of epoch 1 after a position, the
    last ones of the epoch; returns them."""

    def updates(loader: str, after: tuple[int, int]):
        parts = epoch_superblocks(loader, made, 1, size=16, workers=2, after=after)
        real = [cut(updates, 0, num) for updates, num in parts]
        return jax.tree.map(lambda *xs: np.concatenate(xs), *real)

    ours, theirs = updates("memory", after), updates("tfdata", after)
    whole = updates("memory", (0, -1))
    rest = cut(whole, whole.num_updates - ours.num_updates, None)
    assert_equal = functools.partial(np.testing.assert_array_equal, strict=True)
    for other in (theirs, rest):
        jax.tree.map(assert_equal, ours, other)
    return ours


def check_goes_on(training: Training) -> None:
    """Asserts that epoch 0 from a position in it ends as the whole one."""
    program = training.program
    state, saved = program.place_state(training.initial_state()), []
    for call in training.calls(state, 0):
        state = call.state
        saved.append((call.position, program.whole_state(state)))
    assert len(saved) > 3
    position, middle = saved[1]
    for call in training.calls(program.place_state(middle), 0, after=position):
        state = call.state
    whole, resumed = saved[-1][1], program.whole_state(state)
    for name, table in whole.params["tables"].items():
        np.testing.assert_array_equal(resumed.params["tables"][name], table)
