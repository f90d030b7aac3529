"""The neighbours of all keys of a file, written to a table."""

import gzip
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import polars as pl

from embedder.disk.copies import local_copy
from embedder.disk.files import (
    atomic_file,
    check_utf8_path,
    name_file_in_errors,
    short_reason,
)
from embedder.disk.untrusted import UnreadableError
from embedder.errors import InputEndError, InputError
from embedder.limits import check_room
from embedder.stages import report_stage
from embedder.tables.table_files import format_of, read_first, scan_tables
from embedder.threads import use_threads
from embedder.vectors.word2vec import MAX_TOKEN_BYTES

ENDINGS = (".parquet", ".csv")
_KEYS = 2**14  # that are looked up at once
_ROWS = 2**21  # of a part of the result
_SHOWN = 3  # unknown keys in a message
_FAULTS = pl.exceptions.PolarsError, pl.exceptions.PanicException, UnreadableError


class Batch(NamedTuple):
    """What was looked up."""

    num_found: int  # queries
    num_unknown: int
    unknown: list[str]  # the first of them

    def __str__(self) -> str:
        tokens = "token" if self.num_found == 1 else "tokens"
        text = f"neighbours of {self.num_found:,} {tokens}"
        if not self.num_unknown:
            return text
        shown = ", ".join(map(repr, self.unknown))
        more = ", ..." if self.num_unknown > len(self.unknown) else ""
        others = "1 is" if self.num_unknown == 1 else f"{self.num_unknown:,} are"
        return f"{text}; {others} not in the vocabulary ({shown}{more})"


def check_batch(to: Path) -> None:
    """Raises InputError unless a batch can be written to `to`."""
    if to.suffix.lower() not in ENDINGS:
        raise InputError(
            f"`to` must end in {' or '.join(ENDINGS)} with --from, got {to}."
        )
    check_utf8_path(to, "`to`")


