"""Random walks over a graph as what a training reads, in place of a text.

The graph is encoded once: its nodes are sorted by expected visits, as tokens are by
counts, and its rows are kept in memory, or in a cache folder that later runs read.
Walks are made when they are read, by the threads of a loader, and are not kept.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from embedder.base.compiler import numba_fault
from embedder.config import Config, with_options
from embedder.config.token_options import Repeats, TokensOptions, of_no_graph
from embedder.data import shards
from embedder.data.encode import cached_file
from embedder.data.encoded import TokenSource
from embedder.data.shards import Shard
from embedder.data.table_files import edge_files
from embedder.data.vocabulary import Vocabulary, read_vocabulary, write_vocabulary
from embedder.disk.arrays import memory_map_npy
from embedder.disk.digests import (
    DIGESTS_FILE,
    files_in,
    json_digest,
    read_digests,
    write_digests,
)
from embedder.disk.files import watched_files
from embedder.disk.folders import atomic_folder, remove_unfinished_folders
from embedder.errors import InputError

if TYPE_CHECKING:  # Numba takes a second to import, and only graphs need it
    from embedder.data.graphs.csr import Edges, Graph
    from embedder.data.graphs.walks import WalkOptions

_SCORING_BYTES = 60  # for each edge: an adjacency matrix, and sorted pairs of nodes
_COUNTED = 2**17  # nodes of walks whose repeats are counted
_FORMAT = 1  # version of the cache's files: older caches are not found
_ARRAYS = "offsets", "neighbors", "cumulative"  # in the cache
_HELD_OUT = "held_out.npy"
NO_PAIRS = np.empty((0, 2), np.int64)
"""No held-out edges."""


class GraphFiles(NamedTuple):
    """An edge list that can be read any number of times."""

    name: str
    source: str  # what messages call it
    manifest: list[dict[str, Any]]  # equal for equal files; ready for JSON
    read: Callable[[], "Edges"]
    key_type: Literal["text", "integer"] = "text"  # of nodes, which are text here


@dataclass(frozen=True, eq=False)
class Walks:
    """The walks of all epochs over a graph: a `TokenSource`."""

    vocabulary: Vocabulary  # nodes, and their expected visits in an epoch
    graph: "Graph"  # node i is token i
    options: "WalkOptions"
    building_bytes: int = 0  # of memory that building took; 0: read from a cache
    held_out: np.ndarray = field(default_factory=lambda: NO_PAIRS)  # i64[n, 2]
    item_key = item_name = "nodes"
    has_weights = False

    @functools.cached_property
    def shard_sequences(self) -> np.ndarray:
        """Walks of each shard, i64[number of shards]: all but the last have as many."""
        total = len(self.vocabulary) * self.options.per_node
        bounds = np.arange(0, total + self._walks_of_shard, self._walks_of_shard)
        return np.diff(np.minimum(bounds, total))

    @property
    def own_sequences(self) -> np.ndarray:
        return self.shard_sequences

    @functools.cached_property
    def _walks_of_shard(self) -> int:
        return max(1, shards.SHARD_TOKENS // self.options.length)

    @functools.cached_property
    def shard_tokens(self) -> np.ndarray:
        """Expected nodes of the walks of each shard, i64[number of shards]."""
        mean = self.vocabulary.counts.sum() / self.shard_sequences.sum()
        return np.maximum(1, np.rint(self.shard_sequences * mean)).astype(np.int64)

    @property
    def num_tokens(self) -> int:
        return int(self.shard_tokens.sum())

    @property
    def raw_tokens(self) -> int:
        """The same: each node is known."""
        return self.num_tokens

    @functools.cached_property
    def content(self) -> str:
        digest = hashlib.sha256(self.vocabulary.digest.encode())
        for array in self.graph:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def description(self) -> str:
        weighted = "weighted" if len(self.graph.cumulative) else "unweighted"
        held_out = f", {len(self.held_out):,} edges held out" * bool(len(self.held_out))
        return (
            f"graph: {len(self.vocabulary):,} nodes, {weighted}, "
            f"{len(self.graph.neighbors):,} neighbours in all{held_out}; "
            f"{self.shard_sequences.sum():,} walks an epoch, {self.num_tokens:,} nodes"
        )

    @property
    def memory(self) -> dict[str, int]:
        num_edges = len(self.graph.neighbors) if len(self.held_out) else 0
        return {
            "graph": self.graph.num_bytes,
            "scoring edges": _SCORING_BYTES * num_edges,
            "building graph": self.building_bytes,
        }

    def weights(self, number: int) -> None:
        """See `TokenSource`."""

    def repeats(self, block: int) -> float:
        """How often the node of a position is in its block of `block` positions: the
        mean over the first walks of seed 0, (43)."""
        from embedder.data.graphs.walks import make_walks

        num = min(-(-_COUNTED // self.options.length), int(self.shard_sequences.sum()))
        ids, _ = make_walks(self.graph, self.options, 0, num, seed=0, epoch=0)
        of_block = np.arange(len(ids)) // block * len(self.vocabulary)
        _, times = np.unique(of_block + ids, return_counts=True)
        return float((times**2).sum() / len(ids))

    def shard(self, number: int, seed: int, epoch: int) -> Shard:
        """The walks of a shard in an epoch, ALGORITHM.md (60) to (63)."""
        from embedder.data.graphs.walks import make_walks

        first = number * self._walks_of_shard
        last = first + int(self.shard_sequences[number])
        return make_walks(self.graph, self.options, first, last, seed, epoch)


def open_graph(
    source: str | os.PathLike[str] | None, options: TokensOptions
) -> GraphFiles:
    """The edge list in a file, in the files that a glob matches, or in a folder.

    The manifest has the columns that were found or given, as for tables of sessions.

    Raises:
      InputNotFoundError: no file exists at `source`, matches, or is in the folder.
      InputError: there is no source, or no edge list; `read` raises it, too.
      OSError: a file cannot be read.
    """
    if source is None:
        raise InputError("`walks` needs a graph: give an edge list as the corpus.")
    if not os.fspath(source):
        raise InputError("`corpus` must be a file, a glob or a folder, got ''.")
    check_numba()
    from embedder.data.graphs.edge_table import EdgeColumns
    from embedder.data.graphs.edges import find_columns, read_edges

    paths = edge_files(source)
    fingerprints, check = watched_files(paths)
    names = EdgeColumns(options.source, options.target, options.weight)
    columns = find_columns(paths, names)
    facts = [] if columns is None else [{"columns": columns._asdict()}]

    def read() -> "Edges":
        edges = read_edges(paths, names)
        check()
        return edges

    stem = Path(os.path.abspath(source)).name.split(".")[0]
    name = "".join(c for c in stem if c not in "*?[]") or "graph"
    return GraphFiles(name, os.fspath(source), [*fingerprints, *facts], read)


def repeats_of(encoded: TokenSource) -> Repeats:
    """`Walks.repeats`; of a text, which has no such default, 1."""
    return encoded.repeats if isinstance(encoded, Walks) else of_no_graph


def check_numba() -> None:
    """Raises InputError if Numba, which compiles the walks, cannot be used."""
    if fault := numba_fault():
        raise InputError(f"`walks` needs Numba, which {fault}.")


def given_edges(
    graph: Any, options: TokensOptions
) -> tuple["Edges", bool, Literal["text", "integer"]]:
    """The edges of a path or an object, whether the object is directed, and the type of
    its nodes.

    Raises:
      OSError, InputError: it is no graph; see `open_graph` and `edges_of`.
    """
    check_numba()
    if isinstance(graph, str | os.PathLike):
        return open_graph(graph, options).read(), False, "text"
    from embedder.data.graphs.edges import edges_of

    if options.source or options.target or options.weight:
        raise InputError("`source`, `target` and `weight` are columns of a file.")
    edges, directed, key_type = edges_of(graph)
    return edges, bool(directed), key_type


def plan_walks(config: Config, has_base: bool) -> Config:
    """The settings of a run of walks: every node has a vector.

    Raises:
      InputError: there is a base.
    """
    if has_base:
        raise InputError("`resume` applies only to texts, not to a graph (`walks`).")
    return with_options(config, min_count=1)


def encode_graph(
    files: GraphFiles, options: TokensOptions, cache: Path | None
) -> Walks:
    """Walks over the graph in `files`.

    Args:
      cache: folder of encoded corpora; None: the graph is built in memory.

    Raises:
      InputError: the files hold no edge list, or the cache is damaged.
      NoRoomError: the graph does not fit in memory.
    """
    if cache is None:
        return walks_over(files.read(), options)
    remove_unfinished_folders(cache)
    if walks := open_encoded_graph(files.manifest, options, cache):
        return walks
    walks = walks_over(files.read(), options)
    folder = cache / _digest(files.manifest, options)
    write_graph(walks.graph, walks.vocabulary, walks.held_out, folder)
    return walks


def open_encoded_graph(
    manifest: list[dict[str, Any]], options: TokensOptions, cache: Path
) -> Walks | None:
    """What `encode_graph` wrote of files with this manifest; None: nothing. Raises
    InputError if the cache is damaged."""
    folder = cache / _digest(manifest, options)
    if not folder.exists():
        return None
    graph, vocabulary, held_out = read_graph(folder)
    return Walks(vocabulary, graph, walk_options(options), held_out=held_out)


def walks_over(edges: "Edges", options: TokensOptions) -> Walks:
    """Walks over the graph of `edges`; nodes are sorted by their expected visits.

    Raises:
      InputError, NoRoomError: see `build_graph`.
    """
    from embedder.data.graphs import csr
    from embedder.data.graphs.walks import split_edges

    num_edges, held_out = len(edges.source), NO_PAIRS
    if options.holdout:
        csr.check_building_room(num_edges, edges.weight is not None)
        edges, held_out = split_edges(edges, options.holdout, directed=options.directed)
    graph = csr.build_graph(edges, directed=options.directed)
    visits = options.walks * csr.expected_visits(graph, options.walk_length)
    counts = np.maximum(1, np.rint(visits)).astype(np.int64)
    order = np.argsort(-counts, kind="stable")
    vocabulary = Vocabulary([edges.nodes[v] for v in order], counts[order])
    building = csr.building_bytes(num_edges, edges.weight is not None)
    graph = csr.relabelled(graph, order)
    held_out = csr.inverse(order).astype(np.int64)[held_out]
    held_out = held_out if options.directed else np.sort(held_out, axis=1)
    return Walks(vocabulary, graph, walk_options(options), building, held_out)


def walk_options(options: TokensOptions) -> "WalkOptions":
    """The settings of the walks."""
    from embedder.data.graphs.walks import WalkOptions

    return WalkOptions(
        options.walks, options.walk_length, options.p, options.q, options.walks_fixed
    )


def _digest(manifest: list[dict[str, Any]], options: TokensOptions) -> str:
    names = "walks", "walk_length", "directed", "source", "target", "weight"
    settings = dataclasses.asdict(options)
    facts = {name: settings[name] for name in names}
    for each in manifest[-1:]:
        facts |= each.get("columns", {})
    key = {"format": _FORMAT, "manifest": manifest, "graph": facts}
    if options.holdout:
        key["holdout"] = options.holdout
    return json_digest(key)[:16]


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
    """The graph, the nodes and held-out edges in a folder of `write_graph`. Raises
    InputError if it is damaged."""
    from embedder.data.graphs.csr import Graph

    with cached_file(folder / DIGESTS_FILE):
        digests = read_digests(folder)
    arrays = []
    for name in _ARRAYS:
        with cached_file(folder / f"{name}.npy", digests) as path:
            arrays.append(np.array(memory_map_npy(path)))
    with cached_file(folder / "vocabulary.parquet", digests) as path:
        vocabulary = read_vocabulary(path)
    graph = Graph(*arrays)
    with cached_file(folder / "neighbors.npy"):
        _check_graph(graph, len(vocabulary))
    held_out = NO_PAIRS
    if _HELD_OUT in digests:
        with cached_file(folder / _HELD_OUT, digests) as path:
            held_out = np.array(memory_map_npy(path))
            if held_out.dtype != np.int64 or held_out.shape[1:] != (2,):
                kind = f"{held_out.dtype}{[*held_out.shape]}"
                raise InputError(f"it must be i64[n, 2], got {kind}")
            least, most = held_out.min(initial=0), held_out.max(initial=0)
            if least < 0 or most >= len(vocabulary):
                raise InputError(f"nodes must be from 0 to {len(vocabulary) - 1}")
    return graph, vocabulary, held_out


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
