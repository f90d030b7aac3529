"""Ranks of items and their scores: by hand, by loops, and as in scikit-learn."""

import numpy as np
import pytest

from embedder.errors import InputError
from embedder.evaluation.ranking import (
    Ranking,
    by_popularity,
    by_vectors,
    case_scores,
    last_items,
    next_item,
    ranking,
    recency_weights,
    split_cases,
    target_ranks,
)

COUNTS = np.array([40, 20, 20, 5, 1])


def sequences(ids, lengths) -> tuple[np.ndarray, np.ndarray]:
    return np.array(ids), np.array(lengths)


def split(given) -> list[list[int]]:
    return [x.tolist() for x in np.split(given[0], np.cumsum(given[1])[:-1])]


SESSIONS = sequences([0, 1, 2, 3, 0, 2, 1, 0, 1], [3, 1, 2, 3])
"""Items before the last, and the last: 0 1 -> 2; 0 -> 2; 1 0 -> 1, seen before."""
ANGLES = np.radians([0, 30, 50, 300, 180])
VECTORS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
LENGTHS = np.array([3.0, 0.5, 1.0, 1.0, 1.0])[:, np.newaxis]


def discount(rank: int) -> float:
    return 1 / np.log2(1 + rank)


def test_next_items_by_hand():
    """Cosines ignore the lengths of vectors. All items of a session count alike.

    0 1 -> 15 degrees: 2 is at 50, first of the others (3 is at 300, 75 from it).
    0 -> 0 degrees: 1 is at 30, 2 at 50, 3 at 60: second. By counts 2 is third of four,
    after 1 and 3 for the query 0, and second after 3 for 0 1.
    """
    counts = np.array([9, 8, 5, 7, 1])
    found = next_item(VECTORS * LENGTHS, counts, SESSIONS, topn=2, decay=1)
    assert found.num_cases == 2
    expected = (1.0, (1 + discount(2)) / 2, (1 + 1 / 2) / 2)
    np.testing.assert_allclose(found[:3], expected)
    popular = Ranking(1 / 2, discount(2) / 2, (1 / 2 + 1 / 3) / 2, 1 / 2)
    np.testing.assert_allclose(found.baseline, popular)


def test_items_of_the_session_may_be_candidates():
    """With the query 0 1, 2 has .7, and 0 and 1 tie at .5: 1 has the worse rank, 3.
    With the query 0, 0 has 1 and 2 has .6."""
    vectors = np.array([[1.0, 0], [0, 1], [0.6, 0.8], [-1, 0], [0, -1]])
    found = next_item(vectors, COUNTS, SESSIONS, 2, seen="included", decay=1)
    ranks = [1, 2, 3]
    assert found.num_cases == 3
    assert found.hit_rate == pytest.approx(2 / 3)
    assert found.ndcg == pytest.approx((1 + discount(2)) / 3)
    assert found.mrr == pytest.approx(np.mean([1 / rank for rank in ranks]))


