"""Random walks over a graph as what a training reads, in place of a text.

The graph is encoded once: its nodes are sorted by expected visits, as tokens are by
counts, and its rows are kept in memory, or in a cache folder that later runs read.
Walks are made when they are read, by the threads of a loader, and are not kept.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from embedder.config import Config, with_options
from embedder.disk.fingerprints import check_unchanged, file_fingerprint
from embedder.disk.folders import remove_unfinished_folders
from embedder.errors import InputError
from embedder.tables import shards
from embedder.tables.artefact import ModelFile
from embedder.tables.corpus_files import corpus_files
from embedder.tables.encoded import TokenSource
from embedder.tables.graph_cache import NO_PAIRS, read_graph, write_graph
from embedder.tables.options import Repeats, TablesOptions, of_no_graph
from embedder.tables.shards import Shard
from embedder.tables.vocabulary import Vocabulary

if TYPE_CHECKING:  # Numba takes a second to import, and only graphs need it
    from embedder.graphs.csr import Edges, Graph
    from embedder.graphs.walks import WalkOptions

_SCORING_BYTES = 60  # for each edge: an adjacency matrix, and sorted pairs of nodes
_COUNTED = 2**17  # nodes of walks whose repeats are counted
_FORMAT = 1  # version of the cache's files: older caches are not found


class GraphFiles(NamedTuple):
    """An edge list that can be read any number of times."""

    name: str
    source: str  # what messages call it
    manifest: list[dict[str, Any]]  # equal for equal files; ready for JSON
    read: Callable[[], "Edges"]
    key_type: Literal["text"] = "text"  # of nodes


@dataclass(frozen=True, eq=False)
class Walks:
    """The walks of all epochs over a graph: a `TokenSource`."""

    vocabulary: Vocabulary  # nodes, and their expected visits in an epoch
    graph: "Graph"  # node i is token i
    options: "WalkOptions"
    building_bytes: int = 0  # of memory that building took; 0: read from a cache
    held_out: np.ndarray = field(default_factory=lambda: NO_PAIRS)  # i64[n, 2]

    @functools.cached_property
    def shard_sequences(self) -> np.ndarray:
        """Walks of each shard, i64[number of shards]: all but the last have as many."""
        total = len(self.vocabulary) * self.options.per_node
        bounds = np.arange(0, total + self._walks_of_shard, self._walks_of_shard)
        return np.diff(np.minimum(bounds, total))

    @property
    def own_sequences(self) -> np.ndarray:
        """See `TokenSource`."""
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
        """Expected nodes of the walks of an epoch."""
        return int(self.shard_tokens.sum())

    @property
    def raw_tokens(self) -> int:
        """The same: each node is known."""
        return self.num_tokens

    @property
    def unit(self) -> str:
        """See `TokenSource`."""
        return "nodes"

    noun = unit

    @functools.cached_property
    def content(self) -> str:
        """Digest of the nodes, their visits and the edges."""
        digest = hashlib.sha256(self.vocabulary.digest.encode())
        for array in self.graph:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def description(self) -> str:
        """The size of the graph and the number of its walks."""
        weighted = "weighted" if len(self.graph.cumulative) else "unweighted"
        held_out = f", {len(self.held_out):,} edges held out" * bool(len(self.held_out))
        return (
            f"graph: {len(self.vocabulary):,} nodes, {weighted}, "
            f"{len(self.graph.neighbors):,} neighbours in all{held_out}; "
            f"{self.shard_sequences.sum():,} walks an epoch, {self.num_tokens:,} nodes"
        )

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the graph, and of memory that building it took."""
        num_edges = len(self.graph.neighbors) if len(self.held_out) else 0
        return {
            "graph": self.graph.num_bytes,
            "scoring edges": _SCORING_BYTES * num_edges,
            "building graph": self.building_bytes,
        }

    @property
    def has_weights(self) -> bool:
        """False: all walks have weight 1."""
        return False

    def weights(self, number: int) -> None:
        """See `TokenSource`."""

    def repeats(self, block: int) -> float:
        """How often the node of a position is in its block of `block` positions: the
        mean over the first walks of seed 0, (43)."""
        from embedder.graphs.walks import make_walks

        num = min(-(-_COUNTED // self.options.length), int(self.shard_sequences.sum()))
        ids, _ = make_walks(self.graph, self.options, 0, num, seed=0, epoch=0)
        of_block = np.arange(len(ids)) // block * len(self.vocabulary)
        _, times = np.unique(of_block + ids, return_counts=True)
        return float((times**2).sum() / len(ids))

    def shard(self, number: int, seed: int, epoch: int) -> Shard:
        """The walks of a shard in an epoch, ALGORITHM.md (60) to (63)."""
        from embedder.graphs.walks import make_walks

        first = number * self._walks_of_shard
        last = first + int(self.shard_sequences[number])
        return make_walks(self.graph, self.options, first, last, seed, epoch)


def open_graph(
    source: str | os.PathLike[str] | None, options: TablesOptions
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
    from embedder.graphs.edge_table import EdgeColumns
    from embedder.graphs.edges import find_columns, read_edges

    fingerprints = {path: file_fingerprint(path) for path in corpus_files(source)}
    given = EdgeColumns(options.source, options.target, options.weight)
    found = find_columns([*fingerprints], given)
    columns = {} if found is None else found._asdict()

    def read() -> "Edges":
        edges = read_edges([*fingerprints], given)
        for path, fingerprint in fingerprints.items():
            check_unchanged(path, fingerprint)
        return edges

    stem = Path(os.path.abspath(source)).name.split(".")[0]
    name = "".join(c for c in stem if c not in "*?[]") or "graph"
    manifest = [*fingerprints.values(), *([{"columns": columns}] if columns else [])]
    return GraphFiles(name, os.fspath(source), manifest, read)


def repeats_of(encoded: TokenSource) -> Repeats:
    """`Walks.repeats`; of a text, which has no such default, 1."""
    return encoded.repeats if isinstance(encoded, Walks) else of_no_graph


def check_numba() -> None:
    """Raises InputError if Numba, which compiles the walks, cannot be imported."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        raise InputError(
            "`walks` needs Numba, which cannot be imported: pip install numba."
        ) from error


def given_edges(graph: Any, options: TablesOptions) -> tuple["Edges", bool]:
    """The edges of a path or an object, and whether the object is directed.

    Raises:
      OSError, InputError: it is no graph; see `open_graph` and `edges_of`.
    """
    check_numba()
    if isinstance(graph, str | os.PathLike):
        return open_graph(graph, options).read(), False
    from embedder.graphs.objects import edges_of

    if options.source or options.target or options.weight:
        raise InputError("`source`, `target` and `weight` are columns of a file.")
    edges, directed = edges_of(graph)
    return edges, bool(directed)


def plan_walks(config: Config, base: ModelFile | None) -> Config:
    """The settings of a run of walks: every node has a vector.

    Raises:
      InputError: a setting applies only to texts.
    """
    if base is not None:
        raise InputError("`resume` applies only to texts, not to a graph (`walks`).")
    if config.run.bootstrap:
        raise InputError(
            "`bootstrap` applies only to texts: walks over a graph are drawn anew by "
            "each seed."
        )
    return with_options(config, min_count=1)


def encode_graph(
    files: GraphFiles, options: TablesOptions, cache: Path | None
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
    folder = cache / _digest(files.manifest, options)
    remove_unfinished_folders(cache)
    if not folder.exists():
        walks = walks_over(files.read(), options)
        write_graph(walks.graph, walks.vocabulary, walks.held_out, folder)
        return walks
    return _cached(folder, options)


def open_encoded_graph(
    manifest: list[dict[str, Any]], options: TablesOptions, cache: Path
) -> Walks | None:
    """What `encode_graph` wrote of files with this manifest; None: nothing.

    Raises:
      InputError: the cache is damaged.
    """
    folder = cache / _digest(manifest, options)
    return _cached(folder, options) if folder.exists() else None


def _cached(folder: Path, options: TablesOptions) -> Walks:
    graph, vocabulary, held_out = read_graph(folder)
    return Walks(vocabulary, graph, walk_options(options), held_out=held_out)


def walks_over(edges: "Edges", options: TablesOptions) -> Walks:
    """Walks over the graph of `edges`; nodes are sorted by their expected visits.

    Raises:
      InputError, NoRoomError: see `build_graph`.
    """
    from embedder.graphs import csr
    from embedder.graphs.held_out import split_edges

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
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    found = rank[held_out]
    held_out = found if options.directed else np.sort(found, axis=1)
    return Walks(vocabulary, graph, walk_options(options), building, held_out)


def walk_options(options: TablesOptions) -> "WalkOptions":
    """The settings of the walks."""
    from embedder.graphs.walks import WalkOptions

    return WalkOptions(
        options.walks, options.walk_length, options.p, options.q, options.walks_fixed
    )


def _digest(manifest: list[dict[str, Any]], options: TablesOptions) -> str:
    names = "walks", "walk_length", "directed", "source", "target", "weight"
    settings = dataclasses.asdict(options)
    found: dict[str, str] = next(
        (each["columns"] for each in manifest if "columns" in each), {}
    )
    key = {
        "format": _FORMAT,
        "manifest": manifest,
        "graph": {name: settings[name] for name in names} | found,
    }
    if options.holdout:
        key["holdout"] = options.holdout
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
