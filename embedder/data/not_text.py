"""Recognises files that hold tables, graphs or binary data, not sequences of tokens.

An ending of the name or a magic number is enough. Text is refused only if it cannot be
prose: it has a column of numbers and otherwise short cells; or all lines have the same
number of commas without a space after them, and a column of single words; or all lines
are pairs of integers.
"""

import csv
import json
import re
from pathlib import Path

from embedder.disk.files import IMAGES, open_unpacked
from embedder.errors import InputError
from embedder.vectors.white_space import split, strip

_NAMES = {
    "a CSV table": (".csv",),
    "a TSV table": (".tsv", ".tab"),
    "JSON": (".json", ".jsonl", ".ndjson"),
    "a Parquet table": (".parquet", ".pq"),
    "an Arrow table": (".arrow", ".arrows", ".feather", ".ipc"),
    "an edge list": (".edges", ".edgelist"),
    "a NumPy file": (".npy", ".npz"),
    "an image": IMAGES,
    "an archive": (".zip", ".tar", ".tgz", ".7z"),
    "compressed by another program than gzip": (".bz2", ".xz", ".zst"),
}
_MAGIC = {
    b"PAR1\x15": "a Parquet table",
    b"ARROW1\0\0": "an Arrow table",
    b"\xff\xff\xff\xff": "an Arrow table",
    b"FEA1": "an Arrow table",
    b"PK\x03\x04": "a ZIP archive (or .npz, .xlsx, .docx)",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\x1f\x8b": "gzip, and its name must end in .gz",
    b"BZh91AY&SY": "compressed by bzip2",
    b"\xfd7zXZ\0": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\x93NUMPY": "a NumPy file",
    b"SQLite format 3\0": "a SQLite database",
    b"\x89HDF\r\n": "a HDF5 file",
    b"%PDF-": "a PDF file",
    b"\0\0\x08\x03": "images of idx, as MNIST's",
    b"\0\0\x08\x01": "labels of idx, as MNIST's",
    b"\x89PNG\r\n": "an image",
    b"\xff\xd8\xff": "an image",
}
_VECTORS = "a word2vec file of vectors"
_READ_AS_TABLES = "a CSV table", "a TSV table", "JSON"
_READ_BY_ENCODERS = {
    "an image": "a folder with a folder of images for each class",
    "images of idx, as MNIST's": "it",
    "labels of idx, as MNIST's": "the images that they belong to",
    "a NumPy file": "features and labels in an .npz",
    "an archive": "a .tar of images with labels",
}
_HEAD_BYTES = 2**16
_MIN_LINES = 20  # different ones, to recognise a table
_MAX_CELL_WORDS = 4  # on average: a column with longer cells is prose
_JSON_START = re.compile(r'\s*(\[\s*)?\{\s*"([^"\\]|\\.)*"\s*:')


