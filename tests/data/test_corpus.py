"""Corpora: what is read as text, how it is cut, and what is no text."""

import gzip
import io
import json
import os
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.data import plain_text
from embedder.data.corpus import Corpus, demo_sequences, sequences_corpus, text_corpus
from embedder.data.not_text import check_text
from embedder.errors import InputError

pytestmark = pytest.mark.usefixtures("own_folder")
RNG = random.Random(0)
WORDS = [f"w{i}" for i in range(50)]
FRAME = pl.DataFrame({"id": range(40), "name": [f"no {i}" for i in range(40)]})


def lines(make, num: int = 40) -> bytes:
    return "".join(f"{make(i)}\n" for i in range(num)).encode()


def written(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


CSV = FRAME.write_csv().encode()
QUOTED = lines(lambda i: f'{i},"a, b\nand ""c"", {i}",x')
EDGES = lines(lambda i: f"{i}\t{7 * i % 40}")
TABLES = {
    "csv": (CSV, "a CSV table"),
    "csv with quotes": (QUOTED, "a CSV table"),
    "csv, long": (CSV + lines(lambda i: f"{i},x{i}", 20_000), "a CSV table"),
    "csv with semicolons": (CSV.replace(b",", b";"), "a CSV table"),
    "csv with a mark": (b"\xef\xbb\xbf" + CSV.replace(b"\n", b"\r\n"), "a CSV table"),
    "tsv": (CSV.replace(b",", b"\t"), "a TSV table"),
    "counts": (lines(lambda i: f"word{i}\t{999 - i}"), "a TSV table"),
    "json lines": (FRAME.write_ndjson().encode(), "JSON"),
    "json lists": (lines(lambda i: json.dumps(["a", f"b{i}"])), "JSON"),
    "json": (json.dumps({"a": [1, {"b": 2}]}, indent=2).encode(), "JSON"),
    "json of one line": (json.dumps({"a": WORDS * 9999}).encode(), "JSON"),
    "edges": (EDGES, "an edge list"),
    "edges, long": (EDGES * 2000 + EDGES, "an edge list"),
    "edges with blanks": (EDGES.replace(b"\t", b" "), "an edge list"),
    "edges with a head": (b"# Nodes: 40\n% of a graph\n" + EDGES, "an edge list"),
    "edges with weights": (lines(lambda i: f"{i} {i + 1} 0.{i}"), "an edge list"),
    "parquet": (written(FRAME.write_parquet), "a Parquet table"),
    "arrow": (written(FRAME.write_ipc), "an Arrow table"),
    "arrow stream": (written(FRAME.write_ipc_stream), "an Arrow table"),
    "npz": (written(lambda file: np.savez(file, a=np.eye(2))), "a ZIP archive"),
    "npy": (written(lambda file: np.save(file, np.eye(2))), "a NumPy file"),
    "gzip": (gzip.compress(b"a b c\n"), "gzip, and its name must end in .gz"),
}
PROSE = {
    "sentences": lines(lambda i: f"The king said, no. {i} men, two horses; all died."),
    "names": lines(lambda i: f"Smith{i}, John"),
    "one line again": b"a,b,c d;e\tf 1\n" * 999,
    "few lines": lines(lambda i: f"{i},{i}", 19),
    "ids": lines(lambda i: " ".join(str(RNG.randrange(99)) for _ in range(1 + i % 9))),
    "walks": lines(lambda i: " ".join(str(i * k % 41) for k in range(10))),
    "blanks of Unicode": lines(lambda i: f"{i}\u00a0000"),
    "walks with tabs": lines(lambda i: "\t".join(str(i * k % 41) for k in range(10))),
    "tokens with tabs": lines(lambda i: "\t".join(RNG.choices(WORDS, k=10))),
    "verses": lines(lambda i: f"{i}\tIn the beginning was the word, and {i} was"),
    "a play": lines(lambda i: f"HAMLET:\tTo be or not to be, {i}, that is"),
    "translations": lines(lambda i: f"Go {i} away now.\tVa-t'en {i} fois."),
    "indented": lines(lambda i: f"\tto be or {i}"),
    "one token a line": lines(lambda i: RNG.choice([*WORDS, ",", '"', "12", ";"])),
    "tagged": lines(lambda i: f"word{i}\tNN"),
    "numbers first": b"3 4\n" + lines(lambda i: f"a{i} 1 2 3"),
    "brackets": lines(lambda i: f"[{i}] see there [1]"),
    "braces": lines(lambda i: f"{{{i}}} {{a}}"),
    "markers": lines(lambda i: f"<s> a b{i} </s>"),
    "verse": lines(lambda i: f"and so they went {i},"),
    "statements": lines(lambda i: f"x = {i};"),
    "quotes": lines(lambda i: f'"a {i} b," he said, "and c'),
    "PAR1": b"PAR1 is where it starts\n" * 40,
    "PK": b"PK was here\n" * 40,
    "empty": b"",
    "blank lines": b"\n \n" * 999,
    "comments": lines(lambda i: f"# {i} {i}"),
    "not UTF-8": lines(lambda i: f"{i} a").replace(b"a", b"\xe9"),
    "no white space": b"x" * 10**5,
    "demo": "\n".join(map(" ".join, demo_sequences())).encode(),
    "code": lines(lambda i: f"x[{i}] = f(a,b) + g({i}, 2);" + "# a,b" * (i % 2)),
}


def read(source: Corpus) -> list[list[str]]:
    """All sequences but empty ones; those that go on in the next chunk are joined."""
    sequences, is_open = [], False
    for chunk in source.chunks():
        tokens, ends = chunk.tokens.to_list(), np.cumsum(chunk.lengths).tolist()
        parts = [tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        if is_open and parts:
            sequences[-1] += parts.pop(0)
        sequences += parts
        is_open = chunk.is_open
    return [sequence for sequence in sequences if sequence]


def write(name: str, data: bytes) -> None:
    is_packed = name.lower().endswith(".gz")
    Path(name).write_bytes(gzip.compress(data, mtime=0) if is_packed else data)


@pytest.mark.row("B4")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a b\nc\n", [["a", "b"], ["c"]]),
        (b"a b\nc", [["a", "b"], ["c"]]),
        (b"a\r\nb\r\n", [["a"], ["b"]]),
        (b"\xef\xbb\xbfa b", [["a", "b"]]),
        ("a \ufeffb".encode(), [["a", "\ufeffb"]]),
        (b"\n\n a \t b\x0b\x0cc \n\n", [["a", "b", "c"]]),
        ("a\u00a0b \u2028 \u3000\n".encode(), [["a\u00a0b", "\u2028", "\u3000"]]),
        (b"a\x1cb\x1fc", [["a\x1cb\x1fc"]]),
        (b'"a,b" \'c #d \\n', [['"a,b"', "'c", "#d", "\\n"]]),
        (b"", []),
    ],
)
def test_text_is_cut_at_ascii_white_space(data, expected):
    write("text.txt", data)
    for errors in ("strict", "replace"):
        assert read(text_corpus("text.txt", errors)) == expected


