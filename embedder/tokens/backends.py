"""The compiled updates of a run: by which compiler, and on which devices.

Arrays of tables are sharded and padded as `embedder.engine.compiled_step` has it.
"""

import functools
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import haiku as hk
import jax
import numpy as np

from embedder.base.compiler import numba_fault
from embedder.config import Config, replicas_of, with_options
from embedder.config.token_options import TokensOptions
from embedder.data.blocks import PADDING, Blocks
from embedder.engine.compilation import enable_compilation_cache
from embedder.engine.compiled_step import CompiledStep, Placement, place_updates
from embedder.engine.mesh_layout import ONE_DEVICE, MeshLayout, map_batch
from embedder.engine.replicas import on_threads, vmap_updates
from embedder.engine.rules import RowRule, row_rule
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.tokens import loader
from embedder.tokens.hierarchical import Objective
from embedder.tokens.objective import Architecture, Rows
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.prepare import Batch, Model
from embedder.tokens.row_lr_multipliers import (
    RowLrMultipliers,
    factored_program,
    with_factors,
)
from embedder.tokens.subwords import TABLE, empty_index, subword_program
from embedder.tokens.train_step import TableParts, host_state, updates_function

LONG_RUN = 10_000_000  # words of all epochs: worth the compilation by Numba
_WHOLE = 5  # words that one with a whole session as its context counts for
_SUBWORDS = 3  # words that one with n-grams counts for
_ROWS_AT_ONCE = 2**16  # of the initial table: bounds the memory of the draws

TABLE_AXES = Batch(Blocks(ids=1, sequence=1, radius=1, noise=1, weight=1), rate=None)
"""Axis 1, the blocks of S updates, is sharded."""
REPLICA_AXES = Batch(
    Blocks(ids=2, sequence=2, radius=2, noise=2, weight=2),
    **{"rate": 1, "negative": 1, "cap": 1, "above": 1, "log_noise": 1},
)
"""The axis of replicas in their batches: [S, N, K, ...], [S, K], [1, K], of trees
[2 V - 1, K], and of noise [V, K]."""

READ_FROM_BATCHES: dict[str, Any] = {"negative": 1, "max_pairs_per_row": None}
"""Settings that the program of models with settings of their own reads from batches."""


@dataclass(frozen=True, kw_only=True)
class TablesProgram(CompiledStep):
    """The compiled part of a run of tables."""

    model: Model  # of whole tables
    optimizer: RowRule


def pick_backend(
    config: Config, num_words: int, layout: MeshLayout
) -> Literal["xla", "numba"]:
    """The compiler of the updates of a run over `num_words` in all its epochs.

    Raises:
      InputError: `backend` is numba, which is not there or has no such kernel.
    """
    options = config.tables
    if options.backend == "numba" and (fault := numba_fault()):
        raise InputError(f"`backend` is 'numba', which {fault}.")
    lacks = ""  # the setting that no kernel has
    if _architecture(options).kernel is None:
        lacks = f"`architecture` {options.architecture!r}"
    elif not row_rule(config.run.optimizer).has_kernel:
        lacks = f"`optimizer` {config.run.optimizer!r}"
    if options.backend == "numba" and lacks:
        raise InputError(f"`backend` must be 'xla' with {lacks}, got 'numba'.")
    if options.backend != "auto":
        return options.backend
    if options.has_whole_sequences:
        num_words *= _WHOLE
    if options.subwords:
        num_words *= _SUBWORDS
    is_long = num_words >= LONG_RUN and options.update == "rows" and not lacks
    if is_long and loader.is_one_cpu(layout) and not numba_fault():
        return "numba"
    return "xla"


def _architecture(options: TokensOptions) -> Architecture:
    return pkgutil.resolve_name(options.architecture_facts.implementation)


def program_of(plan: TrainingPlan, backend: str, layout: MeshLayout) -> TablesProgram:
    """The compiled updates of a plan."""
    config, models = plan.config, plan.models
    if len(models) > 1:  # other models have the same program
        read = READ_FROM_BATCHES | {"negative": min(config.tables.negative, 1)}
        config = with_options(_program_config(config), **read)
    program = make_program(
        *(plan.shape[0], plan.loss_interval, with_options(config, backend=backend)),
        layout,
        tuple(map(_program_config, models)) if backend == "numba" else (),
        plan.parts,
    )
    program = factored_program(program, plan.row_multipliers)
    return subword_program(program, plan.subwords, len(plan.replicas) > 1)


