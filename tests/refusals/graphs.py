"""Graphs: edge lists, matrices and options that do not fit, damaged caches."""

import gzip
from pathlib import Path

import networkx
import numpy as np
import polars as pl

from embedder import EmbeddingTrainer
from tests.refusals.rows import Content, calls_of, rows_of, write

MATRIX = {
    "format": np.array(b"csr"),
    "shape": np.array([3, 3]),
    "data": np.ones(2),
    "indices": np.array([1, 0]),
    "indptr": np.array([0, 1, 2, 2]),
}
FILES: dict[str, Content] = {
    "one.tsv": "a\nb\n",
    "four.tsv": "1 2 3 4\n",
    "ragged.tsv": "a b\n# c\n\na b c\n",
    "return.csv": 'a,b\n"c"\rd,e\n',
    "quoted.csv": '"a",b\n"a"\n',
    "minus.tsv": "s t w\na b 1\nb c -1\n",
    "nan.tsv": "a b 1\nb c nan\n",
    "x.tsv": "a b 1\nb c x\n",
    "huge.tsv": "a b 1.5e308\na c 1e308\n",
    "end.csv": "a,b\n,c\n",
    "header.tsv": "source target\n",
    "empty.tsv": "# a b\n",
    "u.mtx": "%%MatrixMarket matrix coordinate real general\n5 3 1\n2 1 .5\n",
    "bip.konect": "% bip unweighted\n1 1\n2 1\n",
    "first.csv": "a,b,\nb,c,2\nc,a,1\n",
    "below/more/a.csv": "a,b\nb,c\n",
    "nul.tsv": "a b\0\n",
    "latin.tsv": b"a b\xe9\n",
    "loops.tsv": "1 1\n",
    "columns.csv": "a,b,c\nx,y,2\n",
    "bare.tsv": "0\t1\n1\t2\n",
    "cut.tsv.gz": gzip.compress(b"a b\n" * 99)[:-4],
    "cut.parquet": b"PAR1 and no more",
    "cut.npz": b"PK\x03\x04 and no more",
    "float.parquet": pl.DataFrame({"a": [1.5], "b": [2]}),
    "null.parquet": pl.DataFrame({"a": [1, None], "b": [2, 3]}),
    "parts/a.tsv": "a b 1\n",
    "parts/b.tsv": "a b\n",
    "labels.tsv": "1\tx\n2\tx\n",
}
WORDS = {
    "OF": "train --walks 1",
    "EDGES": "train edges.tsv --walks 4",
}
TEXT = r"""
[B26]
OF one.tsv
    one.tsv has the columns column_1: an edge list has two or three, or name them by
    --source, --target and --weight.
OF four.tsv
    four.tsv has the columns column_1, column_2, column_3, column_4: an edge list has
    two or three, or name them by --source, --target and --weight.
OF ragged.tsv
    ragged.tsv: all lines must have 2 columns as the first, got 3 in line 4.
OF return.csv
    return.csv: line 2 has a quote within a cell: '"c"\rd,e'. Write the quote twice and
    the cell in quotes; or separate columns by tabs: then quotes are letters.
OF quoted.csv
    quoted.csv line 2 has no target.
OF minus.tsv
    minus.tsv line 3: a weight must be a finite number > 0, got '-1' in `w`.
OF nan.tsv
    nan.tsv line 2: a weight must be a finite number > 0, got 'nan' in `column_3`.
OF x.tsv
    x.tsv line 2: a weight must be a finite number > 0, got 'x' in `column_3`.
OF end.csv
    end.csv line 2 has no source.
OF header.tsv
    header.tsv has no edge.
OF empty.tsv
    empty.tsv has no rows: all its lines are comments.
OF u.mtx
    u.mtx is not a whole sparse matrix of Matrix Market: the matrix of a graph must be
    square, got (5, 3).
OF bip.konect
    bip.konect is bipartite: nodes of both columns have the same numbers. Write them
    with different names, as u1 and v1.
OF first.csv
    first.csv line 1: a weight must be a finite number > 0, got none in `column_3`.
OF below
    Corpus below is a folder without edge lists.
OF nul.tsv
    nul.tsv is not text: it has a NUL byte.
OF latin.tsv
    latin.tsv is not UTF-8 text: byte 0xe9 in line 1: save it as UTF-8.
OF cut.tsv.gz
    cut.tsv.gz is not a whole .gz file: Compressed file ended before the
    end-of-stream marker was reached.
OF cut.parquet
    cut.parquet cannot be read: ….
OF cut.npz
    cut.npz is not a whole sparse matrix of scipy: File is not a zip file.
OF float.parquet
    `source` must be a column of integers or text: `a` of float.parquet has 1.5.
OF null.parquet
    null.parquet row 2 has no source.
OF parts/*.tsv
    All files must have a column of weights, or none.
OF none.tsv
    Corpus none.tsv does not exist.
OF columns.csv --source x --target b
    `source` must be a column of columns.csv, got 'x'; it has a, b, c.
OF columns.csv --source a
    columns.csv has the columns a, b, c: an edge list has two or three, or name them
    by --source, --target and --weight.
OF columns.csv --source a --target b --weight d
    `weight` must be a column of columns.csv, got 'd'; it has a, b, c.
OF bare.tsv --source user --target friend
    `source` must be a column of bare.tsv, got 'user'; it has column_1,
    column_2.
[B27]
OF loops.tsv
    A graph must have an edge between two nodes, got 1 edges, of which 1 are self
    loops.
OF huge.tsv
    The weights of the edges of a node add up to infinity.
[B26 B20]
train --walks 1
    `walks` needs a graph: give an edge list as the corpus.
EDGES --bootstrap
    `bootstrap` applies only to texts: walks over a graph are drawn anew by each
    seed.
EDGES --min-count 3
    `min_count` applies only to texts, got 3 with `walks` = 4.
EDGES --unicode-errors replace
    `unicode_errors` applies only to texts, got 'replace' with `walks` = 4.
train edges.tsv --p 2
    `p` applies only to graphs, got 2.0 with `walks` = 0: give --walks 10 for the edges
    of a graph.
train edges.tsv --walks-fixed
    `walks_fixed` applies only to graphs, got True with `walks` = 0: give --walks 10 for
    the edges of a graph.
EDGES --q 0
    `q` must be a number from 1e-06 to 1000000.0, got 0.0.
EDGES --walk-length 1
    `walk_length` must be an integer from 2 to 2000000, got 1.
train edges.tsv --walks -1
    `walks` must be an integer >= 0, got -1.
EDGES --resume graph --workdir more
    `resume` applies only to texts, not to a graph (`walks`).
parity --corpus edges.tsv --walks 2
    `walks` must be 0: the NumPy trainer has no graphs.
[B39]
EDGES --holdout 0.1 --best-by held-out
    `best_by` must be links or a file with `walks`, got 'held-out'.
train text.txt --holdout 0.1 --best-by links
    `best_by` must be held-out or next-item or a file without `walks`, got 'links'.
EDGES --best-by links
    `best_by` links needs `holdout`, such as 0.01, got 0.0.
EDGES --holdout 1e-9
    `holdout` = 1e-09 holds out none of 200 edges, of which each node keeps one:
    give a larger share, or a larger graph.
EDGES --best-by labels.tsv
    `labels` …/labels.tsv must have 2 labels or more of known nodes, got 1; unknown
    nodes: 0.
"""


