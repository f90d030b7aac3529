"""n-grams, their hashes and the vectors that are made of them."""

import random
from typing import Any

import numpy as np
import pytest

from embedder.vectors.subwords import (
    NgramRule,
    Ngrams,
    composed,
    first_rows,
    ngram_buckets,
    subwords_of,
)

RULE = NgramRule(3, 6, 2000)
LETTERS = "abcdefghij\u00df\u00e9\u0436\u044f\u4e2d\u6587\U0001f600<>"
_draw = random.Random(0)
WORDS = [
    "".join(_draw.choice(LETTERS) for _ in range(_draw.randint(1, 12)))
    for _ in range(300)
]


def hash_ngram(ngram: str) -> int:
    """fastText's hash of an n-gram, byte by byte."""
    value = 2166136261
    for byte in ngram.encode():
        signed = byte - 256 if byte >= 128 else byte
        value = (value ^ signed & 0xFFFFFFFF) * 16777619 & 0xFFFFFFFF
    return value


def test_a_vector_is_the_mean_of_its_rows_by_their_number():
    words = ["aaaa", "</s>", "b"]
    subwords = subwords_of(words, NgramRule(1, 2, 10**6))
    table = np.random.default_rng(0).normal(size=(subwords.num_rows, 4))
    of_bucket = {b: 3 + i for i, b in enumerate(subwords.buckets.tolist())}
    ngrams = [["<a", "a", "aa", "a", "aa", "a", "aa", "a", "a>"], [], ["<b", "b", "b>"]]
    for row, (vector, each) in enumerate(
        zip(composed(subwords, table), ngrams, strict=True)
    ):
        rows = [row, *(of_bucket[hash_ngram(x) % 10**6] for x in each)]
        np.testing.assert_allclose(vector, table[rows].mean(axis=0), rtol=1e-12)


def test_unknown_words_have_the_rows_of_their_buckets():
    subwords = subwords_of(WORDS, RULE)
    rows = first_rows(subwords.buckets, 8, 3, "float32")
    ngrams = Ngrams(RULE, subwords.buckets[::2], rows[::2] + 1, seed=3)
    buckets, _ = ngram_buckets(["unknown"], RULE)
    whole = first_rows(np.arange(2000), 8, 3, "float32")
    whole[subwords.buckets[::2]] += 1
    expected = whole[buckets].mean(axis=0)
    np.testing.assert_allclose(ngrams.vector("unknown"), expected, rtol=1e-6)
    assert not ngrams.vector("").any()


def test_rows_start_uniform_by_seed_and_bucket():
    rows = first_rows(np.arange(5000), 20, 1, "float64")
    single = first_rows(np.arange(5000), 20, 1, "float32")
    np.testing.assert_allclose(rows, single, rtol=1e-6, atol=1e-9)
    assert -0.5 / 20 <= rows.min() < -0.499 / 20 and 0.499 / 20 < rows.max() < 0.5 / 20
    assert abs(rows.mean()) < 3e-4 / 20
    assert not (rows == first_rows(np.arange(5000), 20, 2, "float64")).any(axis=1).any()
    assert np.abs(np.corrcoef(rows.T) - np.eye(20)).max() < 0.08


@pytest.mark.parametrize("bounds", [(3, 6), (1, 3), (5, 9)])
def test_buckets_are_those_of_gensim(bounds):
    """The end of a sentence has none."""
    fasttext: Any = pytest.importorskip("gensim.models.fasttext")
    each = [fasttext.compute_ngrams_bytes(word, *bounds) for word in WORDS]
    buckets, lengths = ngram_buckets(["</s>", *WORDS], NgramRule(*bounds, 2000))
    assert buckets.tolist() == [
        fasttext.ft_hash_bytes(x) % 2000 for y in each for x in y
    ]
    assert lengths.tolist() == [0, *map(len, each)]


def test_hashes_are_known_ones():
    """FNV-1a of ASCII; of other bytes fastText differs from it, by their sign."""
    assert hash_ngram("a") == 0xE40C292C
    assert hash_ngram("foobar") == 0xBF9CF968
    assert hash_ngram("\u00e9") == 0x3CFA68C1  # FNV-1a has 0x1E9DE8C1
    buckets, _ = ngram_buckets(["ab"], NgramRule(3, 4, 2**32))
    assert buckets.tolist() == [*map(hash_ngram, ["<ab", "<ab>", "ab>"])]