def _program_config(config: Config) -> Config:
    """`config` without the settings that only sources and rates read."""
    defaults = {"sample": 0.0, "ns_exponent": 0.75, "alpha": None, "min_alpha": 0.0}
    return with_options(config, seed=1, **defaults)


@functools.lru_cache(maxsize=8)
def make_program(
    num_rows: int,
    interval: int,
    config: Config,
    layout: MeshLayout = ONE_DEVICE,
    models: tuple[Config, ...] = (),
    parts: TableParts = TableParts(),  # noqa: B008 - it is immutable
) -> TablesProgram:
    """The compiled updates of a run; the same arguments return the same program.

    XLA compiles them unless `backend` is "numba". `config` is resolved.

    Args:
      models: the settings of each model, for the kernel; (): those of `config`. XLA
        reads them from the batches.
    """
    enable_compilation_cache()
    options, has_replicas = config.tables, config.run.replicas > 1
    shape = num_rows, options.vector_size
    whole = model_of(shape, config, parts.depth)
    optimizer = row_rule(config.run.optimizer, options.max_pairs_per_row)
    if options.backend == "numba":
        from embedder.tokens.cpu import kernel

        threads = options.threads or kernel.available_cores()

        @functools.cache
        def program(window: int, negative: int, cap: float | None) -> CompiledStep:
            return kernel.place(
                whole._replace(window=window, negative=negative),
                cap,
                loss_interval=interval,
                threads=1 if has_replicas else threads,
                optimizer=config.run.optimizer,
            )

        each = [
            program(one.max_distance, one.negative, one.max_pairs_per_row)
            for one in (model.tables for model in models or replicas_of(config))
        ]
        placed = on_threads(each, min(threads, len(each))) if has_replicas else each[0]
    else:
        model = model_of(shape, config, parts.depth, layout)
        placed = place(model, optimizer, layout, shape, config, interval, parts)
    return TablesProgram(model=whole, optimizer=optimizer, **vars(placed))


def model_of(
    shape: tuple[int, int],
    config: Config,
    depth: int = 0,
    layout: MeshLayout = ONE_DEVICE,
) -> Model:
    """The model whose input table is `shape` [V, D], with a device's shard of tables.

    Args:
      depth: nodes of the longest path of hierarchical softmax; 0: there is none.
    """
    options, (num_rows, vector_size) = config.tables, shape
    output_rows = num_rows * options.num_output_tables
    return Model(
        tables(
            *layout.device_shape(*shape),
            dtype=np.dtype(config.run.dtype),
            seed=config.run.seed,
            output_rows=layout.device_shape(output_rows, vector_size)[0],
        ),
        Objective(_architecture(options), options.has_token_output, depth),
        options.max_distance,
        options.negative,
    )


class Tables(hk.Module):
    """An input table [V, D], with a row for each token, and an output table [R, D]."""

    def __init__(
        self, shape: tuple[int, int], output_shape: tuple[int, int], dtype, seed: int
    ):
        super().__init__(name="tables")
        self.shape, self.output_shape = shape, output_shape
        self.dtype, self.seed = dtype, seed

    def __call__(self, ids: Rows) -> Rows:
        """The rows [..., D] of `ids` [...], of each table its own.

        An id that is out of range is clamped, without an error: check on the host.
        """

        def draw(shape: Sequence[int], dtype: Any) -> Any:
            return initial_input(shape[0], shape[1], dtype, self.seed)

        zeros: Any = np.zeros
        input = hk.get_parameter("input", self.shape, self.dtype, draw)
        output = hk.get_parameter("output", self.output_shape, self.dtype, zeros)
        return Rows(input[ids.input], output[ids.output])


def tables(
    num_rows: int, vector_size: int, *, dtype, seed: int, output_rows: int | None = None
) -> hk.Transformed:
    """`Tables` as pure functions: `init(None, ids)` and `apply(params, ids)`.

    The parameters are {"tables": {"input": [V, D], "output": [R, D]}}, those of `init`
    arrays of NumPy; R is `output_rows`, or V if that is None.
    """
    shapes = (num_rows, vector_size), (output_rows or num_rows, vector_size)

    def lookup(ids: Rows) -> Rows:
        return Tables(*shapes, dtype, seed)(ids)

    return hk.without_apply_rng(hk.transform(lookup))