@pytest.mark.parametrize("chunk_bytes", range(3, 12))
def test_chunks_of_any_size_give_the_same_sequences(monkeypatch, chunk_bytes):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", chunk_bytes)
    text = "\ufeffä bb\u4e2d ccc\n\nd " + "e" * 20 + " f g \ufeffh i j\nk"
    write("text.txt", text.encode())
    expected = [["ä", "bb中", "ccc"], ["d", "e" * 20, *"fg", "\ufeffh", *"ij"], ["k"]]
    assert read(text_corpus("text.txt")) == expected


@pytest.mark.row("B4")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xef\xbb\xbfab\0c", "is not text: NUL byte at offset 5"),
        ("a b".encode("utf-16"), "is UTF-16 text: write it as UTF-8, as by iconv -f"),
        (b"ab\xc3\xa4\xff", "is not UTF-8 text: byte 0xff at offset 4"),
        (b"\xed\xa0\x80", "is not UTF-8 text: byte 0xed at offset 0"),
        (b"\xef\xbb\xbfab\xe4\xb8", "it ends inside the character at offset 5"),
    ],
)
def test_bad_bytes_are_named_by_their_offset(monkeypatch, data, message):
    monkeypatch.setattr(plain_text, "_CHUNK_BYTES", 3)
    write("text.txt", data)
    with pytest.raises(InputError, match=message):
        read(text_corpus("text.txt"))


