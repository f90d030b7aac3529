"""The part of updates that does not depend on the tables.

It is computed once for all updates of a call, outside their loop: which rows each
update gathers, their pairs and weights, and what the rule needs of each row: the share
of its gradient that counts, or the distinct rows.
"""

import functools
import math
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from embedder.config.token_options import TokensOptions
from embedder.data.blocks import Blocks
from embedder.engine.collectives import Collectives
from embedder.tokens.hierarchical import Objective
from embedder.tokens.objective import Pairs, Rows, pairs_of


class Batch(NamedTuple):
    """The data of S updates."""

    blocks: Blocks  # [S, N, ...]
    rate: Any  # [S], learning rates, in the dtype of the tables
    negative: Any = None  # [1], of a model beside others; None: as of the program
    cap: Any = None  # [1], likewise; inf: none
    above: Any = None  # i32[2 V - 1], `huffman.Tree.above`; None: there is no tree
    log_noise: Any = None  # [V], log weights of noise; None: no sampled softmax


class Model(NamedTuple):
    """What all updates of a run share."""

    tables: hk.Transformed
    objective: Objective
    window: int
    negative: Any  # an int, or a scalar of JAX
    exchange: Collectives = Collectives()
    num_columns: int | None = None  # D of whole tables; None: as a device has


class Gathered(NamedTuple):
    """The rows that an update gathers, for the blocks of one device or of all."""

    ids: Rows  # i32[N, G, R]
    weights: Rows  # [N, G, R], weighted pair terms of each occurrence


class Distinct(NamedTuple):
    """The distinct rows of an update, of all blocks; M occurrences have M slots.

    Slots are numbered by ascending id, those of the output table after those of the
    input table. A slot without a row has an id that is out of range of every table.
    """

    ids: Rows  # i32[M], the row of each slot: distinct and ascending
    slots: jax.Array  # i32[M of input + M of output], the slot of each occurrence


class Prepared(NamedTuple):
    """All of an update that does not depend on the tables; S of them with an axis [S].

    Computed for all updates of a call at once.
    """

    pairs: Pairs  # of the blocks of this device
    local_ids: Rows | None  # of these blocks; None: `gathered` has no others
    requested_ids: Rows | None  # by all devices that share one copy of the tables
    gathered: Gathered  # of all blocks of the update
    rate: jax.Array  # learning rate
    shares: Rows | None = None  # [N, G, R], of gradients; only for rules with a share
    distinct: Distinct | None = None  # only for rules that sum rows
    factors: dict[str, jax.Array] | None = None  # by table; see `row_lr_multipliers`


def log_noise(options: TokensOptions, counts: np.ndarray, dtype) -> np.ndarray | None:
    """Log weights of noise, [V], which a sampled softmax takes off its scores, (99);
    None: the architecture has none, or there is no noise."""
    if not (options.architecture_facts.is_softmax and options.has_token_output):
        return None
    return (options.ns_exponent * np.log(np.maximum(counts, 1))).astype(dtype)


def prepare(model: Model, batches: Batch) -> Prepared:
    """All of S updates that does not depend on the tables."""
    blocks = jax.tree.map(  # [S, N, ...] -> [S N, ...]
        lambda x: x.reshape(-1, *x.shape[2:]), batches.blocks
    )
    objective = model.objective
    num_tiles, num_noise = blocks.noise.shape[1:]
    tile, dtype = blocks.ids.shape[1] // num_tiles, batches.rate.dtype
    pairs = pairs_of(
        blocks.sequence,
        blocks.radius,
        blocks.weight,
        tile=tile,
        window=model.window,
        dtype=dtype,
        distance_decay=objective.architecture.distance_decay,
    )
    nodes = None
    if objective.depth:
        nodes, signs = objective.paths(batches.above, blocks.ids, dtype)
        signs = signs.reshape(-1, num_tiles, tile, objective.depth)
        pairs = pairs._replace(signs=signs)
    ids = objective.row_ids(blocks.ids, blocks.noise, nodes, window=model.window)
    if batches.log_noise is not None:
        sampled = ids.output[:, :, : tile + num_noise]
        pairs = pairs._replace(log_noise=batches.log_noise[sampled])
    weights = objective.row_weights(pairs, negative=model.negative, num_noise=num_noise)
    ids, pairs, weights = jax.tree.map(
        lambda x: x.reshape(*batches.blocks.ids.shape[:2], *x.shape[1:]),
        (ids, pairs, weights),
    )
    exchange = model.exchange
    return Prepared(
        pairs=pairs,
        local_ids=ids if exchange.blocks else None,
        requested_ids=exchange.requested_ids(ids),
        gathered=exchange.all_blocks(Gathered(ids, weights), axis=1),
        rate=batches.rate,
    )


