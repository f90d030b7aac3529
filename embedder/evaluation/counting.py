"""Baselines that count in the sessions of a training, and train nothing."""

import numpy as np
from scipy import sparse

from embedder.evaluation.ranking import Scorer, Sequences


def followed_most_often(training: Sequences, num_items: int) -> Scorer:
    """Scores that are how often an item came right after the last one of the query."""
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


def same_session(training: Sequences, num_items: int) -> Scorer:
    """Scores that are the mean, over the items i of the query, of the share of i's
    pairs with other items of its sessions that are with the candidate."""
    incidence = _incidence(training, num_items)  # how often a session has an item
    own = (incidence * incidence).sum(axis=0)  # pairs of an item with itself
    num_pairs = incidence.T @ incidence.sum(axis=1) - own

    def scores(queries: Sequences) -> np.ndarray:
        means = _incidence(queries, num_items) / queries[1][:, np.newaxis]
        shares = sparse.csr_array(means / np.maximum(num_pairs, 1))
        return ((shares @ incidence.T) @ incidence - shares * own).toarray()

    return scores


def _incidence(sequences: Sequences, num_items: int) -> sparse.csr_array:
    ids, lengths = sequences
    rows = np.repeat(np.arange(len(lengths)), lengths)
    shape = len(lengths), num_items
    return sparse.csr_array((np.ones(len(ids)), (rows, ids)), shape=shape)
