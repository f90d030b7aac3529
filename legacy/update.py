"""One update of the tables, and epochs of them."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from legacy import objective, softmax
from legacy.blocks import (
    Blocks,
    Corpus,
    epoch_order,
    learning_rates,
    loss_interval,
    shard_blocks,
    updates,
)
from legacy.huffman import NO_TREE, Tree
from legacy.noise import NoiseTable
from legacy.objective import Pairs, Rows, Terms
from legacy.softmax import PathRows, PathTerms
from legacy.subwords import NO_SUBWORDS, Subwords, apply_step, compose

# For fewer ids than this, adding their rows one id at a time costs less.
_FEW_IDS = 8
_ADAGRAD_EPS = 1e-8


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
    hs: bool = False
    scale: float = 0.0  # of subwords; 0: there are none
    cbow_mean: bool = True


class State(NamedTuple):
    """What updates change."""

    tables: np.ndarray
    """[2, V, D], C-contiguous: the input and the output table. With hierarchical
    softmax the inner nodes are the last one: instead of the output table if `negative`
    is 0, else as a third."""
    accumulators: np.ndarray | None = None  # [2 or 3, V], of Adagrad; None: capped SGD
    subwords: np.ndarray | None = None
    """[V + K, D], of which the input table is made; None: there are no subwords."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays that are there."""
        return [array for array in self if array is not None]


class Arrays(NamedTuple):
    """What training reads beside its plan."""

    ids: np.ndarray  # this and the next two: see `blocks.Corpus`
    lengths: np.ndarray
    shard_ends: np.ndarray
    keep_limit: np.ndarray  # u32[V]
    noise_limit: np.ndarray  # this and the next: see `noise.NoiseTable`
    noise_alias: np.ndarray
    points: np.ndarray = NO_TREE.points  # this and the next: see `huffman.Tree`
    signs: np.ndarray = NO_TREE.signs
    words: np.ndarray = NO_SUBWORDS.words  # this and the next three: see `Subwords`
    rows: np.ndarray = NO_SUBWORDS.rows
    shares: np.ndarray = NO_SUBWORDS.shares
    buckets: np.ndarray = NO_SUBWORDS.buckets


class UpdateTerms(NamedTuple):
    """What the objectives say of an update; None: it has no such terms."""

    sampled: Terms | None  # of negative sampling
    paths: PathTerms | None  # of hierarchical softmax


class LossSum(NamedTuple):
    """Loss of the updates that report it, and its positive terms: pairs, or centres."""

    loss: float
    terms: float


def train_epochs(
    state: Sequence[np.ndarray], arrays, plan: Plan, worker: int, num_workers: int
) -> list[LossSum]:
    """Trains `state` in place: what `worker` of `num_workers` has to do.

    Args:
        state, arrays: those of `State` and `Arrays`, in their order.

    Returns:
        The loss of each epoch.

    Raises:
        FloatingPointError: training diverged.
    """
    state, arrays, losses = State(*state), Arrays(*arrays), []
    for epoch in range(plan.epochs):
        with np.errstate(over="ignore", invalid="ignore"):  # both show below
            loss = _train_epoch(state, arrays, plan, epoch, worker, num_workers)
        losses.append(loss)
        if not all(np.isfinite(array).all() for array in state.arrays):
            lower = "`alpha` or `cap`" if state.accumulators is None else "`alpha`"
            raise FloatingPointError(
                f"Training diverged in epoch {epoch}: lower {lower}."
            )
    return losses


