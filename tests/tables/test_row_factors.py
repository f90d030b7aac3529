"""Row factors, ALGORITHM.md (68), against the steps of the oracle, which are scaled."""

import jax
import numpy as np
import pytest

from embedder.engine.rules import capped_sgd, rowwise_adagrad
from embedder.tables.row_factors import (
    RowFactors,
    factored_program,
    product,
    with_factors,
)
from embedder.tables.update import host_state, make_updates
from migration.parity.updates import random_factors as factors
from migration.parity.updates import updates_rung
from tests.pairs import pairwise
from tests.parity.cases import CASES, UPDATES, Case, assert_pass

ARCHITECTURES = ["skipgram", "cbow"]
OPTIMIZERS = ["sgd", "adagrad"]
CASE = Case("several", 20, (3, 2, 16), tile=4, noise=6, padding=3)
FEW = [case for case in CASES if case.name in ("several_blocks", "repeated_centre")]


def only(name: str, num_rows: int) -> RowFactors:
    return RowFactors(**{name: factors(num_rows).arrays[name]})


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
    given = factors(case.num_rows)
    sample = case.sample(
        architecture, update=update, optimizer=optimizer, factors=given
    )
    assert_pass(updates_rung("one update", sample))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["input", "output"])
@pytest.mark.parametrize("update", list(UPDATES))
def test_one_table_may_have_factors(update, name):
    given = only(name, CASE.num_rows)
    for optimizer in OPTIMIZERS:
        sample = CASE.sample(update=update, optimizer=optimizer, factors=given)
        assert_pass(updates_rung("one update", sample))


def after(sample, start=None):
    """The state after the updates of `sample`."""
    with jax.enable_x64(sample.dtype == "float64"):
        program = sample.program
        state = start or host_state(program.optimizer, sample.input, sample.output)
        state, _ = program.apply_updates(
            program.place_state(state), program.place_batch(sample.batch)
        )
        return program.whole_state(state)


def bits(array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.spread(1)
@pairwise(update=[*UPDATES], architecture=ARCHITECTURES, optimizer=OPTIMIZERS)
def test_frozen_rows_and_their_accumulators_stay_equal_to_the_last_bit(
    update, architecture, optimizer
):
    """Minus zero too, which plus zero would make zero; and others of them do move."""
    given = factors(CASE.num_rows)
    sample = CASE.sample(
        architecture, "float32", update=update, optimizer=optimizer, factors=given
    )
    tables = {"input": sample.input, "output": sample.output}
    for table in tables.values():
        table[:, 0] = -0.0
    rule = sample.program.optimizer
    start = host_state(rule, **tables)
    sums = {
        name: np.full_like(x, 3e-9)
        for name, x in rule.row_state(start.opt_state).items()
    }
    start = host_state(rule, **tables, row_state=sums or None)
    end = after(sample, start)
    found = end.params["tables"] | rule.row_state(end.opt_state)
    for name, before in (tables | sums).items():
        frozen = given.arrays[name.split("_")[0]] == 0
        assert 0 < frozen.sum() < len(frozen)
        assert bits(found[name][frozen]) == bits(before[frozen])
        assert (found[name][~frozen] != before[~frozen]).any()


@pytest.mark.spread(1)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("update", ["rows", "kernel"])
def test_factors_of_one_change_no_bit(update, optimizer):
    """Of dense updates XLA may round other products."""
    ones = RowFactors(*np.ones((2, CASE.num_rows), np.float32))
    options = {"update": update, "optimizer": optimizer, "dtype": "float32"}
    plain, scaled = (
        after(CASE.sample(**options, **more)) for more in ({}, {"factors": ones})
    )
    assert jax.tree.structure(plain) == jax.tree.structure(scaled)
    for ours, theirs in zip(
        jax.tree.leaves(scaled), jax.tree.leaves(plain), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_number_of_threads_gives_the_same_bits(optimizer, threads):
    from embedder.tables.cpu import kernel

    given = factors(CASE.num_rows)
    sample = CASE.sample(update="kernel", optimizer=optimizer, factors=given)
    expected = after(sample)
    program = kernel.place(
        sample.program.model,
        sample.config.tables.max_pairs_per_row,
        loss_interval=1,
        threads=threads,
        optimizer=optimizer,
    )
    several = factored_program(program, given)
    start = host_state(sample.program.optimizer, sample.input, sample.output)
    state = several.place_state(start)
    found = several.whole_state(several.apply_updates(state, sample.batch)[0])
    for ours, theirs in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("update", list(UPDATES))
def test_two_calls_are_one_of_twice_as_many_updates(update):
    """Factors go from call to call, and are no part of a whole state."""
    given = factors(CASE.num_rows)
    sample = CASE.sample(update=update, optimizer="adagrad", factors=given)
    program, batch = sample.program, sample.batch
    twice = jax.tree.map(lambda x: np.concatenate([x, x]), batch)
    start = host_state(program.optimizer, sample.input, sample.output)
    with jax.enable_x64(True):
        whole, _ = program.apply_updates(program.place_state(start), twice)
        state, _ = program.apply_updates(program.place_state(start), batch)
        again, _ = program.apply_updates(state, batch)
        expected, found = program.whole_state(whole), program.whole_state(again)
    assert jax.tree.structure(found) == jax.tree.structure(start)
    for ours, theirs in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_factors_of_two_reasons_are_multiplied():
    first, second = (
        RowFactors(input=np.float32([0, 0.5, 1])),
        RowFactors(*np.float32([[1, 0.5, 0.5], [1, 0, 0.5]])),
    )
    found = product(first, second)
    assert found is not None
    np.testing.assert_array_equal(found.input, [0, 0.25, 0.5])
    np.testing.assert_array_equal(found.output, [1, 0, 0.5])
    assert product(None, None) is product(RowFactors(), None) is None
    assert product(first, None) == first == product(None, first)


@pytest.mark.parametrize("update", list(UPDATES))
@pytest.mark.parametrize("wrong", ["rolled", "swapped", "none", "squared"])
def test_the_rung_catches_wrong_factors(update, wrong):
    given = factors(CASE.num_rows)
    sample = CASE.sample(update=update, optimizer="adagrad", factors=given)
    others = {
        "rolled": RowFactors(*(np.roll(x, 1) for x in given.arrays.values())),
        "swapped": RowFactors(given.output, given.input),
        "none": RowFactors(),
        "squared": RowFactors(*(x**2 for x in given.arrays.values())),
    }
    lines = list(updates_rung("one update", sample._replace(factors=others[wrong])))
    assert not all(line.passed for line in lines)


def compiled_text(rule, given: RowFactors) -> str:
    case = Case("large", 50_000, (4, 1, 32), tile=8, noise=6)
    sample = case.sample(dtype="float32", optimizer="sgd")
    updates = make_updates(sample.program.model, rule, update="rows", loss_interval=1)
    state = host_state(rule, sample.input, sample.output)
    if given.tables:
        state = with_factors(state, given)
    return updates.lower(state, sample.batch).compile().as_text()


def count(text: str, operation: str) -> int:
    return sum(f" {operation}(" in line for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("rule", [capped_sgd(5.0), rowwise_adagrad()], ids=OPTIMIZERS)
def test_factors_cost_no_scatter_and_no_copy_of_a_table(rule):
    plain = compiled_text(rule, RowFactors())
    text = compiled_text(rule, factors(50_000))
    assert count(text, "scatter") == count(plain, "scatter") > 0
    shape = "f32[50000" if rule.sums_rows else "f32[50000,8]"
    copies = [line for line in text.splitlines() if shape in line and " copy(" in line]
    assert not [line for line in copies if "while" not in line]
