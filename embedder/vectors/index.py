"""An index of vectors: approximate neighbours by a graph, in a memory-mapped file.

The graph is HNSW (Malkov and Yashunin 2018, arXiv:1603.09320) of the library usearch.
A folder holds it: about.json, with the digest of the vectors and of the graph, and the
graph under a name of its own. about.json is written last and atomically, so a killed
writer leaves the index as it was.

Axis letters: V keys, D dimensions, Q queries, N results of a query.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from embedder.base.limits import check_room, gib
from embedder.base.threads import available_cores
from embedder.disk.digests import describe_damage, file_digest
from embedder.disk.files import atomic_file, short_reason
from embedder.disk.workdir import INDEX_FOLDER
from embedder.errors import InputError, check_installed
from embedder.vectors.search import Metric, Table, nearest_of, nearest_rows, prepared

Graph = Any
"""An `Index` of usearch, which is optional."""


class Searched(Protocol):
    """`Vectors`, as far as their index uses them."""

    @property
    def keys(self) -> list[str]: ...

    @property
    def matrix(self) -> np.ndarray: ...

    def table(self, metric: Metric) -> Table: ...


RECALL_AT = 10
QUERIES = 4000
_ERRORS = 2  # standard errors of the recall, which it must be above the target
_ABOUT = "about.json"
_ENDING = ".usearch"
_RANKED = 1024  # queries whose candidates a thread ranks at a time
_LEAST = 2 * RECALL_AT + 1  # candidates that the recall is measured with
_EXPANSIONS = _LEAST, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024
"""Expansions that are tried at first; then those between two of them, by halves. The
library never looks at fewer than it gives, so smaller ones would not be measured."""
_ADDED = 2**14  # rows that are added at once
_MOST_BYTES = 2**16  # of about.json
_log = logging.getLogger(__name__)


class IndexFaultError(InputError):
    """An index that is not used; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """How an index is built."""

    metric: Metric = "cosine"
    recall: float = 0.95
    """Recall@10 to reach, in (0, 1]."""
    connectivity: int = 24
    """Edges of a node of the graph; more: more memory, more recall."""
    expansion_add: int = 64
    """Candidates that are looked at when a node is added."""

    def __post_init__(self):
        if not 0 < self.recall <= 1:
            raise InputError(f"`recall` must be in (0, 1], got {self.recall!r}.")
        for name, least, most in (
            ("connectivity", 2, 512),
            ("expansion_add", 1, 65536),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(f"`{name}` must be {least} to {most}, got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known of an index."""

    library: str
    metric: Metric
    rows: int  # V
    size: int  # D
    dtype: str  # of the vectors in the graph
    connectivity: int
    expansion_add: int
    expansion: int  # candidates that a search looks at
    recall: float  # recall@10 against exact search
    queries: int  # rows that the recall was measured on
    vectors: str  # SHA-256 of the vectors
    file: str  # name of the graph
    sha256: str  # of the graph
    num_bytes: int  # of the graph


class VectorIndex:
    """An index that is whole and fresh."""

    def __init__(self, about: About, table: Table, graph: Graph):
        self.about = about
        self._table, self._graph = table, graph

    def nearest_rows(
        self, queries: np.ndarray, num: int, excluded: list[list[int]] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids i64[Q, N] and scores f64[Q, N] as of `search.nearest_rows`, of the rows
        that the graph finds; the scores are exact."""
        return _searched(self._graph, self._table, queries, num, excluded)


def index_folder(path: Path) -> Path:
    """Where the index of a run or of a file of vectors is."""
    if path.is_dir():
        return path / INDEX_FOLDER
    return path.with_name(f"{path.name}.{INDEX_FOLDER}")


def build_index(
    vectors: Searched, path: str | os.PathLike[str], options: IndexOptions
) -> About:
    """Writes the index of `vectors`, which are those of a run or file at `path`.

    The graph has the vectors in bfloat16. Search takes the least expansion whose recall
    on 4,000 rows is two standard errors above `options.recall`.

    Raises:
      InputError: usearch is not installed, or the index does not fit in memory.
      OSError: the disk is full, say; an index at `path` stays.
    """
    library = check_library()
    rows, size = vectors.matrix.shape
    needed = rows * (2 * size + 10 * options.connectivity + 40)
    check_room(needed, f"An index of {rows} vectors takes", "give fewer vectors")
    graph = _new_graph(size, options)
    table, folder = vectors.table(options.metric), index_folder(Path(path))
    _add_rows(graph, table)
    expansion, recall, num = _measured(graph, vectors, table, options.recall)
    folder.mkdir(exist_ok=True)
    name = f"{uuid.uuid4().hex[:8]}{_ENDING}"
    with atomic_file(folder / name) as part:
        _save(graph, part)
        about = About(
            library=library,
            metric=options.metric,
            rows=rows,
            size=size,
            dtype=str(graph.dtype).rpartition(".")[2].lower(),
            connectivity=options.connectivity,
            expansion_add=options.expansion_add,
            expansion=expansion,
            recall=recall,
            queries=num,
            vectors=vectors_digest(vectors),
            file=name,
            sha256=file_digest(part),
            num_bytes=part.stat().st_size,
        )
    _write_about(folder, about)
    _remove_others(folder, about)
    return about


def open_index(folder: Path, vectors: Searched) -> VectorIndex | None:
    """The index in `folder`; None: there is none.

    Raises:
      IndexFaultError: it is damaged, of other vectors, or usearch is not installed.
    """
    about = read_about(folder)
    if about is None:
        return None
    if about.vectors != vectors_digest(vectors):
        raise IndexFaultError(
            f"Index {folder} is stale: it is of other vectors; `embedder index` "
            "writes it anew"
        )
    if damage := describe_damage(folder / about.file, about.sha256):
        raise _damaged(folder, f"{about.file} {damage}")
    try:
        check_library()
    except InputError as error:
        reason = short_reason(error)
        raise IndexFaultError(f"Index {folder} is not used: {reason}") from error
    graph = _new_graph(about.size, IndexOptions(metric=about.metric))
    try:
        graph.view(folder / about.file)
    except Exception as error:  # the library raises RuntimeError and others
        raise _damaged(folder, short_reason(error)) from error
    if len(graph) != about.rows or graph.ndim != about.size:
        raise _damaged(folder, f"{about.file} has other rows")
    graph.expansion_search = about.expansion
    # Candidates are ranked without a matrix of unit rows, which only products with all
    # rows need.
    table = Table(vectors.matrix, vectors.matrix, about.metric, longest=1.0)
    return VectorIndex(about, table, graph)


def read_about(folder: Path) -> About | None:
    """What about.json says; None: there is none.

    Raises:
      IndexFaultError: it is damaged.
    """
    path = folder / _ABOUT
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
        about = About(**content["about"])
        if content["sha256"] != _digest_of(about) or not _is_valid(about):
            raise ValueError("its text is not what was written")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(folder, f"{_ABOUT}: {short_reason(error)}") from error
    return about


def index_damage(folder: Path) -> str | None:
    """What is damaged of the index in `folder`; "": nothing; None: there is none."""
    try:
        about = read_about(folder)
    except IndexFaultError:
        return f"{_ABOUT} is not what was written"
    if about is None:
        return None
    damage = describe_damage(folder / about.file, about.sha256)
    return damage and f"{about.file} {damage}"


def vectors_digest(vectors: Searched) -> str:
    """SHA-256 of the keys and numbers, in hexadecimal digits."""
    digest = hashlib.sha256(f"{vectors.matrix.dtype} {vectors.matrix.shape}".encode())
    digest.update(vectors.matrix.data)
    digest.update("\0".join(vectors.keys).encode())
    return digest.hexdigest()


def check_library() -> str:
    """The name and version of usearch; InputError: it is not installed."""
    check_installed("usearch", "An index")
    import usearch

    return f"usearch {usearch.__version__}"


def _new_graph(size: int, options: IndexOptions) -> Graph:
    from usearch.index import Index

    return Index(
        ndim=size,
        metric="cos" if options.metric == "cosine" else "ip",
        dtype="bf16",
        connectivity=options.connectivity,
        expansion_add=options.expansion_add,
        enable_key_lookups=False,
    )


def _add_rows(graph: Graph, table: Table) -> None:
    num, threads = len(table.factors), available_cores()
    for start in range(0, num, _ADDED):
        stop = min(start + _ADDED, num)
        rows = table.factors[start:stop].astype(np.float32)
        graph.add(np.arange(start, stop, dtype=np.uint64), rows, threads=threads)
        if 10 * stop // num > 10 * start // num and stop < num:
            _log.info("Index: %d of %d rows.", stop, num)


def _searched(
    graph: Graph,
    table: Table,
    queries: np.ndarray,
    num: int,
    excluded: list[list[int]] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and exact scores of the best of twice as many rows as are asked for, since
    the graph ranks rounded vectors."""
    most = max(map(len, excluded)) if excluded else 0
    candidates = _near_rows(graph, prepared(table, queries), 2 * num + most)

    def ranked(start: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(start, start + _RANKED)
        hidden = None if excluded is None else excluded[part]
        return nearest_of(table, queries[part], candidates[part], num, hidden)

    with ThreadPoolExecutor(available_cores()) as pool:
        parts = [*pool.map(ranked, range(0, max(1, len(queries)), _RANKED))]
    ids, scores = zip(*parts, strict=True)
    return np.concatenate(ids), np.concatenate(scores)


def _near_rows(graph: Graph, queries: np.ndarray, num: int) -> np.ndarray:
    """Ids of rows near each query by the graph, i64[Q, n]; -1: none."""
    num = min(num, len(graph))
    factors = queries.astype(np.float32)
    if not len(factors):
        return np.empty((0, num), np.int64)
    matches = graph.search(factors, num, threads=available_cores())
    ids = np.atleast_2d(matches.keys).astype(np.int64)
    if len(factors) > 1:  # of one query the keys have no empty places
        ids[np.arange(ids.shape[1]) >= matches.counts[:, None]] = -1
    return ids


def _measured(
    graph: Graph, vectors: Searched, table: Table, target: float
) -> tuple[int, float, int]:
    """The expansion to search with, its recall@10, and the number of queries."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(vectors.keys))[:QUERIES])
    queries = vectors.matrix[rows].astype(np.float64)
    excluded = [[int(row)] for row in rows]
    _, exact = nearest_rows(table, queries, RECALL_AT, excluded=excluded)

    def recalls_at(expansion: int) -> np.ndarray:
        graph.expansion_search = expansion
        _, scores = _searched(graph, table, queries, RECALL_AT, excluded)
        return _recalls(scores, exact)

    expansion, recall = _least_expansion(recalls_at, target, len(vectors.keys))
    return expansion, recall, len(rows)


def _least_expansion(
    recalls_at: Callable[[int], np.ndarray], target: float, num_rows: int
) -> tuple[int, float]:
    """The least expansion that reaches `target`, and its recall; if none of
    `_EXPANSIONS` does, the largest of them.

    Args:
      recalls_at: an expansion -> recall of each query, f64[Q]. The queries are some of
        `num_rows` rows, so the least that reaches `target` on them alone would fall
        short of it on others in half of the cases: it must by `_ERRORS`.
    """

    def measured(expansion: int) -> tuple[float, bool]:
        recalls = recalls_at(expansion)
        unseen = 1 - len(recalls) / num_rows
        error = math.sqrt(unseen * recalls.var() / len(recalls))
        recall = float(recalls.mean())
        return recall, recall - _ERRORS * error >= target

    too_small, expansion, recall, reaches = _LEAST - 1, _LEAST, math.nan, False
    for expansion in _EXPANSIONS:
        recall, reaches = measured(expansion)
        if reaches:
            break
        too_small = expansion
    while reaches and too_small + 1 < expansion:  # between two of them
        middle = (too_small + expansion) // 2
        recall_there, is_enough = measured(middle)
        if is_enough:
            expansion, recall = middle, recall_there
        else:
            too_small = middle
    return expansion, recall


def _recalls(scores: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Share of the exact results of each query whose scores f64[Q, n] were found; equal
    scores are as good as each other. f64[Q]"""
    is_result = np.isfinite(exact)
    worst = np.where(is_result, exact, np.inf).min(axis=1, keepdims=True)
    shares = (scores >= worst).sum(axis=1) / np.maximum(is_result.sum(1), 1)
    return np.where(is_result.any(axis=1), shares, 1.0)


def _save(graph: Graph, path: Path) -> None:
    try:
        graph.save(path)
    except Exception as error:  # the library raises RuntimeError of a full disk
        reason = short_reason(error)
        raise OSError(
            f"The index cannot be written to {path.parent}: {reason}"
        ) from error


def _write_about(folder: Path, about: About) -> None:
    text = json.dumps({"about": asdict(about), "sha256": _digest_of(about)}, indent=1)
    with atomic_file(folder / _ABOUT) as part:
        part.write_text(text + "\n", encoding="utf-8")


def _remove_others(folder: Path, about: About) -> None:
    """Removes graphs of before, and what killed writers left."""
    for path in folder.iterdir():
        is_graph = path.suffix == _ENDING and path.name != about.file
        if is_graph or path.name.endswith(".tmp"):
            with contextlib.suppress(OSError):
                path.unlink()


def _digest_of(about: About) -> str:
    return hashlib.sha256(json.dumps(asdict(about)).encode()).hexdigest()


def _is_valid(about: About) -> bool:
    """Whether the values have their types, and the graph is inside the folder."""
    is_typed = all(
        type(getattr(about, f.name)) is (f.type if f.type in (int, float) else str)
        for f in fields(about)
    )
    if not is_typed or about.metric not in ("cosine", "dot"):
        return False
    return Path(about.file).name == about.file and about.file.endswith(_ENDING)


def _damaged(folder: Path, reason: str) -> IndexFaultError:
    return IndexFaultError(
        f"Index {folder} is damaged ({reason}); `embedder index` writes it anew"
    )


def described(about: About) -> str:
    """A line about an index."""
    return (
        f"{about.rows:,} vectors of {about.size} numbers by {about.metric}: "
        f"{gib(about.num_bytes)}, memory-mapped; recall@{RECALL_AT} {about.recall:.3f} "
        f"on {about.queries} queries"
    )
