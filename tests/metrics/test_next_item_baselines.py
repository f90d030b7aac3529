"""Rules of pairs, and nearest sessions: by hand, and by loops over random sessions."""

import itertools
from math import exp, log, sqrt

import numpy as np
import pytest
from scipy import sparse

from embedder.metrics import near_sessions
from embedder.metrics import next_item_baselines as module
from embedder.metrics.near_sessions import STAN, VSKNN, Sessions
from embedder.metrics.next_item_baselines import (
    PairRules,
    SecondOrder,
    association_rules,
    count_pairs,
    markov,
    sequential_rules,
)
from embedder.metrics.ranking import by_popularity, every_item, last_items, target_ranks

NUM = 12
Lists = list[list[int]]


def flat(lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(lists).astype(np.int32), np.array([len(x) for x in lists])


def random_lists(num: int, longest: int, seed: int) -> Lists:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, longest, size=num)
    return [rng.integers(NUM - seed, size=size).tolist() for size in sizes]


TRAINING, QUERIES = random_lists(80, 15, 1), random_lists(30, 7, 0)
"""No session has the last item."""


# --- rules of pairs


def loop_rules(steps: int, decay: float, both: bool = False) -> np.ndarray:
    counts = np.zeros((NUM, NUM))
    for ids in TRAINING:
        for i, j in itertools.combinations(range(len(ids)), 2):
            if j - i <= steps:
                counts[ids[i], ids[j]] += 1 / (j - i)
    counts = counts + counts.T if both else counts
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-30)
    found = []
    for ids in QUERIES:
        used = ids if decay else ids[-1:]
        weights = [decay**age if decay else 1 for age in range(len(used))][::-1]
        found.append(np.average(shares[used], axis=0, weights=weights))
    return np.array(found)


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("at_once", [7, 2**20])
def test_rules_are_those_of_loops(monkeypatch, at_once, decay):
    monkeypatch.setattr(module, "_COUNTED_AT_ONCE", at_once)
    for of, steps, both in (
        *((markov, 1, False), (sequential_rules, 10, False)),
        (association_rules, 10, True),
    ):
        found = of(flat(TRAINING), NUM, decay)(flat(QUERIES))
        assert found.dtype == np.float32 and found.shape == (len(QUERIES), NUM)
        expected = loop_rules(steps, decay, both)
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6, atol=1e-7)


def largest(row: np.ndarray, num: int) -> np.ndarray:
    kept = sorted(range(len(row)), key=lambda i: -row[i])[:num]
    return np.where(np.isin(np.arange(len(row)), kept), row, 0)


@pytest.mark.parametrize(("near", "kept"), [(3, 4), (2, 99), (99, 99)])
def test_second_order_is_that_of_loops(near, kept):
    counts = count_pairs(flat(TRAINING), NUM)
    counts = sparse.csr_array(counts + counts.T)
    dense = counts.toarray().astype(np.float64)
    scale = np.sqrt(np.maximum(dense.sum(axis=1), 1e-30))
    steps = np.array([largest(row, near) for row in dense / np.outer(scale, scale)])
    rows = np.array([largest(row, kept) for row in steps @ steps])
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-30)
    scorer = SecondOrder(counts, 0.5, None, near, kept)
    for _ in range(3):  # from the second on all rows are kept
        for query in [*QUERIES, [NUM - 1]]:
            weights = [0.5**age for age in range(len(query))][::-1]
            expected = np.average(shares[query], axis=0, weights=weights)
            (found,) = scorer(flat([query])).toarray()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_second_order_finds_what_has_never_met():
    """Item 0 and item 2 are both beside item 1 alone."""
    training = flat([[0, 1], [2, 1], [1, 3]])
    counts = association_rules(training, 4).counts
    (found,) = SecondOrder(counts, 0.5)(flat([[0]])).toarray()
    np.testing.assert_allclose(found, [1 / 3, 0, 1 / 3, 1 / 3], rtol=1e-6)
    (found,) = SecondOrder(counts, 0.5, num_kept=2)(flat([[0]])).toarray()
    assert sorted(found.tolist()) == [0, 0, 0.5, 0.5]


def test_two_steps_whose_product_is_too_small_are_none():
    counts = np.full((NUM, NUM), 1e-30, np.float32)
    np.fill_diagonal(counts, 1)
    scorer = SecondOrder(sparse.csr_array(counts), 0.5)
    (found,) = scorer(flat([[NUM - 1]])).toarray()  # which has others before itself
    np.testing.assert_allclose(found, [*[2e-30] * (NUM - 1), 1], rtol=1e-5)


def test_counts_can_be_memory_mapped(tmp_path):
    counts, parts = count_pairs(flat(TRAINING), NUM), []
    assert counts.dtype == np.float32 and counts.has_canonical_format
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{name}.npy", getattr(counts, name))
        parts.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    mapped = sparse.csr_array(tuple(parts), shape=counts.shape)
    expected = PairRules(counts, 0.5)(flat(QUERIES)).toarray()
    found = PairRules(mapped, 0.5)(flat(QUERIES)).toarray()
    np.testing.assert_array_equal(found, expected)


# --- nearest sessions


