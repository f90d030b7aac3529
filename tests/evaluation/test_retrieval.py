"""Scores of retrieval: by hand, by loops, and as in scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors

from embedder.evaluation import retrieval
from embedder.evaluation.retrieval import (
    CUTOFFS,
    NEIGHBORS,
    SCORES,
    Queries,
    chance,
    choose_queries,
    estimates,
    retrieval_scores,
)

ANGLES = np.radians([0, 10, 30, 50, 70, 100])
LENGTHS = np.array([1.0, 3.0, 0.5, 2.0, 1.0, 4.0])[:, np.newaxis]
VECTORS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1) * LENGTHS
LABELS = np.array([0, 1, 0, 0, 1, 2])


def examples(num: int = 120, num_classes: int = 4, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num)
    centres = rng.normal(size=(num_classes, 5))
    return (centres[labels] + rng.normal(size=(num, 5))), labels


def all_scores(vectors, labels) -> np.ndarray:
    return retrieval_scores(vectors, labels, choose_queries(labels))


def by_loops(vectors, labels, i: int) -> list[float]:
    """The scores of query i: other classes first, where cosines are equal."""
    unit = vectors / np.linalg.norm(vectors, axis=1)[:, np.newaxis]
    others = [j for j in range(len(labels)) if j != i]
    others.sort(key=lambda j: (-(unit[i] @ unit[j]).round(9), labels[j] == labels[i]))
    is_same = [labels[j] == labels[i] for j in others]
    num = sum(is_same)
    average = sum(sum(is_same[: r + 1]) / (r + 1) for r in range(num) if is_same[r])
    voters = [labels[j] for j in others[:NEIGHBORS]]
    most = max([voters.count(c) for c in {*voters} - {labels[i]}], default=0)
    is_voted = voters.count(labels[i]) > most
    return [*(any(is_same[:k]) for k in CUTOFFS), average / num, is_voted]


def test_scores_by_hand():
    """Example 5 is alone in its class, a candidate and no query.

    The others by distance of angles, + of the class. 0 (at 0): 1, 2+, 3+, 4, 5: the
    first two have the precision 0 and 1 / 2. 1 (10): 0, 2, 3, 4+, 5. 2 (30): 1 and 3
    tie at 20, and 3 is of the class, so it is second; 0 is third. 3 (50): 2 and 4 tie
    at 20, so 4, 2+, then 1; 0 and 5 tie at 50. 4 (70): 3, 5, 2, 1+, 0.
    """
    queries = choose_queries(LABELS)
    assert (queries.ids.tolist(), queries.num_alone) == ([0, 1, 2, 3, 4], 1)
    found = retrieval_scores(VECTORS, LABELS, queries)
    assert found[:, 0].tolist() == [0, 0, 0, 0, 0]
    assert found[:, 1].tolist() == [1, 1, 1, 1, 1]
    np.testing.assert_allclose(found[:, 3], [1 / 4, 0, 1 / 4, 1 / 4, 0])
    # The vote is of all five others: 2 of class 0 and 2 of class 1 are no majority.
    assert found[:, 4].tolist() == [0, 0, 0, 0, 0]


def test_the_class_with_most_votes_is_found():
    """Three of a class and two of another: each of the three has 2 votes against 2, and
    with another example of it 3 against 2."""
    labels = np.array([0, 0, 0, 1, 1])
    vectors = np.eye(5)
    assert all_scores(vectors, labels)[:, 4].tolist() == [0, 0, 0, 0, 0]
    found = all_scores(np.eye(6), np.append(labels, 0))[:, 4]
    assert found.tolist() == [1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize("num_classes", [2, 4, 40])
def test_scores_are_those_of_loops(num_classes):
    vectors, labels = examples(num_classes=num_classes)
    labels = np.unique(labels, return_inverse=True)[1]
    queries = choose_queries(labels)
    found = retrieval_scores(vectors, labels, queries)
    expected = [by_loops(vectors, labels, i) for i in queries.ids]
    np.testing.assert_allclose(found, np.array(expected, float), rtol=1e-12)


def test_scores_are_those_of_scikit_learn():
    vectors, labels = examples(num=200)
    found = all_scores(vectors, labels)
    near = NearestNeighbors(n_neighbors=199, metric="cosine").fit(vectors)
    distances, ids = near.kneighbors()  # of each but itself
    is_same = labels[ids] == labels[:, np.newaxis]
    for column, k in enumerate(CUTOFFS):
        np.testing.assert_array_equal(found[:, column], is_same[:, :k].any(axis=1))
    for i in range(200):
        num = is_same[i].sum()
        first = is_same[i, :num]
        if not first.any():  # no average precision
            assert found[i, 3] == 0
            continue
        average = average_precision_score(first, -distances[i, :num])
        np.testing.assert_allclose(found[i, 3], average * first.sum() / num)


def test_votes_are_those_of_scikit_learn():
    from sklearn.model_selection import LeaveOneOut, cross_val_predict
    from sklearn.neighbors import KNeighborsClassifier

    vectors, labels = examples(num=100)
    model = KNeighborsClassifier(NEIGHBORS, metric="cosine")
    shares = cross_val_predict(
        model, vectors, labels, cv=LeaveOneOut(), method="predict_proba"
    )
    own = shares[range(100), labels]
    shares[range(100), labels] = -1
    np.testing.assert_array_equal(
        all_scores(vectors, labels)[:, 4], own > shares.max(axis=1)
    )
    assert 0 < (own == shares.max(axis=1)).sum() < 20  # equal votes find nothing


@pytest.mark.parametrize(
    "vectors",
    [
        np.ones((60, 3)),
        np.zeros((60, 3)),
        np.full((60, 3), np.nan),
        np.full((60, 1), 7),
    ],
    ids=["equal", "zero", "not finite", "one number"],
)
def test_equal_vectors_find_nothing(vectors):
    labels = np.repeat([0, 1, 2], 20)
    assert not all_scores(vectors, labels).any()


def test_copies_of_examples_in_two_classes_tie():
    """Each vector is there once in each of two classes."""
    vectors = np.random.default_rng(3).normal(size=(500, 40)).astype(np.float32)
    labels = np.repeat([0, 1], 500)
    found = all_scores(np.concatenate([vectors, vectors]), labels)
    assert not found[:, 0].any() and (found[:, 3] < 0.5).all()


def test_scores_do_not_depend_on_the_chunks(monkeypatch):
    vectors, labels = examples()
    whole = all_scores(vectors, labels)
    monkeypatch.setattr(retrieval, "_CHUNK_VALUES", 7 * 120)
    np.testing.assert_allclose(all_scores(vectors, labels), whole, rtol=1e-12)


def test_no_product_has_all_pairs(monkeypatch):
    """The largest array of cosines has the values of a chunk."""
    sizes = []
    keys = retrieval._keys

    def spy(*arguments):
        found = keys(*arguments)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(retrieval, "_CHUNK_VALUES", 1000)
    monkeypatch.setattr(retrieval, "_keys", spy)
    all_scores(*examples())
    assert max(sizes) <= 1000 and sum(sizes) == 120 * 120


def test_queries_are_drawn_from_many():
    labels = np.repeat(np.arange(50), 2)
    labels[0] = 50  # two are alone
    queries = choose_queries(labels, num=30, seed=1)
    assert (len(np.unique(queries.ids)), queries.num_alone) == (30, 2)
    assert not {0, 1} & {*queries.ids}
    assert queries.ids.tolist() == choose_queries(labels, 30, 1).ids.tolist()
    assert queries.ids.tolist() != choose_queries(labels, 30, 2).ids.tolist()
    vectors = np.random.default_rng(0).normal(size=(100, 4))
    every = choose_queries(labels)
    chosen = np.isin(every.ids, queries.ids)
    np.testing.assert_allclose(
        retrieval_scores(vectors, labels, queries),
        retrieval_scores(vectors, labels, every)[chosen],
        rtol=1e-12,
    )


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 1, 2, 3]])
def test_classes_of_one_example_have_no_scores(labels):
    queries = choose_queries(np.array(labels))
    assert queries.num_alone == len(labels)
    vectors = np.eye(len(labels))
    assert retrieval_scores(vectors, labels, queries).shape == (0, 5)
    assert chance(labels, queries).shape == (0, 5)
    found = estimates(retrieval_scores(vectors, labels, queries))
    assert [*found] == [*SCORES] and np.isnan([x.value for x in found.values()]).all()


def test_two_examples_of_a_class_find_each_other():
    labels = np.array([0, 0])
    queries = choose_queries(labels)
    assert retrieval_scores(np.eye(2), labels, queries).tolist() == [[1] * 5] * 2
    assert chance(labels, queries).tolist() == [[1] * 5] * 2


def test_chance_by_hand():
    """Two others of the class among four. Of the first two places they have both with
    probability 1/6, with AP 1; the first with 1/3, AP 1/2; the second, 1/3 and 1/4."""
    labels = np.array([0, 0, 0, 1, 1])
    found = chance(labels, Queries(np.array([0]), 0))[0]
    np.testing.assert_allclose(found, [1 / 2, 1, 1, 1 / 6 + 1 / 6 + 1 / 12, 1])
    # One other among four; class 0 is the most frequent.
    found = chance(labels, Queries(np.array([3]), 0))[0]
    np.testing.assert_allclose(found, [1 / 4, 1, 1, 1 / 4, 0])


def test_chance_is_the_mean_over_random_vectors():
    labels = np.repeat([0, 1, 2, 3], [20, 10, 6, 4])
    queries = choose_queries(labels)
    rng = np.random.default_rng(0)
    found = [
        retrieval_scores(rng.normal(size=(40, 30)), labels, queries).mean(axis=0)
        for _ in range(300)
    ]
    expected = chance(labels, queries).mean(axis=0)
    np.testing.assert_allclose(np.mean(found, axis=0)[:4], expected[:4], atol=0.01)


def test_intervals_are_of_the_means():
    scores = all_scores(*examples())
    found = estimates(scores, seed=5)
    for value, (mean, lower, upper) in zip(
        scores.mean(axis=0), found.values(), strict=True
    ):
        assert mean == pytest.approx(value)
        assert lower <= mean <= upper
    assert found["mAP@R"].upper - found["mAP@R"].lower > 0.01
    assert all(np.isnan(x.lower) for x in estimates(scores, num=0).values())
