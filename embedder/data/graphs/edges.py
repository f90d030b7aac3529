"""Reads edge lists in tables, and sparse matrices of scipy and of Matrix Market.

The format is recognised by the content. Names of nodes are kept as text. Tables are
read in pieces. Equal names of all files are the same node; nodes are sorted by name.
"""

import gzip
import logging
import warnings
import zipfile
import zlib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from embedder.base.stages import report_stage
from embedder.data.encode import first_positions
from embedder.data.graphs.csr import Edges, check_building_room, inverse
from embedder.data.graphs.edge_table import EdgeColumns, EdgeTable
from embedder.data.tables.text_form import MISSING_WORDS, head_of
from embedder.disk.arrays import read_npz_array
from embedder.disk.files import short_reason
from embedder.errors import InputError, InputTypeError
from embedder.vectors.vectors import KeyType, as_integers

_MAX_NODES = 2**31 - 1
_log = logging.getLogger(__name__)
_ZIP, _MATRIX_MARKET = b"PK\x03\x04", b"%%matrixmarket"


def read_edges(
    paths: Sequence[Path],
    columns: EdgeColumns = EdgeColumns(),  # noqa: B008
) -> Edges:
    """The edges in files.

    Args:
      columns: names of the columns; "": those with usual names, else the first two,
        and a third for the weights.

    Raises:
      InputError: a file is no edge list, or is damaged; the message names the line.
      OSError: it cannot be read.
    """
    matrices = [path for path in paths if _is_matrix(path)]
    if matrices:
        if len(paths) > 1:
            raise InputError(f"{matrices[0]} must be the only file.")
        return _matrix(matrices[0], columns)
    names = _Names()
    parts: list[_Part] = []
    num_edges = 0
    report_stage(f"reading {paths[0]}")
    for path in paths:
        for frame in EdgeTable(path, columns).frames():
            num_edges += len(frame)
            has_weights = "weight" in frame.columns
            check_building_room(num_edges, has_weights)  # a small .gz can have any
            parts.append(names.numbered(frame))
            report_stage(f"reading {path}: {num_edges:,} edges")
    if not any(len(part.source) for part in parts):
        raise InputError(f"{paths[0]} has no edge.")
    kinds_of_parts = {part.weight is not None for part in parts if len(part.source)}
    if len(kinds_of_parts) > 1:
        raise InputError("All files must have a column of weights, or none.")
    edges = names.joined(parts)
    if missing := {*MISSING_WORDS} & {*edges.nodes}:
        _log.warning(
            "%s: nodes are called %s: leave these cells empty if values are missing.",
            *(paths[0], ", ".join(sorted(missing))),
        )
    return edges


def find_columns(paths: Sequence[Path], columns: EdgeColumns) -> EdgeColumns | None:
    """The named columns that `read_edges` reads, found in the heads of the files.

    None: a file has no names of columns, or others than the first.

    Args:
      columns: as of `read_edges`.

    Raises:
      OSError, InputError: see `read_edges`.
    """
    if any(map(_is_matrix, paths)):
        return None
    columns_of_files = {EdgeTable(path, columns).columns for path in paths}
    return columns_of_files.pop() if len(columns_of_files) == 1 else None


def _is_matrix(path: Path) -> bool:
    """Whether a file has a sparse matrix: of scipy, or of Matrix Market."""
    head = head_of(path, 64)
    return head.startswith(_ZIP) or head.lower().startswith(_MATRIX_MARKET)


def _matrix(path: Path, columns: EdgeColumns) -> Edges:
    if any(columns):
        raise InputError(
            f"{path} is a matrix: `source`, `target`, `weight` need names."
        )
    faults = (OSError, ValueError, LookupError, zipfile.BadZipFile, zlib.error)
    is_text = not head_of(path, 64).startswith(_ZIP)
    try:
        return read_matrix_market(path) if is_text else read_matrix(path)
    except (*faults, EOFError, RuntimeError, TypeError) as error:
        kind = "of Matrix Market" if is_text else "of scipy"
        raise InputError(
            f"{path} is not a whole sparse matrix {kind}: {short_reason(error)}."
        ) from error


class _Part(NamedTuple):
    source: np.ndarray  # u32[m], categories
    target: np.ndarray
    weight: np.ndarray | None  # f64[m]


