"""The communication between devices in an update; on one device there is none.

An update is written once, for `Collectives`: the mesh axes that shard the blocks of an
update, and the one that shards the tables. Blocks are gathered along their first axis
in the order of devices, so that sums have the same terms in the same order as on one
device.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

TableSplit = Literal["replicated", "columns", "rows"]
"""A device has whole tables, some columns of all rows, or some whole rows."""


class Collectives(NamedTuple):
    """The names of the mesh axes that an update is mapped over."""

    blocks: tuple[str, ...] = ()  # shard the blocks of an update
    tables: str | None = None  # shards the tables
    split: TableSplit = "replicated"

    def gather(self, lookup, params, ids, requested_ids):
        """The rows of `ids`, [N, ..., D] each, by `lookup(params, *ids)`; forward only.

        Of tables sharded by rows, each device looks up the rows of `requested_ids` that
        it has; then a reduce-scatter gives each device the rows of its `ids`. Of tables
        sharded by columns, D are the columns of this device.
        """
        if self.split != "rows":
            return tuple(lookup(params, *ids))
        tables = params["tables"].values()
        indices = [
            self.row_indices(t, x) for t, x in zip(tables, requested_ids, strict=True)
        ]
        partial = [
            jnp.where((index < len(table))[..., jnp.newaxis], rows, 0)
            for table, index, rows in zip(
                tables, indices, lookup(params, *indices), strict=True
            )
        ]
        return tuple(
            jax.lax.psum_scatter(rows, self.tables, scatter_dimension=0, tiled=True)
            for rows in partial
        )

    def requested_ids(self, ids):
        """`ids` [S, N, ...] of all devices that hold one copy of the tables together.

        None where each device has all rows.
        """
        if self.split != "rows":
            return None
        return _all(ids, self.tables, axis=1)

    def row_indices(self, table, ids):
        """`ids` as indices of this device's `table`; len(table) for rows of others.

        That index is out of range: a scatter drops it.
        """
        if self.split != "rows":
            return ids
        index = ids - jax.lax.axis_index(self.tables) * len(table)
        return jnp.where((index >= 0) & (index < len(table)), index, len(table))

    def ascending_indices(self, table, ids):
        """Ascending `ids` as ascending indices of this device's `table`.

        Indices of rows of other devices are out of range, negative ones too.
        """
        if self.split != "rows":
            return ids
        return ids - jax.lax.axis_index(self.tables) * len(table)

    def sum_columns(self, scores):
        """Dot products over all columns, from those over the columns of this device.

        An all-reduce forward and the identity backward: all devices have the same
        scores, so each has the whole gradient of its own columns.
        """
        if self.split != "columns":
            return scores
        return _sum_forward(scores, self.tables)

    def all_blocks(self, values, axis: int = 0):
        """All-gather along `axis` of arrays of blocks: ids, weights, row gradients."""
        return _all(values, self.blocks, axis) if self.blocks else values

    def sum_blocks(self, values):
        """Sums over all blocks, from sums over this device's blocks."""
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
