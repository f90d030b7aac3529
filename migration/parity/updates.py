"""Rungs of the arithmetic on given blocks: loss, row gradients, 1 and 100 updates."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

import legacy.blocks
import legacy.objective
import legacy.update
from embedder.config import Config
from embedder.engine.rules import linear_rate
from embedder.tables.blocks import Updates
from embedder.tables.objective import Rows
from embedder.tables.prepare import Batch, Gathered, prepare
from embedder.tables.row_factors import RowFactors
from embedder.tables.training import TablesProgram
from embedder.tables.update import TABLES, Loss, host_state, row_gradients
from migration.parity import equations
from migration.parity.difference import Difference, difference
from migration.parity.tolerances import TOLERANCE

_DIRECTIONS = 4
NO_FACTORS = RowFactors()


class Sample(NamedTuple):
    """Updates, and the tables that they start from."""

    config: Config  # resolved
    program: TablesProgram  # the compiled part of a run
    updates: Updates  # as a loader yields them: a whole superblock, S
    num_updates: int  # real ones, of S
    input: np.ndarray  # [V, D]
    output: np.ndarray  # [V, D]
    factors: RowFactors = NO_FACTORS  # which `program` has

    @property
    def dtype(self) -> str:
        return self.config.run.dtype

    @property
    def rates(self) -> np.ndarray:
        """Learning rate of each update, f64[S]."""
        options = self.config.tables
        return linear_rate(
            self.updates.progress, alpha=options.alpha, min_alpha=options.min_alpha
        )

    @property
    def batch(self) -> Batch:
        """The argument of the compiled updates."""
        updates, rate = self.updates, self.rates.astype(self.dtype)
        return Batch(updates.blocks, rate)

    def blocks(self, index: int) -> legacy.blocks.Blocks:
        """The blocks of update `index`, for the oracle."""
        blocks, names = self.updates.blocks, legacy.blocks.Blocks._fields
        return legacy.blocks.Blocks(*(getattr(blocks, x)[index] for x in names))


class OracleRows(NamedTuple):
    """The oracle's gradients, weights and loss of one update."""

    terms: legacy.objective.Terms
    loss: float
    num_terms: float