@pytest.mark.parametrize("by", ["cosine", "prediction"])
@pytest.mark.parametrize("seen", ["excluded", "included"])
@pytest.mark.parametrize(("topn", "decay"), [(1, 0.9), (10, 0.9), (10, 0.3)])
def test_next_items_are_ranked_as_by_scikit_learn(monkeypatch, by, seen, topn, decay):
    from sklearn import metrics

    rng = np.random.default_rng(0)
    monkeypatch.setattr("embedder.evaluation.ranking.CHUNK_VALUES", 200)  # chunks of 4
    lengths = rng.integers(1, 7, size=90)
    given = sequences(rng.integers(50, size=lengths.sum()), lengths)
    input, output = (rng.normal(size=(50, 4)) for _ in range(2))
    unit = input / np.linalg.norm(input, axis=1, keepdims=True)
    scores, targets = [], []
    for ids in split(given):
        *query, target = ids
        if not query or (seen == "excluded" and target in query):
            continue
        weights = [decay**age for age in range(len(query))][::-1]
        rows, items = (unit, unit) if by == "cosine" else (input, output)
        score = items @ np.average(rows[query], axis=0, weights=weights)
        if seen == "excluded":
            score[query] = -100
        scores.append(score)
        targets.append(target)
    given_output = None if by == "cosine" else output
    counts = np.arange(50, 0, -1)
    settings = {"output": given_output, "seen": seen, "decay": decay}
    found = next_item(input, counts, given, topn, **settings)
    right, labels = np.eye(50)[targets], np.arange(50)
    assert found.num_cases == len(targets) > 50
    expected = [
        metrics.top_k_accuracy_score(targets, scores, k=topn, labels=labels),
        metrics.ndcg_score(right, scores, k=topn),
        metrics.label_ranking_average_precision_score(right, scores),
    ]
    np.testing.assert_allclose(found[:3], expected, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_model_of_equal_scores_finds_nothing(value):
    found = next_item(np.full((5, 3), value), COUNTS, SESSIONS, topn=2)
    assert found.hit_rate == found.ndcg == 0
    # of five candidates two, or one, are seen
    worst = 1 / 5 if np.isnan(value) else (1 / 3 + 1 / 4) / 2
    assert found.mrr == pytest.approx(worst)


def test_sessions_of_one_item_are_no_cases():
    alone = sequences(np.array([1, 2]), np.array([1, 1]))
    found = next_item(VECTORS, COUNTS, alone)
    assert found.num_cases == 0 and np.isnan([*found[:3], *found.baseline]).all()
    with pytest.raises(InputError, match="`topn` must be an integer >= 1, got 0"):
        next_item(VECTORS, COUNTS, alone, topn=0)


def test_the_newest_item_of_a_query_counts_most():
    found = recency_weights(np.array([3, 1, 2]), 0.5)
    np.testing.assert_allclose(found, [1 / 7, 2 / 7, 4 / 7, 1, 1 / 3, 2 / 3])
    assert recency_weights(np.array([], int), 0.5).tolist() == []
    for decay in (0, 1.5, np.nan):
        with pytest.raises(InputError, match=r"`decay` must be a number in \(0, 1\]"):
            next_item(VECTORS, COUNTS, SESSIONS, decay=decay)


def test_several_targets_by_hand():
    """Scores .9 .8 .7 .6 .5 of items 0 to 4: the query 4 has the targets 1 and 3 (4 was
    seen before), at the ranks 2 and 4 of four; the query 0 has the target 1 at 1."""
    given = sequences([4, 3, 4, 1, 1, 0, 1, 2, 3], [5, 2, 1, 1])
    is_target = np.array([0, 1, 1, 1, 1, 0, 1, 1, 0], bool)
    cases = split_cases(given, is_target, "excluded")
    assert [split(cases.queries), split(cases.targets)] == [[[4], [0]], [[1, 3], [1]]]
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    ranks = target_ranks(by_popularity(scores), cases, 5)
    assert split(ranks) == [[2, 4], [1]]
    ideal = discount(1) + discount(2)
    np.testing.assert_allclose(
        case_scores(ranks, 3), [[1, discount(2) / ideal, 1 / 2, 1 / 2], [1, 1, 1, 1]]
    )
    np.testing.assert_allclose(case_scores(ranks, 1), [[0, 0, 1 / 2, 0], [1, 1, 1, 1]])
    assert ranking(ranks, 3) == pytest.approx(
        (1, (1 + discount(2) / ideal) / 2, 3 / 4, 3 / 4)
    )


def test_targets_do_not_outrank_each_other():
    """All scores are equal: two targets of five candidates have the last two ranks."""
    cases = split_cases(
        sequences([0, 1, 2], [3]), np.array([False, True, True]), "included"
    )
    assert split(target_ranks(by_popularity(np.ones(5)), cases, 5)) == [[4, 5]]


@pytest.mark.parametrize("seen", ["excluded", "included"])
@pytest.mark.parametrize("topn", [1, 4])
def test_several_targets_are_scored_as_by_scikit_learn(monkeypatch, seen, topn):
    from sklearn import metrics

    rng = np.random.default_rng(1)
    monkeypatch.setattr("embedder.evaluation.ranking.CHUNK_VALUES", 100)
    lengths = rng.integers(1, 9, size=60)
    given = sequences(rng.integers(30, size=lengths.sum()), lengths)
    is_target = rng.random(lengths.sum()) < 0.4
    input, output = (rng.normal(size=(30, 4)) for _ in range(2))
    cases = split_cases(given, is_target, seen)
    found = case_scores(
        target_ranks(by_vectors(input, output, decay=1), cases, 30), topn
    )
    expected = []
    flags = np.split(is_target, np.cumsum(lengths)[:-1])
    for ids, flag in zip(split(given), flags, strict=True):
        query = [x for x, is_one in zip(ids, flag, strict=True) if not is_one]
        targets = {x for x, is_one in zip(ids, flag, strict=True) if is_one}
        targets -= {*query} if seen == "excluded" else set()
        if not query or not targets:
            continue
        scores = output @ input[query].mean(axis=0)
        if seen == "excluded":
            scores[query] = -100
        right = np.isin(np.arange(30), [*targets])
        first = (-scores).argsort()
        hits = right[first[:topn]].sum()
        expected.append(
            [
                hits > 0,
                metrics.ndcg_score(right[np.newaxis], scores[np.newaxis], k=topn),
                1 / (1 + right[first].argmax()),
                hits / len(targets),
            ]
        )
    assert 20 < len(expected) < 60 and (cases.targets[1] > 1).any()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_last_items_are_cases_of_one_target():
    cases = last_items(SESSIONS, "excluded")
    assert [split(cases.queries), split(cases.targets)] == [[[0, 1], [0]], [[2], [2]]]
