"""Text that is not quite text: refused, or read with U+FFFD in its place."""

import gzip
from pathlib import Path

import pytest

from embedder.cli import main
from embedder.tables import corpus
from embedder.tables.corpus import text_corpus
from embedder.vectors.export import read_vectors
from legacy.vocabulary import read_text
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]
BAD = [
    (b"a \xff b", "a \ufffd b"),
    (b"a\0b c", "a\ufffdb c"),
    (b"\xe2\x82", "\ufffd"),
    (b"a \xe2\x82\na", "a \ufffd\na"),
    (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    (b"\xef\xbb\xbfa\xc0\xafb", "a\ufffd\ufffdb"),
    (b"\x80" * 9, "\ufffd" * 9),
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def tokens(path: str, errors: str) -> list[list[str]]:
    """The sequences of a text; a chunk may end amid one."""
    sequences, is_open = [], False
    for chunk in text_corpus(path, errors).chunks():
        left = chunk.tokens.to_list()
        for length in chunk.lengths.tolist():
            head, left = left[:length], left[length:]
            if is_open:
                sequences[-1] += head
            else:
                sequences.append(head)
            is_open = False
        is_open = chunk.is_open
    return [sequence for sequence in sequences if sequence]


@pytest.mark.row("B4")
@pytest.mark.parametrize("chunk_bytes", [3, 4, 5, 2**20])
@pytest.mark.parametrize(("data", "expected"), BAD)
def test_what_is_not_utf8_is_replaced_however_it_is_cut(
    monkeypatch, data, expected, chunk_bytes
):
    monkeypatch.setattr(corpus, "_CHUNK_BYTES", chunk_bytes)
    Path("text.txt").write_bytes(data)
    Path("text.txt.gz").write_bytes(gzip.compress(data))
    lines = [line.split() for line in expected.split("\n")]
    for name in ("text.txt", "text.txt.gz"):
        assert tokens(name, "replace") == [line for line in lines if line]


@pytest.mark.row("B4")
@pytest.mark.parametrize(("data", "expected"), BAD)
def test_it_is_refused_unless_that_is_asked_for(capsys, data, expected):
    Path("text.txt").write_bytes(data + b"\nx y\n")
    command = ["train", "text.txt", "--workdir", "run", *FAST]
    assert main(command) == 2
    assert "text.txt is not " in error_line(capsys)
    assert not Path("run").exists()
    assert main([*command, "--unicode-errors", "replace"]) == 0
    count = expected.count("\ufffd")
    assert f"text.txt: U+FFFD stands in {count} places." in capsys.readouterr().err
    keys = read_vectors("run/vectors.safetensors").keys
    assert {*keys} == {*expected.split(), "x", "y"}


@pytest.mark.row("B4")
@pytest.mark.parametrize(
    "data",
    [b"a b\r\nc\r\n", b"\xef\xbb\xbfa b\nc", "a\u2028b\u0085c\xa0d".encode(), b"a\n"],
    ids=["CRLF", "byte order mark", "Unicode spaces", "final newline"],
)
def test_good_text_is_the_same_in_both_ways_and_for_the_oracle(data):
    Path("text.txt").write_bytes(data)
    text = read_text("text.txt")
    flat = iter(text.types[i] for i in text.ids)
    oracle = [[next(flat) for _ in range(length)] for length in text.lengths]
    assert tokens("text.txt", "strict") == tokens("text.txt", "replace") == oracle


def test_the_cache_of_one_way_is_not_that_of_the_other():
    Path("text.txt").write_text("a b\n" * 9)
    for errors in ("strict", "replace"):
        command = ["train", "text.txt", "--workdir", errors, "--cache", "cache"]
        assert main([*command, *FAST, "--unicode-errors", errors]) == 0
    assert len(list(Path("cache").iterdir())) == 2