def check_text(path: Path) -> None:
    """Checks by name and first 64 KiB that a file may be plain text with sequences.

    Raises:
      InputError: it is a table, a graph, JSON or binary; the message says which.
      OSError: it cannot be read.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if what := next((what for what, names in _NAMES.items() if suffix in names), None):
        raise InputError(
            f"{path} is {what} by its name, which is not read as text: {_advice(what)} "
            "If it is text already, name it .txt."
        )
    if what := _by_content(path):
        raise InputError(
            f"{path} is {what}, which is not read as text: {_advice(what)}"
        )


def _advice(what: str) -> str:
    if what == "an edge list":
        return "give --walks 10 to train on random walks over the graph."
    if what == _VECTORS:
        return "move it, or name the texts without it."
    if what in _READ_BY_ENCODERS:
        return f"give --model encoder to train on {_READ_BY_ENCODERS[what]}."
    advice = "write its tokens to a .txt file, one sequence a line"
    if what in _READ_AS_TABLES:
        advice += ", or give --session and --item, the columns of sessions and items"
    return f"{advice}."


def _by_content(path: Path) -> str | None:
    head = _head(path)
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            return what
    lines = head.decode("utf-8-sig", "replace").split("\n")
    if is_cut := len(head) == _HEAD_BYTES:
        lines.pop()
    lines = [line for line in map(strip, lines) if line]
    if _is_json(head, lines, is_cut):
        return "JSON"
    if _are_vectors(lines):
        return _VECTORS
    lines = list(dict.fromkeys(line for line in lines if line[0] not in "#%"))
    if len(lines) < _MIN_LINES:
        return None
    if _are_edges(lines):
        return "an edge list"
    return _table(lines, is_cut)


def _head(path: Path) -> bytes:
    try:
        with open_unpacked(path) as file:
            return file.read(_HEAD_BYTES)
    except InputError:
        return b""  # the reader's message says more


def _is_json(head: bytes, lines: list[str], is_cut: bool) -> bool:
    text = head.decode("utf-8-sig", "replace")
    if not _JSON_START.match(text) and not text.lstrip().startswith("["):
        return False
    if is_cut and not lines:  # the first line is longer than the head
        return bool(_JSON_START.match(text))
    values = [_parsed(line) for line in lines]
    if all(type(value) is dict for value in values):
        return True
    if len(lines) > 1 and all(type(value) is list for value in values):
        return True
    return not is_cut and bool(_JSON_START.match(text)) and _parsed(text) is not None


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _are_vectors(lines: list[str]) -> bool:
    """Whether it is word2vec text: a line `V D`, then lines of a key and D numbers."""
    rows = [*map(split, lines[:20])]
    if len(rows) < 2 or len(rows[0]) != 2 or not _are_integers(rows[0]):
        return False
    size = int(rows[0][1])
    return size > 1 and all(
        len(row) == size + 1 and all(map(_is_number, row[1:])) for row in rows[1:]
    )


def _are_edges(lines: list[str]) -> bool:
    """Whether 99 % of the lines are two integers, or two integers and a weight."""
    rows = [*map(split, lines)]
    plain = sum(len(row) == 2 and _are_integers(row) for row in rows)
    weighted = sum(
        len(row) == 3 and _are_integers(row[:2]) and _is_number(row[2]) for row in rows
    )
    return max(plain, weighted) >= 0.99 * len(rows)


def _are_integers(fields: list[str]) -> bool:
    return all(field.isascii() and field.isdigit() for field in fields)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _table(lines: list[str], is_cut: bool) -> str | None:
    """The kind of table that the lines are, or None."""
    for delimiter, what in ((",", "a CSV table"), (";", "a CSV table")):
        rows = _rows(lines, delimiter, is_cut)
        cells = [cell for row in rows for cell in row[1:]]
        is_tight = [bool(cell) and not cell[0].isspace() for cell in cells]
        if rows and sum(is_tight) >= 0.9 * len(cells) and _has_words(rows):
            return what
    return "a TSV table" if _has_numbers(_rows(lines, "\t", is_cut)) else None


def _rows(lines: list[str], delimiter: str, is_cut: bool) -> list[list[str]]:
    """The rows of cells; [] unless all have the same number of cells, two or more."""
    try:
        ends = (f"{line}\n" for line in lines)
        rows = list(csv.reader(ends, delimiter=delimiter, strict=not is_cut))
    except csv.Error:
        return []
    if is_cut:
        rows.pop()  # a quoted cell may continue behind the head
    sizes = {len(row) for row in rows}
    is_table = len(rows) >= _MIN_LINES - 1 and len(sizes) == 1 and sizes != {1}
    return rows if is_table else []


def _has_words(rows: list[list[str]]) -> bool:
    """Whether the first or the last column has single words, as keys are.

    Otherwise the delimiter is part of a token that occurs on each line.
    """
    columns = list(zip(*rows[1:], strict=True))
    return any(
        sum(len(cell.split()) == 1 and cell == cell.strip() for cell in column)
        >= 0.95 * len(column)
        for column in (columns[0], columns[-1])
    )


def _has_numbers(rows: list[list[str]]) -> bool:
    """Whether some columns have only numbers, and the others short cells, not prose.

    The first row may be a header. Numbers in all columns may be sequences of ids.
    """
    columns = list(zip(*rows[1:], strict=True))
    others = [column for column in columns if not all(map(_is_number, column))]
    words = [len(cell.split()) for column in others for cell in column]
    is_mixed = 0 < len(others) < len(columns)
    return is_mixed and sum(words) <= _MAX_CELL_WORDS * len(words)
