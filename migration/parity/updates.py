"""Stages of the arithmetic on given blocks: loss, row gradients, 1 and 100 updates."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

import legacy.blocks
import legacy.huffman
import legacy.objective
import legacy.softmax
import legacy.subwords
import legacy.update
from embedder.config import Config
from embedder.data.blocks import StepBatches
from embedder.data.huffman import huffman_tree
from embedder.engine.rules import linear_rate
from embedder.tokens.backends import TablesProgram
from embedder.tokens.objective import Rows
from embedder.tokens.prepare import Batch, Gathered, log_noise, prepare
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from embedder.tokens.subwords import TABLE, SubwordTable, ngram_rule, subword_table
from embedder.tokens.train_step import Loss, host_state, row_gradients
from embedder.vectors.attributes import Attributes
from migration.parity import equations
from migration.parity.difference import Difference, difference
from migration.parity.tolerances import TOLERANCE

_DIRECTIONS = 4
NO_FACTORS = RowLrMultipliers()


class Sample(NamedTuple):
    """Updates, and the tables that they start from."""

    config: Config  # resolved
    program: TablesProgram  # the compiled part of a run
    updates: StepBatches  # as a loader yields them: a whole chunk, S
    num_updates: int  # real ones, of S
    input: np.ndarray  # [V, D]
    output: np.ndarray  # [V, D]; with `hs` of other rows, see `legacy.model`
    factors: RowLrMultipliers = NO_FACTORS  # which `program` has
    counts: np.ndarray | None = None  # of the vocabulary, for `hs`
    tokens: list[str] | None = None  # for `subwords`
    token_counts: np.ndarray | None = None  # likewise
    attributes: Attributes | None = None  # in the place of n-grams

    @property
    def subwords(self) -> SubwordTable | None:
        """The port's subwords; None: there are none."""
        shared = self.attributes or ngram_rule(self.config.tables)
        if shared is None:
            return None
        assert self.tokens is not None and self.token_counts is not None
        return subword_table(self.tokens, self.token_counts, shared)

    @property
    def oracle_subwords(self) -> legacy.subwords.Subwords | None:
        """The oracle's; None: there are none."""
        if self.tokens is None:
            return None
        assert self.token_counts is not None
        if self.attributes is not None:
            return oracle_attributes(self.attributes, self.tokens, self.token_counts)
        return oracle_subwords(self.config, self.tokens, self.token_counts)

    @property
    def subword_rows(self) -> np.ndarray:
        """The table of subwords before the updates, [V + K, D]."""
        assert self.subwords is not None, "only with `subwords`"
        shape = self.subwords.sizes.num_rows, self.input.shape[1]
        return random_tables(shape, self.dtype)[0]

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
        above = None if self.counts is None else huffman_tree(self.counts).above
        return Batch(updates.blocks, rate, above=above, log_noise=self.log_noise)

    @property
    def log_noise(self) -> np.ndarray | None:
        """Log weights of noise, [V], for architectures with a sampled softmax."""
        counts = np.arange(len(self.input), 0, -1)
        return log_noise(self.config.tables, counts, self.dtype)

    @property
    def tree(self) -> legacy.huffman.Tree | None:
        """The oracle's Huffman tree; None: there is no hierarchical softmax."""
        return None if self.counts is None else legacy.huffman.huffman_tree(self.counts)

    @property
    def points(self) -> np.ndarray:
        """Rows of the output table of the nodes above each token, i32[V, L]."""
        assert self.tree is not None, "only with `hs`"
        return self.tree.points + np.int32(len(self.output) - len(self.input))

    def blocks(self, index: int) -> legacy.blocks.Blocks:
        """The blocks of update `index`, for the oracle."""
        blocks, names = self.updates.blocks, legacy.blocks.Blocks._fields
        return legacy.blocks.Blocks(*(getattr(blocks, x)[index] for x in names))


def oracle_subwords(
    config: Config, tokens: list[str], counts: np.ndarray
) -> legacy.subwords.Subwords | None:
    """The oracle's subwords of a vocabulary; None: there are none."""
    bounds = config.tables.subwords
    if not bounds:
        return None
    return legacy.subwords.subwords(tokens, counts, bounds, config.tables.buckets)


