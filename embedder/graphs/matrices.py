"""Graphs in sparse matrices of scipy, in files or in memory; entries are weights."""

import zipfile
from pathlib import Path

import numpy as np

from embedder.disk.arrays import read_npz_array
from embedder.errors import InputError
from embedder.graphs.csr import Edges


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

    Nodes are named "0" to "V - 1". Entries of 0 are no edges.

    Raises:
      InputError: the matrix is not square, an entry is not finite and >= 0, or an index
        is out of range.
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
