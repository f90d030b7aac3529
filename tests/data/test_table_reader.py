"""The one reader of tables gives the same rows, whatever form they are written in."""

import bz2
import gzip
import json
import logging
import lzma
import subprocess
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import networkx
import numpy as np
import pandas
import polars as pl
import pytest

from embedder import FeatureEncoder, read_names
from embedder.cli.main import main
from embedder.data.graphs.edge_table import EdgeColumns
from embedder.data.graphs.edges import read_edges
from embedder.data.label_files import read_labels
from embedder.data.sources import file_corpus
from embedder.data.tables.reader import open_table
from embedder.data.tables.text_form import Roles
from embedder.errors import InputError
from tests.data.test_sessions import lists
from tests.graphs.test_edges import named as named_edges

pytestmark = pytest.mark.usefixtures("own_folder")
SESSIONS = Roles(
    {"session": ("session",), "item": ("item",)}, needed=("session", "item")
)
ROWS = [("s", "a"), ("s", "007"), ("t", "b c")]
PLAIN = "session,item\ns,a\ns,007\nt,b c\n"


def rows(paths: str | Sequence[str], roles: Roles = SESSIONS) -> list[tuple]:
    paths = [paths] if isinstance(paths, str) else paths
    table = open_table([*map(Path, paths)], roles)
    return table.read(["session", "item"], ["session", "item"]).rows()


def sessions_of(path: str) -> list[list[str]]:
    return lists(file_corpus(path))


FORMS: dict[str, str | bytes] = {
    "plain.csv": PLAIN,
    "tabs.tsv": PLAIN.replace(",", "\t"),
    "semicolons.csv": PLAIN.replace(",", ";"),
    "bars.txt": PLAIN.replace(",", "|"),
    "colons.dat": PLAIN.replace(",", "::"),
    "said.csv": "sep=;\n" + PLAIN.replace(",", ";"),
    "windows.csv": PLAIN.replace("\n", "\r\n"),
    "old mac.csv": PLAIN.replace("\n", "\r"),
    "mark.csv": "\ufeff" + PLAIN,
    "utf16.csv": PLAIN.encode("utf-16"),
    "utf32.csv": PLAIN.encode("utf-32"),
    "packed.CSV.GZ": gzip.compress(PLAIN.encode()),
    "packed.csv.bz2": bz2.compress(PLAIN.encode()),
    "packed.csv.xz": lzma.compress(PLAIN.encode()),
    "comments.csv": "# of March, 2024\n%% x\n\n" + PLAIN,
    "quoted.csv": PLAIN.replace("b c", '"b c"').replace("s,a", '"s","a"'),
    "other order.csv": "item,x,session\na,1,s\n007,2,s\nb c,3,t\n",
    "empty name.csv": "session,item,\ns,a,1\ns,007,2\nt,b c,3\n",
    "number.csv": "session,item,2024\ns,a,1\ns,007,2\nt,b c,3\n",
    "twice.csv": "session,item,n,n\ns,a,1,1\ns,007,2,2\nt,b c,3,3\n",
    "index.csv": ",session,item\n0,s,a\n1,s,007\n2,t,b c\n",
    "mixed.tsv": "session\titem\ttitle\ns\ta\tx,y,z\ns\t007\tx,y,z\nt\tb c\tx,y,z\n",
    "inch.tsv": 'session\titem\ttitle\ns\ta\t5" x\ns\t007\t"x\nt\t"b c"\ty"\n',
    "lines.jsonl": "".join(
        json.dumps({"session": s, "item": i}) + "\n" for s, i in ROWS
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_rows_are_the_same_in_any_form(name):
    data = FORMS[name]
    Path(name).write_bytes(data.encode() if isinstance(data, str) else data)
    assert rows(name) == ROWS


@pytest.mark.spread(1)
@pytest.mark.parametrize("write", ["write_parquet", "write_ipc", "write_ipc_stream"])
def test_typed_columns_are_those_of_text(write):
    getattr(pl.DataFrame(ROWS, schema=["session", "item"], orient="row"), write)("x")
    assert rows("x") == ROWS
    frame = pl.DataFrame({"item": [1.0, None, 2**53 - 1], "session": [7, 8, None]})
    getattr(frame, write)("y")
    assert rows("y") == [("7", "1"), ("8", None), (None, str(2**53 - 1))]
    numbers = [Decimal("20.00"), Decimal(f"{2**60}.00")]
    frame = pl.DataFrame({"item": numbers, "session": ["a", "b"]})
    getattr(frame, write)("z")
    assert rows("z") == [("a", "20"), ("b", str(2**60))]


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        (["20.0", "21.0", ""], ["20", "21", None]),
        (["20.0", "21.5", ""], ["20.0", "21.5", None]),
        (["007", "7.0"], ["007", "7.0"]),
        (["20", "20.0"], ["20", "20.0"]),
        ([*["20.0"] * 2000, "21.5"], [*["20.0"] * 2000, "21.5"]),
    ],
)
def test_integers_that_a_program_made_floats_are_integers(cells, keys):
    Path("a.csv").write_text("session,item\n" + "".join(f"s,{x}\n" for x in cells))
    assert [item for _, item in rows("a.csv")] == keys


