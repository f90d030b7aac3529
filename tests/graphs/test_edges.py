"""Edge lists of all formats give the same edges; what is no edge list is refused."""

import gzip
import logging
from pathlib import Path

import networkx
import numpy as np
import polars as pl
import pytest
import scipy.sparse

from embedder.errors import InputError, InputTypeError
from embedder.graphs import edge_text
from embedder.graphs.csr import Edges
from embedder.graphs.edge_table import EdgeColumns
from embedder.graphs.edges import read_edges
from embedder.graphs.objects import edges_of


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


PLAIN = [("a", "b"), ("b", "c"), ("10", "9")]
WEIGHTED = [("a", "b", 1.0), ("b", "c", 0.5), ("10", "9", 2000.0)]


@pytest.mark.parametrize("separator", ["\t", ",", ", ", ";", "|", " ", "   ", " \v "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_separator_is_read(separator, end):
    rows = [("a", "b", "1"), ("b", "c", ".5"), ("10", "9", "2e3")]
    text = end.join(separator.join(row) for row in rows)
    assert read(text) == WEIGHTED
    assert read(end.join(separator.join(row[:2]) for row in rows) + end) == PLAIN


def test_comments_marks_and_blank_lines_are_left_out():
    text = "\ufeff# a comment\n% another, 1, 2, 3\n\na b\n  b c  \n#x y\n\n10 9\n"
    assert read(text) == PLAIN


@pytest.mark.parametrize(
    "header", ["source,target", "From,To", "src,dst", "SOURCE,TARGET,w", "a,b,weight"]
)
def test_a_usual_header_is_recognised_and_logged(header, caplog):
    caplog.set_level(logging.INFO)
    width = header.count(",") + 1
    text = "# c\n" + header + "\n" + "x,y,2\n"[: 2 * width - 1] + "\n"
    assert read(text) == [("x", "y", 2.0)[:width]]
    assert "graph: line 2 is the header." in caplog.messages


def test_names_above_integers_are_a_header_and_above_names_are_not():
    assert read("here there\n1 2\n3 4\n") == [("1", "2"), ("3", "4")]
    assert read("here there\n1 2\nx 4\n")[0] == ("here", "there")


def test_named_columns_are_picked_from_any_number():
    text = "id,time,user,item,n\n1,5,u,i,3\n2,6,u,j,4\n"
    columns = {"source": "user", "target": "item"}
    assert read(text, **columns) == [("u", "i"), ("u", "j")]
    assert read(text, **columns, weight="n") == [("u", "i", 3), ("u", "j", 4)]


def test_quoted_cells_may_hold_the_separator():
    assert read('"Smith, J",b\nb,"c"\n') == [("Smith, J", "b"), ("b", "c")]


def test_ids_are_text():
    big = str(2**63 + 1)
    assert read(f"7 07\n{big} -1\n") == [("7", "07"), (big, "-1")]


def test_pieces_and_files_and_gzip_are_one_graph(monkeypatch):
    rng = np.random.default_rng(0)
    rows = [(f"n{a}", f"n{b}") for a, b in rng.integers(0, 50, (2000, 2))]
    text = "".join(f"{a}\t{b}\n" for a, b in rows)
    monkeypatch.setattr(edge_text, "_PIECE_BYTES", 501)
    assert read(text) == rows
    assert read(gzip.compress(text.encode()), "g.gz") == rows
    assert read(gzip.compress(text.encode()), "gzip by content alone") == rows
    assert named(read_edges([Path("graph"), Path("g.gz")])) == rows * 2


def test_nodes_are_sorted_by_name_in_whatever_order_they_come():
    Path("a").write_text("b a\nc a\n")
    Path("b").write_text("c a\nb a\n")
    nodes = [read_edges([Path(name)]).nodes for name in "ab"]
    assert nodes == [["a", "b", "c"]] * 2


@pytest.mark.spread(3)
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
    edges, directed = edges_of(graph)
    assert directed and edges.nodes == ["a", "b", "3", "alone"]
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


BAD = {
    "one column": ("a\nb\n", r"columns column 1: an edge list has two or three"),
    "four": ("1 2 3 4\n", "name them by --source, --target and --weight"),
    "ragged": (
        "a b\n# c\n\na b c\n",
        "must have 2 columns as the first, got 3 in line 4",
    ),
    "short": ("a b 1\na b\n", "must have 3 columns as the first, got 2 in line 2"),
    "quoted": ('"a",b\n"a"\n', "must have 2 columns as the first, got 1 in line 2"),
    "weight 0": ("a b 1\nb c 0\n", r"a finite number > 0, got '0' in line 2"),
    "weight -1": ("s t w\na b 1\nb c -1\n", r"finite number > 0, got '-1' in line 3"),
    "weight nan": ("a b 1\nb c nan\n", r"finite number > 0, got 'nan' in line 2"),
    "weight inf": ("a b 1\nb c inf\n", r"finite number > 0, got 'inf' in line 2"),
    "weight x": ("a b 1\nb c x\n", r"finite number > 0, got 'x' in line 2"),
    "no end": ("a,b\n,c\n", "has no source in line 2"),
    "nothing": ("", "has no edge"),
    "comments": ("# a b\n", "has no edge"),
    "header": ("source target\n", "has no edge"),
    "json": ('{"a": 1, "b": 2}\n', "is JSON, not an edge list"),
    "nul": ("a b\0\n", "it has a NUL byte"),
    "latin": (b"a b\xe9\n", "is not UTF-8 text: byte 0xe9"),
    "cut gzip": (gzip.compress(b"a b\n" * 99)[:-4], "is not a whole .gz file"),
    "cut parquet": (b"PAR1 and no more", "is not a whole parquet file"),
    "cut npz": (b"PK\x03\x04 and no more", "is not a whole sparse matrix of scipy"),
}


@pytest.mark.row("B26")
@pytest.mark.parametrize("case", BAD)
def test_what_is_no_edge_list_is_refused(case):
    text, message = BAD[case]
    with pytest.raises(InputError, match=message) as error:
        read(text)
    assert "graph" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.row("B26")
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"source": "x", "target": "b"}, "`source` must be a column of graph, got 'x'"),
        ({"source": "a"}, "graph has the columns a, b, c: .* name them"),
        ({"source": "a", "target": "b", "weight": "d"}, "`weight` must .* got 'd'"),
    ],
)
def test_unknown_columns_are_refused(columns, message):
    with pytest.raises(InputError, match=message):
        read("a,b,c\nx,y,2\n", **columns)


