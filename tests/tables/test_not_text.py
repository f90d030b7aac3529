"""Tables, graphs and binary files are recognised; prose never is."""

import gzip
import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.tables.corpus import text_corpus
from embedder.tables.demo import demo_sequences
from embedder.tables.estimator import EmbeddingTrainer
from embedder.tables.not_text import check_text
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]
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
    "code": lines(lambda i: f"x[{i}] = f(a,b) + g({i}, 2);" + "# a,b" * (i % 2)),
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.row("B20")
@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz"])
@pytest.mark.parametrize("kind", TABLES)
def test_tables_are_recognised_by_their_content(name, kind):
    data, what = TABLES[kind]
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(ValueError) as error:
        text_corpus(name)
    start, _, advice = str(error.value).partition(", which is not read as text: ")
    assert start.startswith(f"{name} is {what}")
    is_graph = what == "an edge list"
    is_array = what == "a NumPy file"
    expected = "give --model encoder" if is_array else "write its tokens"
    assert advice.startswith("give --walks 10" if is_graph else expected)


IDX = bytes([0, 0, 8, 3]) + bytes(12)
PACKED = gzip.compress(IDX, mtime=0)  # the same in every process


@pytest.mark.row("B20")
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.JPG", b"", "an image by its name, .* train on a folder with a folder of"),
        (
            "a",
            b"\xff\xd8\xff",
            "an image, .* train on a folder with a folder of images",
        ),
        (
            "i.gz",
            gzip.compress(IDX, mtime=0),
            "images of idx, as MNIST's, .* train on it",
        ),
        (
            "i",
            IDX.replace(b"\3", b"\1"),
            "labels of idx, as MNIST's, .* the images that",
        ),
        ("a.npz", b"", "a NumPy file by its name, .* train on features and labels in"),
        ("a.tar", b"", "an archive by its name, .* train on a .tar of images with"),
    ],
)
def test_data_of_encoders_are_told_what_to_add(name, data, message):
    Path(name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name} is {message}") as error:
        text_corpus(name)
    assert "give --model encoder to train on" in str(error.value)


@pytest.mark.row("B22")
def test_exported_vectors_among_texts_are_named(capsys):
    Path("a.txt").write_text("a b c\n" * 40)
    assert main(["train", "a.txt", "--workdir", "run", *FAST]) == 0
    assert main(["export", "run", "--to", "vectors.txt"]) == 0
    capsys.readouterr()
    assert main(["train", "*.txt", "--workdir", "two", *FAST]) == 2
    assert error_line(capsys) == (
        "embedder: vectors.txt is a word2vec file of vectors, which is not read as "
        "text: move it, or name the texts without it."
    )


@pytest.mark.row("B20")
@pytest.mark.parametrize("kind", PROSE)
def test_prose_is_no_table(kind):
    Path("a.txt").write_bytes(PROSE[kind])
    check_text(Path("a.txt"))


@pytest.mark.row("B20")
@pytest.mark.parametrize(
    "name",
    [
        *("a.csv", "a.CSV", "a.b.tsv.gz", "a.jsonl", "a.ndjson", "a.json", "a.parquet"),
        *("a.arrow", "a.feather"),
    ],
)
@pytest.mark.parametrize("is_in_glob", [False, True])
def test_text_with_the_name_of_a_table_is_refused(capsys, name, is_in_glob):
    data = b"a b c d\n" * 40
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    source = "a.*" if is_in_glob else name
    assert main(["train", source, "--workdir", "run"]) == 2
    line = error_line(capsys)
    assert any(
        reason in line
        for reason in (
            f"Corpus {source} has the columns a b c d String (a b c d, a b c d, ",
            f"Corpus {source} cannot be read: ",
            f"{name} is not Parquet, which its name says",
            f"{name} is not Arrow IPC, which its name says",
        )
    )
    assert not Path("run").exists()


@pytest.mark.row("B20")
@pytest.mark.parametrize("name", ["a.edges", "a.edgelist.gz", "a.npz", "a.zip"])
@pytest.mark.parametrize("is_in_glob", [False, True])
def test_others_than_text_are_refused_by_their_names(capsys, name, is_in_glob):
    data = b"a b c d\n" * 40
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert main(["train", "a.*" if is_in_glob else name, "--workdir", "run"]) == 2
    line = error_line(capsys)
    assert f"{name} is a" in line
    assert "by its name, which is not read as text: " in line
    assert line.endswith("If it is text already, name it .txt.")
    assert not Path("run").exists()


@pytest.mark.row("B20")
def test_other_names_are_accepted():
    for name in ("text8", "a.v2.txt", "a.en", "a.csv.txt", "README.md", "a.tok.gz"):
        data = b"a b c\n"
        Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        check_text(Path(name))


@pytest.mark.row("B20")
def test_the_demo_is_prose():
    Path("a.txt").write_text("\n".join(map(" ".join, demo_sequences())))
    check_text(Path("a.txt"))


@pytest.mark.row("B20")
def test_the_api_refuses_tables_as_the_command_line_does():
    Path("a.txt").write_bytes(EDGES)
    with pytest.raises(ValueError, match="a.txt is an edge list, which is not read"):
        EmbeddingTrainer(min_count=1).fit("a.txt")


@pytest.mark.row("B20")
@pytest.mark.parametrize("cut", [0, 9, -9])
def test_a_damaged_gzip_is_refused_by_its_reader(cut):
    Path("a.txt.gz").write_bytes(gzip.compress(CSV * 99)[:cut])
    with pytest.raises(ValueError, match="is not a whole .gz file|is a CSV table"):
        list(text_corpus("a.txt.gz").chunks())


@pytest.mark.row("B20")
def test_real_texts_are_text_and_real_tables_are_not(data_folder, tmp_path):
    texts = [*data_folder.glob("small-text/*.gz"), *data_folder.glob("wiki/*.gz")]
    assert len(texts) >= 5
    for path in texts:
        check_text(path)
    tables = [p for p in data_folder.rglob("*") if p.suffix in (".csv", ".parquet")]
    tables += data_folder.glob("**/*.tsv*")
    assert len(tables) >= 10
    for path in tables:
        ending = ".txt.gz" if path.suffix == ".gz" else ".txt"
        renamed = tmp_path / f"{path.stem}{ending}"
        renamed.symlink_to(path)
        with pytest.raises(ValueError, match="which is not read as text"):
            check_text(renamed)


@pytest.mark.row("B20")
def test_a_table_among_texts_is_named(capsys):
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("a b c\n" * 40)
    with zipfile.ZipFile("texts/b.txt", "w") as archive:
        archive.writestr("a.txt", "a b c\n")
    for source in ("texts", "texts/*"):
        assert main(["train", source, "--workdir", "run", *FAST]) == 2
        assert "texts/b.txt is a ZIP archive" in error_line(capsys)
