"""The bench of the next item: who trains on what."""

import itertools

import numpy as np

from bench import items
from embedder.tables import split
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode

SESSIONS = [[f"a{i}", f"b{i}", f"c{i % 7}"] for i in range(200)]


def test_other_programs_train_on_the_sessions_that_are_not_held_out():
    encoded = encode(sequences_corpus(SESSIONS), min_count=1)
    trained = {tuple(each) for each in items.training_sessions(encoded)}
    held_out = split.sequences(encoded, items.HOLDOUT)
    tokens = np.array(encoded.vocabulary.tokens)
    ends = np.cumsum(held_out.lengths)[:-1]
    tested = {tuple(tokens[ids]) for ids in np.split(held_out.ids, ends)}
    assert tested and trained and not trained & tested
    assert trained | tested == {*map(tuple, SESSIONS)}


def test_counts_are_those_of_a_loop():
    encoded = encode(sequences_corpus(SESSIONS), min_count=1)
    tokens = encoded.vocabulary.tokens
    trained = items.training_sessions(encoded)
    ids = encoded.vocabulary.ids
    given = [[*trained[0][:2], trained[1][2]], [trained[2][0], trained[2][1]]]
    flat = np.array([ids[key] for session in given for key in session], np.int32)
    found = items.counted(encoded, split.Sequences(flat, np.array([3, 2])))
    for name, wanted in zip(found, (same_session, followed), strict=True):
        ranks = []
        for *before, target in given:
            scores = [
                -1 if token in before else wanted(trained, before, token)
                for token in tokens
            ]
            own = scores[ids[target]]
            ranks.append(len(tokens) - sum(score < own for score in scores))
        hits = [rank <= 10 for rank in ranks]
        gains = [hit / np.log2(1 + r) for hit, r in zip(hits, ranks, strict=True)]
        expected = [np.mean(hits), np.mean(gains), np.mean([1 / r for r in ranks])]
        np.testing.assert_allclose(found[name], expected)


def same_session(sessions, before, token):
    shares = []
    for item in before:
        others = [x for session in sessions if item in session for x in session]
        others = [x for x in others if x != item]
        shares.append(others.count(token) / len(others))
    return np.mean(shares)


def followed(sessions, before, token):
    pairs = [pair for session in sessions for pair in itertools.pairwise(session)]
    return pairs.count((before[-1], token))


def test_a_row_for_each_baseline_and_for_each_program():
    samples = [
        {"data": "d", "program": program, "seed": seed, "seconds": 1.0, "cases": 9}
        | {"scores": [0.5, 0.4, seed / 10]}
        for program in ("a", "b")
        for seed in (1, 2, 3)
    ]
    baselines = {"d": {"popular": [0.1, 0.2, 0.3], "counting": [0.4, 0.5, 0.6]}}
    scores = ["0.500", "0.400", "0.200 (0.100 to 0.300)", "1.00"]
    assert items.table({"samples": samples, "baselines": baselines}).rows == [
        ["d", "counting", "0.400", "0.500", "0.600", ""],
        ["d", "popular", "0.100", "0.200", "0.300", ""],
        ["d", "a", *scores],
        ["d", "b", *scores],
    ]
