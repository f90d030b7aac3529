"""Encoding: ids, shards of whole sequences, and the cache."""

import os

import numpy as np
import pytest

from embedder.limits import Limit
from embedder.tables.corpus import sequences_corpus, text_corpus
from embedder.tables.encode import BaseVocabulary, encode, encode_cached
from embedder.tables.encoded import Encoded
from embedder.tables.vocabulary import NoTokensError, Vocabulary

SEQUENCES = [["b", "a", "b"], ["x"], [], ["a", "c", "b", "c"]]


def shards(encoded: Encoded) -> list[tuple[list[int], list[int]]]:
    """Ids and lengths of every shard."""
    return [
        tuple(array.tolist() for array in encoded.read(shard))
        for shard in range(len(encoded.shard_tokens))
    ]


def test_encode_by_hand():
    encoded = encode(sequences_corpus(SEQUENCES), min_count=2)
    assert encoded.vocabulary.tokens == ["b", "a", "c"]
    assert encoded.vocabulary.counts.tolist() == [3, 2, 2]
    assert shards(encoded) == [([0, 1, 0, 1, 2, 0, 2], [3, 4])]
    assert (encoded.num_tokens, encoded.raw_tokens) == (7, 8)


def test_encode_gives_int32():
    ids, lengths = encode(sequences_corpus(SEQUENCES), 1).read(0)
    assert ids.dtype == lengths.dtype == np.int32


def test_encode_with_drops_unknown_tokens():
    vocabulary = Vocabulary(["c", "a"], np.array([9, 9]))
    encoded = encode(sequences_corpus(SEQUENCES), 1, BaseVocabulary(vocabulary))
    assert shards(encoded) == [([1, 1, 0, 0], [1, 3])]
    assert encoded.raw_tokens == 8


def test_encode_with_nothing_known_has_no_shards():
    vocabulary = Vocabulary(["z"], np.array([1]))
    encoded = encode(sequences_corpus(SEQUENCES), 1, BaseVocabulary(vocabulary))
    assert shards(encoded) == [] and encoded.num_tokens == 0


@pytest.mark.row("B5")
def test_shards_are_of_whole_sequences(monkeypatch):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 4)
    encoded = encode(sequences_corpus([["a"] * n for n in (2, 2, 1, 4, 3, 1)]), 1)
    assert [lengths for _, lengths in shards(encoded)] == [[2, 2], [1], [4], [3, 1]]
    assert encoded.shard_tokens.tolist() == [4, 1, 4, 4]


def test_sequence_longer_than_a_shard_is_cut_and_said_so(monkeypatch, caplog):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 4)
    encoded = encode(sequences_corpus([["a"], ["b"] * 10, ["c"]]), 1)
    assert [lengths for _, lengths in shards(encoded)] == [[1], [4], [4], [2, 1]]
    assert "A sequence of 10 tokens is cut every 4 tokens." in caplog.text


@pytest.mark.parametrize("chunk_bytes", [4, 9, 10**6])
def test_line_over_many_chunks_is_cut_as_one_sequence(
    tmp_path, monkeypatch, chunk_bytes
):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 4)
    monkeypatch.setattr("embedder.tables.plain_text._CHUNK_BYTES", chunk_bytes)
    (tmp_path / "text.txt").write_text("a b c d e f g h i j\nk l")
    encoded = encode(text_corpus(tmp_path / "text.txt"), 1)
    assert [lengths for _, lengths in shards(encoded)] == [[4], [4], [2, 2]]
    assert sum((ids for ids, _ in shards(encoded)), []) == list(range(12))


def test_ids_do_not_depend_on_chunks(monkeypatch, sequences):
    whole = encode(sequences_corpus(sequences), 2)
    monkeypatch.setattr("embedder.tables.corpus._CHUNK_TOKENS", 100)
    chunks = encode(sequences_corpus(sequences), 2)
    assert chunks.vocabulary.tokens == whole.vocabulary.tokens
    assert shards(chunks) == shards(whole)


