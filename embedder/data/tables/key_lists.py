"""Lists of keys: a text with a key a line, or a table with a column of keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import polars as pl

from embedder.base.limits import check_room
from embedder.base.threads import use_threads
from embedder.data.tables.reader import named_faults, open_table
from embedder.data.tables.table_formats import known_format
from embedder.data.tables.text_form import Roles, are_names
from embedder.disk.files import is_gzip_name, name_file_in_errors, open_unpacked
from embedder.errors import InputEndError, InputError
from embedder.vectors.word2vec import MAX_TOKEN_BYTES

_ROLES = Roles(
    {"key": ("key",)},
    ("key",),
    is_header=lambda rows: len(rows[0]) > 1 and are_names(rows),
    least=1,
)


def read_keys(path: Path, size: int, what: str) -> tuple[int, Iterator[list[str]]]:
    """How many keys or lines a file has, 0 if that is not known, and its keys.

    They come `size` at a time; empty ones are left out.

    A pipe is read once. A line that is longer than a key can be is cut.

    Args:
      what: the setting and the file, for messages.

    Raises:
      InputError: the file is damaged, is not UTF-8, or has no column `key`; the
        iterator raises it, too.
      OSError: it cannot be read.
    """
    with name_file_in_errors(path):
        is_pipe = path.exists() and not path.is_file()
        if not is_pipe and known_format(path):
            keys = _table_keys(path, what)
            starts = range(0, len(keys), size)
            return len(keys), (keys[k : k + size].to_list() for k in starts)
        num = 0
        if not is_pipe and not is_gzip_name(path):
            with open(path, "rb") as file:
                blocks = iter(lambda: file.read(2**20), b"")
                num = sum(block.count(b"\n") for block in blocks)
    return num, _text_keys(path, size, what)


def _table_keys(path: Path, what: str) -> pl.Series:
    use_threads()
    with named_faults(what):
        table = open_table([path], _ROLES)
        names = [name for name in table.names if name == "key"] or table.names
        if len(names) != 1:
            columns = ", ".join(map(repr, table.names))
            raise InputError(f"{what} has no column 'key'; it has {columns}.")
        (name,) = names
        dtype = table.schema[name]
        if not (table.is_integers(name) or dtype == pl.String):
            raise InputError(
                f"{what}: {name!r} must have text or integers, got {dtype}."
            )
        check_room(table.check_rows(names), f"{what} takes", "split it")
        keys = table.read(names, keys=names)[name].drop_nulls()
        wrong = keys.filter(~keys.str.contains(r"^-?\d+$"))
        if table.has_fractions(name) and len(wrong):
            raise InputError(
                f"{what}: {name!r} must have text or integers, got {wrong[0]}."
            )
    return keys.filter(keys != "")


def _text_keys(path: Path, size: int, what: str) -> Iterator[list[str]]:
    keys: list[str] = []
    with open_unpacked(path) as file:
        if is_gzip_name(path) and path.is_file() and not path.stat().st_size:
            raise InputEndError("it is empty")
        for number, line in enumerate(_lines(file), 1):
            if key := _decoded(line, number, what):
                keys.append(key)
            if len(keys) == size:
                yield keys
                keys = []
    if keys:
        yield keys


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines without their ends; a longer one than a key can be is cut."""
    most = MAX_TOKEN_BYTES + 2
    while line := file.readline(most):
        rest = line
        while len(rest) == most and not rest.endswith(b"\n"):
            rest = file.readline(most)
        yield line.rstrip(b"\r\n")


def _decoded(line: bytes, number: int, what: str) -> str:
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if len(line) > MAX_TOKEN_BYTES:
        return line[:60].decode(errors="replace") + "..."
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} is not UTF-8 text: byte {line[error.start]:#04x} in line {number}."
        ) from error
