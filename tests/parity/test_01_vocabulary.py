import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

import legacy.vocabulary
from embedder.data import corpus, encode
from migration.parity.data import vocabulary_stage
from tests.parity.cases import assert_pass


def assert_same_vocabulary(source, min_count: int) -> None:
    """`source` is a path or a list of sequences."""
    if isinstance(source, list):
        read = corpus.sequences_corpus(source)
    else:
        read = corpus.text_corpus(source)
    text = legacy.vocabulary.read_text(source)
    encoded = encode.encode(read, min_count)
    assert_pass(vocabulary_stage(encoded, text, min_count))


@pytest.mark.parametrize("min_count", [1, 2, 40])
def test_sequences_give_the_vocabulary_of_the_oracle(sequences, min_count):
    assert_same_vocabulary(sequences, min_count)


@given(st.lists(st.lists(st.sampled_from("abcdeé中 "), max_size=9), min_size=1))
def test_any_sequences_give_the_vocabulary_of_the_oracle(sequences):
    if any(sequences):
        assert_same_vocabulary(sequences, 1)


TEXTS = {
    "plain": b"a b\nb c c\n",
    "bom_crlf_blanks": b"\xef\xbb\xbfa b\r\n\r\n  b\tc\x0bc \n\n",
    "unicode_spaces": "über über\u00a0a \u2028 b\u3000c b\n中文 a".encode(),
    "no_newline": b"one",
    "leading_newlines": b"\n\n a",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_gives_the_vocabulary_of_the_oracle(tmp_path, text):
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    assert_same_vocabulary(path, 1)


@pytest.mark.parametrize("chunk_bytes", [7, 50])
@pytest.mark.parametrize("shard_tokens", [3, 100])
def test_chunks_and_shards_are_cut_as_the_oracle_cuts(
    monkeypatch, text_file, chunk_bytes, shard_tokens
):
    monkeypatch.setattr("embedder.data.plain_text._CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", shard_tokens)
    lines = text_file.read_text().splitlines(keepends=True)
    text_file.write_text("".join(lines[:40]))  # some hundreds of chunks
    assert_same_vocabulary(text_file, 2)


def test_gzip_gives_the_vocabulary_of_the_oracle(tmp_path, text_file):
    path = tmp_path / "corpus.txt.gz"
    path.write_bytes(gzip.compress(text_file.read_bytes()))
    assert_same_vocabulary(path, 2)


def test_real_text_gives_the_vocabulary_of_the_oracle(data_folder):
    assert_same_vocabulary(data_folder / "small-text" / "lee_background.txt.gz", 2)