def test_cache_gives_what_memory_gives(tmp_path, monkeypatch, sequences):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    expected = encode(sequences_corpus(sequences), 2)
    cached = encode_cached(sequences_corpus(sequences), 2, tmp_path)
    assert shards(cached) == shards(expected) and len(shards(cached)) > 1
    assert cached.vocabulary.tokens == expected.vocabulary.tokens
    assert cached.vocabulary.counts.tolist() == expected.vocabulary.counts.tolist()
    assert cached.raw_tokens == expected.raw_tokens


def test_cache_is_found_again(tmp_path):
    first = encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
    unreadable = sequences_corpus(SEQUENCES)._replace(chunks=None)
    assert shards(encode_cached(unreadable, 1, tmp_path)) == shards(first)


def test_cache_has_a_folder_for_each_corpus_and_min_count(tmp_path):
    for sequences, min_count in ((SEQUENCES, 1), (SEQUENCES, 2), ([["a"]], 1)):
        encode_cached(sequences_corpus(sequences), min_count, tmp_path)
    assert len(os.listdir(tmp_path)) == 3


def test_cache_keeps_nothing_of_a_corpus_that_fails(tmp_path):
    with pytest.raises(NoTokensError):
        encode_cached(sequences_corpus([[]]), 1, tmp_path)
    assert os.listdir(tmp_path) == []


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


@pytest.mark.parametrize(
    "name", ["shards.json", "vocabulary.parquet", "shard-00000.npz"]
)
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_damaged_cache_is_refused_by_name(tmp_path, name, damage):
    encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
    (path,) = tmp_path.rglob(name)
    path.write_bytes(path.read_bytes()[:9]) if damage == "cut" else path.unlink()
    with pytest.raises(ValueError, match=f"Cache file .*{name} is damaged.*: delete"):
        encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)


def test_shard_with_a_flipped_bit_is_refused_when_it_is_read(tmp_path):
    encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
    (path,) = tmp_path.rglob("shard-00000.npz")
    data = bytearray(path.read_bytes())
    data[data.index(b"\n", 60) + 1] ^= 1  # the first id, after the header
    path.write_bytes(data)
    encoded = encode_cached(sequences_corpus(SEQUENCES), 1, tmp_path)
    with pytest.raises(ValueError, match="Cache file .*shard-00000.npz is damaged"):
        encoded.read(0)


@pytest.fixture
def little_memory(monkeypatch):
    """A limit of 200 kB."""
    limit = Limit(200_000, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)


MANY = [[f"token{i}" for i in range(start, start + 100)] for start in range(0, 2000, 5)]


@pytest.mark.row("F33", "B5")
@pytest.mark.parametrize("is_cached", [False, True])
def test_more_different_tokens_than_memory_are_refused_while_counting(
    tmp_path, little_memory, is_cached
):
    corpus = sequences_corpus(MANY)
    message = (
        "The corpus has [0-9]+ different tokens or more, and counting them takes "
        r"[0-9.]+ MiB, more than the 0.2 MiB of its container \(/sys/.*\): give a text"
    )
    with pytest.raises(ValueError, match=message):
        if is_cached:
            encode_cached(corpus, 1, tmp_path / "cache")
        else:
            encode(corpus, 1)
    assert not list(tmp_path.glob("cache/*"))


@pytest.mark.row("F33")
def test_memory_of_counting_is_reported_where_it_was_done(tmp_path):
    corpus = sequences_corpus(MANY)
    num_types = len({token for sequence in MANY for token in sequence})
    first = encode(corpus, 1)
    assert 250 * num_types < first.counting_bytes < 300 * num_types
    assert encode_cached(corpus, 1, tmp_path).counting_bytes == first.counting_bytes
    assert encode_cached(corpus, 1, tmp_path).counting_bytes == 0  # found there