def initial_input(num_rows: int, vector_size: int, dtype, seed: int) -> np.ndarray:
    """Initial input table, uniform in [-0.5, 0.5) / D, [V, D]: the same rows for a seed
    and any dtype.

    Drawn by NumPy, as in the oracle (design: word2vec.c, Mikolov et al. 2013).
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    table = np.empty((num_rows, vector_size), dtype)
    for start in range(0, num_rows, _ROWS_AT_ONCE):
        rows = table[start : start + _ROWS_AT_ONCE]
        rows[:] = rng.random(rows.shape, dtype=np.float32)
    table -= table.dtype.type(0.5)
    table /= table.dtype.type(vector_size)
    return table


def place(
    model: Model,
    optimizer: RowRule,
    layout: MeshLayout,
    shape: tuple[int, int],
    config: Config,
    loss_interval: int,
    parts: TableParts = TableParts(),  # noqa: B008 - it is immutable
) -> CompiledStep:
    """The program of the updates of `model` on `layout`, by XLA.

    Args:
      model: with `tables` of the shape of a device's shard.
      shape: of the whole input table, [V, D].
    """
    options, subwords = config.tables, parts.subwords
    updates = updates_function(
        model._replace(exchange=layout.exchange, num_columns=shape[1]),
        optimizer,
        update=options.update,
        loss_interval=loss_interval,
        subwords=subwords,
    )
    rows = shape[0], shape[0] * options.num_output_tables
    empty = host_state(optimizer, np.zeros((rows[0], 0)), np.zeros((rows[1], 0)))
    if parts.factored:
        factors = RowLrMultipliers(**dict.fromkeys(parts.factored, np.zeros(1)))
        empty = with_factors(empty, factors)
    if subwords is not None:
        params = {**empty.params["tables"], TABLE: np.zeros((subwords.num_rows, 0))}
        empty = empty._replace(params={"tables": params}, extras=empty_index())
    num_rows = jax.tree.map(_num_rows, empty)
    placement = Placement(
        TABLE_AXES,
        jax.tree.map(np.ndim, empty),
        lambda state: _pad_tables(state, layout, shape[1]),
        lambda state: _unpad_tables(state, num_rows, shape[1]),
        lambda batch: _pad_blocks(batch, layout),
    )
    if config.run.replicas > 1:
        updates, placement = vmap_updates(updates, placement, REPLICA_AXES)
    return place_updates(updates, layout, placement)


def _num_rows(x) -> int:
    """Rows of an array of a state; 0 of a scalar."""
    return np.shape(x)[0] if np.ndim(x) else 0


def _pad_tables(state: TrainState, layout: MeshLayout, vector_size: int):
    """`state` with arrays of rows, [rows, D] and [rows], padded to the size of all
    devices together."""

    def fill(x):
        wide = layout.padded_shape(_num_rows(x), vector_size)
        missing = [(0, n - m) for n, m in zip(wide, x.shape, strict=False)]
        return np.pad(x, missing) if any(map(any, missing)) else x

    return jax.tree.map(fill, state)


def _unpad_tables(state: TrainState, num_rows: TrainState, vector_size: int):
    def cut(x, rows):
        shape = rows, vector_size
        whole = np.array(x[tuple(map(slice, shape[: np.ndim(x)]))], order="C")
        whole.flags.writeable = False
        return whole

    params, opt_state = jax.tree.map(
        cut, (state.params, state.opt_state), (num_rows.params, num_rows.opt_state)
    )
    return state._replace(params=params, opt_state=opt_state)


def _pad_blocks(batch: Batch, layout: MeshLayout) -> Batch:
    """`batch` with every update padded by empty blocks to equal shards."""
    num_blocks = batch.blocks.ids.shape[1]
    missing = layout.num_blocks(num_blocks) - num_blocks
    if missing == 0:
        return batch

    def fill(x, value):
        pad = [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2)
        return np.pad(x, pad, constant_values=value)

    return batch._replace(blocks=map_batch(fill, batch.blocks, PADDING.blocks))
