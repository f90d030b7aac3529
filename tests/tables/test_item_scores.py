"""Scores of next items while a training runs, and their baselines, worked by hand."""

import logging

import numpy as np
import pytest

from embedder.config import Config, with_options
from embedder.tables import measures as module
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.encoded import Encoded
from embedder.tables.measures import Measures, measures
from embedder.tables.split import sequence_hashes

TRAINED = ["b c"] + ["b d"] * 2 + ["c b"] * 6 + ["c a e"] * 8 + ["e d"] * 17
HELD_OUT = "a b c"  # three times
TOKENS = "abcde"


def corpus() -> tuple[Encoded, float]:
    """The sessions with those to hold out where the hash wants them, and the share."""
    hashes = sequence_hashes(0, len(TRAINED) + 3)
    order = np.argsort(hashes)
    sessions = [""] * len(hashes)
    for position, session in zip(order, [HELD_OUT] * 3 + TRAINED, strict=True):
        sessions[position] = session
    share = (int(hashes[order[2]]) + 1) / 2**32
    return encode(sequences_corpus([x.split() for x in sessions]), 1), share


def score(*, of_c: float) -> tuple[dict[str, float | None], Measures]:
    """The scores of a model for which d is 1, e 0, c `of_c`, whatever the query is."""
    encoded, share = corpus()
    options = with_options(Config(), holdout=share, best_by="next-item").tables
    found = measures(options, encoded)
    values = {"a": 5.0, "b": 5.0, "c": of_c, "d": 1.0, "e": 0.0}
    rows = [values[token] for token in encoded.vocabulary.tokens]
    tables = {"input": np.ones((5, 1)), "output": np.array(rows)[:, np.newaxis]}
    return dict(zip(found.names, found.means([tables]), strict=True)), found


@pytest.mark.parametrize(
    ("of_c", "ndcg", "mrr"),
    [(2.0, 1, 1), (0.5, 1 / np.log2(3), 1 / 2), (-1.0, 1 / 2, 1 / 3)],
)
def test_the_rank_of_the_last_item_by_hand(of_c, ndcg, mrr):
    """a and b are in the query: c is first, second or third of c, d and e."""
    found, each = score(of_c=of_c)
    assert each.best == "hr@10"
    assert [found["hr@10"], found["ndcg@10"], found["mrr"]] == [1, ndcg, mrr]


def test_baselines_of_next_items_by_hand(caplog):
    """By counts, the held-out c included: e 25, d 19, c 18. After b came d twice and c
    once. In sessions with b was c 7 times and d twice, with a c as often as e."""
    caplog.set_level(logging.INFO)
    found = score(of_c=2.0)[1].baselines
    ranks = {"popularity": 3, "followed most often": 2, "same session": 1}
    for model, rank in ranks.items():
        assert found[f"hr@10 by {model}"] == 1
        assert found[f"ndcg@10 by {model}"] == pytest.approx(1 / np.log2(1 + rank))
        assert found[f"mrr by {model}"] == pytest.approx(1 / rank)
    assert "mrr 0.3333 (popularity)" in caplog.text


def test_a_long_count_is_left_out_with_a_line(monkeypatch, caplog):
    """8 sessions of 3 items, 26 of 2; three queries a b for 5 items."""
    caplog.set_level(logging.INFO)
    num = 8 * 3**2 + 26 * 2**2 + 6 * 5
    monkeypatch.setattr(module, "_MOST_PRODUCTS", num)
    assert "mrr by same session" in score(of_c=2.0)[1].baselines
    assert "is left out" not in caplog.text
    monkeypatch.setattr(module, "_MOST_PRODUCTS", num - 1)
    found = score(of_c=2.0)[1].baselines
    assert "mrr by same session" not in found and "mrr by followed most often" in found
    assert 'baseline "same session" is left out' in caplog.text
