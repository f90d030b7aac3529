"""The cache of an encoded graph: its rows, its nodes, and their expected visits."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from embedder.disk.arrays import memory_map_npy
from embedder.disk.digests import (
    DIGESTS_FILE,
    check_digest,
    files_in,
    read_digests,
    write_digests,
)
from embedder.disk.folders import atomic_folder
from embedder.errors import InputError
from embedder.tables.encode import name_damaged_file
from embedder.tables.vocabulary import (
    Vocabulary,
    read_vocabulary,
    write_vocabulary,
)

if TYPE_CHECKING:  # Numba takes a second to import, and only graphs need it
    from embedder.graphs.csr import Graph

NO_PAIRS = np.empty((0, 2), np.int64)
"""No held-out edges."""

_ARRAYS = "offsets", "neighbors", "cumulative"
_HELD_OUT = "held_out.npy"


def write_graph(
    graph: "Graph", vocabulary: Vocabulary, held_out: np.ndarray, folder: Path
) -> None:
    """Writes a graph, its nodes and held-out edges atomically, with checksums."""
    with atomic_folder(folder) as temporary:
        for name, array in zip(_ARRAYS, graph, strict=True):
            np.save(temporary / f"{name}.npy", array)
        if len(held_out):
            np.save(temporary / _HELD_OUT, held_out)
        write_vocabulary(vocabulary, temporary / "vocabulary.parquet")
        write_digests(temporary, files_in(temporary))


def read_graph(folder: Path) -> tuple["Graph", Vocabulary, np.ndarray]:
    """The graph, the nodes and held-out edges in a folder of `write_graph`.

    Raises:
      InputError: it is damaged.
    """
    from embedder.graphs.csr import Graph

    with name_damaged_file(folder / DIGESTS_FILE):
        digests = read_digests(folder)
    arrays = []
    for name in _ARRAYS:
        with name_damaged_file(folder / f"{name}.npy") as path:
            check_digest(path, digests.get(path.name))
            arrays.append(np.array(memory_map_npy(path)))
    with name_damaged_file(folder / "vocabulary.parquet") as path:
        check_digest(path, digests.get(path.name))
        vocabulary = read_vocabulary(path)
    graph = Graph(*arrays)
    with name_damaged_file(folder / "neighbors.npy"):
        _check_graph(graph, len(vocabulary))
    held_out = NO_PAIRS
    if _HELD_OUT in digests:
        with name_damaged_file(folder / _HELD_OUT) as path:
            check_digest(path, digests[_HELD_OUT])
            held_out = np.array(memory_map_npy(path))
            _check_pairs(held_out, len(vocabulary))
    return graph, vocabulary, held_out


def _check_pairs(pairs: np.ndarray, num_nodes: int) -> None:
    """Raises InputError for pairs that are no pairs of nodes."""
    if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"it must be i64[n, 2], got {pairs.dtype}{[*pairs.shape]}")
    if pairs.min(initial=0) < 0 or pairs.max(initial=0) >= num_nodes:
        raise InputError(f"nodes must be from 0 to {num_nodes - 1}")


def _check_graph(graph: "Graph", num_nodes: int) -> None:
    """Raises InputError for arrays that compiled code would read out of bounds."""
    offsets, neighbors, cumulative = graph
    kinds = [(array.dtype.name, array.ndim) for array in graph]
    if kinds != [("int64", 1), ("int32", 1), ("float64", 1)]:
        raise InputError(f"its arrays have other types: {kinds}")
    is_rising = not offsets[:1].any() and (np.diff(offsets) >= 0).all()
    sizes = [len(offsets), *offsets[-1:], len(cumulative)]
    expected = [num_nodes + 1, len(neighbors), len(cumulative) and len(neighbors)]
    if not is_rising or sizes != expected:
        raise InputError(f"its sizes must be {expected}, got {sizes}")
    if neighbors.min(initial=0) < 0 or neighbors.max(initial=0) >= num_nodes:
        raise InputError(f"neighbours must be from 0 to {num_nodes - 1}")
