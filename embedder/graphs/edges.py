"""Reads edge lists: text with two or three columns, parquet, and scipy's sparse `.npz`.

The format is recognised by the content. Names of nodes are kept as text. Text is read
in pieces; equal names of all files are the same node, and nodes are sorted by name.
"""

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from embedder.disk.files import name_file_in_errors, short_reason
from embedder.disk.untrusted import (
    TooLargeError,
    UnreadableError,
    check_scan,
    read_table,
)
from embedder.errors import InputError
from embedder.graphs.csr import Edges, check_building_room
from embedder.graphs.edge_table import EdgeColumns, ends_and_weights, pick_columns
from embedder.graphs.edge_text import find_text_columns, read_edge_text
from embedder.graphs.matrices import read_matrix
from embedder.limits import memory_limit
from embedder.stages import report_stage

_MAX_NODES = 2**31 - 1


def read_edges(
    paths: Sequence[Path],
    columns: EdgeColumns = EdgeColumns(),  # noqa: B008
) -> Edges:
    """The edges in files.

    Args:
      columns: names of the columns; "": the first two, and a third for the weights.

    Raises:
      InputError: a file is no edge list, or is damaged; the message names the line.
      OSError: it cannot be read.
    """
    kinds = [_kind(path) for path in paths]
    if "npz" in kinds:
        if len(paths) > 1:
            raise InputError(f"{paths[kinds.index('npz')]} must be the only file.")
        return _matrix(paths[0], columns)
    names = _Names()
    parts: list[_Part] = []
    num_edges = 0
    report_stage(f"reading {paths[0]}")
    for path, kind in zip(paths, kinds, strict=True):
        for frame in _frames(path, kind, columns):
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
    return names.joined(parts)


def find_columns(paths: Sequence[Path], columns: EdgeColumns) -> EdgeColumns | None:
    """The named columns that `read_edges` reads, found in the heads of the files.

    None: a file has no names of columns, or others than the first.

    Args:
      columns: as of `read_edges`.

    Raises:
      OSError, InputError: see `read_edges`.
    """
    found = None
    for path in paths:
        before, found = found, _columns_of(path, columns)
        if found is None or before not in (None, found):
            return None
    return found


def _columns_of(path: Path, columns: EdgeColumns) -> EdgeColumns | None:
    match _kind(path):
        case "text":
            return find_text_columns(path, columns)
        case "parquet":
            scanned = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            try:
                check_scan(scanned.head(0), path.stat().st_size)
                names = scanned.collect_schema().names()
            except (UnreadableError, pl.exceptions.PolarsError, OSError):
                return None  # `read_edges` has the message
            return pick_columns(names, columns, path)
    return None


def _kind(path: Path) -> str:
    with name_file_in_errors(path), open(path, "rb") as file:
        head = file.read(4)
    return {b"PAR1": "parquet", b"PK\x03\x04": "npz"}.get(head, "text")


def _frames(path: Path, kind: str, columns: EdgeColumns) -> Iterator[pl.DataFrame]:
    if kind == "text":
        yield from read_edge_text(path, columns)
        return
    try:
        table = read_table(path, memory_limit().size)
    except TooLargeError as error:
        raise InputError(f"{path} does not fit in memory: {error}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not a whole parquet file: {error}.") from error
    yield ends_and_weights(table, columns, path)


def _matrix(path: Path, columns: EdgeColumns) -> Edges:
    if any(columns):
        raise InputError(
            f"{path} is a matrix: `source`, `target`, `weight` need names."
        )
    faults = (OSError, ValueError, LookupError, zipfile.BadZipFile, zlib.error)
    try:
        return read_matrix(path)
    except (*faults, EOFError, RuntimeError, TypeError) as error:
        raise InputError(
            f"{path} is not a whole sparse matrix of scipy: {short_reason(error)}."
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
        new = np.flatnonzero(numbers >= num_known)
        if len(new):
            index = numbers[new] - num_known
            first = np.empty(int(index.max()) + 1, np.int64)
            first[index] = new
            self._names += names.gather(first).to_list()
        return numbers

    def joined(self, parts: Sequence[_Part]) -> Edges:
        """All parts, with the nodes sorted by name."""
        if len(self._names) > _MAX_NODES:
            raise InputError(f"A graph must have at most {_MAX_NODES} nodes.")
        names = pl.Series("name", self._names, dtype=pl.String)
        order = names.arg_sort().to_numpy()
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        source = rank[np.concatenate([part.source for part in parts])]
        target = rank[np.concatenate([part.target for part in parts])]
        weights = [part.weight for part in parts if part.weight is not None]
        weight = np.concatenate(weights) if weights else None
        return Edges(names.gather(order).to_list(), source, target, weight)