@pytest.mark.row("B26")
def test_bad_tables_are_refused():
    path = Path("g.parquet")
    for frame, message in (
        ({"a": [1.5], "b": [2]}, "column a must be text or integers, got Float64"),
        ({"a": [1, None], "b": [2, 3]}, "has no source in row 2"),
        ({"a": [1], "b": [2], "w": [-1.0]}, "finite number > 0, got -1.0 in row 1"),
        ({"a": [1]}, "has the columns a: an edge list has two or three"),
    ):
        pl.DataFrame(frame).write_parquet(path)
        with pytest.raises(InputError, match=message):
            read_edges([path])


@pytest.mark.row("B26")
def test_weights_in_some_files_only_are_refused():
    Path("a").write_text("a b 1\n")
    Path("b").write_text("a b\n")
    with pytest.raises(InputError, match="a column of weights, or none"):
        read_edges([Path("a"), Path("b")])


@pytest.mark.row("B26", "B11")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": np.array([3, 2])}, "must be square"),
        ({"indices": np.array([9, 0])}, "an index must be from 0 to 2"),
        ({"indices": np.array([-1, 0])}, "an index must be from 0 to 2"),
        ({"data": np.array([1.0, np.nan])}, "a finite number >= 0"),
        ({"data": np.array([1.0, -1])}, "a finite number >= 0"),
        ({"data": np.ones(1)}, "a number for each entry"),
        ({"indptr": np.array([0, 2, 1, 2])}, "`indptr` must rise"),
        ({"indptr": np.array([0, 2])}, "`indptr` must rise"),
        ({"format": np.array(b"dia")}, "csr, csc or coo, got 'dia'"),
        ({"data": np.array([None, 1])}, "pickled objects"),
    ],
)
def test_bad_matrices_are_refused(changes, message):
    arrays = {
        "format": np.array(b"csr"),
        "shape": np.array([3, 3]),
        "data": np.ones(2),
        "indices": np.array([1, 0]),
        "indptr": np.array([0, 1, 2, 2]),
    }
    np.savez("m.npz", **arrays)
    assert named(read_edges([Path("m.npz")])) == [("0", "1", 1), ("1", "0", 1)]
    np.savez("m.npz", **arrays | changes)
    with pytest.raises(InputError, match=f"m.npz is not a whole .*{message}"):
        read_edges([Path("m.npz")])


@pytest.mark.row("B26")
def test_bad_objects_are_refused():
    graph = networkx.Graph([(1, 2)])
    graph[1][2]["weight"] = -1
    with pytest.raises(InputError, match="got -1 of the edge from 1 to 2"):
        edges_of(graph)
    with pytest.raises(InputError, match="different names"):
        edges_of(networkx.Graph([(1, "1")]))
    with pytest.raises(InputTypeError, match="a path, a graph of networkx.*got list"):
        edges_of([[1, 2]])