def test_each_file_says_whether_its_integers_are_floats():
    Path("a.csv").write_text("session,item\ns,20\n")
    Path("b.csv").write_text("session,item\ns,20.0\ns,21.0\n")
    assert [item for _, item in rows(["a.csv", "b.csv"])] == ["20", "20", "21"]


def test_parts_may_differ():
    """In types, in the order of columns, and in columns that are not read."""
    pl.DataFrame({"session": [1], "item": ["a"], "price": [1]}).write_parquet("a")
    part = {"price": [1.5], "more": [None], "item": [2], "session": [2.0]}
    pl.DataFrame(part).write_parquet("b")
    pl.DataFrame({"item": ["c"], "session": [2**53 + 1]}).write_parquet("c")
    assert rows(["a", "b", "c"]) == [("1", "a"), ("2", "2"), (str(2**53 + 1), "c")]


def test_lines_of_json_are_looked_at_whole():
    lines = [{"session": k // 4, "item": k % 50} for k in range(400)]
    lines[250]["item"] = "85123A"
    Path("dir[1]").mkdir()
    Path("dir1").mkdir()
    Path("dir1/a.jsonl").write_text('{"session": 1, "item": "wrong"}\n')
    Path("dir[1]/a.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    items = [item for _, item in rows("dir[1]/a.jsonl")]
    assert items == [str(line["item"]) for line in lines]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_values_of_partitions_are_text(ending):
    writers = {"csv": "write_csv", "jsonl": "write_ndjson", "parquet": "write_parquet"}
    for code in ("01001", "1001"):
        folder = Path(f"h/session={code}")
        folder.mkdir(parents=True)
        getattr(pl.DataFrame({"item": ["a"]}), writers[ending])(folder / f"0.{ending}")
    paths = sorted(map(str, Path("h").rglob("0.*")))
    assert rows(paths) == [("01001", "a"), ("1001", "a")]


# --- an index


def shuffled(frame: pandas.DataFrame, path: str) -> str:
    """Writes the rows in another order, of which their index tells."""
    rows = frame.sample(frac=1, random_state=0)
    (rows.to_csv if path.endswith(".csv") else rows.to_parquet)(path)
    return path


KARATE = networkx.karate_club_graph()
CLUBS = pandas.DataFrame(
    {"node": [*KARATE], "club": [KARATE.nodes[n]["club"].split()[0] for n in KARATE]}
)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_an_index_is_no_column(ending, caplog, capsys):
    """Neither of edges, nor of features, names or labels."""
    caplog.set_level(logging.INFO)
    ends = pandas.DataFrame(KARATE.edges, columns=["source", "target"])
    edges = read_edges([Path(shuffled(ends, f"e.{ending}"))])
    assert edges.weight is None
    assert len(edges.nodes) == 34
    assert sum("is an index, left out" in line for line in caplog.messages) == 1
    titles = pandas.DataFrame({"item": [5, 6], "title": ["x", "y"]})
    assert read_names(shuffled(titles, f"n.{ending}")).of_key == {"5": "x", "6": "y"}
    networkx.write_edgelist(KARATE, "k.tsv", data=False)
    train = "train k.tsv --walks 1 --epochs 0 --vector-size 2 --workdir k --no-report"
    assert main(train.split()) == 0
    CLUBS.to_csv("plain.csv", index=False)
    printed = []
    for name in ("plain.csv", shuffled(CLUBS, f"c.{ending}")):
        capsys.readouterr()
        assert main(["evaluate", "k", "--labels", name]) == 0
        printed.append(capsys.readouterr().out.partition(":")[2])
    assert "34 nodes with 2 labels" in printed[0] == printed[1]


def test_a_named_index_is_a_column_that_can_be_named():
    frame = pandas.DataFrame({"session": ["s", "t"], "item": ["a", "b"]})
    frame.set_index("session").to_parquet("x.parquet")
    assert rows("x.parquet") == [("s", "a"), ("t", "b")]
    frame.set_index(pandas.Index(["v", "w"], name="visit")).to_parquet("y.parquet")
    table = open_table([Path("y.parquet")], SESSIONS)
    assert table.names == ["session", "item"]
    pl.read_parquet("y.parquet").rename({"visit": "__index_level_0__"}).write_ipc("z")
    assert open_table([Path("z")], SESSIONS).names == ["session", "item"]
    asked = open_table([Path("y.parquet")], Roles(asked=("visit",)))
    assert asked.read(["visit"])["visit"].to_list() == ["v", "w"]


def test_features_are_those_of_the_table_without_its_index():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    frame["label"] = np.repeat(["x", "y"], 20)
    train = "--model encoder --epochs 1 --no-report --layers 2 3 2".split()
    found = []
    for name in ("f.parquet", "f.csv"):
        run = ["--workdir", f"run-{name}"]
        assert main(["train", shuffled(frame, name), *train, *run]) == 0
        encoder = FeatureEncoder.load(f"run-{name}/model.npz")
        found.append(encoder.transform(frame[["a", "b"]]))
    np.testing.assert_array_equal(*found)


# --- edges


def named(path: str) -> list[tuple]:
    return named_edges(read_edges([Path(path)]))


AB, BC = ("a", "b"), ("b", "c")
EDGES = {
    "#python\t#jax\n#jax\tann\n": [("#python", "#jax"), ("#jax", "ann")],
    "# of tags\n#x y\nann #x\n": [("#x", "y"), ("ann", "#x")],
    "a;b;1,5\nb;c;2,5\n": [(*AB, 1.5), (*BC, 2.5)],
    "% sym weighted\n1 2 4\t1216\n2 3 1\t1216\n": [("1", "2", 4.0), ("2", "3", 1.0)],
    "source,target,\na,b,3\nb,c,2\n": [(*AB, 3.0), (*BC, 2.0)],
    "time,target,source\n5,b,a\n6,c,b\n": [AB, BC],
    "edge,source,target\n0,a,b\n1,b,c\n2,c,a\n": [AB, BC, ("c", "a")],
    "strength,source,target\n1,a,b\n2,b,c\n3,c,a\n": [
        *((*AB, 1.0), (*BC, 2.0), ("c", "a", 3.0))
    ],
    "source,target,year\na,b,1999\nb,c,2000\n": [AB, BC],
    "user_id,item_id\na,b\nb,c\n": [AB, BC],
    "author_id,paper_id\na,b\nb,c\n": [AB, BC],
    "authorId paperId n\na b 3\nb c 2\n": [(*AB, 3.0), (*BC, 2.0)],
    "my_id your_id\nb_id c_id\n": [("my_id", "your_id"), ("b_id", "c_id")],
    "Source Node,Target Node\na,b\nb,c\n": [AB, BC],
    "follower follows\na b\n": [("follower", "follows"), AB],
    "a b {}\nb c {}\n": [AB, BC],
    "1.0 2.0\n\n2.0 3.0\n": [("1", "2"), ("2", "3")],
    "1.0 2.5\n2.0 3.0\n": [("1", "2.5"), ("2", "3.0")],
    "a b {'weight': 4, 'x': 'y z'}\nb c {'x': 1}\n": [(*AB, 4.0), (*BC, 1.0)],
    "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n": [
        *(("2", "1"), ("3", "2"))
    ],
    "%%MatrixMarket matrix coordinate real general\n3 3 2\n2 1 .5\n3 2 2\n": [
        *(("2", "1", 0.5), ("3", "2", 2.0))
    ],
    '{"source": "a", "target": "b"}\n{"target": "c", "source": "b"}\n': [AB, BC],
}


@pytest.mark.parametrize("text", EDGES)
def test_edge_lists_of_other_programs(text):
    Path("edges").write_text(text)
    assert named("edges") == EDGES[text]


TEAMS = pandas.DataFrame({"person": [3, 1, 2], "team": ["a", "a", "b"]})
LABELS = {
    "index.csv": lambda frame, to: frame.set_index("person").team.to_csv(to),
    "no name.csv": lambda frame, to: (
        frame.set_index("person").rename_axis(None).team.to_csv(to)
    ),
    "numbers.csv": lambda frame, to: frame.to_csv(to),
    "floats.csv": lambda frame, to: frame.set_index(
        frame.person.astype(float).rename(None)
    ).team.to_csv(to),
    "cut.csv": lambda frame, to: frame.to_csv(to, index=False, header=False),
    "usual.csv": lambda frame, to: frame.rename(columns={"person": "id"}).to_csv(to),
    "index.parquet": lambda frame, to: (
        frame.set_index("person").rename_axis(None).to_parquet(to)
    ),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_as_pandas_writes_them(name):
    """The index is the node, unless a column has more nodes."""
    LABELS[name](TEAMS, name)
    found = read_labels(Path(name), ["1", "2", "3", "4"])
    assert (found.names, found.rows.tolist()) == (["a", "b"], [0, 1, 2])
    assert found.has_label.tolist() == [[True, False], [False, True], [True, False]]


def test_labels_that_are_as_many_as_nodes_are_warned_of(caplog):
    TEAMS.assign(name=["x", "y", "z"]).to_csv("names.csv", index=False, header=False)
    read_labels(Path("names.csv"), ["1", "2", "3"])
    assert "names.csv has 5 labels for 3 nodes: is a column no label?" in caplog.text
    TEAMS[["team"]].to_parquet("alone.parquet")
    with pytest.raises(InputError, match="got team alone: write an index of pandas as"):
        read_labels(Path("alone.parquet"), ["1", "2", "3"])


def test_values_of_partitions_are_no_weights():
    folder = Path("of/year=2020/month=01")
    folder.mkdir(parents=True)
    (folder / "e.csv").write_text("source,target\na,b\nb,c\n")
    pl.DataFrame({"a": ["a", "b"], "b": ["b", "c"]}).write_parquet(folder / "e")
    assert named(str(folder / "e.csv")) == named(str(folder / "e")) == [AB, BC]
    edges = read_edges([folder / "e.csv"], EdgeColumns("source", "target", "year"))
    assert edges.weight is not None and edges.weight.tolist() == [2020, 2020]


def test_columns_of_edges_without_a_header_have_numbers():
    Path("e.tsv").write_text("x\t1\ty\nx\t2\tz\n")
    train = "train e.tsv --walks 1 --epochs 0 --vector-size 2 --no-report".split()
    columns = ["--source", "column_1", "--target", "column_3"]
    assert main([*train, *columns, "--workdir", "run"]) == 0
    _, *lines = Path("run/vectors.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"x", "y", "z"}


# --- sessions


def test_headers_amid_rows_are_left_out_and_strange_keys_are_warned_of(caplog):
    lines = [f"{k // 3 if k > 500 else -1},{k % 70}\n" for k in range(12_000)]
    text = "session,item\n" + "".join(lines[:9000])
    Path("a.csv").write_text(text + "session,item\nNULL,3\n" + "".join(lines[9000:]))
    sessions_of("a.csv")
    said = " ".join(caplog.messages)
    assert "headers amid the rows, left out: 1" in said
    assert "as NULL, NA or nan in session or item, which are read as keys: 1." in said
    assert "the longest session has 501 of 12001 rows" in said


def test_times_may_have_fractions_later():
    times = [f"2020-01-01 10:00:{k % 60:02d}" for k in range(150)]
    rows = [f"s,i{k},{t}" for k, t in enumerate(times)]
    last = "s,x,2020-01-01 10:00:00.5"
    Path("a.csv").write_text("\n".join(["session,item,time", *rows, last]))
    (session,) = sessions_of("a.csv")
    assert session[:4] == ["i0", "i60", "i120", "x"]


@pytest.mark.parametrize("order", [1, -1])
def test_files_and_streams_of_arrow_are_one_table(order):
    frame = pl.DataFrame({"session": ["s"], "item": ["a"]})
    frame.write_ipc("file.arrow")
    frame.write_ipc_stream("stream.arrow")
    paths = [Path("file.arrow"), Path("stream.arrow")][::order]
    assert open_table(paths, SESSIONS).read(["item"]).rows() == [("a",), ("a",)]


def test_a_process_of_its_own_reads_each_state_of_a_file_once(monkeypatch):
    frame = pl.DataFrame(ROWS, ["session", "item"], orient="row")
    frame.write_parquet("a.parquet")
    started, run = [], subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **k: started.append(a) or run(*a, **k)
    )
    assert rows("a.parquet") == rows("a.parquet") == ROWS
    assert len(started) == 1
    damaged = bytearray(Path("a.parquet").read_bytes())
    damaged[4:40] = bytes(36)
    Path("a.parquet").write_bytes(damaged)
    for number in (2, 3):
        with pytest.raises(ValueError, match="Invalid thrift"):
            rows("a.parquet")
        assert len(started) == number  # a failure is not kept