def test_files_of_a_folder_or_a_glob_are_read_by_name():
    """The end of a file ends a sequence; a name with brackets may be that file's, and
    endings are of any case."""
    Path("mit blänk", "e.txt").mkdir(parents=True)
    texts = {"b 1.txt": "b c", "a.Txt": "a", "c.md": "c", ".txt": "x", ".gz": "y"}
    for name, text in (texts | {"[ab].txt": "z"}).items():
        write(f"mit blänk/{name}", text.encode())
    packed = gzip.compress(b"d") + gzip.compress(b" e")
    Path("mit blänk/D.TXT.GZ").write_bytes(packed)
    for source, expected in {
        "mit blänk": [["d", "e"], ["z"], ["a"], ["b", "c"]],
        "mit blänk/D.TXT.GZ": [["d", "e"]],
        "m*/*[0-9].txt": [["b", "c"]],
        "mit blänk/[ab].txt": [["z"]],
    }.items():
        assert read(text_corpus(source)) == expected, source


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("text8", "text8"), ("a.txt", "a"), ("a b.txt.gz", "a b"), ("a*.txt", "a")),
        *(("x/../a.v2.txt", "a.v2"), ("a.gz.txt", "a.gz"), ("*.txt", "corpus")),
        *(("C.TXT.GZ", "C"), (".", "folder")),
    ],
)
def test_a_corpus_is_named_by_its_file(monkeypatch, name, expected):
    Path("folder/x").mkdir(parents=True)
    monkeypatch.chdir("folder")
    for file in ("text8", "a.txt", "a.v2.txt", "a.gz.txt", "a b.txt.gz", "C.TXT.GZ"):
        write(file, b"a")
    assert text_corpus(name).name == expected


def test_other_content_is_another_corpus():
    """Of which a run says so, and for which there is another cache."""
    manifests = []
    for text in (b"a b c", b"x b c", b"a b x"):
        write("text.txt", text)
        os.utime("text.txt", ns=(0, 0))
        manifests.append(text_corpus("text.txt").manifest)
    manifests += [
        sequences_corpus(cut).manifest
        for cut in ([["a", "bc"]], [["a"], ["bc"]], [["ab", "c"]])
    ]
    assert len({*map(str, manifests)}) == 6


@pytest.mark.row("B20")
@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz"])
@pytest.mark.parametrize("kind", TABLES)
def test_tables_are_recognised_by_their_content(name, kind):
    data, what = TABLES[kind]
    write(name, data)
    with pytest.raises(InputError) as error:
        text_corpus(name)
    start, _, advice = str(error.value).partition(", which is not read as text: ")
    assert start.startswith(f"{name} is {what}")
    expected = {"an edge list": "give --walks", "a NumPy file": "give --model encoder"}
    assert advice.startswith(expected.get(what, "write its tokens"))


@pytest.mark.row("B20")
@pytest.mark.parametrize("kind", PROSE)
def test_prose_is_no_table(kind):
    for name in ("a.txt", "text8", "a.v2.txt", "a.csv.txt", "README.md", "a.tok.gz"):
        write(name, PROSE[kind])
        check_text(Path(name))