def random_tables(shape: tuple[int, int], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Input and output tables whose scores are about 1, so that no gradient is 0."""
    rng = np.random.default_rng(1)
    scale = shape[1] ** -0.25
    return tuple((scale * rng.standard_normal(shape)).astype(dtype) for _ in range(2))


def random_factors(num_rows: int, seed: int = 0) -> RowFactors:
    """A third of the rows is frozen, a third is slow, a third has the full rate."""
    rng = np.random.default_rng(seed)
    given = (rng.choice([0, 0.3, 1], num_rows).astype(np.float32) for _ in range(2))
    return RowFactors(*given)


def loss_rung(sample: Sample) -> Iterator[Difference]:
    """Loss of the first update, and the number of its terms."""
    desired = oracle_rows(sample)
    actual, _, _ = _port_rows(sample)
    rung, dtype = "loss", sample.dtype
    yield _difference(rung, "sum", dtype, float(actual.total), desired.loss)
    terms = float(actual.num_terms), float(desired.num_terms)
    yield difference(rung, "terms", *terms, dtype=dtype)
    if dtype == "float64":
        value = float(_equation(sample)(*_rows(sample)))
        yield _difference(rung, "sum by the equation", dtype, desired.loss, value)


def gradients_rung(sample: Sample) -> Iterator[Difference]:
    """Gradient and weight of each row in the first update: by autodiff and by hand.

    In float64 also the derivative along random directions, by finite differences.
    """
    rung, dtype = "row gradients", sample.dtype
    desired = oracle_rows(sample).terms
    _, gradients, gathered = _port_rows(sample)
    ids, blocks = gathered.ids, sample.blocks(0)
    for name, ours, theirs in (
        ("gradients", gradients, desired.gradients),
        ("weights", gathered.weights, desired.weights),
    ):
        yield _difference(
            rung,
            f"input {name}",
            dtype,
            _by_row(sample, (ids.input, ours.input)),
            _by_row(sample, (blocks.ids, theirs.input)),
        )
        yield _difference(
            rung,
            f"output {name}",
            dtype,
            _by_row(sample, (ids.output, ours.output)),
            _by_row(sample, (blocks.ids, theirs.output), (blocks.noise, theirs.noise)),
        )
    if dtype == "float64":
        yield _finite_differences(sample, desired.gradients)


def updates_rung(rung: str, sample: Sample) -> Iterator[Difference]:
    """Both tables, and the accumulators of Adagrad, after the updates of `sample`."""
    with jax.enable_x64(sample.dtype == "float64"):
        program = sample.program
        state = host_state(program.optimizer, sample.input, sample.output)
        state, _ = program.apply_updates(
            program.place_state(state), program.place_batch(sample.batch)
        )
        state = program.whole_state(state)
    desired = _oracle_state(sample)
    row_state = program.optimizer.row_state(state.opt_state)
    actual = {f"{name}_table": x for name, x in state.params["tables"].items()}
    actual |= row_state
    for kind, expected in zip(("table", "accumulator"), desired, strict=True):
        if kind == "table" or row_state or expected is not None:
            for name, values in zip(("input", "output"), expected, strict=True):
                found = actual[f"{name}_{kind}"]
                yield _difference(rung, f"{name} {kind}", sample.dtype, found, values)


def _oracle_state(sample: Sample) -> legacy.update.State:
    """What the oracle has after the updates of `sample`."""
    tables = np.stack([sample.input, sample.output])
    state = legacy.update.State(tables)
    if sample.config.run.optimizer == "adagrad":
        zeros = np.zeros(tables.shape[:2], tables.dtype)
        state = state._replace(accumulators=zeros)
    with np.errstate(over="ignore", invalid="ignore"):  # the comparison finds both
        for index in range(sample.num_updates):
            rate = sample.rates[index]
            oracle_step(
                state, sample.blocks(index), rate, sample.config, sample.factors
            )
    return state


def oracle_step(
    state: legacy.update.State,
    update: legacy.blocks.Blocks,
    rate: float,
    config: Config,
    factors: RowFactors = NO_FACTORS,
) -> None:
    """One update of the oracle, in place, by the resolved settings of `config`."""
    options = config.tables
    before = None
    if factors.tables:
        before = legacy.update.State(*(x.copy() for x in state.arrays))
    cap = options.max_pairs_per_row
    legacy.update.apply_update(
        state,
        update,
        rate=rate,
        cap=np.inf if cap is None else cap,
        architecture=options.architecture,
        window=options.window,
        negative=options.negative,
    )
    if before is not None:
        _scale_steps(state, before, factors)


def _scale_steps(
    state: legacy.update.State, before: legacy.update.State, factors: RowFactors
) -> None:
    """Scales the steps that the oracle took from `before` to `state`, in place, (68).

    It has no factors of its own. Rows with factor 0 become what they were.
    """
    for number, name in enumerate(TABLES):
        if (factor := factors.arrays.get(name)) is None:
            continue
        table, start = state.tables[number], before.tables[number]
        table[:] = start + factor[:, np.newaxis] * (table - start)
        table[factor == 0] = start[factor == 0]
        if state.accumulators is not None and before.accumulators is not None:
            sums = before.accumulators[number]
            state.accumulators[number, factor == 0] = sums[factor == 0]


def oracle_rows(sample: Sample) -> OracleRows:
    """Gradients, weights and loss of the first update, by hand."""
    blocks, config = sample.blocks(0), sample.config
    pairs = legacy.objective.pairs(
        blocks.sequence,
        blocks.radius,
        tile=config.tables.tile,
        window=config.tables.window,
        dtype=np.dtype(sample.dtype).type,
    )
    rows = legacy.objective.Rows(*_rows(sample))
    architecture, negative = config.tables.architecture, config.tables.negative
    match architecture:
        case "skipgram":
            compute = legacy.objective.skipgram
        case "cbow":
            compute = legacy.objective.cbow
    terms = compute(rows, pairs, window=config.tables.window, negative=negative)
    total = legacy.update.loss_sum(architecture, terms, pairs, negative)
    return OracleRows(terms, total.loss, total.terms)


def _port_rows(sample: Sample) -> tuple[Loss, Rows, Gathered]:
    """Loss of the first update, gradients of the rows that it gathers, and the rows."""
    model = sample.program.model

    def function(params, batch):
        update = jax.tree.map(lambda values: values[0], prepare(model, batch))
        return *row_gradients(model, params, update), update.gathered

    with jax.enable_x64(sample.dtype == "float64"):
        first = jax.tree.map(lambda values: values[:1], sample.batch)
        params = {"tables": {"input": sample.input, "output": sample.output}}
        return jax.device_get(jax.jit(function)(params, first))


def _by_row(sample: Sample, *parts) -> np.ndarray:
    """Sum of the values of each row's occurrences; a part is ids and their values."""
    ids, values = parts[0]
    total = np.zeros((len(sample.input), *values.shape[np.ndim(ids) :]), values.dtype)
    for ids, values in parts:
        np.add.at(total, np.asarray(ids), np.asarray(values))
    return total


def _finite_differences(sample: Sample, gradients: legacy.objective.Rows) -> Difference:
    """Derivatives along random directions: by the gradients, and by the equation."""
    rng = np.random.default_rng(2)
    rows, equation = _rows(sample), _equation(sample)
    found, expected = [], []
    for _ in range(_DIRECTIONS):
        steps = [rng.standard_normal(values.shape) for values in rows]
        along = (np.vdot(g, step) for g, step in zip(gradients, steps, strict=True))
        found.append(sum(along))
        expected.append(equations.derivative_along(equation, rows, steps))
    return _difference(
        "row gradients", "finite differences", "float64", found, expected
    )


def _rows(sample: Sample) -> tuple[np.ndarray, ...]:
    blocks = sample.blocks(0)
    return (
        sample.input[blocks.ids],
        sample.output[blocks.ids],
        sample.output[blocks.noise],
    )


def _equation(sample: Sample) -> Callable:
    model = sample.config.tables
    return functools.partial(
        equations.loss,
        sample.blocks(0),
        architecture=model.architecture,
        negative=model.negative,
    )


def _difference(rung: str, quantity: str, dtype: str, actual, desired) -> Difference:
    tolerance = TOLERANCE[rung, dtype]
    return difference(rung, quantity, actual, desired, dtype=dtype, tolerance=tolerance)