def apply_update(
    state: State,
    update: Blocks,
    *,
    rate: float,
    cap: float,
    architecture: str,
    window: int,
    negative: int,
    tree: Tree | None = None,
    subwords: Subwords | None = None,
    cbow_mean: bool = True,
    log_noise: np.ndarray | None = None,
) -> tuple[UpdateTerms, Pairs]:
    """Applies one update to `state` in place, and returns what it computed for it.

    With dL/drow_r and the weight c_r summed over all occurrences of row r in
    the update, capped SGD is

        row_r <- row_r - rate * min(1, cap / c_r) * dL/drow_r

    and Adagrad with one accumulator a row (Duchi, Hazan and Singer 2011, section 1)

        a_r <- a_r + mean over the D columns of (dL/drow_r)^2
        row_r <- row_r - rate * dL/drow_r / (sqrt(a_r) + eps)

    Args:
        cap: pair steps by which SGD may move a row in one update; inf for no cap.
        tree: of hierarchical softmax; None: there is negative sampling alone.
        subwords: whose rows in `state` learn, by SGD, in the place of input rows.
        cbow_mean: of CBOW: means of contexts; False: sums.
        log_noise: log weights of noise, [V], of "cbow-softmax".
    """
    if subwords is not None:
        state.tables[0] = compose(subwords, state.subwords)
    num_tokens, size = state.tables.shape[1:]
    rows = state.tables.reshape(
        -1, size
    )  # of all tables, so that one scatter is enough
    found = objective.pairs(
        update.sequence,
        update.radius,
        tile=update.ids.shape[1] // update.noise.shape[1],
        window=window,
        dtype=rows.dtype,
        decay=distance_decay(architecture),
    )
    sampled = paths = None
    parts: list[tuple] = []  # ids, gradients and weights
    if negative:
        ids = np.concatenate([update.ids, update.ids, update.noise], axis=None)
        ids[update.ids.size :] += num_tokens
        gradients = np.empty((ids.size, size), rows.dtype)
        compute = _objective(objective, architecture, cbow_mean)
        if architecture == "cbow-softmax":
            assert log_noise is not None
            logs = (log_noise[each] for each in (update.ids, update.ids, update.noise))
            compute = functools.partial(compute, log_noise=Rows(*logs))
        sampled = compute(
            _by_role(rows.take(ids, axis=0), update),
            found,
            window=window,
            negative=negative,
            out=_by_role(gradients, update),
        )
        parts.append((ids, gradients, np.concatenate(sampled.weights, axis=None)))
    if tree is not None:
        points = tree.points[update.ids] + np.int32(len(rows) - num_tokens)
        paths = _objective(softmax, architecture, cbow_mean)(
            PathRows(rows[update.ids], rows[points]),
            tree.signs[update.ids],
            found,
            window=window,
        )
        ids = np.concatenate([update.ids, points], axis=None)
        gradients = np.concatenate([x.reshape(-1, size) for x in paths.gradients])
        parts.append((ids, gradients, np.concatenate(paths.weights, axis=None)))
    sums = _sum_rows(*map(np.concatenate, zip(*parts, strict=True)))
    if subwords is not None:
        sums = _without_words(sums, num_tokens, state.subwords, subwords, rate, cap)
    if state.accumulators is None:
        steps = _capped_steps(sums, rate, cap)
    else:
        steps = _adagrad_steps(sums, state.accumulators.reshape(-1), rate)
    _subtract_rows(rows, sums.ids, steps)
    if subwords is not None:
        state.tables[0] = compose(subwords, state.subwords)
    return UpdateTerms(sampled, paths), found


def distance_decay(architecture: str) -> float:
    """Weight of a context to that of one a position nearer."""
    return 0.5 if architecture == "cbow-softmax" else 1.0


def _objective(module, architecture: str, cbow_mean: bool):
    """The function of `objective` or `softmax`."""
    if architecture == "skipgram":
        return module.skipgram
    return functools.partial(module.cbow, mean=cbow_mean)


def _without_words(
    sums: "_RowSums", num_tokens: int, rows: np.ndarray, subwords: Subwords, rate, cap
) -> "_RowSums":
    """Applies what an update says of words to the rows of their subwords; returns what
    it says of other rows."""
    is_word = sums.ids < num_tokens
    words = sums.ids[is_word]
    gradients = np.zeros((num_tokens, rows.shape[1]), rows.dtype)
    weights = np.zeros(num_tokens, rows.dtype)
    gradients[words], weights[words] = sums.gradients[is_word], sums.weights[is_word]
    apply_step(subwords, rows, gradients, weights, rate, cap)
    return _RowSums(*(each[~is_word] for each in sums))


