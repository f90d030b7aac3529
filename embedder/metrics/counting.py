"""Baselines that count in the sequences of a training, and train nothing."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from embedder.metrics.ranking import DECAY, Scorer, Sequences, recency_weights

if TYPE_CHECKING:
    from scipy import sparse

_MOST_TOGETHER = 20_000_000  # pairs of items that are counted beforehand: 240 MB


def followed_most_often(training: Sequences, num_items: int) -> Scorer:
    """Scores that are how often an item came right after the last one of the query."""
    from scipy import sparse

    ids, lengths = training
    is_last = np.zeros(len(ids), bool)
    is_last[np.cumsum(lengths) - 1] = True
    pairs = ids[:-1][~is_last[:-1]], ids[1:][~is_last[:-1]]
    shape = num_items, num_items
    counts = sparse.csr_array((np.ones(len(pairs[0])), pairs), shape=shape)

    def scores(queries: Sequences) -> np.ndarray:
        ids, lengths = queries
        return counts[ids[np.cumsum(lengths) - 1]].toarray()

    return scores


def same_session(training: Sequences, num_items: int, decay: float = DECAY) -> Scorer:
    """Scores that are the mean, over the items i of the query, of the share of i's
    pairs with other items of its sessions that are with the candidate.

    Args:
      decay: of the weights in the mean, see `recency_weights`.
    """
    from scipy import sparse

    incidence = _incidence(training, num_items)  # how often a session has an item
    own = (incidence * incidence).sum(axis=0)  # pairs of an item with itself
    num_pairs = incidence.T @ incidence.sum(axis=1) - own
    together = None
    if _num_together(training, num_items) <= _MOST_TOGETHER:
        together = incidence.T @ incidence - sparse.diags_array(own)

    def scores(queries: Sequences) -> np.ndarray:
        means = _incidence(queries, num_items, recency_weights(queries[1], decay))
        shares = sparse.csr_array(means / np.maximum(num_pairs, 1))
        if together is not None:
            return (shares @ together).toarray()
        return ((shares @ incidence.T) @ incidence - shares * own).toarray()

    return scores


def num_products(training: Sequences, queries: Sequences, num_items: int) -> int:
    """Products of `same_session` for all queries, at most."""
    ids, lengths = training
    if _num_together(training, num_items) <= _MOST_TOGETHER:
        return _num_pairs(lengths) + len(queries[0]) * num_items
    of_items = np.bincount(ids, np.repeat(lengths, lengths), minlength=num_items)
    return int(of_items[queries[0]].sum())


def _num_together(training: Sequences, num_items: int) -> int:
    """Pairs of items of one session, at most."""
    return min(_num_pairs(training[1]), num_items**2)


def _num_pairs(lengths: np.ndarray) -> int:
    return int((lengths.astype(np.int64) ** 2).sum())


def num_repeated(
    sessions: Sequences, training: Sequences, least: int
) -> tuple[int, int]:
    """How many sessions of `least` items or more are equal to one of `training`, and
    how many such sessions there are."""
    known = {*_as_bytes(training, least)}
    is_known = [each in known for each in _as_bytes(sessions, least)]
    return sum(is_known), len(is_known)


def _as_bytes(sequences: Sequences, least: int) -> Iterator[bytes]:
    """The sequences of `least` items or more, each as bytes."""
    ids, lengths = (np.asarray(x, np.int64) for x in sequences)
    data, ends = ids.tobytes(), 8 * np.cumsum(lengths)
    starts = ends - 8 * lengths
    is_long = lengths >= least
    for start, end in zip(
        starts[is_long].tolist(), ends[is_long].tolist(), strict=True
    ):
        yield data[start:end]


def first_tokens(
    shards: Iterator[Sequences], num: int = 50_000_000
) -> Iterator[Sequences]:
    """The first shards, of `num` tokens or the last that makes them more."""
    while num > 0 and (shard := next(shards, None)) is not None:
        num -= len(shard[0])
        yield shard


def log_ratios(counts: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """-|log(n_a / n_b)| of pairs of tokens i[n, 2], f64[n]: the frequencies' likeness.

    Args:
      counts: occurrences, i64[V], > 0.
    """
    logs = np.log(counts[pairs])
    return -np.abs(logs[:, 0] - logs[:, 1])


def positive_pmi(
    training: Iterable[Sequences], pairs: np.ndarray, num_tokens: int, window: int = 5
) -> np.ndarray:
    """Positive pointwise mutual information of pairs of tokens i[n, 2], f64[n].

        max(0, log(n_ab N / (2 window n_a n_b)))

    with n_a how often a occurs, n_ab how often a and b are within `window` tokens of a
    sequence, and N occurrences in all. 0 for pairs that are never together.

    Args:
      training: shards of sequences.
      num_tokens: V.
    """
    from scipy import sparse

    tokens, columns = np.unique(pairs, return_inverse=True)
    first, second = columns.reshape(-1, 2).T
    number = np.full(num_tokens, -1)
    number[tokens] = np.arange(len(tokens))
    counts = np.zeros(num_tokens, np.int64)
    together = sparse.csr_array((len(tokens), len(tokens)))
    for ids, lengths in training:
        near = [_near(number[ids], lengths, offset) for offset in range(1, window + 1)]
        a, b = np.concatenate(near, axis=1)
        ones = np.ones(len(a))
        together += sparse.csr_array((ones, (a, b)), shape=together.shape)
        counts += np.bincount(ids, minlength=num_tokens)
    found = together[first, second] + together[second, first]
    expected = 2 * window * counts[pairs].astype(np.float64).prod(axis=1)
    ratio = found * counts.sum() / np.where(found > 0, expected, 1)
    return np.log(np.maximum(ratio, 1))


def _near(numbers: np.ndarray, lengths: np.ndarray, offset: int) -> np.ndarray:
    """Numbers at a distance of `offset` in a sequence, none -1, [2, n]."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    a, b = numbers[:-offset], numbers[offset:]
    kept = (a >= 0) & (b >= 0) & (sequence[:-offset] == sequence[offset:])
    return np.stack([a[kept], b[kept]])


def _incidence(
    sequences: Sequences, num_items: int, weights: np.ndarray | None = None
) -> "sparse.csr_array":
    """How often each sequence has each item, or the sums of the weights, f64[n]."""
    from scipy import sparse

    ids, lengths = sequences
    rows = np.repeat(np.arange(len(lengths)), lengths)
    values = np.ones(len(ids)) if weights is None else weights
    return sparse.csr_array((values, (rows, ids)), shape=(len(lengths), num_items))