class _Names:
    """Numbers names as they come, and in the end by their order."""

    def __init__(self):
        # Polars forgets the numbers of categories when no column has them.
        kind = pl.Categorical(pl.Categories.random())
        self._known = pl.Series("name", [], dtype=kind)
        self._names: list[str] = []  # by the number that Polars gives

    def numbered(self, frame: pl.DataFrame) -> _Part:
        """The part with names as numbers."""
        source, target = (self._numbers(frame[name]) for name in ("source", "target"))
        has_weight = "weight" in frame.columns
        weight = frame["weight"].to_numpy() if has_weight else None
        return _Part(source, target, weight)

    def _numbers(self, names: pl.Series) -> np.ndarray:
        coded = names.cast(self._known.dtype)
        numbers = coded.to_physical().to_numpy().astype(np.uint32)
        num_known = len(self._names)
        self._names += names.gather(first_positions(numbers, num_known)).to_list()
        return numbers

    def joined(self, parts: Sequence[_Part]) -> Edges:
        """All parts, with the nodes sorted by name."""
        if len(self._names) > _MAX_NODES:
            raise InputError(f"A graph must have at most {_MAX_NODES} nodes.")
        names = pl.Series("name", self._names, dtype=pl.String)
        order = names.arg_sort().to_numpy()
        rank = inverse(order)
        source = rank[np.concatenate([part.source for part in parts])]
        target = rank[np.concatenate([part.target for part in parts])]
        weights = [part.weight for part in parts if part.weight is not None]
        weight = np.concatenate(weights) if weights else None
        return Edges(names.gather(order).to_list(), source, target, weight)


def read_matrix(path: Path) -> Edges:
    """The graph in an untrusted file of `scipy.sparse.save_npz`, as csr, csc or coo.

    Raises:
      InputError: it is another matrix, is damaged, or as `matrix_edges`.
      KeyError, ValueError, zipfile.BadZipFile: an array is missing or damaged.
    """
    with zipfile.ZipFile(path) as archive:

        def read(name: str) -> np.ndarray:
            return read_npz_array(archive, name)

        kind = read("format").item()
        kind = kind.decode() if isinstance(kind, bytes) else kind
        shape = tuple(int(size) for size in read("shape"))
        data = read("data")
        if kind == "coo":
            row, column = read("row"), read("col")
        elif kind in ("csr", "csc"):
            major = _rows_of(read("indptr"), shape["csr" != kind])
            minor = read("indices")
            row, column = (major, minor) if kind == "csr" else (minor, major)
        else:
            raise InputError(f"its format must be csr, csc or coo, got {kind!r}")
    return matrix_edges(row, column, data, shape)


def read_matrix_market(path: Path) -> Edges:
    """The graph in a file of Matrix Market; nodes are named "1" to "V", as in it.

    Of a symmetric matrix, each entry of the file is an edge once.

    Raises:
      InputError: it is another matrix, or as `matrix_edges`.
      ValueError, OSError: it is damaged.
    """
    from scipy import io

    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if is_gzip else path.open("rb") as file:
        *shape, num_entries, form, field, symmetry = io.mminfo(file)
    if (
        form != "coordinate"
        or field == "complex"
        or symmetry.startswith(("s", "h")) != (symmetry == "symmetric")
    ):
        raise InputError(
            f"it must be coordinates of a general or symmetric matrix of numbers, got "
            f"{form}, {field}, {symmetry}"
        )
    check_building_room(num_entries, has_weights=True)
    with gzip.open(path) if is_gzip else path.open("rb") as file:
        with warnings.catch_warnings():  # of a change of its type, which is no matter
            warnings.simplefilter("ignore", DeprecationWarning)
            matrix = io.mmread(file).tocoo()
    row, column, data = matrix.row, matrix.col, matrix.data
    if symmetry == "symmetric":
        is_once = row >= column
        row, column, data = row[is_once], column[is_once], data[is_once]
    edges = matrix_edges(row, column, data, matrix.shape)
    return edges._replace(
        nodes=[str(v + 1) for v in range(len(edges.nodes))],
        weight=None if field == "pattern" else edges.weight,
    )


def _rows_of(bounds: np.ndarray, num_rows: int) -> np.ndarray:
    """The row of each entry, i64[E]."""
    ends = bounds.astype(np.int64)
    sizes = ends[1:] - ends[:-1]
    if len(sizes) != num_rows or bounds[:1].tolist() != [0] or (sizes < 0).any():
        raise InputError("`indptr` must rise from 0, with an end for each row")
    return np.repeat(np.arange(num_rows), sizes)