def oracle_attributes(
    attributes: Attributes, tokens: list[str], counts: np.ndarray
) -> legacy.subwords.Subwords:
    """What the oracle has of n-grams, with attributes in their place: one token after
    the other, by their pairs."""
    of_key: dict[str, list[int]] = {}
    names = attributes.names[: attributes.num_known]
    for key, name in attributes.pairs.iter_rows():
        if name not in names:
            continue
        of_key.setdefault(key, []).append(len(tokens) + names.index(name))
    lists = [[row, *of_key.get(token, [])] for row, token in enumerate(tokens)]
    sizes = np.array([len(rows) for rows in lists])
    return legacy.subwords.Subwords(
        np.repeat(np.arange(len(tokens)), sizes),
        np.array([row for rows in lists for row in rows]),
        np.repeat(1 / sizes, sizes),
        np.arange(len(names)),
        float(sizes @ counts / counts.sum()),
    )


class OracleRows(NamedTuple):
    """The oracle's gradients, weights and loss of one update."""

    terms: legacy.objective.Terms | None
    loss: float
    num_terms: float
    paths: legacy.softmax.PathTerms | None


def random_tables(
    shape: tuple[int, int], dtype: str, num_output_tables: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Input and output tables whose scores are about 1, so that no gradient is 0; the
    output table has `num_output_tables` times V rows."""
    rng = np.random.default_rng(1)
    scale = shape[1] ** -0.25
    shapes = shape, (num_output_tables * shape[0], shape[1])
    return tuple((scale * rng.standard_normal(each)).astype(dtype) for each in shapes)


def by_table(arrays: np.ndarray) -> dict[str, np.ndarray]:
    """What the oracle has for all tables, [2 or 3, V, ...], by table of the port."""
    output = arrays[1:].reshape(-1, *arrays.shape[2:])
    return {"input": arrays[0], "output": output}


def random_factors(num_rows: int, num_output_tables: int = 1) -> RowLrMultipliers:
    """A third of the rows is frozen, a third is slow, a third has the full rate; the
    output table has `num_output_tables` times as many rows."""
    rng = np.random.default_rng(0)
    sizes = num_rows, num_output_tables * num_rows
    given = (rng.choice([0, 0.3, 1], size).astype(np.float32) for size in sizes)
    return RowLrMultipliers(*given)


def loss_stage(sample: Sample) -> Iterator[Difference]:
    """Loss of the first update, and the number of its terms."""
    desired = oracle_rows(sample)
    actual, _, _ = _port_rows(sample)
    stage, dtype = "loss", sample.dtype
    yield _difference(stage, "sum", dtype, float(actual.total), desired.loss)
    terms = float(actual.num_terms), float(desired.num_terms)
    yield difference(stage, "terms", *terms, dtype=dtype)
    if dtype == "float64":
        value = float(_equation(sample)(*_rows(sample).values()))
        yield _difference(stage, "sum by the equation", dtype, desired.loss, value)


def gradients_stage(sample: Sample) -> Iterator[Difference]:
    """Gradient and weight of each row in the first update: by autodiff and by hand.

    In float64 also the derivative along random directions, by finite differences.
    """
    stage, dtype = "row gradients", sample.dtype
    desired = oracle_rows(sample)
    _, gradients, gathered = _port_rows(sample)
    ids = gathered.ids
    for name, ours in (("gradients", gradients), ("weights", gathered.weights)):
        theirs = _oracle_parts(sample, desired, name)
        for table in ("input", "output"):
            num_rows = len(getattr(sample, table))
            yield _difference(
                stage,
                f"{table} {name}",
                dtype,
                _by_row(num_rows, (getattr(ids, table), getattr(ours, table))),
                _by_row(num_rows, *theirs[table]),
            )
    if dtype == "float64":
        yield _finite_differences(sample, desired)


Part = tuple[np.ndarray, np.ndarray]
"""Ids of occurrences of rows, and a value for each."""


def _oracle_parts(
    sample: Sample, found: OracleRows, name: str
) -> dict[str, list[Part]]:
    """The gradients or the weights of the oracle, by table."""
    ids, noise = sample.blocks(0).ids, sample.blocks(0).noise
    inputs: list[Part] = []
    outputs: list[Part] = []
    if found.terms is not None:
        of_rows = getattr(found.terms, name)
        inputs.append((ids, of_rows.input))
        outputs += [(ids, of_rows.output), (noise, of_rows.noise)]
    if found.paths is not None:
        of_paths = getattr(found.paths, name)
        inputs.append((ids, of_paths.input))
        outputs.append((sample.points[ids], of_paths.nodes))
    return {"input": inputs, "output": outputs}


def updates_stage(stage: str, sample: Sample) -> Iterator[Difference]:
    """Both tables, and the accumulators of Adagrad, after the updates of `sample`."""
    with jax.enable_x64(sample.dtype == "float64"):
        program = sample.program
        state = host_state(program.optimizer, sample.input, sample.output)
        if sample.subwords is not None:
            state = sample.subwords.with_rows(state, sample.subword_rows)
        state, _ = program.apply_updates(
            program.place_state(state), program.place_batch(sample.batch)
        )
        state = program.whole_state(state)
    desired = _oracle_state(sample)
    if sample.subwords is not None:
        found, expected = state.params["tables"][TABLE], desired.subwords
        yield _difference(stage, "rows of subwords", sample.dtype, found, expected)
        desired = desired._replace(subwords=None)
    row_state = program.optimizer.row_state(state.opt_state)
    actual = {f"{name}_table": x for name, x in state.params["tables"].items()}
    actual |= row_state
    for kind, expected in zip(("table", "accumulator"), desired[:2], strict=True):
        if kind == "table" or row_state or expected is not None:
            for name, values in by_table(expected).items():
                found = actual[f"{name}_{kind}"]
                yield _difference(stage, f"{name} {kind}", sample.dtype, found, values)


def _oracle_state(sample: Sample) -> legacy.update.State:
    """What the oracle has after the updates of `sample`."""
    shape = -1, *sample.input.shape
    tables = np.concatenate([sample.input, sample.output]).reshape(shape)
    state = legacy.update.State(tables)
    if sample.config.run.optimizer == "adagrad":
        zeros = np.zeros(tables.shape[:2], tables.dtype)
        state = state._replace(accumulators=zeros)
    if sample.subwords is not None:
        state = state._replace(subwords=sample.subword_rows)
    with np.errstate(over="ignore", invalid="ignore"):  # the comparison finds both
        for index in range(sample.num_updates):
            rate = sample.rates[index]
            oracle_step(
                *(state, sample.blocks(index), rate, sample.config),
                factors=sample.factors,
                tree=sample.tree,
                subwords=sample.oracle_subwords,
                log_noise=sample.log_noise,
            )
    return state


def oracle_step(
    state: legacy.update.State,
    update: legacy.blocks.Blocks,
    rate: float,
    config: Config,
    factors: RowLrMultipliers = NO_FACTORS,
    tree: legacy.huffman.Tree | None = None,
    subwords: legacy.subwords.Subwords | None = None,
    log_noise: np.ndarray | None = None,
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
        tree=tree,
        subwords=subwords,
        cbow_mean=options.cbow_mean,
        log_noise=log_noise,
    )
    if before is not None:
        _scale_steps(state, before, factors)


def _scale_steps(
    state: legacy.update.State, before: legacy.update.State, factors: RowLrMultipliers
) -> None:
    """Scales the steps that the oracle took from `before` to `state`, in place, (68).

    It has no factors of its own. Rows with factor 0 become what they were.
    """
    tables, starts = by_table(state.tables), by_table(before.tables)
    for name, factor in factors.arrays.items():
        table, start = tables[name], starts[name]
        table[:] = start + factor[:, np.newaxis] * (table - start)
        table[factor == 0] = start[factor == 0]
        if state.accumulators is not None and before.accumulators is not None:
            sums = by_table(before.accumulators)[name]
            by_table(state.accumulators)[name][factor == 0] = sums[factor == 0]


def oracle_rows(sample: Sample) -> OracleRows:
    """Gradients, weights and loss of the first update, by hand."""
    blocks, config = sample.blocks(0), sample.config
    pairs = legacy.objective.pairs(
        blocks.sequence,
        blocks.radius,
        tile=config.tables.tile,
        window=config.tables.window,
        dtype=np.dtype(sample.dtype).type,
        decay=legacy.update.distance_decay(config.tables.architecture),
    )
    architecture, negative = config.tables.architecture, config.tables.negative
    match architecture:
        case "skipgram":
            compute = legacy.objective.skipgram
            of_paths = legacy.softmax.skipgram
        case "cbow" | "cbow-softmax":
            of_sums = {"mean": config.tables.cbow_mean}
            compute = functools.partial(legacy.objective.cbow, **of_sums)
            of_paths = functools.partial(legacy.softmax.cbow, **of_sums)
    rows, window = _rows(sample), config.tables.window
    sampled = paths = None
    if negative:
        given = legacy.objective.Rows(rows["input"], rows["output"], rows["noise"])
        if (logs := sample.log_noise) is not None:
            noise = legacy.objective.Rows(None, logs[blocks.ids], logs[blocks.noise])
            compute = functools.partial(compute, log_noise=noise)
        sampled = compute(given, pairs, window=window, negative=negative)
    if sample.tree is not None:
        on_paths = legacy.softmax.PathRows(rows["input"], rows["nodes"])
        signs = sample.tree.signs[blocks.ids]
        paths = of_paths(on_paths, signs, pairs, window=window)
    terms = legacy.update.UpdateTerms(sampled, paths)
    total = legacy.update.loss_sum(architecture, terms, pairs, negative)
    return OracleRows(sampled, total.loss, total.terms, paths)


def _port_rows(sample: Sample) -> tuple[Loss, Rows, Gathered]:
    """Loss of the first update, gradients of the rows that it gathers, and the rows."""
    model = sample.program.model

    def function(params, batch):
        update = jax.tree.map(lambda values: values[0], prepare(model, batch))
        return *row_gradients(model, params, update), update.gathered

    with jax.enable_x64(sample.dtype == "float64"):
        batch = sample.batch
        first = jax.tree.map(lambda values: values[:1], batch)
        first = first._replace(above=batch.above, log_noise=batch.log_noise)
        params = {"tables": {"input": sample.input, "output": sample.output}}
        return jax.device_get(jax.jit(function)(params, first))


def _by_row(num_rows: int, *parts: Part) -> np.ndarray:
    """Sum of the values of each row's occurrences; ids beyond all rows are padding."""
    ids, values = parts[0]
    total = np.zeros((num_rows, *values.shape[np.ndim(ids) :]), values.dtype)
    for ids, values in parts:
        is_row = np.asarray(ids) < num_rows
        np.add.at(total, np.asarray(ids)[is_row], np.asarray(values)[is_row])
    return total


def _gradients(found: OracleRows) -> dict[str, np.ndarray]:
    """The gradients of the oracle by the names of `_rows`, both objectives together."""
    gradients: dict[str, np.ndarray] = {}
    for terms in (found.terms, found.paths):
        if terms is not None:
            for name, values in terms.gradients._asdict().items():
                gradients[name] = gradients.get(name, 0) + values
    return gradients


def _finite_differences(sample: Sample, desired: OracleRows) -> Difference:
    """Derivatives along random directions: by the gradients, and by the equation."""
    rng = np.random.default_rng(2)
    rows, equation = _rows(sample), _equation(sample)
    gradients, found, expected = _gradients(desired), [], []
    for _ in range(_DIRECTIONS):
        steps = {name: rng.standard_normal(x.shape) for name, x in rows.items()}
        found.append(
            sum(np.vdot(gradients[name], step) for name, step in steps.items())
        )
        along = equations.derivative_along(
            equation, [*rows.values()], [*steps.values()]
        )
        expected.append(along)
    return _difference(
        "row gradients", "finite differences", "float64", found, expected
    )


def _rows(sample: Sample) -> dict[str, np.ndarray]:
    """The rows that the first update gathers, by the arguments of `equations.loss`."""
    blocks = sample.blocks(0)
    rows = {"input": sample.input[blocks.ids]}
    if sample.config.tables.negative:
        rows["output"] = sample.output[blocks.ids]
        rows["noise"] = sample.output[blocks.noise]
    if sample.tree is not None:
        rows["nodes"] = sample.output[sample.points[blocks.ids]]
    return rows


def _equation(sample: Sample) -> Callable:
    """The loss of the first update by the rows of `_rows`, in their order."""
    model, blocks, names = sample.config.tables, sample.blocks(0), [*_rows(sample)]
    signs = None if sample.tree is None else sample.tree.signs[blocks.ids]

    def equation(*rows: np.ndarray):
        return equations.loss(
            blocks,
            **dict(zip(names, rows, strict=True)),
            architecture=model.architecture,
            negative=model.negative,
            signs=signs,
            cbow_mean=model.cbow_mean,
            log_noise=sample.log_noise,
        )

    return equation


def _difference(stage: str, quantity: str, dtype: str, actual, desired) -> Difference:
    tolerance = TOLERANCE[stage, dtype]
    return difference(
        stage, quantity, actual, desired, dtype=dtype, tolerance=tolerance
    )
