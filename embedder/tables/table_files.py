"""Files of tables: recognised by content and name, and scanned by polars.

Cells of CSV and TSV files are text, so that `007` and long numbers stay as they are.
"""

import csv
import gzip
import logging
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from embedder.disk.files import name_file_in_errors
from embedder.disk.untrusted import TooLargeError, check_scan, read_arrow_stream
from embedder.errors import InputError
from embedder.limits import NoRoomError, check_room, memory_limit
from embedder.tables.corpus_files import corpus_files, outside_runs
from embedder.tables.corpus_formats import has_ending

_HEAD_BYTES = 2**16
_TEXT_BYTES = 2**30  # of memory for lines of .gz files: a longer line is a bomb
_SMALL_BYTES = 2**23  # of files that are read twice rather than start two processes
_SMALL_TEXT_BYTES = 2**25  # of unpacked text that needs no process
_PIECE_BYTES = 2**18
_PACKED = b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"(\xb5/\xfd"
"""First bytes of gzip, zlib and zstd, which polars unpacks whatever the name is."""

_DELIMITERS = "\t,;|"
_STREAM = b"\xff\xff\xff\xff"  # first bytes of the stream format of Arrow IPC
_log = logging.getLogger(__name__)


class TableFormat(NamedTuple):
    """How files of one format are recognised and scanned."""

    name: str
    endings: tuple[str, ...]  # of file names, in lower case
    magic: bytes  # first bytes; b"": any
    scan: Callable[[Sequence[Path]], pl.LazyFrame]


def _scan_parquet(paths: Sequence[Path]) -> pl.LazyFrame:
    return pl.scan_parquet([*paths], glob=False, hive_partitioning=_is_hive(paths))


def _scan_ipc(paths: Sequence[Path]) -> pl.LazyFrame:
    """Arrow files lazily; Arrow streams, which have no index, are read whole."""
    heads = {_head(path, 4) == _STREAM for path in paths}
    if heads == {False}:
        return pl.scan_ipc([*paths], glob=False, hive_partitioning=_is_hive(paths))
    size = sum(path.stat().st_size for path in paths)
    advice = "write Arrow files or Parquet, which are read in pieces"
    check_room(2 * size, "Arrow streams are read whole, which takes", advice)
    max_bytes = memory_limit().size // 2
    try:
        return pl.concat([read_arrow_stream(path, max_bytes) for path in paths]).lazy()
    except TooLargeError as error:
        raise NoRoomError(f"{paths[0]} does not fit in memory: {error}.") from error


def _scan_json_lines(paths: Sequence[Path]) -> pl.LazyFrame:
    return pl.scan_ndjson([*paths])


def _scan_csv(paths: Sequence[Path]) -> pl.LazyFrame:
    lines = _first_lines(paths[0])
    delimiter = _delimiter(paths[0], lines)
    cells = next(csv.reader(lines, delimiter=delimiter), [])
    names = [f"column_{number}" for number in range(1, len(cells) + 1)]
    has_header = _has_header(cells)
    return pl.scan_csv(
        [*paths],
        glob=False,
        separator=delimiter,
        has_header=has_header,
        new_columns=None if has_header else names,
        infer_schema=False,
    )


_CSV = TableFormat("CSV", (".csv", ".tsv", ".tab"), b"", _scan_csv)
_JSON = TableFormat("JSON lines", (".jsonl", ".ndjson", ".json"), b"", _scan_json_lines)
_IPC_ENDINGS = ".arrow", ".arrows", ".feather", ".ipc"
FORMATS = (
    TableFormat("Parquet", (".parquet", ".pq"), b"PAR1", _scan_parquet),
    TableFormat("Arrow IPC", _IPC_ENDINGS, b"ARROW1\0\0", _scan_ipc),
    TableFormat("Arrow IPC", _IPC_ENDINGS, _STREAM, _scan_ipc),
    _CSV,
    _JSON,
)
"""The first that fits a file is its format: the bytes decide before the name."""


def table_files(source: str | os.PathLike[str], *, is_table: bool) -> list[Path]:
    """The files of the table at `source`: a file, a glob or a folder.

    A folder with text files is text. Folders named `key=value` are searched, too.

    Args:
      is_table: `source` is said to be a table, whatever its files look like.

    Returns:
      [] unless all files are tables.

    Raises:
      OSError, InputError: see `corpus_files`.
    """
    if Path(source).is_dir() and (found := _in_folder(Path(source), is_table)):
        return found
    if Path(source).is_dir() and not is_table:
        return []
    found = corpus_files(source)
    return found if is_table or all(map(format_of, found)) else []


def _in_folder(folder: Path, is_table: bool) -> list[Path]:
    paths = sorted(outside_runs(p for p in _walk(folder) if p.is_file()))
    tables = [path for path in paths if _by_name(path)]
    texts = [
        path
        for path in paths
        if path.parent == folder and has_ending(path) and path not in tables
    ]
    if tables and texts and not is_table:
        _log.info("Corpus %s: tables beside text, left out: %d.", folder, len(tables))
        return []
    return tables


def _walk(folder: Path) -> list[Path]:
    """The files of a folder and of its partitions, without hidden ones."""
    found = []
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            continue
        if not path.is_dir():
            found.append(path)
        elif "=" in path.name:
            found += _walk(path)
    return found


def format_of(path: Path) -> TableFormat | None:
    """The format of a file; None: it is not a table, by its first bytes and its name.

    Raises:
      OSError: it cannot be read.
    """
    head = _head(path, 8)
    for each in FORMATS:
        if each.magic and head.startswith(each.magic):
            return each
    return _by_name(path)


