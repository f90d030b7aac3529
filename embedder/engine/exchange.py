"""What devices tell each other in an update; on one device there is nothing to tell.

The step is written once, with an `Exchange` passed in: which axes of devices share the
blocks of an update, and which share the tables. Blocks are put together along their
first axis in the order of devices, so that sums run over the same terms in the same
order as on one device.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

TableSplit = Literal["replicated", "columns", "rows"]
"""Each device has whole tables, some columns of all rows, or some whole rows."""


class Exchange(NamedTuple):
    """The axes of devices, by name, that a step is mapped over."""

    blocks: tuple[str, ...] = ()  # each device has some blocks of an update
    tables: str | None = None  # each device has a part of the tables
    split: TableSplit = "replicated"

    def gather(self, lookup, params, ids, asked):
        """Rows by `lookup(params, *ids)` for `ids` of any rows, [N, ..., D] each.

        Of split tables: by rows, each device finds those of its own that are `asked`,
        which `all_of_tables` has made of the `ids` of all, and they come together; by
        columns, D are the columns that this device has.
        """
        if self.split != "rows":
            return tuple(lookup(params, *ids))
        tables = params["tables"].values()
        own = [self.own_ids(t, x) for t, x in zip(tables, asked, strict=True)]
        found = [
            jnp.where((x < len(table))[..., jnp.newaxis], rows, 0)
            for table, x, rows in zip(tables, own, lookup(params, *own), strict=True)
        ]
        return tuple(
            jax.lax.psum_scatter(rows, self.tables, scatter_dimension=0, tiled=True)
            for rows in found
        )

    def all_of_tables(self, ids):
        """Ids [S, N, ...] with those of all devices that share a copy of the tables."""
        if self.split != "rows":
            return None
        return _all(ids, self.tables, axis=1)

    def own_ids(self, table, ids):
        """Where rows lie in this device's `table`; len(table) for those of others.

        Such a place is out of range: a scatter drops it.
        """
        if self.split != "rows":
            return ids
        places = ids - jax.lax.axis_index(self.tables) * len(table)
        return jnp.where((places >= 0) & (places < len(table)), places, len(table))

    def local_ids(self, table, ids):
        """`ids` counted from the first row of this device's `table`.

        Ascending ids stay ascending: those of rows of other devices are out of range,
        and negative if the rows are before its own.
        """
        if self.split != "rows":
            return ids
        return ids - jax.lax.axis_index(self.tables) * len(table)

    def sum_columns(self, scores):
        """Scores over all columns, of those over the columns of this device.

        Each device goes on with the same scores, so its gradient is that of its own
        part, and is not summed again.
        """
        if self.split != "columns":
            return scores
        return _sum_forward(scores, self.tables)

    def all_blocks(self, values, axis: int = 0):
        """A tree of arrays of this device's blocks, with those of all along `axis`."""
        return _all(values, self.blocks, axis) if self.blocks else values

    def sum_blocks(self, values):
        """A tree of sums over this device's blocks, as sums over all blocks."""
        return jax.lax.psum(values, self.blocks) if self.blocks else values


def _all(values, axes, axis: int):
    gather = functools.partial(jax.lax.all_gather, axis=axis, tiled=True)
    return jax.tree.map(lambda x: gather(x, axes), values)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _sum_forward(x, axis: str):
    return jax.lax.psum(x, axis)


_sum_forward.defvjp(
    lambda x, axis: (jax.lax.psum(x, axis), None), lambda axis, _, gradient: (gradient,)
)
