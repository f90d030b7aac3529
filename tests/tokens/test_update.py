"""Updates of tables: first values, row factors, and what XLA compiles.

Their numbers are held to the oracle by tests/parity.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.engine.rules import capped_sgd, rowwise_adagrad
from embedder.engine.state import device_state
from embedder.tokens import backends as compiled_step
from embedder.tokens import objective, train_step
from embedder.tokens.cbow import CBOW
from embedder.tokens.objective import Rows
from embedder.tokens.prepare import summed_weights
from embedder.tokens.row_lr_multipliers import with_factors
from embedder.tokens.skipgram import SKIPGRAM
from embedder.tokens.train_step import host_state, updates_function
from migration.parity.updates import random_factors as factors
from migration.parity.updates import updates_stage
from tests.pairs import pairwise
from tests.parity.cases import CASES, UPDATES, Case, assert_pass

ARCHITECTURES = ["skipgram", "cbow"]
OPTIMIZERS = ["sgd", "adagrad"]
RULES = [capped_sgd(5.0), rowwise_adagrad()]
CASE = Case("several", 20, (3, 2, 16), tile=4, noise=6, padding=3)
FEW = [case for case in CASES if case.name in ("several_blocks", "repeated_centre")]


@pytest.mark.spread(1)
@pairwise(
    case=[CASE, *FEW],
    update=[*UPDATES],
    architecture=ARCHITECTURES,
    optimizer=OPTIMIZERS,
)
def test_steps_are_those_of_the_oracle_times_the_factors(
    case, update, architecture, optimizer
):
    options = {"update": update, "optimizer": optimizer}
    sample = case.sample(architecture, factors=factors(case.num_rows), **options)
    assert_pass(updates_stage("one update", sample))


def jitted_updates(sample, rule):
    """The compiled updates by rows, which donate their state."""
    model = sample.program.model
    updates = updates_function(model, rule, update="rows", loss_interval=1)
    return jax.jit(updates, donate_argnums=0)


def bits(array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pairwise(update=[*UPDATES], architecture=ARCHITECTURES, optimizer=OPTIMIZERS)
def test_frozen_rows_and_their_accumulators_stay_equal_to_the_last_bit(
    update, architecture, optimizer
):
    """Minus zero too, which plus zero would make zero; and others of them do move."""
    given = factors(CASE.num_rows)
    options = {"update": update, "optimizer": optimizer}
    sample = CASE.sample(architecture, "float32", factors=given, **options)
    tables = {"input": sample.input, "output": sample.output}
    for table in tables.values():
        table[:, 0] = -0.0
    program, rule = sample.program, sample.program.optimizer
    kept = rule.row_state(host_state(rule, **tables).opt_state)
    sums = {name: np.full_like(x, 3e-9) for name, x in kept.items()}
    start = program.place_state(host_state(rule, **tables, row_state=sums or None))
    end, _ = program.apply_updates(start, program.place_batch(sample.batch))
    end = program.whole_state(end)
    found = end.params["tables"] | rule.row_state(end.opt_state)
    for name, before in (tables | sums).items():
        frozen = given.arrays[name.split("_")[0]] == 0
        assert 0 < frozen.sum() < len(frozen)
        assert bits(found[name][frozen]) == bits(before[frozen])
        assert (found[name][~frozen] != before[~frozen]).any()


@pytest.mark.spread(1)
@pytest.mark.parametrize("rule", RULES, ids=OPTIMIZERS)
def test_tables_are_not_copied_by_an_update(rule):
    """A gather or a scatter too many makes XLA copy a table in each step. Factors cost
    no scatter."""
    case = Case("large", 50_000, (4, 1, 32), tile=8, noise=6)
    sample = case.sample(dtype="float32", optimizer="sgd")
    state = device_state(host_state(rule, sample.input, sample.output))
    texts = [
        jitted_updates(sample, rule).lower(each, sample.batch).compile().as_text()
        for each in (state, with_factors(state, factors(50_000)))
    ]
    shape = "f32[50000" if rule.sums_rows else "f32[50000,8]"  # accumulators as well
    for text in texts:
        lines = [line for line in text.splitlines() if shape in line]
        assert lines
        assert not [line for line in lines if " copy(" in line and "while" not in line]
    assert texts[0].count(" scatter(") == texts[1].count(" scatter(") > 0


@pytest.mark.row("F22")
def test_a_second_call_traces_nothing_and_the_state_is_donated(monkeypatch):
    traces, original = [], train_step.update_rows
    monkeypatch.setattr(
        train_step, "update_rows", lambda *args: traces.append(1) or original(*args)
    )
    sample, rule = CASE.sample(dtype="float32", optimizer="sgd"), RULES[0]
    step = jitted_updates(sample, rule)
    before = device_state(host_state(rule, sample.input, sample.output))
    after, _ = step(before, sample.batch)
    assert before.params["tables"]["input"].is_deleted()
    num_traces = len(traces)
    step(after, sample.batch)
    assert len(traces) == num_traces >= 1


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


def test_first_vectors_are_the_same_however_many_are_drawn_at_once(monkeypatch):
    table = compiled_step.initial_input(1000, 10, np.float64, seed=1)
    monkeypatch.setattr(compiled_step, "_ROWS_AT_ONCE", 7)
    again = compiled_step.initial_input(1000, 10, np.float64, seed=1)
    np.testing.assert_array_equal(again, table, strict=True)


@pytest.mark.parametrize("x", [-1e4, -20.0, 0.0, 20.0, 1e4])
def test_softplus_and_its_derivative_are_right_at_the_ends(x):
    value, slope = jax.value_and_grad(objective.softplus)(x)
    assert float(value) == pytest.approx(np.logaddexp(0, x), rel=1e-6)
    assert float(slope) == pytest.approx(1 / (1 + np.exp(min(-x, 700))), rel=1e-6)


@pytest.mark.spread(1)
@pytest.mark.parametrize("kind", [SKIPGRAM, CBOW], ids=ARCHITECTURES)
def test_a_gradient_alone_computes_no_logarithm(kind):
    """What makes the loss free on updates that do not report it. No promotion hides
    between int, float32 and float64."""
    sequence, radius = np.zeros((1, 4), np.int32), np.full((1, 4), 2, np.int8)
    with jax.numpy_dtype_promotion("strict"):
        pairs = objective.pairs_of(
            sequence, radius, tile=2, window=2, dtype=jnp.float32
        )
        loss = functools.partial(kind.loss, pairs=pairs, negative=5)
        sizes = (2, 6 + 3) if kind is SKIPGRAM else (6, 2 + 3)
        rows = Rows(*(jnp.zeros((1, 2, size, 2)) for size in sizes))
        assert jax.grad(loss)(rows).input.dtype == jnp.float32
        gradient, both = (
            jax.jit(function(loss)).lower(rows).compile().as_text()
            for function in (jax.grad, jax.value_and_grad)
        )
    assert "log-plus-one" not in gradient and " log(" not in gradient
    assert "log-plus-one" in both or " log(" in both
