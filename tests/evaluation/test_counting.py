"""Counts of training sessions as scores of items: by hand and by loops."""

import itertools

import numpy as np
import pytest

from embedder.evaluation import counting
from embedder.evaluation.counting import (
    followed_most_often,
    num_products,
    positive_pmi,
    same_session,
)

TRAINING = np.array([0, 1, 2, 0, 1, 1, 2, 3]), np.array([3, 2, 1, 2])
QUERIES = np.array([2, 0, 1]), np.array([2, 1])


def test_followed_most_often_by_hand():
    """0 1 2; 0 1; 1; 2 3: after 0 came 1 twice, after 1 came 2 once."""
    found = followed_most_often(TRAINING, 5)(QUERIES)
    assert found.tolist() == [[0, 2, 0, 0, 0], [0, 0, 1, 0, 0]]


def test_same_session_by_hand():
    """Pairs of 2: 0, 1 and 3 once each; of 0: 1 twice, 2 once."""
    found = same_session(TRAINING, 5, decay=1)(QUERIES)
    expected = [[1 / 6, 1 / 2, 1 / 6, 1 / 6, 0], [2 / 3, 0, 1 / 3, 0, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_products_of_counting_by_hand(monkeypatch):
    """Pairs: 9, 4, 1 and 4 of 4 sessions; 3 items of queries. Sessions of 2 have 3 and
    2 items, of 0 3 and 2, of 1 3, 2 and 1."""
    assert num_products(TRAINING, QUERIES, 5) == 18 + 3 * 5
    monkeypatch.setattr(counting, "_MOST_TOGETHER", 17)
    assert num_products(TRAINING, QUERIES, 5) == 5 + 5 + 6
    monkeypatch.setattr(counting, "_MOST_TOGETHER", 16)
    assert num_products(TRAINING, QUERIES, 4) == 18 + 3 * 4  # 4 x 4 pairs at most


@pytest.mark.parametrize("most", [0, 1000])
def test_counts_of_random_sessions_are_those_of_loops(monkeypatch, most):
    monkeypatch.setattr(counting, "_MOST_TOGETHER", most)
    rng = np.random.default_rng(0)
    lengths, queried = rng.integers(1, 7, size=40), rng.integers(1, 4, size=15)
    training = rng.integers(12, size=lengths.sum()), lengths
    queries = rng.integers(12, size=queried.sum()), queried
    after, same = np.zeros((2, 12, 12))
    for ids in np.split(training[0], np.cumsum(lengths)[:-1]):
        for a, b in itertools.pairwise(ids):
            after[a, b] += 1
        for a, b in itertools.product(ids, ids):
            same[a, b] += a != b
    shares = same / np.maximum(same.sum(axis=1, keepdims=True), 1)
    each = np.split(queries[0], np.cumsum(queried)[:-1])
    found = followed_most_often(training, 12)(queries)
    np.testing.assert_array_equal(found, [after[ids[-1]] for ids in each])
    for decay in (0.5, 1):
        found = same_session(training, 12, decay)(queries)
        weights = [decay ** np.arange(len(ids))[::-1] for ids in each]
        expected = [
            np.average(shares[ids], axis=0, weights=own)
            for ids, own in zip(each, weights, strict=True)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-15)


def test_mutual_information_by_hand():
    """0 and 1 are together twice of 8 tokens, 0 and 3 never, 2 and 3 once; 4 is not
    there."""
    pairs = np.array([[0, 1], [1, 0], [0, 3], [2, 3], [4, 0]])
    found = positive_pmi([TRAINING], pairs, 5, window=1)
    expected = np.log([2 * 8 / (2 * 6), 2 * 8 / (2 * 6), 1, 8 / (2 * 2), 1])
    np.testing.assert_allclose(found, expected)


def test_mutual_information_of_shards_is_that_of_loops():
    rng = np.random.default_rng(0)
    shards = []
    for _ in range(3):
        lengths = rng.integers(1, 9, size=30)
        ids = np.sort(rng.integers(9, size=lengths.sum()))  # equal ones are near
        shards.append((ids, lengths))
    pairs = rng.integers(9, size=(20, 2))
    together, counts = np.zeros((9, 9)), np.zeros(9)
    for ids, lengths in shards:
        np.add.at(counts, ids, 1)
        for part in np.split(ids, np.cumsum(lengths)[:-1]):
            for i, j in itertools.product(range(len(part)), repeat=2):
                together[part[i], part[j]] += 0 < abs(i - j) <= 3
    expected = []
    for a, b in pairs:
        ratio = together[a, b] * counts.sum() / (6 * counts[a] * counts[b])
        expected.append(np.log(max(1, ratio)))
    assert 0 < np.count_nonzero(expected) < 20
    np.testing.assert_allclose(positive_pmi(shards, pairs, 9, 3), expected)
