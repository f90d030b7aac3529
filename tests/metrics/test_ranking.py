"""Ranks of items, their scores, and counts as scores: by hand, by loops, and as in
scikit-learn."""

import itertools

import numpy as np
import pytest
from sklearn import metrics

from embedder.metrics import counting
from embedder.metrics.counting import followed_most_often, positive_pmi, same_session
from embedder.metrics.ranking import (
    by_vectors,
    case_scores,
    next_item,
    ranking,
    split_cases,
    target_ranks,
)

BY = "cosine", "prediction"
COUNTS = np.array([40, 20, 20, 5, 1])


def sequences(ids, lengths) -> tuple[np.ndarray, np.ndarray]:
    return np.array(ids), np.array(lengths)


def split(given) -> list[list[int]]:
    return [x.tolist() for x in np.split(given[0], np.cumsum(given[1])[:-1])]


SESSIONS = sequences([0, 1, 2, 3, 0, 2, 1, 0, 1], [3, 1, 2, 3])
"""Items before the last, and the last: 0 1 -> 2; 0 -> 2; 1 0 -> 1, seen before."""


@pytest.mark.parametrize("targets", ["last", "several"])
@pytest.mark.parametrize("seen", ["excluded", "included"])
@pytest.mark.parametrize(
    ("by", "topn", "decay"),
    [(x, *y) for x in BY for y in [(1, 0.9), (10, 0.9), (10, 0.3)]]
    + [("prediction", 4, 1)],
)
def test_items_are_ranked_as_by_scikit_learn(
    monkeypatch, targets, by, seen, topn, decay
):
    rng = np.random.default_rng(0)
    monkeypatch.setattr("embedder.metrics.ranking.CHUNK_VALUES", 200)  # chunks of 4
    lengths = rng.integers(1, 9, size=90)
    given = sequences(rng.integers(50, size=lengths.sum()), lengths)
    is_target = rng.random(lengths.sum()) < 0.4
    if targets == "last":
        is_target = np.isin(np.arange(lengths.sum()), np.cumsum(lengths) - 1)
    input, output = (rng.normal(size=(50, 4)) for _ in range(2))
    unit = input / np.linalg.norm(input, axis=1, keepdims=True)
    rows, items = (unit, unit) if by == "cosine" else (input, output)
    expected = []
    for ids, flags in zip(split(given), split((is_target, lengths)), strict=True):
        query = [x for x, is_one in zip(ids, flags, strict=True) if not is_one]
        wanted = {x for x, is_one in zip(ids, flags, strict=True) if is_one}
        wanted -= {*query} if seen == "excluded" else set()
        if not query or not wanted:
            continue
        weights = [decay**age for age in range(len(query))][::-1]
        scores = items @ np.average(rows[query], axis=0, weights=weights)
        if seen == "excluded":
            scores[query] = -100
        right = np.isin(np.arange(50), [*wanted])
        first = (-scores).argsort()
        hits = right[first[:topn]].sum()
        gain = metrics.ndcg_score([right], [scores], k=topn)
        rank = 1 + right[first].argmax()
        expected.append([hits > 0, gain, 1 / rank, hits / len(wanted)])
    settings = {"output": None if by == "cosine" else output, "decay": decay}
    cases = split_cases(given, is_target, seen)
    ranks = target_ranks(by_vectors(input, **settings), cases, 50)
    found = case_scores(ranks, topn)
    assert len(expected) > 50 and (cases.targets[1] > 1).any() == (targets == "several")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert ranking(ranks, topn) == pytest.approx(found.mean(axis=0))
    if targets == "last":
        last = next_item(input, np.ones(50), given, topn, seen=seen, **settings)
        assert last.num_cases == len(expected)
        mean = np.mean(expected, axis=0)
        np.testing.assert_allclose(last[:3], mean[:3], rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_model_of_equal_scores_finds_nothing(value):
    found = next_item(np.full((5, 3), value), COUNTS, SESSIONS, topn=2)
    assert found.hit_rate == found.ndcg == 0
    # of five candidates two, or one, are seen
    worst = 1 / 5 if np.isnan(value) else (1 / 3 + 1 / 4) / 2
    assert found.mrr == pytest.approx(worst)


def test_sessions_of_one_item_are_no_cases():
    alone = sequences(np.array([1, 2]), np.array([1, 1]))
    found = next_item(np.eye(5), COUNTS, alone)
    assert found.num_cases == 0 and np.isnan([*found[:3], *found.baseline]).all()


TRAINING = np.array([0, 1, 2, 0, 1, 1, 2, 3]), np.array([3, 2, 1, 2])
QUERIES = np.array([2, 0, 1]), np.array([2, 1])


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
