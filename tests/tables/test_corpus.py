"""Corpora: formats, plain text, files, sequences in memory, and what is refused."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.errors import InputError
from embedder.tables import corpus, corpus_formats, plain_text
from embedder.tables.chunks import Chunk
from embedder.tables.corpus import Corpus, sequences_corpus, text_corpus
from embedder.tables.corpus_formats import CorpusFormat
from legacy.vocabulary import read_text as read_text_of_oracle


def read(source: Corpus) -> list[list[str]]:
    """All sequences; those that continue in the next chunk are joined."""
    sequences, is_open = [], False
    for chunk in source.chunks():
        tokens, ends = chunk.tokens.to_list(), np.cumsum(chunk.lengths).tolist()
        parts = [tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        if is_open and parts:
            sequences[-1] += parts.pop(0)
        sequences += parts
        is_open = chunk.is_open
    return sequences


def read_text(path: Path, data: bytes) -> list[list[str]]:
    path.write_bytes(data)
    return [sequence for sequence in read(text_corpus(path)) if sequence]


@pytest.mark.row("B4")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a b\nc\n", [["a", "b"], ["c"]]),
        (b"a b\nc", [["a", "b"], ["c"]]),
        (b"a\r\nb\r\n", [["a"], ["b"]]),
        (b"\xef\xbb\xbfa b", [["a", "b"]]),
        (b"\n\n a \t b\x0b\x0cc \n\n", [["a", "b", "c"]]),
        ("a\u00a0b \u2028 \u3000\n".encode(), [["a\u00a0b", "\u2028", "\u3000"]]),
        (b"a\x1cb\x1fc", [["a\x1cb\x1fc"]]),
        (b'"a,b" \'c #d \\n', [['"a,b"', "'c", "#d", "\\n"]]),
        ("a \ufeffb".encode(), [["a", "\ufeffb"]]),
        (b"", []),
    ],
    ids=[
        "lines",
        "no_last_newline",
        "crlf",
        "byte_order_mark",
        "ascii_blanks",
        "unicode_blanks_stay",
        "separators_stay",
        "quotes",
        "mark_within_stays",
        "empty",
    ],
)
def test_text_is_cut_at_ascii_white_space(tmp_path, data, expected):
    assert read_text(tmp_path / "text.txt", data) == expected


@pytest.mark.parametrize("chunk_bytes", range(3, 12))
def test_chunks_of_any_size_give_the_same_sequences(tmp_path, monkeypatch, chunk_bytes):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", chunk_bytes)
    text = "\ufeffä bb\u4e2d ccc\n\nd " + "e" * 20 + " f g h i j\nk"
    expected = [["ä", "bb中", "ccc"], ["d", "e" * 20, *"fghij"], ["k"]]
    assert read_text(tmp_path / "text.txt", text.encode()) == expected


@pytest.mark.row("B5")
def test_long_line_comes_in_open_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", 4)
    (tmp_path / "text.txt").write_text("a b c d\ne")
    chunks = list(text_corpus(tmp_path / "text.txt").chunks())
    assert [chunk.is_open for chunk in chunks] == [True, False, False]


def test_gzip_is_recognised_by_its_name(tmp_path):
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"a b\n") * 2)
    assert read(text_corpus(tmp_path / "text.txt.gz"))[:2] == [["a", "b"], ["a", "b"]]


@pytest.mark.row("B4")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ab\0c", "text.txt is not text: NUL byte at offset 2"),
        (b"\xef\xbb\xbfab\0c", "NUL byte at offset 5"),
        (b"caf\xe9 x", "text.txt is not UTF-8 text: byte 0xe9 at offset 3"),
        (b"ab\xc3\xa4\xff", "byte 0xff at offset 4"),
        (b"\xed\xa0\x80", "byte 0xed at offset 0"),
        (b"ab \xc3", "it ends inside the character at offset 3"),
        (b"\xef\xbb\xbfab\xe4\xb8", "it ends inside the character at offset 5"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [3, 2**20])
def test_bad_bytes_are_named_by_their_offset(
    tmp_path, monkeypatch, chunk_bytes, data, message
):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", chunk_bytes)
    with pytest.raises(ValueError, match=message):
        read_text(tmp_path / "text.txt", data)


@pytest.mark.row("B2")
@pytest.mark.parametrize("cut", [9, 4, 1, 0])
def test_damaged_gzip_is_refused(tmp_path, cut):
    data = bytearray(gzip.compress(os.urandom(1000).hex().encode(), compresslevel=0))
    data[500] ^= not cut  # a flipped bit, where nothing is missing
    with pytest.raises(ValueError, match="bad.gz is not a whole .gz file"):
        read_text(tmp_path / "bad.gz", bytes(data[: len(data) - cut]))


def test_folder_is_its_text_files_by_name(tmp_path):
    for name, text in (("b.txt", "b"), ("a.txt", "a"), ("c.md", "c")):
        (tmp_path / name).write_text(text)
    (tmp_path / "d.gz").write_bytes(gzip.compress(b"d"))
    (tmp_path / "e.txt").mkdir()
    assert read(text_corpus(tmp_path)) == [["a"], ["b"], ["d"]]


def test_the_end_of_a_file_ends_a_sequence(tmp_path):
    (tmp_path / "a.txt").write_text("a b")
    (tmp_path / "b.txt").write_text("c d")
    assert read(text_corpus(tmp_path)) == [["a", "b"], ["c", "d"]]


def test_glob_is_the_files_that_match(tmp_path):
    folder = tmp_path / "mit blänk"
    folder.mkdir()
    (folder / "eins 1.txt").write_text("a")
    (folder / "zwei.txt").write_text("b")
    assert read(text_corpus(str(tmp_path / "m*" / "*[0-9].txt"))) == [["a"]]


def test_file_that_looks_like_a_glob_is_that_file(tmp_path):
    (tmp_path / "[ab].txt").write_text("x")
    (tmp_path / "a.txt").write_text("y")
    assert read(text_corpus(tmp_path / "[ab].txt")) == [["x"]]


def read_dashes(path: Path, errors: str) -> Iterator[Chunk]:
    """One sequence a file, whose tokens are separated by dashes."""
    tokens = path.read_text(errors=errors).split("-")
    yield Chunk(pl.Series("token", tokens), np.array([len(tokens)]), is_open=False)


def check_dashes(path: Path) -> None:
    if "-" not in path.read_text():
        raise InputError(f"{path} has no dashes")


@pytest.fixture
def dashes(monkeypatch):
    """Another format of corpus files, by one entry."""
    added = CorpusFormat((".json",), check_dashes, read_dashes)
    monkeypatch.setattr(corpus_formats, "FORMATS", (added, *corpus_formats.FORMATS))


@pytest.mark.usefixtures("dashes")
def test_a_format_is_one_entry(tmp_path):
    for name, text in (("a.json", "a-b"), ("b.txt", "c d"), ("c.csv", "x")):
        (tmp_path / name).write_text(text)
    expected = [["a", "b"], ["c", "d"]]
    assert read(text_corpus(tmp_path / "a.json")) == expected[:1]
    assert read(text_corpus(tmp_path)) == expected
    assert read(text_corpus(tmp_path / "*[nt]")) == expected
    assert text_corpus(tmp_path / "a.json").name == "a"


@pytest.mark.usefixtures("dashes")
def test_a_format_checks_its_files_and_names_its_endings(tmp_path):
    (tmp_path / "a.json").write_text("a b")
    with pytest.raises(InputError, match="a.json has no dashes"):
        text_corpus(tmp_path)
    (tmp_path / "empty").mkdir()
    message = "is a folder without .json or .txt or .gz files"
    with pytest.raises(FileNotFoundError, match=message):
        text_corpus(tmp_path / "empty")


def test_a_folder_leaves_out_names_of_an_ending_alone(tmp_path):
    for name in (".txt", ".gz", "a.txt"):
        (tmp_path / name).write_text("a")
    assert read(text_corpus(tmp_path)) == [["a"]]


@pytest.mark.row("B1")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.txt", "Corpus .*none.txt does not exist"),
        ("*.csv", r"Corpus .*\*.csv matches no file"),
        ("folder", "Corpus .*folder is a folder without .txt or .gz files"),
        ("photos", "photos is a folder of images: give --model encoder to train on"),
        ("link.txt", "Corpus .*link.txt does not exist"),
        ("broken", "No such file"),
    ],
)
def test_missing_text_is_named(tmp_path, source, message):
    for name in ("folder", "broken", "photos/cat"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "A.JPG").touch()
    (tmp_path / "link.txt").symlink_to("link.txt")
    (tmp_path / "broken" / "link.txt").symlink_to("nowhere")
    with pytest.raises(OSError, match=message):
        text_corpus(tmp_path / source)


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(ValueError, match="pipe.txt must be a regular file"):
        text_corpus(tmp_path / "pipe.txt")


def test_empty_path_is_refused():
    with pytest.raises(ValueError, match="`corpus` must be a file, .* got ''"):
        text_corpus("")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text8", "text8"),
        ("a.txt", "a"),
        ("a b.txt.gz", "a b"),
        ("x/../a.v2.txt", "a.v2"),
        ("a*.txt", "a"),
        ("a.gz.txt", "a.gz"),
        ("*.txt", "corpus"),
        (".", "folder"),
    ],
)
def test_corpus_is_named_by_its_file(tmp_path, monkeypatch, name, expected):
    (tmp_path / "folder" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "folder")
    for file in ("text8", "a.txt", "a.v2.txt", "a.gz.txt"):
        Path(file).write_text("a")
    Path("a b.txt.gz").write_bytes(gzip.compress(b"a"))
    assert text_corpus(name).name == expected


def test_manifest_changes_with_either_end_of_a_file(tmp_path):
    path, manifests = tmp_path / "text.txt", []
    for text in ("a b c", "x b c", "a b x"):
        path.write_text(text)
        os.utime(path, ns=(0, 0))
        manifests.append(str(text_corpus(path).manifest))
    assert len(set(manifests)) == 3


def test_tokens_of_sequences_are_not_split():
    sequences = [["a b", "\n"], [], [np.str_("ä")]]
    assert read(sequences_corpus(sequences)) == sequences


def test_generators_are_read_once_and_kept():
    source = sequences_corpus((c for c in "ab") for _ in range(2))
    assert read(source) == read(source) == [["a", "b"], ["a", "b"]]


def test_sequences_come_in_chunks(monkeypatch):
    monkeypatch.setattr(corpus, "_CHUNK_TOKENS", 3)
    chunks = list(sequences_corpus([["a", "b"]] * 5).chunks())
    assert [len(chunk.tokens) for chunk in chunks] == [4, 4, 2]


SOURCE = "`sequences_or_path` must be a path or an iterable .*, got "
SEQUENCE = "A sequence must be a list of tokens, got "
TOKEN = "A token must be a str, got "


@pytest.mark.parametrize("read", [sequences_corpus, read_text_of_oracle])
@pytest.mark.parametrize(
    ("sequences", "error", "message"),
    [
        *((bad, TypeError, SOURCE) for bad in (5, None, b"ab")),
        *(([["a"], bad], TypeError, SEQUENCE) for bad in ("ab", b"ab", 7, None)),
        *(([["a", bad]], TypeError, TOKEN) for bad in (5, b"b", None, ["a"], 1.5)),
        ([["a", ""]], ValueError, "A token must not be empty, got "),
        ([["a", "x\ud800"]], ValueError, "A token must be valid Unicode, got "),
    ],
)
def test_sequences_that_are_none_are_refused(read, sequences, error, message):
    with pytest.raises(error, match=message):
        read(sequences)


def test_manifest_of_sequences_tells_them_apart():
    cuts = [[["a", "b"]], [["a"], ["b"]], [["ab"]]]
    assert len({str(sequences_corpus(cut).manifest) for cut in cuts}) == 3
