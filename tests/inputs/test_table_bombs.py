"""Small files of large content: refused by their metadata, before reading, or by a
child process with bounded memory."""

import functools
import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder.base.limits import Limit
from embedder.cli.main import main
from embedder.data import row_sort
from embedder.data.examples.images import decoded
from embedder.data.tables import reader as data_tables
from tests.commands import error_line, run_python

MIB = ROWS = 2**20
FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]
PEAK = """
import re, sys
from pathlib import Path
from embedder.cli.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""
NEW = ["--workdir", "new", *FAST]


@pytest.fixture
def limited(own_folder, monkeypatch):
    """A function: from now on the container may have so many MiB."""
    Path("text.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", "text.txt", "--workdir", "run", *FAST]) == 0

    def limit(number: int, *modules: str) -> None:
        found = Limit(number * MIB, "its container (/sys/fs/cgroup/memory.max)")
        for module in modules or ("base.limits",):
            monkeypatch.setattr(f"embedder.{module}.memory_limit", lambda: found)

    return limit


# --- refused by metadata


def npz(*shape: int) -> None:
    features = np.zeros(shape, np.uint8)
    np.savez_compressed("data.npz", X=features, y=features[:, 0])


def parquet(x: pl.Series) -> None:
    frame = pl.DataFrame({"x": x, "label": np.zeros(len(x), "i1")})
    frame.write_parquet("data.parquet")


def idx(rows: int) -> None:
    images = b"\0\0\x08\x03" + np.array([3, rows, 1], ">u4").tobytes()
    labels = b"\0\0\x08\x01\0\0\0\3abc"
    Path("images-idx3-ubyte.gz").write_bytes(gzip.compress(images + bytes(3 * rows)))
    Path("labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


LISTS = pl.Series("x", [[0] * ROWS, [1] * ROWS], dtype=pl.List(pl.Int64))
BOMBS = {
    "data.parquet: its rows take 9.0 MiB, more than half": (
        lambda: parquet(pl.Series(np.zeros(ROWS, np.int64)))
    ),
    "data.parquet: 2 of its rows take 16.0 MiB, more than half": lambda: parquet(LISTS),
    "data.npz: reading it takes 8.0 MiB, more than": lambda: npz(ROWS, 3),
    "data.npz: reading it takes 25.0 MiB, more than": lambda: npz(ROWS // 4, 1),
    "images-idx3-ubyte.gz: reading it takes 6.0 MiB, more than": lambda: idx(MIB),
}


@pytest.mark.row("B21", "F33")
@pytest.mark.parametrize("said", BOMBS)
def test_a_bomb_is_refused_by_its_metadata(limited, capsys, said):
    BOMBS[said]()
    limited(4, "data.examples.example_tables", "data.tables.reader", "engine.memory")
    limited(4, "engine.devices", "base.limits")
    name = said.partition(":")[0]
    assert Path(name).stat().st_size < MIB / 2
    command = ["train", name, "--model", "encoder", "--loader", "memory"]
    for options in ["--workdir", "new"], ["--dry-run"]:
        capsys.readouterr()
        assert main([*command, *options]) == 2
        line = error_line(capsys)
        assert f"{said} the 4.0 MiB of its container" in line
        assert line.endswith(": give a part of it.")
    assert not Path("new").exists()


@pytest.mark.row("B21")
def test_images_that_do_not_fit_are_refused(limited):
    """By the first of them."""
    limited(4, "engine.memory", "base.limits")
    Image.new("RGB", (1000, 1000)).save("one.png")
    with pytest.raises(ValueError, match="2 images take 5.7 MiB, more than the 4.0"):
        decoded([Path("one.png")] * 2, (), 1, None, [])


@pytest.mark.slow
@pytest.mark.row("B5", "B21", "F33")
@pytest.mark.parametrize("piece", [b"a b c d\n", b"a b\nxxxx"])
def test_a_packed_text_is_read_in_bounded_memory(own_folder, piece):
    """Five times the text takes no more memory: neither it nor a line is held whole."""
    options = ["--min-count", "1", "--vector-size", "2", "--sample", "1e-9"]
    options += ["--blocks-per-update", "1"]

    def peak(pieces: int) -> int:
        """kB that a process has at most, with a text of so many MiB."""
        with gzip.open("text.txt.gz", "wb", compresslevel=1) as file:
            for _ in range(pieces):
                file.write(piece * 2**17)
        command = ["train", "text.txt.gz", *options, "--dry-run", "--loader", "memory"]
        done = run_python("-c", PEAK, *command)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.splitlines()[-1])

    small = peak(64)  # with all imports and buffers
    assert peak(320) - small < 150_000


# --- refused by a child process


def packed(name: str, head: bytes, piece: bytes) -> str:
    """Writes `head` and 800 MiB of copies of `piece`, a MiB, as members of gzip."""
    members = gzip.compress(piece * 16, compresslevel=1)
    Path(name).write_bytes(gzip.compress(head) + members * 50)
    return name


def beside_a_plain_file() -> str:
    packed("table_2.csv.gz", LINE, b"a" * MIB)
    Path("table_1.csv").write_text("session,item\n1,a\n")
    return "table_*"


def frame(ending: str) -> str:
    """One list of 1 GiB, zeros."""
    zeros = pl.Series("items", np.zeros((1, 2**27), np.int64)).cast(pl.List(pl.Int64))
    table, path = pl.DataFrame({"items": zeros}), f"table.{ending}"
    if ending == "parquet":
        table.write_parquet(path)
    elif ending == "arrow":
        table.write_ipc(path, compression="zstd")
    else:
        zeros = pl.Series("session", np.zeros(2**23, np.int64))
        table = pl.DataFrame({"session": zeros, "item": zeros})
        table.write_ipc_stream(path, compression="zstd")
    return path


LINE = b"session,item\n1,a\n2,"
JSON = b'{"session":1,"item":"a"}\n{"session":1,"item":"'
LARGE = {
    "line": functools.partial(packed, "table.csv.gz", LINE, b"a" * MIB),
    "plain name": functools.partial(packed, "table.csv", LINE, b"a" * MIB),
    "beside a plain file": beside_a_plain_file,
    "header": functools.partial(packed, "table.csv.gz", b"session,", b"a" * MIB),
    "cell": functools.partial(
        packed, "table.csv.gz", LINE + b'"', b"a,\n\n" * (MIB // 4)
    ),
    "JSON": functools.partial(packed, "table.jsonl.gz", JSON, b"a" * MIB),
    **{each: functools.partial(frame, each) for each in ("parquet", "arrow", "arrows")},
}


@pytest.mark.slow
@pytest.mark.row("B35", "B21")
@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "run"])
@pytest.mark.parametrize("case", LARGE)
def test_a_bomb_is_refused_by_a_child_with_bounded_memory(
    limited, capsys, case, options
):
    limited(
        64, "data.tables.table_formats", "data.tables.reader", "data.tables.text_form"
    )
    name = LARGE[case]()
    capsys.readouterr()
    assert all(path.stat().st_size < 8 * MIB for path in Path().glob(name))
    assert main(["train", name, *NEW, *options]) == 2
    line = error_line(capsys)
    assert name in line
    # As it ends for want of memory, or has read what fits in the rest of its own.
    said = "too much memory", "out of memory", "allocat", "does not fit in memory"
    said += ("more than half",) if name == "table.arrow" else ()
    said += ("has no rows",) if case == "header" else ()  # its end is not looked for
    assert any(each in line for each in said), line
    assert not Path("new").exists()


CANNOT = "t.parquet cannot be read: a process that reads it ends with code -11"
TRAIN = ["train", "t.parquet", *NEW]


@pytest.mark.row("B20", "B26", "B35")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (TRAIN, CANNOT),
        (["neighbors", "run", "a", "--names", "t.parquet"], CANNOT),
        ([*TRAIN, "--walks", "1"], "t.parquet cannot be read: a process"),
    ],
    ids=["table", "names", "edges"],
)
def test_a_table_that_crashes_its_reader_is_refused(
    limited, capsys, monkeypatch, command, said
):
    """A child process, which ends by a signal, reads all of it first."""
    pl.DataFrame({"session": [1, 1], "item": ["a", "b"]}).write_parquet("t.parquet")
    crash = Path("crash").absolute()
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr("embedder.disk.untrusted.sys.executable", str(crash))
    monkeypatch.setattr(
        pl.LazyFrame, "collect_schema", lambda _: pytest.fail("it was read here")
    )
    capsys.readouterr()
    assert main(command) == 2
    assert said in error_line(capsys)
    assert not Path("new").exists()


@pytest.mark.row("B35")
def test_names_that_do_not_fit_are_refused(limited, capsys):
    frame = pl.DataFrame({"key": np.zeros(2**20, np.int8)}).with_columns(name="key")
    frame.write_parquet("names.parquet")
    assert Path("names.parquet").stat().st_size < MIB
    limited(64)
    capsys.readouterr()
    assert main(["neighbors", "run", "a", "--names", "names.parquet"]) == 2
    line = error_line(capsys)
    assert "`names` names.parquet takes 204.0 MiB, more than the 64.0 MiB" in line


@pytest.mark.row("B35", "B21")
@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.parquet"])
def test_a_session_that_does_not_fit_is_refused_by_name(
    limited, capsys, monkeypatch, name
):
    """The others, of 200 rows each, fit; so does this one where memory suffices."""
    names = ["all"] * 9000 + [f"s{k}" for k in range(5)] * 200
    frame = pl.DataFrame({"session": names, "item": np.arange(len(names)) % 7})
    if name.endswith("gz"):
        Path(name).write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_parquet(name)
    monkeypatch.setattr(row_sort, "RUN_ROWS", 500)
    monkeypatch.setattr(data_tables, "BATCH_ROWS", 100)
    assert main(["train", name, *NEW, "--dry-run"]) == 0
    limited(1)
    assert main(["train", name, *NEW]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "embedder: The session 'all' has 9000 rows, and sorting them takes" in line
    assert "more than the 1.0 MiB of its container" in line
    assert "leave that session out, or cut it into several" in line
    assert not Path("new").exists() and not [*Path().rglob("rows-*.arrow")]


@pytest.mark.slow
@pytest.mark.row("B35", "B21")
def test_packed_edges_are_refused_while_they_are_read(limited, capsys):
    """After the first pieces that make a graph too large."""
    limited(64)
    member = gzip.compress(b"a b\n" * (MIB // 4), compresslevel=1)
    Path("edges.tsv.gz").write_bytes(member * 40)
    capsys.readouterr()
    assert main(["train", "edges.tsv.gz", "--walks", "1", "--workdir", "new"]) == 2
    assert "A graph of " in (line := error_line(capsys)) and "edges takes" in line
    assert not Path("new").exists()
