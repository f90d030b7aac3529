import math

import jax
import numpy as np
import optax
import pytest

from embedder.engine.rules import RowArray, RowRule, capped_sgd, rowwise_adagrad
from embedder.engine.state import device_state
from embedder.run.checkpoints import Checkpoints, arrays_of, tree_of
from embedder.tables import skipgram, update
from embedder.tables.blocks import Blocks, Updates
from embedder.tables.lookup import tables
from embedder.tables.objective import Rows
from embedder.tables.prepare import (
    Batch,
    Model,
    distinct_rows,
    objective_of,
    summed_weights,
)
from embedder.tables.update import host_state, make_updates, state_shapes
from migration.parity.updates import random_tables
from tests.parity.cases import NEGATIVE, Case

CASE = Case("tiled", 30, (4, 1, 32), tile=8, noise=6)
OPTIMIZER = capped_sgd(5.0)
ADAGRAD = rowwise_adagrad()
RULES = pytest.mark.parametrize("rule", [OPTIMIZER, ADAGRAD], ids=["sgd", "adagrad"])
HALVES = slice(0, 10), slice(10, 20)
TABLES = random_tables((CASE.num_rows, 8), "float32")


def model(architecture="skipgram") -> Model:
    lookup = tables(CASE.num_rows, 8, dtype=np.dtype("float32"), seed=0)
    return Model(lookup, objective_of(architecture), CASE.window, NEGATIVE)


def state(rule=OPTIMIZER):
    return device_state(host_state(rule, *TABLES))


def batch(updates: Updates | None = None) -> Batch:
    updates = updates or CASE.updates()
    return Batch(updates.blocks, rate=np.full(4, 0.05, np.float32))


def tables_after(batch, **options) -> tuple[np.ndarray, np.ndarray]:
    options = {"update": "rows", "loss_interval": 1} | options
    after, _ = make_updates(model(), OPTIMIZER, **options)(state(), batch)
    return tuple(np.array(table) for table in after.params["tables"].values())


@pytest.mark.slow
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


