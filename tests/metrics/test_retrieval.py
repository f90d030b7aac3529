"""Scores of retrieval: by hand and by loops."""

import numpy as np
import pytest

from embedder.metrics import retrieval
from embedder.metrics.retrieval import (
    CUTOFFS,
    NEIGHBORS,
    Queries,
    chance,
    choose_queries,
    retrieval_scores,
)
from embedder.metrics.scores import measured


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


@pytest.mark.parametrize("num_classes", [2, 4, 40])
def test_scores_are_those_of_loops(num_classes):
    vectors, labels = examples(num_classes=num_classes)
    labels = np.unique(labels, return_inverse=True)[1]
    queries = choose_queries(labels)
    found = retrieval_scores(vectors, labels, queries)
    expected = [by_loops(vectors, labels, i) for i in queries.ids]
    np.testing.assert_allclose(found, np.array(expected, float), rtol=1e-12)


@pytest.mark.parametrize("value", [1, 0, np.nan])
@pytest.mark.parametrize("size", [1, 3])
def test_equal_vectors_find_nothing(value, size):
    assert not all_scores(np.full((60, size), value), np.repeat([0, 1, 2], 20)).any()


def test_copies_of_examples_in_two_classes_tie():
    """Each vector is there once in each of two classes."""
    vectors = np.random.default_rng(3).normal(size=(500, 40)).astype(np.float32)
    labels = np.repeat([0, 1], 500)
    found = all_scores(np.concatenate([vectors, vectors]), labels)
    assert not found[:, 0].any() and (found[:, 3] < 0.5).all()


def test_no_product_has_all_pairs(monkeypatch):
    """The largest array of cosines has the values of a chunk; the scores are those."""
    sizes, whole = [], all_scores(*examples())
    keys = retrieval._keys

    def spy(*arguments):
        found = keys(*arguments)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(retrieval, "_CHUNK_VALUES", 1000)
    monkeypatch.setattr(retrieval, "_keys", spy)
    np.testing.assert_allclose(all_scores(*examples()), whole, rtol=1e-12)
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
    found = measured("retrieval", (labels, queries), vectors)
    assert len(found) == 5 and np.isnan([x.value for x in found.values()]).all()


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


def test_intervals_are_of_the_means():
    vectors, labels = examples()
    scores, data = all_scores(vectors, labels), (labels, choose_queries(labels))
    found = measured("retrieval", data, vectors, seed=5)
    for value, (mean, lower, upper) in zip(
        scores.mean(axis=0), found.values(), strict=True
    ):
        assert mean == pytest.approx(value)
        assert lower <= mean <= upper
    assert found["mAP@R"].upper - found["mAP@R"].lower > 0.01
    assert all(
        np.isnan(x.lower) for x in measured("retrieval", data, vectors, 0).values()
    )
