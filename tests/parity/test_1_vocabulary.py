import gzip

import pytest

from embedder.data import corpus, encode
from tests.parity.rungs import compare_vocabulary


@pytest.mark.parametrize("min_count", [1, 2, 40])
def test_sequences_give_the_vocabulary_of_the_oracle(sequences, min_count):
    compare_vocabulary(corpus.sequences_corpus(sequences), sequences, min_count)


@pytest.mark.parametrize(
    "text",
    [
        b"a b\nb c c\n",
        b"\xef\xbb\xbfa b\r\n\r\n  b\tc\x0bc \n\n",
        "\u00fcber \u00fcber\u00a0a \u2028 b\u3000c b\n\u4e2d\u6587 a".encode(),
        b"one",
        b"\n\n a",
    ],
    ids=[
        "plain",
        "bom_crlf_blanks",
        "unicode_spaces",
        "no_newline",
        "leading_newlines",
    ],
)
def test_text_gives_the_vocabulary_of_the_oracle(tmp_path, text):
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    compare_vocabulary(corpus.text_corpus(path), path, 1)


@pytest.mark.parametrize("chunk_bytes", [7, 50])
@pytest.mark.parametrize("shard_tokens", [3, 100])
def test_chunks_and_shards_are_cut_as_the_oracle_cuts(
    monkeypatch, text_file, chunk_bytes, shard_tokens
):
    monkeypatch.setattr(corpus, "_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(encode, "SHARD_TOKENS", shard_tokens)
    compare_vocabulary(corpus.text_corpus(text_file), text_file, 2)


@pytest.mark.parametrize("chunk_bytes", [5, 64])
def test_a_line_longer_than_a_chunk_stays_one_sequence(
    monkeypatch, tmp_path, chunk_bytes
):
    monkeypatch.setattr(corpus, "_CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "text.txt"
    line = " ".join(f"\u00e4{i % 7}" for i in range(200))
    path.write_text(f"a b\n{line}\nc d", encoding="utf-8")
    compare_vocabulary(corpus.text_corpus(path), path, 1)
    encoded = encode.encode(corpus.text_corpus(path), 1)
    assert encoded.read(0)[1].tolist() == [2, 200, 2]


def test_real_text_gives_the_vocabulary_of_the_oracle(data_folder):
    path = data_folder / "small-text" / "lee_background.txt.gz"
    compare_vocabulary(corpus.text_corpus(path), path, 2)


def test_gzip_gives_the_vocabulary_of_the_oracle(tmp_path, text_file):
    path = tmp_path / "corpus.txt.gz"
    path.write_bytes(gzip.compress(text_file.read_bytes()))
    compare_vocabulary(corpus.text_corpus(path), path, 2)
