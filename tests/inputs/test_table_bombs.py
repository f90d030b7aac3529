"""Small tables of large rows, which a child process with bounded memory refuses."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.limits import Limit
from embedder.tables import row_sort, sessions, table_files
from tests.commands import error_line

MIB = 2**20
FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]


@pytest.fixture(autouse=True)
def little_memory(tmp_path, monkeypatch):
    """A container that may have 64 MiB, and a folder of the test."""
    limit = Limit(64 * MIB, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.tables.table_files.memory_limit", lambda: limit)
    monkeypatch.chdir(tmp_path)


def packed(name: str, head: bytes, piece: bytes) -> None:
    """Writes `head` and 800 MiB of copies of `piece`, a MiB, as members of gzip."""
    members = gzip.compress(piece * 16, compresslevel=1)
    Path(name).write_bytes(gzip.compress(head) + members * 50)


def a_line() -> str:
    packed("table.csv.gz", b"session,item\n1,a\n2,", b"a" * MIB)
    return "table.csv.gz"


def a_plain_name() -> str:
    """Polars unpacks by content, not by name."""
    return str(Path(a_line()).rename("table.csv"))


def beside_a_plain_file() -> str:
    Path(a_line()).rename("table_2.csv.gz")
    Path("table_1.csv").write_text("session,item\n1,a\n")
    return "table_*"


def a_header() -> str:
    packed("table.csv.gz", b"session,", b"a" * MIB)
    return "table.csv.gz"


def a_quoted_cell() -> str:
    packed("table.csv.gz", b'session,item\n1,a\n2,"', b"a,\n\n" * (MIB // 4))
    return "table.csv.gz"


def a_json_line() -> str:
    head = b'{"session":1,"item":"a"}\n{"session":1,"item":"'
    packed("table.jsonl.gz", head, b"a" * MIB)
    return "table.jsonl.gz"


def lists(name: str) -> pl.DataFrame:
    """One list of 1 GiB, zeros."""
    zeros = pl.Series("items", np.zeros((1, 2**27), np.int64))
    return pl.DataFrame({"items": zeros.cast(pl.List(pl.Int64))})


def parquet() -> str:
    lists("table.parquet").write_parquet("table.parquet")
    return "table.parquet"


def arrow() -> str:
    lists("table.arrow").write_ipc("table.arrow", compression="zstd")
    return "table.arrow"


def arrow_stream() -> str:
    frame = pl.DataFrame({"session": np.zeros(2**23, np.int64)})
    frame.with_columns(item="session").write_ipc_stream(
        "table.arrows", compression="zstd"
    )
    return "table.arrows"


@pytest.mark.slow
@pytest.mark.row("B35", "B21")
@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "run"])
@pytest.mark.parametrize(
    "make",
    [
        *(a_line, a_plain_name, beside_a_plain_file, a_header, a_quoted_cell),
        *(a_json_line, parquet, arrow, arrow_stream),
    ],
    ids=lambda make: make.__name__,
)
def test_a_bomb_is_refused_by_a_child_with_bounded_memory(capsys, make, options):
    name = make()
    assert all(path.stat().st_size < 8 * MIB for path in Path().glob(name))
    assert main(["train", name, "--workdir", "run", *FAST, *options]) == 2
    line = error_line(capsys)
    assert name in line
    said = "too much memory", "out of memory", "allocat", "does not fit in memory"
    assert any(each in line for each in said)
    assert not Path("run").exists()


@pytest.mark.row("B35")
@pytest.mark.parametrize("verb", ["train", "neighbors"])
def test_a_table_that_crashes_its_reader_is_refused(capsys, monkeypatch, verb):
    """The child process ends by a signal, as where polars reads out of bounds."""
    Path("text.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", "text.txt", "--workdir", "run", *FAST]) == 0
    pl.DataFrame({"session": [1, 1], "item": ["a", "b"]}).write_parquet("t.parquet")
    crash = Path("crash").absolute()
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr("embedder.disk.untrusted.sys.executable", str(crash))
    command = ["train", "t.parquet", "--workdir", "other", *FAST]
    if verb == "neighbors":
        command = ["neighbors", "run", "a", "--names", "t.parquet"]
    capsys.readouterr()
    assert main(command) == 2
    line = error_line(capsys)
    assert (
        "t.parquet cannot be read: a process that reads it ends with code -11" in line
    )
    assert not Path("other").exists()


@pytest.mark.row("B35")
def test_names_that_do_not_fit_are_refused(capsys, monkeypatch):
    limit = Limit(64 * MIB, "its container (/sys/fs/cgroup/memory.max)")
    Path("text.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", "text.txt", "--workdir", "run", *FAST]) == 0
    frame = pl.DataFrame({"key": np.zeros(2**20, np.int8)}).with_columns(name="key")
    frame.write_parquet("names.parquet")
    assert Path("names.parquet").stat().st_size < MIB
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)
    capsys.readouterr()
    assert main(["neighbors", "run", "a", "--names", "names.parquet"]) == 2
    line = error_line(capsys)
    assert "`names` names.parquet takes 204.0 MiB, more than the 64.0 MiB" in line


@pytest.mark.row("B35")
def test_only_what_its_size_does_not_bound_is_read_by_a_child(monkeypatch):
    """Text is not; Parquet, Arrow and large .gz are: small files once, else twice."""
    frame = pl.DataFrame({"session": ["1", "1", "2"], "item": ["a", "b", "a"]})
    frame.write_csv("t.csv")
    Path("t.csv.gz").write_bytes(gzip.compress(Path("t.csv").read_bytes()))
    frame.write_parquet("t.parquet")
    frame.write_ipc("t.arrow")
    lines = b"session,item\n" + b"1,a\n" * 300
    Path("large.csv.gz").write_bytes(gzip.compress(lines, 1))
    Path("named.csv").write_bytes(Path("large.csv.gz").read_bytes())
    Path("zlib.csv").write_bytes(zlib.compress(Path("t.csv").read_bytes()))
    read = []
    monkeypatch.setattr(
        table_files, "check_scan", lambda rows, size: read.append(rows) or 1
    )
    monkeypatch.setattr(table_files, "_SMALL_TEXT_BYTES", 1000)
    names = "t.csv", "t.csv.gz", "t.parquet", "t.arrow"
    others = "large.csv.gz", "named.csv", "zlib.csv"
    for small_bytes, counts in (
        (2**23, (0, 0, 1, 1, 1, 1, 1)),
        (0, (0, 0, 2, 2, 2, 2, 2)),
    ):
        monkeypatch.setattr(table_files, "_SMALL_BYTES", small_bytes)
        for name, count in zip((*names, *others), counts, strict=True):
            read.clear()
            main(["train", name, "--dry-run", *FAST])
            assert len(read) == count, name


@pytest.mark.spread(2)
@pytest.mark.row("B35", "B21")
@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.parquet"])
@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "run"])
def test_a_session_that_does_not_fit_is_refused_by_name(
    capsys, monkeypatch, name, options
):
    """The others, of 200 rows each, fit; so does this one where memory suffices."""
    frame = pl.DataFrame(
        {"session": ["all"] * 9000 + [f"s{k}" for k in range(5)] * 200}
    )
    frame = frame.with_columns(item=pl.int_range(pl.len()) % 7)
    if name.endswith("gz"):
        Path(name).write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_parquet(name)
    monkeypatch.setattr(row_sort, "RUN_ROWS", 500)
    monkeypatch.setattr(sessions, "_BATCH_ROWS", 100)
    limit = Limit(MIB, "its container (/sys/fs/cgroup/memory.max)")
    with monkeypatch.context() as patched:
        patched.setattr("embedder.limits.memory_limit", lambda: limit)
        assert main(["train", name, "--workdir", "run", *FAST, *options]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "embedder: The session 'all' has 9000 rows, and sorting them takes" in line
    assert "more than the 1.0 MiB of its container" in line
    assert "leave that session out, or cut it into several" in line
    assert not Path("run").exists() and not [*Path().rglob("rows-*.arrow")]
    assert main(["train", name, "--workdir", "run", *FAST, "--dry-run"]) == 0


@pytest.mark.slow
@pytest.mark.row("B35", "B21")
def test_packed_edges_are_refused_while_they_are_read(capsys, monkeypatch):
    """After the first piece, whatever the file has beyond it."""
    limit = Limit(64 * MIB, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)
    member = gzip.compress(b"a b\n" * (MIB // 4), compresslevel=1)
    Path("edges.tsv.gz").write_bytes(member * 40 + b"no gzip")
    assert main(["train", "edges.tsv.gz", "--walks", "1", "--workdir", "run"]) == 2
    assert "A graph of " in (line := error_line(capsys)) and "edges takes" in line
    assert not Path("run").exists()
