"""Encoding: the vocabulary, ids, shards of whole sequences, and the cache."""

import os

import numpy as np
import pytest

from embedder.base.limits import Limit
from embedder.data.corpus import demo_corpus, sequences_corpus
from embedder.data.encode import encode, encode_cached
from embedder.data.encoded import Encoded
from embedder.data.vocabulary import NoTokensError, expected_tokens, keep_limit
from embedder.errors import InputError

SEQUENCES = [["b", "a", "b"], ["x"], [], ["a", "c", "b", "c"]]
ALL = 2**32 - 1


def shards(encoded: Encoded) -> list[tuple[list[int], list[int]]]:
    """Ids and lengths of every shard."""
    return [
        tuple(array.tolist() for array in encoded.read(shard))
        for shard in range(len(encoded.shard_tokens))
    ]


def assert_same(found: Encoded, expected: Encoded) -> None:
    assert shards(found) == shards(expected)
    assert found.vocabulary.tokens == expected.vocabulary.tokens
    assert found.vocabulary.counts.tolist() == expected.vocabulary.counts.tolist()
    assert found.raw_tokens == expected.raw_tokens


def test_keep_limit_by_hand():
    # s/f = 0.01/0.04 = 1/4: p = 1/2 + 1/4; s/f = 1: p = 1.
    found = keep_limit(np.array([4, 1, 95]), 0.01)
    assert found.dtype == np.uint32
    assert found[:2].tolist() == [3 * 2**30 - 1, ALL]
    # f = 1, s = 1/4: p = 1/2 + 1/4.
    assert keep_limit(np.array([7]), 0.25).tolist() == [3 * 2**30 - 1]
    assert expected_tokens(np.array([8]), 0.25) == 6
    for sample in (0, 1):
        assert keep_limit(np.array([99, 1]), sample).tolist() == [ALL, ALL]
    # p is far below 2**-32: the limit is 0, not -1.
    assert keep_limit(np.array([1, 1]), 1e-300).tolist() == [0, 0]


def test_the_demo_is_english_and_large_enough_to_train_on():
    encoded = encode(demo_corpus(), min_count=5)
    assert encoded.num_tokens > 50_000 and len(encoded.vocabulary) > 1000
    tokens = encode(demo_corpus(), min_count=1).vocabulary.tokens
    assert {"the", "list", "object's"} <= set(tokens)
    assert all(token == token.lower() and " " not in token for token in tokens)
    assert demo_corpus().name == demo_corpus().source == "demo"
    assert demo_corpus().manifest == demo_corpus().manifest


@pytest.mark.row("B5")
def test_shards_are_of_whole_sequences(monkeypatch, caplog):
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 4)
    encoded = encode(sequences_corpus([["a"] * n for n in (2, 2, 1, 4, 3, 1)]), 1)
    assert [lengths for _, lengths in shards(encoded)] == [[2, 2], [1], [4], [3, 1]]
    assert encoded.shard_tokens.tolist() == [4, 1, 4, 4]
    assert "is cut" not in caplog.text
    encoded = encode(sequences_corpus([["a"], ["b"] * 10, ["c"]]), 1)
    assert [lengths for _, lengths in shards(encoded)] == [[1], [4], [4], [2, 1]]
    assert "A sequence of 10 tokens is cut every 4 tokens." in caplog.text


def test_cache_and_chunks_give_what_memory_gives(tmp_path, monkeypatch, sequences):
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 1000)
    corpus = sequences_corpus([*sequences, ["a\u00a0b", "\u2028", '"', "猫"] * 2])
    expected = encode(corpus, 2)
    assert len(expected.shard_tokens) > 1
    assert_same(encode_cached(corpus, 2, tmp_path), expected)  # as it is written
    unreadable = corpus._replace(chunks=None)
    assert_same(encode_cached(unreadable, 2, tmp_path), expected)  # as it is read
    monkeypatch.setattr("embedder.data.corpus._CHUNK_TOKENS", 100)
    assert_same(encode(corpus, 2), expected)


def test_cache_has_a_folder_for_each_corpus_and_min_count(tmp_path):
    for sequences, min_count in ((SEQUENCES, 1), (SEQUENCES, 2), ([["a"]], 1)):
        encode_cached(sequences_corpus(sequences), min_count, tmp_path)
    assert len(os.listdir(tmp_path)) == 3
    with pytest.raises(NoTokensError):
        encode_cached(sequences_corpus([[]]), 1, tmp_path)
    assert len(os.listdir(tmp_path)) == 3  # nothing of a corpus that fails


def test_two_runs_may_write_the_same_cache(tmp_path, monkeypatch):
    replace = os.replace

    def other_was_first(part, folder):
        monkeypatch.undo()
        encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
        replace(part, folder)

    monkeypatch.setattr(os, "replace", other_was_first)
    encoded = encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
    assert os.replace is replace  # so another was first
    assert encoded.num_tokens == 8 and len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("name", ["shards.json", "vocabulary.parquet", "shard-*.npz"])
@pytest.mark.parametrize("damage", ["cut", "missing", "flipped"])
def test_damaged_cache_is_refused_by_name(tmp_path, name, damage):
    encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
    (path,) = tmp_path.rglob(name)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:9] if damage == "cut" else flipped)
    with pytest.raises(InputError, match=f"Cache file .*{path.name} is damaged.*: del"):
        encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path).read(0)


@pytest.mark.row("F33", "B5")
def test_memory_of_counting_is_reported_and_bounded(tmp_path, monkeypatch):
    many = [[f"token{i}" for i in range(a, a + 100)] for a in range(0, 2000, 5)]
    corpus, num_types = sequences_corpus(many), 2095
    first = encode(corpus, 1)
    assert 250 * num_types < first.counting_bytes < 300 * num_types
    assert encode_cached(corpus, 1, tmp_path).counting_bytes == first.counting_bytes
    assert encode_cached(corpus, 1, tmp_path).counting_bytes == 0  # found there
    limit = Limit(200_000, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    message = (
        "The corpus has [0-9]+ different tokens or more, and counting them takes "
        r"[0-9.]+ MiB, more than the 0.2 MiB of its container \(/sys/.*\): give a text"
    )
    for encoding in (
        lambda: encode(corpus, 1),
        lambda: encode_cached(corpus, 1, tmp_path / "new"),
    ):
        with pytest.raises(InputError, match=message):
            encoding()
    assert not list(tmp_path.glob("new/*"))
