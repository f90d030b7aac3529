"""Reads edge lists in text: one edge a line, two or three columns.

Columns are separated by tabs, commas, semicolons, vertical bars, or any white space:
by what the first line has, in this order. Lines that begin with # or % are comments.
A header is recognised, and logged.
"""

import codecs
import csv
import gzip
import io
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from embedder.disk.files import name_file_in_errors
from embedder.errors import InputEndError, InputError
from embedder.graphs.edge_table import (
    EdgeColumns,
    are_names_of_ends,
    ends_and_weights,
    pick_columns,
)

_PIECE_BYTES = 2**24
_MAX_LINE = 2**20  # characters
_SEPARATORS = "\t,;|"
_log = logging.getLogger(__name__)


class _Layout(NamedTuple):
    """How the lines of a file are cut."""

    separator: str  # " ": any white space
    names: list[str]  # of all columns
    picked: EdgeColumns
    has_header: bool


def read_edge_text(path: Path, columns: EdgeColumns) -> Iterator[pl.DataFrame]:
    """Frames with columns source, target and perhaps weight.

    Raises:
      InputError: the file is not UTF-8 text with such lines; the message names one.
      OSError: it cannot be read.
    """
    layout: _Layout | None = None
    for table in _tables_of_lines(path):
        if layout is None:
            layout = _layout(table, columns, path)
            _log_layout(layout, path, table["number"][0])
            table = table[int(layout.has_header) :]
        if table.height:
            cells = _cells(table, layout, path)
            yield ends_and_weights(cells, columns, path, "line", table["number"])


def find_text_columns(path: Path, columns: EdgeColumns) -> EdgeColumns | None:
    """The columns that `read_edge_text` picks; None: the file has no header.

    Reads only the first piece of the file; raises as `read_edge_text`.
    """
    for table in _tables_of_lines(path):
        layout = _layout(table, columns, path)
        return layout.picked if layout.has_header else None
    return None


def _tables_of_lines(path: Path) -> Iterator[pl.DataFrame]:
    """Numbered lines without comments and blank ones; no table is empty."""
    num_lines = 0
    for text in _whole_lines(path):
        lines = pl.Series("line", text.split("\n")).str.strip_chars()
        table = pl.DataFrame({"line": lines}).with_row_index("number", num_lines + 1)
        num_lines += len(lines)
        table = table.filter(~pl.col("line").str.contains("^([#%]|$)"))
        if table.height:
            yield table


def _layout(table: pl.DataFrame, columns: EdgeColumns, path: Path) -> _Layout:
    first = table["line"][0]
    if first[0] in "{[":
        raise InputError(f"{path} is JSON, not an edge list.")
    separator = next((s for s in _SEPARATORS if s in first), " ")
    cells = [_split(line, separator) for line in table["line"][:1000]]
    names = cells[0]
    has_header = any(columns) or _is_header(cells)
    if not has_header:
        names = [f"column {k}" for k in range(1, len(names) + 1)]
    picked = pick_columns(names, columns, path)
    return _Layout(separator, names, picked, has_header)


def _log_layout(layout: _Layout, path: Path, number: int) -> None:
    if layout.has_header:
        _log.info("%s: line %d is the header.", path, number)
    if layout.picked.weight:
        _log.info("%s: %s is the weight.", path, layout.picked.weight)


def _is_header(cells: list[list[str]]) -> bool:
    """Whether the first line is a header: by usual names; a weight that is no number;
    or ends that are no integers, while all later ones are."""
    first, later = cells[0], [row for row in cells[1:] if len(row) == len(cells[0])]
    if len(first) < 2 or are_names_of_ends(first):
        return len(first) >= 2
    if len(first) == 3 and not _is_number(first[2]):
        return True
    ends = [cell for row in later for cell in row[:2]]
    are_integers = bool(ends) and all(map(_is_integer, ends))
    return are_integers and not any(map(_is_integer, first[:2]))


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _split(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    row = next(csv.reader(io.StringIO(line), delimiter=separator), [])
    return [cell.strip() for cell in row]


def _cells(table: pl.DataFrame, layout: _Layout, path: Path) -> pl.DataFrame:
    """The lines cut into columns.

    Raises:
      InputError: a line has more or fewer.
    """
    lines, width = table["line"], len(layout.names)
    if layout.separator != " " and lines.str.contains('"', literal=True).any():
        rows = [_split(line, layout.separator) for line in lines]
        sizes = pl.Series([len(row) for row in rows])
        rows = [(row + [""] * width)[:width] for row in rows]
        cells = pl.DataFrame(rows, schema=layout.names, orient="row")
    else:
        if layout.separator == " ":
            lines = lines.str.replace_all(r"\s+", " ")
        parts = lines.str.split(layout.separator)
        sizes = parts.list.len()
        fields = lines.str.splitn(layout.separator, width).struct.unnest()
        stripped = [fields[f"field_{k}"].str.strip_chars() for k in range(width)]
        cells = pl.DataFrame(
            {n: s for n, s in zip(layout.names, stripped, strict=True)}
        )
    is_wrong = sizes != width
    index = is_wrong.arg_max() if is_wrong.any() else None
    if index is not None:
        raise InputError(
            f"{path}: all lines must have {width} columns as the first, got "
            f"{sizes[index]} in line {table['number'][index]}."
        )
    return cells


def _whole_lines(path: Path) -> Iterator[str]:
    """Text of whole lines, about _PIECE_BYTES at a time.

    Raises:
      InputError: it is not UTF-8 text, or not a whole gzip file.
    """
    decoder, rest = codecs.getincrementaldecoder("utf-8-sig")(), ""
    for data in _pieces(path):
        if b"\0" in data:
            raise InputError(f"{path} is not text: it has a NUL byte.")
        try:
            text = rest + decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text: byte {error.object[error.start]:#04x}."
            ) from error
        cut = text.rfind("\n") + 1 if data else len(text)
        if len(text) - cut > _MAX_LINE:
            raise InputError(f"{path} has a line of more than {_MAX_LINE} characters.")
        if cut:
            yield text[:cut].removesuffix("\n")
        rest = text[cut:]


def _pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file, which may be gzip; at last b""."""
    try:
        with name_file_in_errors(path), open(path, "rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if path.suffix == ".gz" and not is_gzip:
                raise InputEndError("it does not begin as gzip")
            content = gzip.open(file) if is_gzip else file
            while data := content.read(_PIECE_BYTES):
                yield data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error
    yield b""