def fit(graph: object = "edges.tsv", *arguments, **options) -> EmbeddingTrainer:
    return EmbeddingTrainer(vector_size=4).fit_graph(graph, *arguments, **options)


def matrix(**changes: object) -> EmbeddingTrainer:
    write(Path("m.npz"), MATRIX | changes)
    return fit("m.npz")


NEGATIVE = networkx.Graph()
NEGATIVE.add_edge(1, 2, weight=-1)
NAMES = {"fit": fit, "matrix": matrix, "np": np, "NEGATIVE": NEGATIVE}
NAMES |= {"TWINS": networkx.Graph([(1, "1")]), "GRAPH": networkx.path_graph(4)}
CALLS = r"""
[B26 B11]
matrix(shape=np.array([3, 2]))
    m.npz is not a whole sparse matrix of scipy: the matrix of a graph must be
    square, got (3, 2).
matrix(indices=np.array([9, 0]))
    m.npz is not a whole sparse matrix of scipy: an index must be from 0 to 2.
matrix(indices=np.array([-1, 0]))
    m.npz is not a whole sparse matrix of scipy: an index must be from 0 to 2.
matrix(data=np.array([1.0, np.nan]))
    m.npz is not a whole sparse matrix of scipy: a weight must be a finite number >=
    0.
matrix(data=np.ones(1))
    m.npz is not a whole sparse matrix of scipy: the matrix of a graph must have a
    number for each entry.
matrix(indptr=np.array([0, 2, 1, 2]))
    m.npz is not a whole sparse matrix of scipy: `indptr` must rise from 0, with an
    end for each row.
matrix(indptr=np.array([0, 2]))
    m.npz is not a whole sparse matrix of scipy: `indptr` must rise from 0, with an
    end for each row.
matrix(format=np.array(b"dia"))
    m.npz is not a whole sparse matrix of scipy: its format must be csr, csc or coo,
    got 'dia'.
[B26]
fit(NEGATIVE)
    A weight must be a finite number > 0, got -1 of the edge from 1 to 2.
fit(TWINS)
    The nodes of a graph must have different names, none empty.
fit([[1, 2]])
    InputTypeError: `graph` must be a path, a graph of networkx or igraph, or a
    sparse matrix of scipy, got list.
[B8 B26]
fit(walks=0)
    `walks` must be an integer >= 1, got 0.
fit(replicas="5")
    InputTypeError: `replicas` must be an integer >= 1, got '5'.
fit(p=0)
    `p` must be a number from 1e-06 to 1000000.0, got 0.
fit(directed=1)
    InputTypeError: `directed` must be True or False, got 1.
fit(GRAPH, source="a")
    `source`, `target` and `weight` are columns of a file.
[B39]
fit(holdout="0.1")
    InputTypeError: `holdout` must be a number in [0, 1), got '0.1'.
"""
ROWS = [*rows_of(TEXT, WORDS, FILES), *calls_of(CALLS, NAMES, FILES)]
