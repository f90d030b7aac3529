"""Columns of edge lists in the manifest: found or named, they are the same run."""

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from embedder.cli import main
from embedder.disk import untrusted
from embedder.errors import InputError
from embedder.graphs.edge_table import EdgeColumns
from embedder.graphs.edges import find_columns
from embedder.run.workdir import Workdir
from embedder.tables.graph import encode_graph, open_graph
from tests.commands import error_line
from tests.graphs.graph_cases import KARATE
from tests.graphs.test_graph_runs import digest, options

TRAIN = ("--walks", "200", "--walk-length", "20", "--vector-size", "5", "--epochs", "3")
TRAIN += ("--loader", "memory", "--alpha", "0.01", "--workdir")
NAMED = ("--source", "user", "--target", "friend", "--weight", "calls")


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def friends() -> pl.DataFrame:
    ends = np.array([*KARATE.edges()])
    calls = 1.0 + np.arange(len(ends)) % 3
    return pl.DataFrame({"user": ends[:, 0], "friend": ends[:, 1], "calls": calls})


def write_friends(name: str) -> None:
    if name.endswith("parquet"):
        friends().write_parquet(name)
    else:
        friends().write_csv(name, separator="\t")


def write_bare(name: str = "bare.tsv") -> None:
    friends()["user", "friend"].write_csv(name, separator="\t", include_header=False)


def last_line(capsys) -> str:
    """The error after the log of a graph that was read."""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embedder: ")
    return line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["friends.tsv", "friends.parquet"])
@pytest.mark.parametrize("flags", [((), NAMED), (NAMED, ())], ids=["found", "named"])
def test_a_run_resumes_whether_its_columns_are_named_or_found(
    stopped, capsys, name, flags
):
    write_friends(name)
    first, second = flags
    assert main(["train", name, *TRAIN, "whole"]) == 0
    stopped(name, *TRAIN, "run", *first)
    assert main(["train", name, *TRAIN, "run", *second]) == 0
    assert "Resumes after" in capsys.readouterr().err
    assert digest("run") == digest("whole")


@pytest.mark.parametrize("flags", [((), NAMED), (NAMED, ())], ids=["found", "named"])
def test_a_finished_run_is_found_by_its_columns(capsys, monkeypatch, flags):
    """Nothing is planned and nothing is trained again."""
    write_friends("friends.tsv")
    first, second = flags
    assert main(["train", "friends.tsv", *TRAIN, "run", *first]) == 0
    before = digest("run")
    monkeypatch.setattr(
        "embedder.tables.problem.plan", lambda *_: pytest.fail("it is planned again")
    )
    assert main(["train", "friends.tsv", *TRAIN, "run", *second]) == 0
    assert "finished before" in capsys.readouterr().out
    assert digest("run") == before


@pytest.mark.spread(4)
@pytest.mark.row("B16")
@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["--source", "friend", "--target", "user", "--weight", "calls"], "`source`"),
        (["--source", "user", "--target", "friend"], "`weight` 'calls' there, '' now"),
        (["--source", "user", "--target", "calls"], "`target` 'friend' there, 'calls'"),
    ],
    ids=["turned", "unweighted", "another"],
)
@pytest.mark.parametrize("state", ["stopped", "finished"])
def test_other_columns_are_refused(stopped, capsys, named, message, state):
    write_friends("friends.tsv")
    if state == "stopped":
        stopped("friends.tsv", *TRAIN, "run")
    else:
        assert main(["train", "friends.tsv", *TRAIN, "run"]) == 0
    capsys.readouterr()
    assert main(["train", "friends.tsv", *TRAIN, "run", *named]) == 2
    line = last_line(capsys)
    assert message in line and "run holds a run with other settings" in line


def test_a_list_without_header_has_no_columns(stopped, capsys):
    """To name columns makes its first line the header: that is another graph."""
    write_bare()
    assert len(open_graph("bare.tsv", options()).manifest) == 1
    stopped("bare.tsv", *TRAIN, "run")
    first = Path("bare.tsv").read_text().split()[:2]
    numbers = ["--source", first[0], "--target", first[1]]
    assert main(["train", "bare.tsv", *TRAIN, "run", *numbers]) == 2
    assert f"`source` '' there, '{first[0]}' now" in last_line(capsys)
    assert main(["train", "bare.tsv", *TRAIN, "run", "--source", "user"]) == 2
    assert "name them by --source, --target" in error_line(capsys)
    absent = ["--source", "user", "--target", "friend"]
    assert main(["train", "bare.tsv", *TRAIN, "run", *absent]) == 2
    line = error_line(capsys)
    assert "`source` must be a column of bare.tsv, got 'user'; it has" in line
    assert main(["train", "bare.tsv", *TRAIN, "run"]) == 0


