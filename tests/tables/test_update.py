import math

import jax
import numpy as np
import pytest

from embedder.engine.rules import capped_sgd
from embedder.engine.state import device_state
from embedder.tables import skipgram, update
from embedder.tables.blocks import Updates
from embedder.tables.lookup import tables
from embedder.tables.update import Batch, Model, host_state, make_updates, objective_of
from migration.parity.updates import random_tables
from tests.parity.cases import NEGATIVE, Case

CASE = Case("tiled", 30, (4, 1, 32), tile=8, noise=6)
OPTIMIZER = capped_sgd(5.0)
TABLES = random_tables((CASE.num_rows, 8), "float32")


def model(architecture="skipgram") -> Model:
    lookup = tables(CASE.num_rows, 8, dtype=np.dtype("float32"), seed=0)
    return Model(lookup, objective_of(architecture), CASE.window, NEGATIVE)


def state():
    return device_state(host_state(OPTIMIZER, *TABLES))


def batch(updates: Updates | None = None) -> Batch:
    updates = updates or CASE.updates()
    return Batch(updates.blocks, rate=np.full(4, 0.05, np.float32))


def tables_after(batch, **options) -> tuple[np.ndarray, np.ndarray]:
    options = {"update": "rows", "loss_interval": 1} | options
    after, _ = make_updates(model(), OPTIMIZER, **options)(state(), batch)
    return tuple(np.array(table) for table in after.params["tables"].values())


def test_updates_report_every_nth_loss_and_change_nothing_by_it():
    step = make_updates(model(), OPTIMIZER, update="rows", loss_interval=1)
    every, losses = step(state(), batch())
    seldom, first = make_updates(model(), OPTIMIZER, update="rows", loss_interval=2)(
        state(), batch()
    )
    np.testing.assert_array_equal(first.total, losses.total[::2])
    np.testing.assert_array_equal(first.num_terms, losses.num_terms[::2])
    for name in ("input", "output"):
        np.testing.assert_allclose(
            every.params["tables"][name], seldom.params["tables"][name], rtol=1e-6
        )
    assert int(seldom.step) == 4


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_dense_updates_equal_updates_by_rows(architecture):
    after = [
        make_updates(model(architecture), OPTIMIZER, update=kind, loss_interval=1)(
            state(), batch()
        )
        for kind in ("rows", "dense")
    ]
    (rows, rows_loss), (dense, dense_loss) = after
    np.testing.assert_allclose(rows_loss.total, dense_loss.total, rtol=1e-6)
    for name in ("input", "output"):
        np.testing.assert_allclose(
            rows.params["tables"][name],
            dense.params["tables"][name],
            rtol=1e-5,
            atol=1e-6,
        )


def test_empty_updates_change_nothing():
    empty = CASE.updates()
    for values, fill in (
        (empty.blocks.ids, 0),
        (empty.blocks.sequence, -1),
        (empty.blocks.radius, 0),
    ):
        values[:] = fill
    for after, table in zip(tables_after(batch(empty)), TABLES, strict=True):
        np.testing.assert_array_equal(after, table, strict=True)


def test_a_row_of_more_weight_than_the_cap_moves_in_proportion_to_the_cap():
    """Every token is the same one: no other row moves."""
    moved = {}
    for cap in (2.0, 4.0, math.inf):
        optimizer = capped_sgd(cap)
        step = make_updates(model(), optimizer, update="rows", loss_interval=1)
        updates = CASE.updates()
        updates.blocks.ids[:] = 7
        one = jax.tree.map(lambda x: x[:1], batch(updates))
        before = TABLES[0]
        after, _ = step(device_state(host_state(optimizer, *TABLES)), one)
        table = np.array(after.params["tables"]["input"])
        moved[cap] = np.linalg.norm(table[7] - before[7])
        np.testing.assert_array_equal(np.delete(table, 7, 0), np.delete(before, 7, 0))
    assert moved[4.0] == pytest.approx(2 * moved[2.0], rel=1e-5)
    assert moved[math.inf] > 2 * moved[4.0]


def test_a_second_call_does_not_trace_again(monkeypatch):
    traces = []
    original = update.update_rows
    monkeypatch.setattr(
        update, "update_rows", lambda *args: traces.append(1) or original(*args)
    )
    step = make_updates(model(), OPTIMIZER, update="rows", loss_interval=1)
    after, _ = step(state(), batch())
    num_traces = len(traces)
    step(after, batch())
    assert num_traces >= 1
    assert len(traces) == num_traces


@pytest.mark.row("F22")
def test_the_state_is_donated():
    step = make_updates(model(), OPTIMIZER, update="rows", loss_interval=1)
    before = state()
    step(before, batch())
    assert before.params["tables"]["input"].is_deleted()


def test_tables_are_not_copied_by_an_update():
    """A gather or a scatter too many makes XLA copy a table in each step."""
    case = Case("large", 50_000, (4, 1, 32), tile=8, noise=6)
    lookup = tables(case.num_rows, 8, dtype=np.dtype("float32"), seed=0)
    large = Model(lookup, skipgram, case.window, NEGATIVE)
    step = make_updates(large, OPTIMIZER, update="rows", loss_interval=1)
    start = device_state(host_state(OPTIMIZER, *random_tables((50_000, 8), "float32")))
    text = step.lower(start, batch(case.updates())).compile().as_text()
    copies = [line for line in text.splitlines() if "f32[50000,8]" in line]
    assert copies
    assert not [line for line in copies if " copy(" in line and "while" not in line]


@pytest.mark.parametrize("kind", ["rows", "dense"])
def test_float64_tables_stay_float64(kind):
    """Their steps are no numbers of float32 either."""
    before = random_tables((CASE.num_rows, 8), "float64")
    lookup = tables(CASE.num_rows, 8, dtype=np.dtype("float64"), seed=0)
    double = Model(lookup, skipgram, CASE.window, NEGATIVE)
    step = make_updates(double, OPTIMIZER, update=kind, loss_interval=1)
    start = device_state(host_state(OPTIMIZER, *before))
    with jax.enable_x64(True):
        state, losses = step(start, batch()._replace(rate=np.full(4, 0.05)))
    for name, table in zip(("input", "output"), before, strict=True):
        after = np.array(state.params["tables"][name])
        assert after.dtype == losses.total.dtype == np.float64
        moved = (after - table)[after != table]
        assert len(moved) and (moved != moved.astype(np.float32)).mean() > 0.9