UPDATES_AT_ONCE = {"cpu": 1, "gpu": 16}
"""Updates whose weights are summed at once, each in an array [V]: it should stay in the
cache of a CPU, and a GPU should launch few kernels."""


def summed_weights(ids, weights, num_rows: int, at_once: int | None = None):
    """The weight of the row of each occurrence, summed over its update, [S, ...].

    Args:
      ids: i32[S, ...], of the rows of one table; `num_rows` or more: not of this one.
      weights: [S, ...], of the occurrences.
      num_rows: V.
      at_once: updates that are summed at once; None: by platform.
    """
    if at_once is None:
        cpu, gpu = (
            functools.partial(summed_weights, num_rows=num_rows, at_once=each)
            for each in UPDATES_AT_ONCE.values()
        )
        return jax.lax.platform_dependent(ids, weights, cpu=cpu, default=gpu)
    at_once = math.gcd(len(ids), at_once)
    total = _totals
    if at_once > 1:
        total = jax.vmap(_totals)
        ids, weights = (x.reshape(-1, at_once, *x.shape[1:]) for x in (ids, weights))
    zeros = jnp.zeros((at_once, num_rows)[at_once == 1 :], weights.dtype)
    totals = jax.lax.scan(lambda zeros, x: total(zeros, *x), zeros, (ids, weights))[1]
    return totals.reshape(-1, *totals.shape[2:]) if at_once > 1 else totals


def _totals(zeros, ids, weights):
    """`zeros` [V] to reuse, and the summed weight of its row for each occurrence.

    New zeros for every update would cost time in proportion to the vocabulary.
    """
    sums = zeros.at[ids].add(weights)
    totals = sums[ids]
    # 0, but by way of what was read: else XLA copies the sums, to clear and to read.
    return sums.at[ids].set(jnp.minimum(totals, 0)), totals


def distinct_rows(ids: Rows) -> Distinct:
    """The distinct rows of S updates, by ids [S, ...] of their occurrences."""
    by_table = [jax.vmap(_distinct)(x.reshape(len(x), -1)) for x in ids]
    rows, (slots_in, slots_out) = zip(*by_table, strict=True)
    slots = jnp.concatenate([slots_in, slots_out + slots_in.shape[1]], axis=1)
    return Distinct(Rows(*rows), slots)


def distinct_inputs(ids: Rows) -> Distinct:
    """The distinct rows of the input table alone; the others are None."""
    rows, slots = jax.vmap(_distinct)(ids.input.reshape(len(ids.input), -1))
    return Distinct(Rows(rows, None), slots)


def _distinct(ids):
    """The row of each slot and the slot of each occurrence, i32[M] both."""
    index = jnp.arange(len(ids), dtype=ids.dtype)
    ascending, order = jax.lax.sort((ids, index), num_keys=1, is_stable=False)
    is_new = jnp.concatenate(
        [jnp.zeros(1, ids.dtype), (ascending[1:] != ascending[:-1]).astype(ids.dtype)]
    )
    slots = jnp.cumsum(is_new, dtype=ids.dtype)
    no_rows = index + (np.iinfo(ids.dtype).max - len(ids))  # ascending too
    return (
        no_rows.at[slots].set(ascending, indices_are_sorted=True),
        jnp.zeros_like(ids).at[order].set(slots, unique_indices=True),
    )