@pytest.mark.slow
@RULES
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_dense_updates_equal_updates_by_rows(architecture, rule):
    after = [
        make_updates(model(architecture), rule, update=kind, loss_interval=1)(
            state(rule), batch()
        )
        for kind in ("rows", "dense")
    ]
    (rows, rows_loss), (dense, dense_loss) = after
    np.testing.assert_allclose(rows_loss.total, dense_loss.total, rtol=1e-6)
    for ours, theirs in zip(
        jax.tree.leaves((rows.params, rows.opt_state)),
        jax.tree.leaves((dense.params, dense.opt_state)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.spread(1)
@RULES
def test_empty_updates_change_nothing(rule):
    empty = CASE.updates()
    for values, fill in (
        (empty.blocks.ids, 0),
        (empty.blocks.sequence, -1),
        (empty.blocks.radius, 0),
    ):
        values[:] = fill
    apply = make_updates(model(), rule, update="rows", loss_interval=1)
    after, _ = apply(state(rule), batch(empty))
    for table, before in zip(after.params["tables"].values(), TABLES, strict=True):
        np.testing.assert_array_equal(table, before, strict=True)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(after.opt_state))


@pytest.mark.spread(1)
@pytest.mark.parametrize("kind", ["rows", "dense"])
def test_adagrad_by_hand(kind):
    """Token 1 twice, each the context of the other; noise is 2; two of padding.

    By symmetry G(v1) = 2 (s(v1.u2) u2 - s(-v1.u1) u1), G(u1) = -2 s(-v1.u1) v1 and
    G(u2) = 2 s(v1.u2) v1, with s the logistic function. Rows 0 and 3 have no gradient.
    """
    v, u = (x.astype(np.float64) for x in random_tables((4, 3), "float64"))
    lookup = tables(4, 3, dtype=np.dtype("float64"), seed=0)
    small = Model(lookup, skipgram, window=1, negative=1)
    blocks = Blocks(
        ids=np.array([[[1, 1, 0, 0]]] * 2, np.int32),
        sequence=np.array([[[0, 0, -1, -1]]] * 2, np.int32),
        radius=np.array([[[1, 1, 0, 0]]] * 2, np.int8),
        noise=np.full((2, 1, 1, 1), 2, np.int32),
    )
    twice = Batch(blocks, rate=np.array([0.1, 0.05]))
    apply = make_updates(small, ADAGRAD, update=kind, loss_interval=1)
    with jax.enable_x64(True):
        after, _ = apply(device_state(host_state(ADAGRAD, v, u)), twice)
    v, u, a, b = v.copy(), u.copy(), np.zeros(4), np.zeros(4)
    for rate in twice.rate:
        miss = 1 / (1 + np.exp(v[1] @ u[1]))
        hit = 1 / (1 + np.exp(-v[1] @ u[2]))
        gradient_v1 = 2 * (hit * u[2] - miss * u[1])
        gradients_u = {1: -2 * miss * v[1], 2: 2 * hit * v[1]}
        a[1] += (gradient_v1**2).mean()
        v[1] -= rate * gradient_v1 / (a[1] ** 0.5 + 1e-8)
        for row, gradient in gradients_u.items():
            b[row] += (gradient**2).mean()
            u[row] -= rate * gradient / (b[row] ** 0.5 + 1e-8)
    for actual, desired in (
        (after.params["tables"], {"input": v, "output": u}),
        (
            ADAGRAD.row_state(after.opt_state),
            {"input_accumulator": a, "output_accumulator": b},
        ),
    ):
        for name in desired:
            assert actual[name].dtype == np.float64
            np.testing.assert_allclose(actual[name], desired[name], rtol=1e-13)


def test_a_rule_may_keep_vectors_for_rows():
    by_name = dict(zip(("input", "output"), TABLES, strict=True))
    momentum = RowArray("momentum", field="trace")
    rule = RowRule(optax.trace(0.9), sums_rows=True, row_arrays=(momentum,))
    given = {f"{name}_momentum": x + 1 for name, x in by_name.items()}
    kept = rule.row_state(host_state(rule, *TABLES, given).opt_state)
    fresh = rule.row_state(host_state(rule, *TABLES).opt_state)
    shapes = state_shapes(rule, TABLES[0].shape, TABLES[0].dtype.name)
    described = rule.row_state(shapes.opt_state)
    assert {*kept} == {*fresh} == {*described} == {*given}
    for name, array in given.items():
        np.testing.assert_array_equal(kept[name], array, strict=True)
        assert fresh[name].shape == described[name].shape == array.shape
        assert fresh[name].dtype == described[name].dtype == array.dtype
        assert not fresh[name].any()


def test_distinct_rows_of_repeated_ids():
    ids = np.array([[[7, 2], [7, 7]], [[0, 1], [2, 3]]], np.int32)  # of two updates
    rows, slots = distinct_rows(Rows(ids, ids))
    assert rows.input[0, :2].tolist() == [2, 7]
    assert (rows.input[0, 2:] > 2**31 - 6).all()  # of no table
    assert (np.diff(rows.input[0]) > 0).all()
    assert slots[0].tolist() == [1, 0, 1, 1, 5, 4, 5, 5]  # of input, then of output
    assert rows.input[1].tolist() == [0, 1, 2, 3]
    assert slots[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert rows.output.dtype == slots.dtype == np.int32


@pytest.mark.spread(6)
@pytest.mark.parametrize("at_once", [1, 2, 16, None])
@pytest.mark.parametrize("num_updates", [1, 4, 32])
def test_weights_are_summed_by_row_and_update(num_updates, at_once):
    rng = np.random.default_rng(0)
    shape = num_updates, 3, 5
    ids = rng.integers(0, 8, shape, dtype=np.int32)  # 7: a row of another device
    weights = rng.random(shape).astype(np.float32)
    totals = jax.jit(summed_weights, static_argnums=(2, 3))(ids, weights, 7, at_once)
    assert totals.shape == shape
    for row, weight, total in zip(ids, weights, np.array(totals), strict=True):
        expected = np.bincount(row.reshape(-1), weight.reshape(-1), 8)[row]
        np.testing.assert_allclose(total[row < 7], expected[row < 7], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("update", ["rows", "dense"])
def test_adagrad_goes_on_from_a_saved_state_to_the_same_bits(tmp_path, update):
    """20 updates are 10, a checkpoint, and 10."""
    case = CASE._replace(size=(20, 1, 32))
    every = Batch(case.updates().blocks, rate=np.full(20, 0.05, np.float32))
    halves = [jax.tree.map(lambda x, part=part: x[part], every) for part in HALVES]
    apply = make_updates(model(), ADAGRAD, update=update, loss_interval=1)
    whole, _ = apply(state(ADAGRAD), every)
    half, _ = apply(state(ADAGRAD), halves[0])
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, arrays_of(jax.device_get(half)), {})
    checkpoints.wait()
    start = tree_of(checkpoints.read(10).arrays, host_state(ADAGRAD, *TABLES))
    again, _ = apply(device_state(start), halves[1])
    for ours, theirs in zip(
        jax.tree.leaves(again), jax.tree.leaves(whole), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    assert all(np.any(a) for a in ADAGRAD.row_state(again.opt_state).values())


@pytest.mark.slow
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


@pytest.mark.spread(1)
@RULES
def test_tables_are_not_copied_by_an_update(rule):
    """A gather or a scatter too many makes XLA copy a table in each step."""
    case = Case("large", 50_000, (4, 1, 32), tile=8, noise=6)
    lookup = tables(case.num_rows, 8, dtype=np.dtype("float32"), seed=0)
    large = Model(lookup, skipgram, case.window, NEGATIVE)
    step = make_updates(large, rule, update="rows", loss_interval=1)
    start = device_state(host_state(rule, *random_tables((50_000, 8), "float32")))
    text = step.lower(start, batch(case.updates())).compile().as_text()
    shape = "f32[50000" if rule.sums_rows else "f32[50000,8]"  # accumulators as well
    copies = [line for line in text.splitlines() if shape in line]
    assert copies
    assert not [line for line in copies if " copy(" in line and "while" not in line]


@pytest.mark.spread(1)
@RULES
@pytest.mark.parametrize("kind", ["rows", "dense"])
def test_float64_tables_stay_float64(kind, rule):
    """Their steps are no numbers of float32 either."""
    before = random_tables((CASE.num_rows, 8), "float64")
    lookup = tables(CASE.num_rows, 8, dtype=np.dtype("float64"), seed=0)
    double = Model(lookup, skipgram, CASE.window, NEGATIVE)
    step = make_updates(double, rule, update=kind, loss_interval=1)
    start = device_state(host_state(rule, *before))
    with jax.enable_x64(True):
        state, losses = step(start, batch()._replace(rate=np.full(4, 0.05)))
    for name, table in zip(("input", "output"), before, strict=True):
        after = np.array(state.params["tables"][name])
        assert after.dtype == losses.total.dtype == np.float64
        moved = (after - table)[after != table]
        assert len(moved) and (moved != moved.astype(np.float32)).mean() > 0.9