def _by_name(path: Path) -> TableFormat | None:
    name = path.name.lower().removesuffix(".gz")
    return next((f for f in FORMATS if name.endswith(f.endings)), None)


def scan_tables(paths: Sequence[Path]) -> pl.LazyFrame:
    """The rows of all files, which have one format and the same columns.

    Raises:
      InputError: a file is empty, or not of the format of the first.
      OSError: a file cannot be read.
    """
    found = [format_of(path) or _of_text(path) for path in paths]
    for path, each in zip(paths, found, strict=True):
        with name_file_in_errors(path):
            if not path.stat().st_size:
                raise InputError(f"{path} is empty.")
        if each.magic and not _head(path, 8).startswith(each.magic):
            raise InputError(f"{path} is not {each.name}, which its name says.")
        if each != found[0]:
            raise InputError(
                f"The files of a table must have one format: {paths[0]} is "
                f"{found[0].name}, {path} is {each.name}."
            )
    return found[0].scan(paths)


class FirstReading:
    """Reads the tables of `paths` before they are used, as `read_first` does.

    A process takes some 0.2 s to start: one reads all rows of small files.
    """

    def __init__(self, paths: Sequence[Path]):
        self._paths = paths
        size = sum(path.stat().st_size for path in paths)
        self._is_small, self._has_all = size <= _SMALL_BYTES, False

    def head(self, table: pl.LazyFrame, num_rows: int) -> None:
        """Reads the first rows of a table, or all."""
        read_first(table if self._is_small else table.head(num_rows), self._paths)
        self._has_all = self._is_small

    def rows(self, rows: pl.LazyFrame) -> None:
        """Reads `rows` of the table, if `head` has not."""
        if not self._has_all:
            read_first(rows, self._paths)


def read_first(frame: pl.LazyFrame, paths: Sequence[Path]) -> int:
    """Reads `frame`, made of `scan_tables(paths)`, in a process with bounded memory.

    Only Parquet, Arrow and compressed files: a small one can have large rows.

    Returns:
      Bytes that its rows take in memory; 0: they were not read.

    Raises:
      UnreadableError: the files are damaged, or take too much memory.
    """
    packed = [path for path in paths if _is_packed(path)]
    if not packed:
        return 0
    size = sum(path.stat().st_size for path in paths)
    room = memory_limit().size // 2
    if not (format_of(packed[0]) or _CSV).magic:  # few cells of text at a time
        if _is_small_gzip(packed, min(room // 4, _SMALL_TEXT_BYTES)):
            return 0
        room = min(room, _TEXT_BYTES)
    return check_scan(frame, size + room)


def _is_packed(path: Path) -> bool:
    """Whether the size of a file does not bound that of its rows, and it is scanned."""
    found = format_of(path)
    magic = b"" if found is None else found.magic
    return magic != _STREAM and (bool(magic) or _raw_head(path).startswith(_PACKED))


def _is_small_gzip(paths: Sequence[Path], max_bytes: int) -> bool:
    """Whether files are undamaged gzip with at most `max_bytes` of text."""
    try:
        for path in paths:
            with gzip.open(path) as file:
                while piece := file.read(_PIECE_BYTES):
                    max_bytes -= len(piece)
                    if max_bytes < 0:
                        return False
    except (OSError, EOFError, zlib.error):
        return False
    return True


def _raw_head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(4)


def table_name(source: str | os.PathLike[str]) -> str:
    """The name of a table: of its file, without the ending, or of its folder."""
    name = Path(os.path.abspath(source)).name.removesuffix(".gz")
    endings = (e for each in FORMATS for e in each.endings if name.lower().endswith(e))
    name = name[: len(name) - len(next(endings, ""))]
    return "".join(c for c in name if c not in "*?[]") or "corpus"


def _of_text(path: Path) -> TableFormat:
    """JSON lines or CSV, by the first character."""
    return _JSON if _head(path, 64).lstrip().startswith(b"{") else _CSV


def _head(path: Path, num_bytes: int) -> bytes:
    """The first bytes of a file, decompressed if its name ends in .gz."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with name_file_in_errors(path), opener(path, "rb") as file:
            return file.read(num_bytes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error


def _is_hive(paths: Sequence[Path]) -> bool:
    return all("=" in path.parent.name for path in paths)


def _first_lines(path: Path) -> list[str]:
    head = _head(path, _HEAD_BYTES)
    lines = head.decode("utf-8-sig", "replace").splitlines(keepends=True)
    return lines[:-1] if len(head) == _HEAD_BYTES and len(lines) > 1 else lines


def _delimiter(path: Path, lines: list[str]) -> str:
    """The delimiter that gives all first lines the same number of cells, the most."""
    num_cells = {}
    for delimiter in _DELIMITERS:
        sizes = {len(row) for row in csv.reader(lines, delimiter=delimiter) if row}
        num_cells[delimiter] = sizes.pop() if len(sizes) == 1 else 0
    best = max(num_cells, key=lambda each: num_cells[each])
    if num_cells[best] > 1:
        return best
    is_tsv = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    return "\t" if is_tsv else ","


def _has_header(cells: list[str]) -> bool:
    """Whether the first row has names: none is empty, a number, or there twice."""
    return len({*cells}) == len(cells) and not any(
        not cell.strip() or _is_number(cell) for cell in cells
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
