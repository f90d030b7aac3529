"""Edge lists of all formats give the same edges."""

import gzip
import logging
from pathlib import Path

import networkx
import numpy as np
import polars as pl
import pytest
import scipy.sparse

from embedder.data.graphs.csr import Edges
from embedder.data.graphs.edge_table import EdgeColumns
from embedder.data.graphs.edges import edges_of, read_edges
from embedder.data.tables import reader as tables

pytestmark = pytest.mark.usefixtures("own_folder")


def named(edges: Edges) -> list[tuple]:
    """The edges by the names of their ends, with the weight if there is one."""
    ends = [
        (edges.nodes[a], edges.nodes[b])
        for a, b in zip(edges.source, edges.target, strict=True)
    ]
    if edges.weight is None:
        return ends
    return [(*x, w) for x, w in zip(ends, edges.weight.tolist(), strict=True)]


def read(text: str | bytes, name: str = "graph", **columns: str) -> list[tuple]:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return named(read_edges([Path(name)], EdgeColumns(**columns)))


ROWS = [("a", "b", "1"), ("b", "c", ".5"), ("10", "9", "2e3")]
PLAIN = [("a", "b"), ("b", "c"), ("10", "9")]
WEIGHTED = [("a", "b", 1.0), ("b", "c", 0.5), ("10", "9", 2000.0)]
BIG = str(2**63 + 1)


@pytest.mark.parametrize("separator", ["\t", ",", ", ", ";", "|", " ", "   ", " \v "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_separator_is_read(separator, end):
    assert read(end.join(separator.join(row) for row in ROWS)) == WEIGHTED
    assert read(end.join(separator.join(row[:2]) for row in ROWS) + end) == PLAIN


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("\ufeff# a\n% b, 1, 2, 3\n\na b\n  b c  \n\n10 9\n", PLAIN),
        ("# c\nsource,target\nx,y\n", [("x", "y")]),
        ("# c\nFrom,To\nx,y\n", [("x", "y")]),
        ("# c\nSOURCE,TARGET,w\nx,y,2\n", [("x", "y", 2)]),
        ("# c\na,b,weight\nx,y,2\n", [("x", "y", 2)]),
        ("here there\n1 2\n3 4\n", [("1", "2"), ("3", "4")]),
        ("here there\n1 2\nx 4\n", [("here", "there"), ("1", "2"), ("x", "4")]),
        ('"Smith, J",b\nb,"c"\n', [("Smith, J", "b"), ("b", "c")]),
        (f"7 07\n{BIG} -1\n", [("7", "07"), (BIG, "-1")]),
    ],
)
def test_comments_headers_and_names(text, edges, caplog):
    """A line of names above integers is a header, above names it is an edge."""
    caplog.set_level(logging.INFO)
    assert read(text) == edges
    is_header = text.startswith("# c\n")
    assert ("graph: line 2 is the header." in caplog.messages) == is_header


def test_named_columns_are_picked_from_any_number():
    text = "id,time,user,item,n\n1,5,u,i,3\n2,6,u,j,4\n"
    columns = {"source": "user", "target": "item"}
    assert read(text, **columns) == [("u", "i"), ("u", "j")]
    assert read(text, **columns, weight="n") == [("u", "i", 3), ("u", "j", 4)]


def test_pieces_and_files_and_gzip_are_one_graph(monkeypatch):
    rng = np.random.default_rng(0)
    rows = [(f"n{a}", f"n{b}") for a, b in rng.integers(0, 50, (2000, 2))]
    text = "".join(f"{a}\t{b}\n" for a, b in rows)
    monkeypatch.setattr(tables, "BATCH_ROWS", 501)
    assert read(text) == rows
    assert read(gzip.compress(text.encode()), "g.gz") == rows
    assert read(gzip.compress(text.encode()), "gzip by content alone") == rows
    assert named(read_edges([Path("graph"), Path("g.gz")])) == rows * 2


def test_nodes_are_sorted_by_name_in_whatever_order_they_come():
    Path("a").write_text("b a\nc a\n")
    Path("b").write_text("c a\nb a\n")
    nodes = [read_edges([Path(name)]).nodes for name in "ab"]
    assert nodes == [["a", "b", "c"]] * 2


@pytest.mark.spread(1)
@pytest.mark.parametrize("dtype", [pl.Int64, pl.String, pl.UInt8, pl.Categorical])
def test_parquet_is_read_as_text_is(dtype):
    ends = {"x": [1, 2, 3], "y": [2, 3, 1]}
    frame = pl.DataFrame(ends).cast(pl.String).cast(dtype)
    frame.with_columns(w=pl.Series([1, 2, 4])).write_parquet("g.parquet")
    expected = [("1", "2", 1), ("2", "3", 2), ("3", "1", 4)]
    assert named(read_edges([Path("g.parquet")])) == expected
    columns = EdgeColumns("y", "x", "w")
    reverse = [(b, a, w) for a, b, w in expected]
    assert named(read_edges([Path("g.parquet")], columns)) == reverse


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_a_matrix_file_and_a_matrix_are_the_same(kind):
    matrix = scipy.sparse.random_array(
        (9, 9), density=0.3, rng=np.random.default_rng(0), format=kind
    )
    scipy.sparse.save_npz("m.npz", matrix)
    edges = read_edges([Path("m.npz")])
    assert edges.nodes == [str(v) for v in range(9)]
    dense = matrix.toarray()
    expected = {
        (str(a), str(b), dense[a, b]) for a, b in zip(*dense.nonzero(), strict=True)
    }
    assert {*named(edges)} == expected == {*named(edges_of(matrix).edges)}


def test_entries_of_zero_are_no_edges():
    matrix = scipy.sparse.csr_array(([0.0, 2.0], ([0, 1], [1, 0])), shape=(3, 3))
    assert named(edges_of(matrix).edges) == [("1", "0", 2)]


def test_graphs_of_networkx():
    graph = networkx.DiGraph([("a", "b"), ("b", 3)])
    graph.add_node("alone")
    graph["a"]["b"]["weight"] = 2
    edges, directed, key_type = edges_of(graph)
    assert directed and key_type == "text" and edges.nodes == ["a", "b", "3", "alone"]
    assert named(edges) == [("a", "b", 2), ("b", "3", 1)]
    multi = networkx.MultiGraph([(1, 2), (2, 1)])
    assert named(edges_of(multi).edges) == [("1", "2", 1)] * 2
    assert edges_of(multi).directed is False


def test_graphs_of_igraph():
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(0, 1), (1, 2)], directed=True)
    assert named(edges_of(graph).edges) == [("0", "1", 1), ("1", "2", 1)]
    graph.vs["name"] = ["x", "y", "z"]
    graph.es["weight"] = [2, 3]
    found = edges_of(graph)
    assert found.directed and named(found.edges) == [("x", "y", 2), ("y", "z", 3)]
