"""Row factors: the rate of a row is the learning rate times its factor, (68).

Factors are no state of a training: they follow from its settings and its start. Placed
states have them (`FactoredState`), so that they are padded and sharded as all arrays
with a value for each row are; whole states and checkpoints have not.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from embedder.engine.collectives import Collectives
from embedder.engine.compiled_step import CompiledStep
from embedder.engine.rules import rows_at
from embedder.engine.state import TrainState
from embedder.tokens.prepare import Distinct, Prepared

AnyProgram = TypeVar("AnyProgram", bound=CompiledStep)


class RowLrMultipliers(NamedTuple):
    """A factor from 0 to 1 for each row of a table; None: all are 1.

    A row with factor 0 takes no step: it stays equal to the last bit, and so does its
    accumulator of Adagrad.
    """

    input: np.ndarray | None = None  # f32[V]
    output: np.ndarray | None = None  # f32[V]

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that have factors."""
        return tuple(self.arrays)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The factors by the name of their table."""
        return {k: x for k, x in self._asdict().items() if x is not None}


def product(*several: RowLrMultipliers | None) -> RowLrMultipliers | None:
    """The factors of rows for which there are several reasons; None: all are 1."""
    arrays: dict[str, np.ndarray] = {}
    for each in filter(None, several):
        for name, array in each.arrays.items():
            arrays[name] = arrays[name] * array if name in arrays else array
    return RowLrMultipliers(**arrays) if arrays else None


class FactoredState(NamedTuple):
    """The state of an optimizer in a placed state, with row factors beside it."""

    opt_state: Any
    factors: dict[str, Any]  # [V] by the name of their table, in its dtype


def with_factors(state: TrainState, factors: RowLrMultipliers) -> TrainState:
    """`state` with factors; one of replicas, whose arrays have K first, with K copies.

    Factors are in the dtype of the tables.
    """
    tables = state.params["tables"]
    placed = {
        name: np.broadcast_to(array.astype(tables[name].dtype), tables[name].shape[:-1])
        for name, array in factors.arrays.items()
    }
    return state._replace(opt_state=FactoredState(state.opt_state, placed))


def split_factors(state: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """`state` without factors, and the factors; {}: it has none."""
    if not isinstance(state.opt_state, FactoredState):
        return state, {}
    inner, factors = state.opt_state
    return state._replace(opt_state=inner), factors


def join_factors(state: TrainState, factors: dict[str, Any]) -> TrainState:
    """What `split_factors` split."""
    if not factors:
        return state
    return state._replace(opt_state=FactoredState(state.opt_state, factors))


def factored_program(
    program: AnyProgram, factors: RowLrMultipliers | None
) -> AnyProgram:
    """`program`, whose updates scale the rate of each row by its factor.

    Args:
      program: of updates that have factors of the tables `factors.tables`.
      factors: None: all are 1, and the program stays what it is.
    """
    if factors is None or not factors.tables:
        return program
    return program.around(
        lambda state: with_factors(state, factors),
        lambda state: split_factors(state)[0],
    )


def leave_out_frozen(
    prepared: Prepared, factors: Mapping[str, jax.Array], exchange: Collectives
) -> Prepared:
    """`prepared` with the factor of each occurrence of a row, [S, N, G, R].

    Occurrences of rows with factor 0 get an id that no table has, which scatters drop:
    so there are no other scatters than without factors.
    """
    ids = prepared.gathered.ids
    by_table, moved = {}, {}
    for name, array in factors.items():
        of_table = getattr(ids, name)
        index = exchange.row_indices(array, of_table)
        by_table[name] = array.at[index].get(mode="fill", fill_value=0)
        # above the ids of all rows, and below those that `distinct_rows` adds
        no_row = np.iinfo(of_table.dtype).max - of_table[0].size - 1
        moved[name] = jnp.where(by_table[name] > 0, of_table, no_row)
    local_ids = ids if prepared.local_ids is None else prepared.local_ids
    gathered = prepared.gathered._replace(ids=ids._replace(**moved))
    return prepared._replace(local_ids=local_ids, gathered=gathered, factors=by_table)


def factors_of_distinct(
    distinct: Distinct, factors: Mapping[str, jax.Array], exchange: Collectives
) -> dict[str, jax.Array]:
    """The factor of each distinct row, [S, M], by the name of its table."""
    by_update = jax.vmap(rows_at, (None, 0))
    return {
        name: by_update(
            array, exchange.ascending_indices(array, getattr(distinct.ids, name))
        )
        for name, array in factors.items()
    }


def scale(deltas: Mapping[str, Any], factors: Mapping[str, Any] | None) -> dict:
    """The deltas [..., D] of rows times their factors [...]."""
    scaled = dict(deltas)
    for name, factor in (factors or {}).items():
        scaled[name] = deltas[name] * factor[..., jnp.newaxis]
    return scaled


def keep_frozen(
    after: Mapping[str, Any], before: Mapping[str, Any], factors: Mapping[str, Any]
) -> dict:
    """The rows [V, D] `after` an update, of factor 0 as they were `before`; {}: 0."""
    rows = dict(after)
    for name, factor in factors.items():
        moves = factor[..., jnp.newaxis] > 0
        rows[name] = jnp.where(moves, after[name], before.get(name, 0))
    return rows