def write_batch(
    source: str,
    to: Path,
    known: Callable[[str], bool],
    neighbors: Callable[[list[str]], pl.DataFrame],
    topn: int,
) -> Batch:
    """Writes the neighbours of the keys in `source` to a .parquet or .csv file.

    Keys are looked up some thousands at a time, and the result is written in parts, so
    memory does not grow with them. Unknown keys are left out and counted.

    Args:
      source: path or URL of a text with a key in each line (.gz is unpacked), or of a
        table with a column `key`.
      known: whether a key is in the vocabulary.
      neighbors: the rows of the result for known keys, at most `topn` for each.

    Raises:
      InputError: the source cannot be read, or none of its keys is known.
      OSError: the disk is full, say; an existing file at `to` stays.
    """
    num_found, num_unknown, unknown = 0, 0, list[str]()

    def frames() -> Iterator[pl.DataFrame]:
        nonlocal num_found, num_unknown
        report_stage(f"reading {source}")
        for keys in read_keys(source, max(1, min(_KEYS, _ROWS // topn))):
            mine, others = _split(keys, known)
            num_found, num_unknown = num_found + len(mine), num_unknown + len(others)
            unknown.extend(others[: _SHOWN - len(unknown)])
            if mine:
                yield neighbors(mine)
        if not num_found:
            first = f", the first is {unknown[0]!r}" if unknown else ""
            raise InputError(
                f"`from` must have a token of the vocabulary, got {source} with "
                f"{num_unknown} others{first}."
            )

    _write(frames(), to)
    return Batch(num_found, num_unknown, unknown)


def _split(keys: list[str], known: Callable[[str], bool]) -> tuple[list[str], ...]:
    """The known keys, and the others."""
    found: tuple[list[str], list[str]] = [], []
    for key in keys:
        found[not known(key)].append(key)
    return found


def read_keys(source: str, size: int = _KEYS) -> Iterator[list[str]]:
    """The keys of a file, `size` at a time; empty lines are left out.

    Raises:
      InputError: the file is damaged, is not UTF-8, or has no column `key`.
      OSError: it cannot be read.
    """
    path = Path(local_copy(source))
    with name_file_in_errors(path):
        is_table = format_of(path) is not None
        num = None if is_table or path.suffix == ".gz" else _num_lines(path)
    if is_table:
        yield from _of_table(path, size)
    else:
        yield from _told(_of_text(path, size), num)


def _num_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


def _told(parts: Iterable[list[str]], num: int | None) -> Iterator[list[str]]:
    """`parts`, of `num` keys in all if that is known; tells how many are done."""
    done, of_all = 0, "" if num is None else f" of {num:,}"
    report_stage(f"neighbours: 0{of_all} queries")
    for part in parts:
        yield part
        done += len(part)
        report_stage(f"neighbours: {done:,}{of_all} queries")


def _of_text(path: Path, size: int) -> Iterator[list[str]]:
    is_gzip = path.suffix == ".gz"
    keys: list[str] = []
    try:
        with name_file_in_errors(path), open(path, "rb") as file:
            if is_gzip and not path.stat().st_size:
                raise InputEndError("it is empty")
            text: Any = gzip.GzipFile(fileobj=file) if is_gzip else file
            for number, line in enumerate(_lines(text), 1):
                if key := _decoded(line, number, path):
                    keys.append(key)
                if len(keys) == size:
                    yield keys
                    keys = []
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error
    if keys:
        yield keys


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends; a longer one than a key can be is cut."""
    most = MAX_TOKEN_BYTES + 2
    while line := file.readline(most):
        rest = line
        while len(rest) == most and not rest.endswith(b"\n"):
            rest = file.readline(most)
        yield line.rstrip(b"\r\n")


def _decoded(line: bytes, number: int, path: Path) -> str:
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if len(line) > MAX_TOKEN_BYTES:
        return line[:60].decode(errors="replace") + "..."
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"`from` {path} is not UTF-8 text: byte {line[error.start]:#04x} in line "
            f"{number}."
        ) from error


def _of_table(path: Path, size: int) -> Iterator[list[str]]:
    use_threads()
    try:
        frame = scan_tables([path])
        schema = frame.collect_schema()
        if "key" not in schema:
            columns = ", ".join(map(repr, schema.names()))
            raise InputError(f"`from` {path} has no column 'key'; it has {columns}.")
        if not (schema["key"] == pl.String or schema["key"].is_integer()):
            raise InputError(
                f"`from` {path}: 'key' must have text or integers, got {schema['key']}."
            )
        keys = frame.select(pl.col("key").cast(pl.String)).drop_nulls()
        check_room(read_first(keys, [path]), f"`from` {path} takes", "split it")
        found = keys.collect()["key"]
    except _FAULTS as error:
        raise InputError(
            f"`from` {path} cannot be read: {short_reason(error)}."
        ) from error
    starts = range(0, len(found), size)
    parts = (found[start : start + size].to_list() for start in starts)
    yield from _told(([key for key in part if key] for part in parts), len(found))


def _write(frames: Iterable[pl.DataFrame], to: Path) -> None:
    """Writes all frames to a file, atomically; parts of it are beside it until then."""
    use_threads()
    to = Path(os.path.realpath(to))
    parts = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with atomic_file(to) as whole:
            parts.mkdir()
            _write_parts(frames, parts)
            report_stage(f"writing {to}")
            rows = pl.scan_parquet(sorted(parts.iterdir()), glob=False)
            if to.suffix.lower() == ".csv":
                rows.sink_csv(whole)
            else:
                rows.sink_parquet(whole)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"A table cannot be written to {to.parent}: {error}") from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _write_parts(frames: Iterable[pl.DataFrame], folder: Path) -> None:
    held: list[pl.DataFrame] = []
    number = 0
    for frame in frames:
        held.append(frame)
        if sum(map(len, held)) >= _ROWS:
            pl.concat(held).write_parquet(folder / f"{number:06d}.parquet")
            number, held = number + 1, []
    if held or not number:
        pl.concat(held).write_parquet(folder / f"{number:06d}.parquet")