def matrix_edges(
    row: np.ndarray, column: np.ndarray, data: np.ndarray, shape: tuple[int, ...]
) -> Edges:
    """The edges of a sparse matrix: entry (i, j) is the weight of the edge from i to j.

    Nodes are named "0" to "V - 1". Entries of 0 are no edges. Raises InputError if the
    matrix is not square, an entry is not finite and >= 0, or an index is out of range.
    """
    if len(shape) != 2 or shape[0] != shape[1] or not 1 <= shape[0] < 2**31:
        raise InputError(f"the matrix of a graph must be square, got {shape}")
    if not len(row) == len(column) == len(data) or data.dtype.kind not in "biuf":
        raise InputError("the matrix of a graph must have a number for each entry")
    ends = np.stack([row, column]) if len(data) else np.empty((2, 0), np.int64)
    if ends.dtype.kind not in "iu" or ((ends < 0) | (ends >= shape[0])).any():
        raise InputError(f"an index must be from 0 to {shape[0] - 1}")
    weight = data.astype(np.float64)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise InputError("a weight must be a finite number >= 0")
    ends, weight = ends[:, weight > 0].astype(np.int32), weight[weight > 0]
    return Edges([str(v) for v in range(shape[0])], ends[0], ends[1], weight)


class ObjectEdges(NamedTuple):
    """The edges of a graph that is an object."""

    edges: Edges
    directed: bool | None  # None: the object does not say
    key_type: KeyType = "text"  # of its nodes, which are text in `edges`


def edges_of(graph: Any) -> ObjectEdges:
    """The edges of a graph of networkx or igraph, or of a sparse matrix of scipy.

    The attribute `weight` of edges is their weight, 1 where it is missing. Nodes of
    igraph have the names of the attribute `name`, or their numbers, those of a matrix
    their numbers.

    Raises:
      InputTypeError: it is none of these.
      InputError: a weight is not finite and > 0, or two nodes have the same name.
    """
    import scipy.sparse

    package = type(graph).__module__.split(".")[0]
    if scipy.sparse.issparse(graph):
        matrix = graph.tocoo()
        edges = matrix_edges(matrix.row, matrix.col, matrix.data, matrix.shape)
        return ObjectEdges(edges, None, "integer")
    if package == "networkx" and hasattr(graph, "adj"):
        rows = list(graph.edges(data="weight", default=1))
        return _object_edges([*graph.nodes], rows, graph.is_directed())
    if package == "igraph" and hasattr(graph, "es"):
        nodes = range(graph.vcount())
        weights = [1] * graph.ecount()
        if "weight" in graph.es.attributes():
            weights = graph.es["weight"]
        ends = graph.get_edgelist()
        rows = [(*ends[k], weights[k]) for k in range(len(ends))]
        has_names = "name" in graph.vs.attributes()
        names = graph.vs["name"] if has_names else [*nodes]
        return _object_edges([*nodes], rows, graph.is_directed(), names)
    raise InputTypeError(
        "`graph` must be a path, a graph of networkx or igraph, or a sparse matrix of "
        f"scipy, got {type(graph).__name__}."
    )


def _object_edges(
    nodes: Sequence[Hashable],
    rows: Sequence[tuple[Hashable, Hashable, Any]],
    directed: bool,
    names: Sequence[Any] | None = None,
) -> ObjectEdges:
    given = nodes if names is None else names
    texts = [str(name) for name in given]
    if len({*texts}) < len(texts) or "" in texts:
        raise InputError("The nodes of a graph must have different names, none empty.")
    number = {node: k for k, node in enumerate(nodes)}
    ends = [(number[a], number[b]) for a, b, _ in rows]
    weight = np.array([_weight(a, b, value) for a, b, value in rows], np.float64)
    source, target = np.array(ends, np.int32).reshape(-1, 2).T
    kind: KeyType = "text" if as_integers(given) is None else "integer"
    return ObjectEdges(Edges(texts, source, target, weight), directed, kind)


def _weight(a: Hashable, b: Hashable, value: Any) -> float:
    try:
        weight = float(value)
    except (TypeError, ValueError):
        weight = np.nan
    if not 0 < weight < np.inf:
        raise InputError(
            f"A weight must be a finite number > 0, got {value!r} of the edge from "
            f"{a!r} to {b!r}."
        )
    return weight