def loss_sum(
    architecture: str, terms: UpdateTerms, found: Pairs, negative: int
) -> LossSum:
    """The loss of an update from what `apply_update` returns."""
    sampled, paths, loss = *terms, 0.0
    match architecture:
        case "skipgram":
            num_terms = objective.num_skipgram_terms(found)
            if sampled is not None:
                scores = sampled.scores
                loss += objective.skipgram_loss(scores, found, negative=negative)
            if paths is not None:
                loss += softmax.skipgram_loss(paths, found)
        case "cbow" | "cbow-softmax":
            num_terms = objective.num_cbow_terms(found)
            if sampled is not None and architecture == "cbow":
                scores = sampled.scores
                loss += objective.cbow_loss(scores, found, negative=negative)
            elif sampled is not None:
                loss += objective.softmax_loss(sampled.scores, found)
            if paths is not None:
                loss += softmax.cbow_loss(paths, found)
        case _:
            raise AssertionError(architecture)
    return LossSum(loss, num_terms)


def _train_epoch(
    state: State, arrays: Arrays, plan: Plan, epoch: int, worker: int, num_workers: int
) -> LossSum:
    interval = loss_interval(arrays.ids.size, plan.block * plan.blocks_per_update)
    loss = num_terms = 0.0
    part = _updates(arrays, plan, epoch, worker, num_workers)
    tree = Tree(arrays.points, arrays.signs) if plan.hs else None
    subwords = Subwords(*arrays[-4:], plan.scale) if plan.scale else None
    for index, (update, rate) in enumerate(part):
        terms, found = apply_update(
            state,
            update,
            rate=rate,
            cap=plan.cap,
            architecture=plan.architecture,
            window=plan.window,
            negative=plan.negative,
            tree=tree,
            subwords=subwords,
            cbow_mean=plan.cbow_mean,
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


class _RowSums(NamedTuple):
    """What an update says of each row that occurs in it."""

    ids: np.ndarray  # i64[rows], distinct
    gradients: np.ndarray  # [rows, D], summed over all occurrences
    weights: np.ndarray  # [rows], summed likewise


def _sum_rows(ids, gradients, weights) -> _RowSums:
    """Sums of gradients [n, D] and weights [n] over the occurrences of each id.

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
    total = gradients.take(order[first], axis=0)
    rank = 1
    while num_larger[rank] > _FEW_IDS:
        many = num_larger[rank]
        total[:many] += gradients.take(order[first[:many] + rank], axis=0)
        rank += 1
    for i in np.flatnonzero(size > rank):
        total[i] += gradients[order[first[i] + rank : first[i] + size[i]]].sum(axis=0)
    return _RowSums(sorted_ids[first], total, weight)


def _capped_steps(rows: _RowSums, rate: float, cap: float) -> np.ndarray:
    """rate * min(1, cap / c_r) * dL/drow_r, in the place of the gradients."""
    steps, weights = rows.gradients, rows.weights
    steps *= steps.dtype.type(rate)
    over = np.flatnonzero(weights > cap)
    steps[over] *= (cap / weights[over])[:, np.newaxis]
    return steps


def _adagrad_steps(rows: _RowSums, accumulators: np.ndarray, rate: float) -> np.ndarray:
    """rate * dL/drow_r / (sqrt(a_r) + eps), in the place of the gradients; see
    `apply_update`. `accumulators` [2 V] take in the mean squares before."""
    steps, scalar = rows.gradients, rows.gradients.dtype.type
    accumulators[rows.ids] += np.vecdot(steps, steps) / scalar(steps.shape[1])
    root = np.sqrt(accumulators[rows.ids]) + scalar(_ADAGRAD_EPS)
    steps *= (scalar(rate) / root)[:, np.newaxis]
    return steps


def _subtract_rows(table, ids, steps) -> None:
    """Subtracts `steps` from the rows of `table` with these distinct ids."""
    rows = table.take(ids, axis=0)  # afresh: other workers may have moved them
    rows -= steps
    _whole(table)[ids] = _whole(rows)


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
