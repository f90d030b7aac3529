"""Formats of tables in files: recognised by content, then by name.

To add one, write an entry of `FORMATS`: nothing else asks which format a file has.
"""

import contextlib
import glob
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from embedder.base.limits import NoRoomError, check_room, memory_limit
from embedder.data.tables.text_form import head_of, marked_encoding, opened
from embedder.disk.files import name_file_in_errors
from embedder.disk.untrusted import TooLargeError, read_arrow_stream
from embedder.errors import InputError

_NO_FACTS = KeyError, TypeError, ValueError, RecursionError, pl.exceptions.PolarsError


class TableFormat(NamedTuple):
    """How files of one format are recognised and read."""

    name: str
    endings: tuple[str, ...]  # of file names, in lower case
    scan: Callable[[Sequence[Path]], pl.LazyFrame] | None
    """The rows of files, whose columns have types; None: they are lines of cells, which
    `text_form` reads."""
    magic: bytes = b""  # first bytes; b"": any
    is_text: bool = False
    """Whether rows are lines of text, which gzip or the like may have packed."""
    is_packed: bool = False
    """Whether the size of a file does not bound that of its rows."""
    joins_files: bool = True
    """Whether files whose columns are equal are scanned together."""
    index_columns: Callable[[Path], list[str]] = lambda path: []
    """The columns that a file says are an index."""
    check: Callable[[Path, bytes], None] = lambda path, head: None
    """Raises InputError if a file with these first bytes cannot be read."""
    fault: Callable[[Path], str] = lambda path: ""
    """What is wrong with a file that could not be read; "": that is not known."""


def parquet_facts(path: Path, program: str, *keys: str) -> list[Any]:
    """A list in the metadata that a program wrote to a Parquet file, at `keys` within
    each other; []: there is none."""
    with contextlib.suppress(*_NO_FACTS):
        facts = json.loads(pl.read_parquet_metadata(path)[program])
        for key in keys:
            facts = facts[key]
        return facts if isinstance(facts, list) else []
    return []


def _read_streams(paths: Sequence[Path]) -> pl.LazyFrame:
    size = sum(path.stat().st_size for path in paths)
    advice = "write Arrow files or Parquet, which are read in pieces"
    check_room(2 * size, "Arrow streams are read whole, which takes", advice)
    max_bytes = memory_limit().size // 2
    try:
        return pl.concat([read_arrow_stream(path, max_bytes) for path in paths]).lazy()
    except TooLargeError as error:
        raise NoRoomError(f"{paths[0]} does not fit in memory: {error}.") from error


def _scan_json(paths: Sequence[Path]) -> pl.LazyFrame:
    names = [glob.escape(str(path)) for path in paths]  # they are patterns
    schema = pl.scan_ndjson(names, infer_schema_length=None).collect_schema()
    return pl.scan_ndjson(names, schema=schema)


def _check_json(path: Path, head: bytes) -> None:
    if head.lstrip().startswith(b"["):
        raise InputError(
            f"{path} is JSON, not JSON lines: write a row a line, as "
            '`to_json(path, orient="records", lines=True)` of pandas.'
        )


def _mixed_kinds(path: Path) -> str:
    """The first line of JSON lines where a key has an object, a list or a value, and
    had another kind before; "": there is none."""
    kinds: dict[str, tuple[str, int]] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                for key, value in json.loads(line).items() if line.strip() else ():
                    if value is None:
                        continue
                    kind = "an object" if isinstance(value, dict) else "a value"
                    kind = "a list" if isinstance(value, list) else kind
                    before, first = kinds.setdefault(key, (kind, number))
                    if before != kind:
                        return (
                            f"{path} line {number}: {key!r} is {kind}, and {before} in "
                            f"line {first}: write one kind"
                        )
    return ""


def _check_csv(path: Path, head: bytes) -> None:
    if b"\0" in head and marked_encoding(head) == "utf-8":
        raise InputError(f"{path} is not text: it has a NUL byte.")


_IPC = "Arrow IPC", (".arrow", ".arrows", ".feather", ".ipc")
PARQUET = TableFormat(
    *("Parquet", (".parquet", ".pq")),
    lambda paths: pl.scan_parquet([*paths], glob=False, hive_partitioning=False),
    b"PAR1",
    is_packed=True,
    index_columns=lambda path: [
        x for x in parquet_facts(path, "pandas", "index_columns") if isinstance(x, str)
    ],
)
CSV = TableFormat("CSV", (".csv", ".tsv", ".tab"), None, is_text=True, check=_check_csv)
JSON = TableFormat(
    *("JSON lines", (".jsonl", ".ndjson", ".json"), _scan_json),
    is_text=True,
    joins_files=False,
    check=_check_json,
    fault=_mixed_kinds,
)
FORMATS = (
    PARQUET,
    TableFormat(
        *_IPC,
        lambda paths: pl.scan_ipc([*paths], glob=False, hive_partitioning=False),
        b"ARROW1\0\0",
        is_packed=True,
    ),
    TableFormat(*_IPC, _read_streams, b"\xff\xff\xff\xff", joins_files=False),
    CSV,
    JSON,
)
"""The first that fits a file is its format: the bytes decide before the name."""

_OTHERS = {
    b"PK\x03\x04": "a workbook or a ZIP archive: save it as CSV, or unpack it",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it, or pack it by gzip",
    b"SQLite format 3\0": "a SQLite database: write the table to Parquet or CSV",
    b"\x89HDF\r\n": "a HDF5 file: write the table to Parquet or CSV",
    b"Obj\x01": "an Avro file: write the table to Parquet or CSV",
    b"ORC": "an ORC file: write the table to Parquet or CSV",
}


def known_format(path: Path) -> TableFormat | None:
    """The format of a file; None: it is not a table, by its first bytes and its name.
    Raises OSError if it cannot be read."""
    head = head_of(path, 8)
    formats = (x for x in FORMATS if x.magic and head.startswith(x.magic))
    return next(formats, None) or format_by_name(path)


def format_by_name(path: Path) -> TableFormat | None:
    """The format that the name of a file says, or None."""
    name = path.name.lower().removesuffix(".gz")
    return next((f for f in FORMATS if name.endswith(f.endings)), None)


def table_endings() -> tuple[str, ...]:
    """The endings of the names of tables, without .gz, in lower case."""
    return tuple(ending for each in FORMATS for ending in each.endings)


def format_of(path: Path) -> TableFormat:
    """The format of a file that is a table. Raises InputError if it is empty, or no
    table."""
    with name_file_in_errors(path):
        if not path.stat().st_size:
            raise InputError(f"{path} is empty.")
    head = head_of(path, 64)
    for magic, what in _OTHERS.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}.")
    kind = known_format(path)
    if kind is None:
        kind = JSON if head.lstrip().startswith(b"{") else CSV
    if kind.magic and not head.startswith(kind.magic):
        raise InputError(f"{path} is not {kind.name}, which its name says.")
    kind.check(path, head)
    return kind