def test_columns_named_by_numbers_are_those_of_the_first_line(stopped, capsys):
    Path("numbers.csv").write_text("1,2\n" + "3,4\n4,5\n5,3\n" * 9)
    named = ["--source", "1", "--target", "2"]
    stopped("numbers.csv", *TRAIN, "run", *named)
    assert main(["train", "numbers.csv", *TRAIN, "run"]) == 2
    assert "`source` '1' there, '' now" in last_line(capsys)
    assert main(["train", "numbers.csv", *TRAIN, "run", *named]) == 0


def without_columns(folder: str) -> None:
    """Makes the run one of the versions whose manifests of graphs had no columns."""
    run = Workdir(folder)
    facts = json.loads(run.corpus.read_text())
    assert facts["manifest"].pop() == {
        "columns": {"source": "user", "target": "friend", "weight": "calls"}
    }
    run.corpus.write_text(json.dumps(facts, indent=2) + "\n")
    run.sums.unlink(missing_ok=True)


def test_a_run_of_an_earlier_version_resumes(stopped, capsys):
    write_friends("friends.tsv")
    stopped("friends.tsv", *TRAIN, "run")
    without_columns("run")
    assert main(["train", "friends.tsv", *TRAIN, "run", *NAMED]) == 2
    assert "`source` '' there, 'user' now" in last_line(capsys)
    assert main(["train", "friends.tsv", *TRAIN, "run"]) == 0
    assert main(["train", "friends.tsv", *TRAIN, "run"]) == 0
    assert "finished before" in capsys.readouterr().out


def test_a_cached_graph_is_found_whether_its_columns_are_named_or_found():
    write_friends("friends.tsv")
    named = options(source="user", target="friend", weight="calls")
    first = encode_graph(open_graph("friends.tsv", named), named, Path("cache"))
    files = open_graph("friends.tsv", options())
    unread = files._replace(read=lambda: pytest.fail("it was read"))
    again = encode_graph(unread, options(), Path("cache"))
    assert again.content == first.content
    other = options(source="user", target="friend")
    found = encode_graph(open_graph("friends.tsv", other), other, Path("cache"))
    assert found.content != first.content


FOUND = EdgeColumns("a", "b", "w")


def test_columns_are_found_in_the_heads_of_files(caplog):
    Path("1").write_text("# c\n\n a , b , w \n1,2,0.5\n")
    Path("2").write_bytes(gzip.compress(b"\xef\xbb\xbfa b w\n1 2 3\n"))
    pl.DataFrame({"a": [1], "b": [2], "w": [1]}).write_parquet("3")
    Path("other").write_text("x y w\n1 2 3\n")
    Path("bare").write_text("1 2 3\n")
    Path("empty").write_text("# no edge\n")
    scipy.sparse.save_npz("m.npz", scipy.sparse.eye_array(3).tocsr())
    caplog.set_level("INFO")

    def find(*names: str, columns: EdgeColumns = EdgeColumns()):  # noqa: B008
        return find_columns([Path(name) for name in names], columns)

    assert find("1", "2", "3") == FOUND == find("3", "2", "1", columns=FOUND)
    assert find("1", columns=EdgeColumns("b", "a")) == EdgeColumns("b", "a")
    for names in (("1", "other"), ("1", "bare"), ("bare", "1"), ("empty",), ("m.npz",)):
        assert find(*names) is None
    assert not caplog.messages, "what is found is logged when the edges are read"


def test_the_head_of_a_text_is_that_of_its_reading(monkeypatch):
    """No more than the first piece is read, and the same one decides."""
    monkeypatch.setattr("embedder.graphs.edge_text._PIECE_BYTES", 64)
    Path("long").write_bytes(
        b"# comment\n" * 9 + b"a b\n1 2\n" + b"1 2\n" * 32 + b"\xff\n"
    )
    assert find_columns([Path("long")], EdgeColumns()) == EdgeColumns("a", "b")


@pytest.mark.row("B20", "B26", "B35")
def test_a_parquet_file_that_crashes_its_reader_is_refused(capsys, monkeypatch):
    """Its schema, too, is read by a child process first."""
    write_friends("friends.parquet")
    crash = Path("crash").absolute()
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr(untrusted.sys, "executable", str(crash))
    monkeypatch.setattr(
        pl.LazyFrame, "collect_schema", lambda _: pytest.fail("it was read here")
    )
    assert main(["train", "friends.parquet", *TRAIN, "run"]) == 2
    line = error_line(capsys)
    assert "friends.parquet is not a whole parquet file: a process that" in line
    assert not Path("run").exists()


@pytest.mark.row("B26")
def test_a_cut_parquet_file_is_refused_as_before(capsys):
    write_friends("friends.parquet")
    data = Path("friends.parquet").read_bytes()
    Path("friends.parquet").write_bytes(data[:-9])
    assert main(["train", "friends.parquet", *TRAIN, "run"]) == 2
    assert "friends.parquet is not a whole parquet file" in error_line(capsys)
    with pytest.raises(InputError, match="does not begin and end with PAR1"):
        open_graph("friends.parquet", options()).read()
