"""One update of the tables, and epochs of them."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from legacy import objective
from legacy.blocks import (
    Blocks,
    Corpus,
    epoch_order,
    learning_rates,
    loss_interval,
    shard_blocks,
    updates,
)
from legacy.noise import NoiseTable
from legacy.objective import Pairs, Rows, Terms

# For fewer ids than this, adding their rows one id at a time costs less.
_FEW_IDS = 8


class Plan(NamedTuple):
    """How some epochs are trained; the letters are those of `legacy/objective.py`."""

    seed: int
    first_epoch: int  # its number in all draws
    epochs: int  # over which the rate falls from alpha to min_alpha
    architecture: str
    window: int  # W
    negative: int
    block: int  # T
    tile: int  # B
    noise: int  # K
    blocks_per_update: int  # N
    cap: float  # pair steps
    alpha: float
    min_alpha: float


class Arrays(NamedTuple):
    """What training reads beside its plan."""

    ids: np.ndarray  # this and the next two: see `blocks.Corpus`
    lengths: np.ndarray
    shard_ends: np.ndarray
    keep_limit: np.ndarray  # u32[V]
    noise_limit: np.ndarray  # this and the next: see `noise.NoiseTable`
    noise_alias: np.ndarray


class LossSum(NamedTuple):
    """Loss of the updates that report it, and its positive terms: pairs, or centres."""

    loss: float
    terms: float


def train_epochs(
    tables: np.ndarray, arrays, plan: Plan, worker: int, num_workers: int
) -> list[LossSum]:
    """Trains `tables` [2, V, D] in place: what `worker` of `num_workers` has to do.

    Args:
        arrays: those of `Arrays`, in its order.

    Returns:
        The loss of each epoch.

    Raises:
        FloatingPointError: training diverged.
    """
    arrays, losses = Arrays(*arrays), []
    for epoch in range(plan.epochs):
        with np.errstate(over="ignore", invalid="ignore"):  # both show below
            loss = _train_epoch(tables, arrays, plan, epoch, worker, num_workers)
        losses.append(loss)
        if not np.isfinite(tables).all():
            raise FloatingPointError(
                f"Training diverged in epoch {epoch}: lower `alpha` or `cap`."
            )
    return losses


def apply_update(
    tables: np.ndarray,
    update: Blocks,
    *,
    rate: float,
    cap: float,
    architecture: str,
    window: int,
    negative: int,
) -> tuple[Terms, Pairs]:
    """Applies one update to `tables` in place, and returns what it computed for it.

        row_r <- row_r - rate * min(1, cap / c_r) * dL/drow_r

    with dL/drow_r and the weight c_r summed over all places of the update that have row
    r.

    Args:
        tables: [2, V, D], C-contiguous: the input and the output table.
        cap: pair steps by which a row may move in one update; inf for no cap.
    """
    num_tokens, size = tables.shape[1:]
    both = tables.reshape(2 * num_tokens, size)  # so that one scatter serves both
    ids = np.concatenate([update.ids, update.ids, update.noise], axis=None)
    ids[update.ids.size :] += num_tokens
    rows, gradients = both.take(ids, axis=0), np.empty((ids.size, size), both.dtype)
    found = objective.pairs(
        update.sequence,
        update.radius,
        tile=update.ids.shape[1] // update.noise.shape[1],
        window=window,
        dtype=both.dtype,
    )
    compute = {"skipgram": objective.skipgram, "cbow": objective.cbow}[architecture]
    terms = compute(
        _by_role(rows, update),
        found,
        window=window,
        negative=negative,
        out=_by_role(gradients, update),
    )
    weights = np.concatenate(terms.weights, axis=None)
    _subtract_rows(both, ids, gradients, weights, rate, cap)
    return terms, found


def loss_sum(architecture: str, terms: Terms, found: Pairs, negative: int) -> LossSum:
    """The loss of an update from what `apply_update` returns."""
    match architecture:
        case "skipgram":
            loss = objective.skipgram_loss(terms.scores, found, negative=negative)
            return LossSum(loss, objective.num_skipgram_terms(found))
        case "cbow":
            loss = objective.cbow_loss(terms.scores, found, negative=negative)
            return LossSum(loss, objective.num_cbow_terms(found))
    raise AssertionError(architecture)


def _train_epoch(
    tables, arrays: Arrays, plan: Plan, epoch: int, worker: int, num_workers: int
) -> LossSum:
    interval = loss_interval(arrays.ids.size, plan.block * plan.blocks_per_update)
    loss = num_terms = 0.0
    part = _updates(arrays, plan, epoch, worker, num_workers)
    for index, (update, rate) in enumerate(part):
        terms, found = apply_update(
            tables,
            update,
            rate=rate,
            cap=plan.cap,
            architecture=plan.architecture,
            window=plan.window,
            negative=plan.negative,
        )
        if index % interval == 0:
            reported = loss_sum(plan.architecture, terms, found, plan.negative)
            loss, num_terms = loss + reported.loss, num_terms + reported.terms
    return LossSum(loss, num_terms)


def _updates(
    arrays: Arrays, plan: Plan, epoch: int, worker: int, num_workers: int
) -> Iterator[tuple[Blocks, float]]:
    """A worker's part of an epoch: updates, and the learning rate of each.

    Whole shards go to the workers in turn, so that none makes a shard for nothing.
    Those left over, fewer than workers, are made by every worker, which takes every
    N-th update: to make a shard costs 5 % of training on it, to wait for another worker
    all of it.
    """
    corpus = Corpus(arrays.ids, arrays.lengths, arrays.shard_ends)
    number = plan.first_epoch + epoch
    order = epoch_order(corpus.num_shards, seed=plan.seed, epoch=number)
    sizes = corpus.shard_tokens()[order]
    starts = np.cumsum(sizes) - sizes
    num_whole = order.size // num_workers * num_workers
    for place, shard in enumerate(order.tolist()):
        if place < num_whole and place % num_workers != worker:
            continue
        blocks = shard_blocks(
            *corpus.shard(shard),
            seed=plan.seed,
            epoch=number,
            shard=shard,
            keep_limit=arrays.keep_limit,
            noise_table=NoiseTable(arrays.noise_limit, arrays.noise_alias),
            window=plan.window,
            block=plan.block,
            tile=plan.tile,
            noise=plan.noise,
        )
        rates = learning_rates(
            len(blocks.ids),
            alpha=plan.alpha,
            min_alpha=plan.min_alpha,
            epoch=epoch,
            epochs=plan.epochs,
            tokens_before=int(starts[place]),
            shard_tokens=int(sizes[place]),
            corpus_tokens=corpus.ids.size,
        )[:: plan.blocks_per_update]
        rated = zip(updates(blocks, plan.blocks_per_update), rates, strict=True)
        first, step = (0, 1) if place < num_whole else (worker, num_workers)
        yield from itertools.islice(rated, first, None, step)


def _by_role(rows: np.ndarray, update: Blocks) -> Rows:
    """The gathered rows [n, D] of an update as `Rows`, which are views."""
    num_ids, size = update.ids.size, rows.shape[1]
    return Rows(
        rows[:num_ids].reshape(*update.ids.shape, size),
        rows[num_ids : 2 * num_ids].reshape(*update.ids.shape, size),
        rows[2 * num_ids :].reshape(*update.noise.shape, size),
    )


def _subtract_rows(table, ids, gradients, weights, rate: float, cap: float) -> None:
    """Subtracts the capped step of each row from `table`, each distinct id once.

    Rows of one id are added rank by rank: the second row of every id that has two, the
    third of every id that has three, and so on, over ids sorted by their number of
    rows, so that each rank is one slice. The few ids with the most rows follow one by
    one.
    """
    order = _stable_order(ids)
    sorted_ids = ids[order]
    is_first = np.empty(ids.size, bool)
    is_first[0] = True
    np.not_equal(sorted_ids[1:], sorted_ids[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    weight = np.add.reduceat(weights[order], first)
    size = np.append(first[1:], ids.size) - first
    # u8 keys sort fastest; ids of 255 rows or more come one by one whatever their
    # order.
    bounded_size = np.minimum(size, 255)
    by_size = np.argsort(255 - bounded_size.astype(np.uint8), kind="stable")
    first, weight, size = first[by_size], weight[by_size], size[by_size]
    num_larger = size.size - np.cumsum(np.bincount(bounded_size))
    step = gradients.take(order[first], axis=0)
    rank = 1
    while num_larger[rank] > _FEW_IDS:
        many = num_larger[rank]
        step[:many] += gradients.take(order[first[:many] + rank], axis=0)
        rank += 1
    for i in np.flatnonzero(size > rank):
        step[i] += gradients[order[first[i] + rank : first[i] + size[i]]].sum(axis=0)
    step *= step.dtype.type(rate)
    over = np.flatnonzero(weight > cap)
    step[over] *= (cap / weight[over])[:, np.newaxis]
    distinct = sorted_ids[first]
    rows = table.take(distinct, axis=0)  # afresh: other workers may have moved them
    rows -= step
    _whole(table)[distinct] = _whole(rows)


def _whole(table: np.ndarray) -> np.ndarray:
    """`table` [n, D] with each row as one item, [n]: assigned a third faster."""
    return table.view(f"V{table.shape[1] * table.itemsize}")[:, 0]


def _stable_order(ids: np.ndarray) -> np.ndarray:
    """Stable argsort of i32 ids >= 0, by 16 bits at a time.

    NumPy sorts 16 bits by radix: four times as fast as all 32 at once, on 4096 ids.
    """
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    high = (ids >> 16).astype(np.uint16)[order]
    return order[np.argsort(high, kind="stable")]
