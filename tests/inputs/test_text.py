"""Text that is not quite text: refused, or read with U+FFFD in its place."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer, Vectors, read_vectors, write_vectors
from embedder.cli.main import main
from embedder.data import plain_text
from embedder.data.corpus import text_corpus
from embedder.vectors.word2vec import MAX_TOKEN_BYTES
from tests.commands import error_line
from tests.data.test_corpus import read

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "0"]
BAD = [
    (b"a \xff b", "a \ufffd b"),
    (b"a\0b c", "a\ufffdb c"),
    (b"\xe2\x82", "\ufffd"),
    (b"a \xe2\x82\na", "a \ufffd\na"),
    (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    (b"\xef\xbb\xbfa\xc0\xafb", "a\ufffd\ufffdb"),
    (b"\x80" * 9, "\ufffd" * 9),
]


COMMAND = ["train", "text.txt", "--workdir", "run"]
pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.row("B4")
@pytest.mark.parametrize("chunk_bytes", [3, 4, 5, 2**20])
@pytest.mark.parametrize(("data", "expected"), BAD)
def test_what_is_not_utf8_is_replaced_however_it_is_cut(
    monkeypatch, data, expected, chunk_bytes
):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", chunk_bytes)
    Path("text.txt").write_bytes(data)
    Path("text.txt.gz").write_bytes(gzip.compress(data))
    lines = [line.split() for line in expected.split("\n")]
    for name in ("text.txt", "text.txt.gz"):
        found = read(text_corpus(name, "replace"))
        assert found == [line for line in lines if line]


@pytest.mark.row("B4")
def test_what_is_replaced_is_counted(capsys):
    Path("text.txt").write_bytes(b"a \xff b\0c\n\xed\xa0\x80\nx y\n")
    assert main([*COMMAND, *FAST, "--unicode-errors", "replace"]) == 0
    assert "text.txt: U+FFFD occurs 5 times." in capsys.readouterr().err
    assert {*read_vectors("run").keys} == {
        *"axy",
        *["\ufffd", "b\ufffdc", 3 * "\ufffd"],
    }


def test_the_cache_of_one_way_is_not_that_of_the_other():
    Path("text.txt").write_text("a b\n" * 9)
    for errors in ("strict", "replace"):
        command = ["train", "text.txt", "--workdir", errors, "--cache", "cache"]
        assert main([*command, *FAST, "--unicode-errors", errors]) == 0
    assert len(list(Path("cache").iterdir())) == 2


@pytest.mark.row("B5", "B23")
@pytest.mark.parametrize("chunk_bytes", [3, 7, 2**20])
@pytest.mark.parametrize("size", [10, 11, 100])
def test_tokens_that_are_too_long_are_left_out_and_counted(
    monkeypatch, caplog, chunk_bytes, size
):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(plain_text, "MAX_TOKEN_BYTES", 10)
    long, short = "ä" * (size // 2) + "x" * (size % 2), "y" * 10
    Path("text.txt").write_text(f"a {long} b\n{long}\nc {short} {long}\n{long} d")
    expected = [["a", long, "b"], [long], ["c", short, long], [long, "d"]]
    if size > 10:
        expected = [["a", "b"], ["c", short], ["d"]]
        said = ["text.txt: tokens longer than 10 bytes, left out: 4."]
    else:
        said = []
    for errors in ("strict", "replace"):
        assert read(text_corpus("text.txt", errors)) == expected
        assert caplog.messages == said
        said *= 2


@pytest.mark.row("B23")
def test_a_run_can_read_all_vectors_that_it_writes():
    """Tokens of the longest length, of a byte more, and longer than a line may be."""
    most = MAX_TOKEN_BYTES
    long = [most * "x", (most - 1) * "y", (most + 1) * "z"]
    text = f"a b {' '.join(long)} c\n"
    Path("text.txt").write_text(text * 3 + 17 * 2**20 * "0" + "\n")
    assert main([*COMMAND, *FAST]) == 0
    assert {*read_vectors("run/vectors.txt").keys} == {"a", "b", "c", *long[:2]}
    assert main(["export", "run", "--to", "vectors.vec.gz"]) == 0
    assert len(read_vectors("vectors.vec.gz")) == 5


@pytest.mark.row("B23")
@pytest.mark.parametrize("ending", [".txt", ".bin"])
def test_a_key_that_is_too_long_is_refused_when_it_is_written(ending):
    """Lists of tokens in Python may have longer ones."""
    vectors = Vectors(["a", (MAX_TOKEN_BYTES + 1) * "z"], np.eye(2))
    with pytest.raises(ValueError, match="must have at most 1048576 bytes in a word2"):
        write_vectors(vectors, f"vectors{ending}")
    write_vectors(vectors, "vectors.npz")
    assert len(read_vectors("vectors.npz")) == 2


CHANGES = {
    "grows": lambda: Path("text.txt").write_text("a b c d a c\n" * 500),
    "is cut": lambda: os.truncate("text.txt", 480),
    "is replaced": lambda: os.replace("other.txt", "text.txt"),
}


@pytest.mark.row("B19")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", ["train", "fit"])
def test_a_text_that_changes_while_it_is_read_is_refused(
    monkeypatch, capsys, change, way
):
    Path("text.txt").write_text("a b c d a c\n" * 400)
    Path("other.txt").write_text("a b c e a c\n" * 400)
    split, left = plain_text._split_lines, [CHANGES[change]]

    def split_and_change(*arguments):
        if left:
            left.pop()()
        return split(*arguments)

    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", 400)
    monkeypatch.setattr(plain_text, "_split_lines", split_and_change)
    if way == "fit":
        with pytest.raises(ValueError, match="text.txt changed while it was read"):
            EmbeddingTrainer(vector_size=4, min_count=1, epochs=1).fit("text.txt")
        return
    command = [*COMMAND, "--cache", "cache", *FAST]
    assert main(command) == 2
    assert "text.txt changed while it was read" in error_line(capsys)
    assert not list(Path().glob("cache/*")) and not Path("run").exists()
    assert main(command) == 0
