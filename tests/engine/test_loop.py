import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.engine.loop import EpochSums, run_calls
from embedder.engine.rules import capped_sgd
from embedder.engine.state import device_state
from embedder.tables import skipgram
from embedder.tables.lookup import tables
from embedder.tables.prepare import Model
from embedder.tables.training import host_batches
from embedder.tables.update import Loss, host_state, make_updates
from migration.parity.updates import random_tables
from tests.parity.cases import NEGATIVE, Case

CASE = Case("tiled", 30, (16, 1, 32), tile=8, noise=6)
TABLES = random_tables((CASE.num_rows, 8), "float32")


def loss(total, num_terms) -> Loss:
    return Loss(jnp.array(total, jnp.float32), jnp.array(num_terms, jnp.float32))


def test_epoch_loss_is_the_mean_over_all_terms():
    epoch = EpochSums()
    epoch.add(loss([2.0, 4.0], [1, 3]))
    epoch.add(loss([6.0], [2]))
    assert epoch.result() == (12, 6)
    assert epoch.mean() == 12 / 6


def test_epoch_loss_sums_in_double_precision():
    """In float32 the small terms would be lost beside the large one."""
    epoch = EpochSums()
    epoch.add(loss([2.0**25] + [1.0] * 4, [1] * 5))
    assert epoch.result() == (2.0**25 + 4, 5)


def test_epoch_loss_without_terms_is_zero():
    epoch = EpochSums()
    epoch.add(loss([0.0], [0]))
    assert epoch.result() == (0.0, 0.0)
    assert epoch.mean() == 0.0


def test_epoch_loss_does_not_wait_for_the_newest():
    epoch = EpochSums()
    for total in (1.0, 2.0, 3.0):
        epoch.add(loss([total], [1]))
    assert epoch.mean() == 1.0
    assert epoch.result() == (6.0, 3.0)
    assert epoch.mean() == 2.0


def test_epoch_sums_go_on_from_others():
    epoch = EpochSums((1.0, 2.0, 5.0))
    epoch.add((*loss([3.0], [4]), jnp.array([1.0])))
    assert epoch.result() == (4.0, 6.0, 6.0)
    assert EpochSums().result() == ()


def run(superblocks, rate) -> list[np.ndarray]:
    """The input table after each call."""
    lookup = tables(CASE.num_rows, 8, dtype=np.dtype("float32"), seed=0)
    optimizer = capped_sgd(5.0)
    model = Model(lookup, skipgram, CASE.window, NEGATIVE)
    apply_updates = make_updates(model, optimizer, update="rows", loss_interval=1)
    batches = host_batches(superblocks, rate, np.dtype("float32"))
    start = device_state(host_state(optimizer, *TABLES))
    return [
        np.array(call.state.params["tables"]["input"])
        for call in run_calls(apply_updates, start, batches)
    ]


@pytest.mark.row("F22")
def test_each_state_is_valid_until_the_next_call():
    superblocks = [(CASE.updates(seed), 16) for seed in range(3)]
    first, second, third = run(superblocks, lambda progress: 0.05 * (1 - progress))
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)


def test_each_update_has_the_learning_rate_of_its_progress():
    """Progress goes from 0 to 0.5: with a rate up to 0.2, later updates do nothing."""
    updates = CASE.updates()
    some = jax.tree.map(lambda x: x[updates.progress < 0.2], updates)
    assert 0 < some.num_updates < updates.num_updates
    (all_of_them,) = run([(updates, 16)], lambda progress: 0.05 * (progress < 0.2))
    (few,) = run(
        [(some, some.num_updates)], lambda progress: np.full_like(progress, 0.05)
    )
    assert not np.array_equal(few, TABLES[0])
    np.testing.assert_allclose(all_of_them, few, rtol=1e-6, atol=1e-7)
