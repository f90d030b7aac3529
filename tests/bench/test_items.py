"""The bench of the next item: who trains on what."""

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


def test_a_row_for_the_most_popular_items_and_for_each_program():
    samples = [
        {"data": "d", "program": program, "seed": seed, "seconds": 1.0, "cases": 9}
        | {"scores": [0.5, 0.4, seed / 10], "popular": [0.1, 0.2, 0.3]}
        for program in ("a", "b")
        for seed in (1, 2, 3)
    ]
    scores = ["0.500", "0.400", "0.200 (0.100 to 0.300)", "1.00"]
    assert items.table({"samples": samples}).rows == [
        ["d", "the most popular items", "0.100", "0.200", "0.300", ""],
        ["d", "a", *scores],
        ["d", "b", *scores],
    ]