def loop_nearest(
    query: list[int], k: int, sample: int, similarity
) -> list[tuple[np.float32, list[int]]]:
    """The nearest with their similarities; of equal ones the newest."""
    near = [(n, x) for n, x in enumerate(TRAINING) if {*x} & {*query}][-sample:]
    found = [(np.float32(similarity(n, x)), n, x) for n, x in near]
    return [(each, x) for each, _, x in sorted(found)[-k:]]


def inverse_frequency(item: int, idf: float) -> float:
    return 1 + idf * log(len(TRAINING) / sum(TRAINING, []).count(item))


def loop_vsknn(query: list[int], k: int, sample: int, idf: float) -> list[float]:
    weight = {item: n / len(query) for n, item in enumerate(query, 1)}
    scores = [0.0] * NUM

    def shared(n: int, session: list[int]) -> float:
        return sum(weight[i] for i in weight if i in session) / len(weight)

    for similarity, session in loop_nearest(query, k, sample, shared):
        step = next(n for n, i in enumerate(reversed(query), 1) if i in session)
        for item in {*session}:
            scores[item] += similarity / step * inverse_frequency(item, idf)
    return scores


def loop_stan(
    query: list[int], k: int, sample: int, settings: tuple[float, ...]
) -> list[float]:
    idf, of_query, of_session, of_item = settings
    weight = {i: exp((n + 1 - len(query)) / of_query) for n, i in enumerate(query)}
    norm = sqrt(sum(x * x for x in weight.values()))

    def cosine(n: int, session: list[int]) -> float:
        dot = sum(weight[i] for i in weight if i in session)
        newer = len(TRAINING) - 1 - n
        age = exp(-newer / of_session) if of_session else 1
        return age * dot / norm / sqrt(len({*session}))

    scores = [0.0] * NUM
    for similarity, session in loop_nearest(query, k, sample, cosine):
        last = {item: n for n, item in enumerate(session)}
        shared = max(n for n, item in enumerate(session) if item in query)
        for item in last:
            by_distance = exp(-abs(last[item] - shared) / of_item)
            scores[item] += similarity * by_distance * inverse_frequency(item, idf)
    return scores


@pytest.mark.parametrize(("k", "sample"), [(100, 1000), (5, 20), (7, 30)])
def test_nearest_sessions_are_those_of_loops(k, sample):
    sessions = Sessions.fit(flat(TRAINING), NUM)

    def compare(model, by_loop, settings) -> None:
        found = model(flat(QUERIES))
        assert found.dtype == np.float32
        expected = [by_loop(x, k, sample, settings) for x in QUERIES]
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6, atol=1e-6)

    for idf in (0.0, 2.0):
        compare(VSKNN(sessions, k, sample, idf), loop_vsknn, idf)
    for settings in ((0.0, 1.02, 0.0, 2.05), (2.0, 2.5, 10.0, 5.0)):
        compare(STAN(sessions, k, sample, *settings), loop_stan, settings)
    if k == 100:
        for with_ages, scale in ((True, len(TRAINING) / 2), (False, 0.0)):
            model = STAN.of_mixture(sessions, with_ages=with_ages)
            compare(model, loop_stan, (1.0, 1.02, scale, 2.05))


def test_without_evidence_all_scores_are_0():
    unknown, none = flat([[NUM - 1], [NUM - 1] * 2]), (np.empty(0, int),) * 2
    for training in (flat(TRAINING), none):
        for of in (sequential_rules, VSKNN.fit, STAN.fit):
            found = of(training, NUM)(unknown)
            assert found.shape == (2, NUM) and found.nnz == 0


def test_only_the_newest_sessions_are_kept(monkeypatch):
    monkeypatch.setattr(near_sessions, "NEWEST_SESSIONS", 30)
    found = STAN.fit(flat(TRAINING), NUM)(flat(QUERIES)).toarray()
    expected = STAN.fit(flat(TRAINING[-30:]), NUM)(flat(QUERIES)).toarray()
    np.testing.assert_array_equal(found, expected)


# --- ranks


@pytest.mark.parametrize("seen", ["excluded", "included"])
@pytest.mark.parametrize("of", [last_items, every_item])
def test_ranks_by_sparse_scores_are_those_by_dense_ones(seen, of):
    cases, training = of(flat(QUERIES * 3), seen), flat(TRAINING)
    for model in (markov(training, NUM), VSKNN.fit(training, NUM)):
        found, num = target_ranks(model, cases, NUM)
        dense, _ = target_ranks(lambda x, m=model: m(x).toarray(), cases, NUM)
        np.testing.assert_array_equal(found, dense)
        assert (num == 1).all() and found.max() >= 9  # also of zeros


def test_every_item_is_a_case_once():
    given = flat([[1, 2, 1, 3], [4], [5, 5]])
    found = every_item(given, "included")
    queries = np.split(found.queries[0], np.cumsum(found.queries[1])[:-1])
    assert [x.tolist() for x in queries] == [[1], [1, 2], [1, 2, 1], [5]]
    assert found.targets[0].tolist() == [2, 1, 3, 5]
    new = every_item(given, "excluded")
    assert new.targets[0].tolist() == [2, 3] and new.queries[0].tolist() == [1, 1, 2, 1]
    ranks, _ = target_ranks(by_popularity(np.arange(6)), found, 6)
    assert ranks.tolist() == [4, 5, 3, 1]
