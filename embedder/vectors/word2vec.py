"""The word2vec text and binary formats, as word2vec.c, gensim and fastText write them,
and the text of GloVe.

Text: a line `V D`, then a line `key v1 ... vD` for each key. Binary: a line `V D`, then
for each key the key, a blank, D little-endian float32 and perhaps a newline. V is the
number of keys, D of dimensions. GloVe's text has no first line, and a key may have
blanks: the last D fields are its vector (Pennington et al. 2014).
"""

import codecs
import contextlib
import gzip
import math
import mmap
import sys
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from embedder.base.threads import use_threads
from embedder.errors import InputEndError, InputError
from embedder.vectors.key_rows import SKIP, KeyErrors, KeyRows, short
from embedder.vectors.vectors import Vectors
from embedder.vectors.white_space import is_word

CHUNK_VALUES = 2**20  # values that are formatted or parsed at a time
CHUNK_BYTES = 2**24  # of lines that are parsed at a time; no line is longer
MAX_TOKEN_BYTES = 2**20  # of a key in UTF-8; a corpus is read without longer tokens
MAX_HEADER_BYTES = 100
_KIND, _GLOVE = "a word2vec file", "a GloVe file"
_LEAST = 2  # values of a GloVe row: with fewer, any line of two fields would be one
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # the least value that rounds to infinity


def write_text(
    vectors: Vectors, path: Path, *, is_gzip: bool = False, is_glove: bool = False
) -> None:
    """Writes text of word2vec or GloVe; each value has the fewest digits that give its
    float32. Equal vectors give equal bytes, also of gzip.

    Raises:
      InputError: a key has white space or is too long, a value overflows float32, or
        a GloVe file has one dimension, so that a line would look like a header.
    """
    kind = _GLOVE if is_glove else _KIND
    with gzip_file(path) if is_gzip else open(path, "wb") as file:
        if is_glove and vectors.matrix.shape[1] < _LEAST:
            raise InputError(
                f"`vectors.matrix` must have {_LEAST} dimensions or more in {kind}, "
                "got 1."
            )
        check_plain_keys(vectors.keys, kind)
        matrix = float32(vectors.matrix, kind)
        if not is_glove:
            file.write(b"%d %d\n" % matrix.shape)
        _write_rows(vectors.keys, matrix, file)


@contextlib.contextmanager
def gzip_file(path: Path) -> Iterator[gzip.GzipFile]:
    """A new gzip file to write; equal content gives equal bytes."""
    with open(path, "wb") as raw:
        # Level 1: on digits, level 6 takes four times as long to save another tenth.
        with gzip.GzipFile("", "wb", 1, raw, mtime=0) as file:
            yield file


def write_binary(vectors: Vectors, path: Path) -> None:
    """Writes word2vec binary without newlines after the rows, as gensim does.

    Raises:
      InputError: see `write_text`.
    """
    check_plain_keys(vectors.keys, _KIND)
    rows = float32(vectors.matrix).astype("<f4", copy=False)
    with open(path, "wb") as file:
        file.write(b"%d %d\n" % rows.shape)
        for key, row in zip(vectors.keys, rows, strict=True):
            file.write(key.encode() + b" " + row.tobytes())


def read_text(
    path: Path, key_errors: KeyErrors = "strict", *, is_gzip: bool = False
) -> Vectors:
    """The vectors of a text file of word2vec or, without a header, of GloVe. It may
    begin with a byte order mark.

    Raises:
      InputEndError: the file has fewer rows than its first line says.
      InputError: a line is damaged; the message names line and column.
    """
    key_rows = KeyRows(path, key_errors)
    with _whole_gzip(path) if is_gzip else open(path, "rb") as file:
        try:
            num_columns = _glove_columns(file)
        except (OSError, EOFError, zlib.error):
            num_columns = None  # reading on tells what is wrong
        file.seek(0)
        _skip_mark(file)
        if num_columns is None:
            _read_rows_after_header(file, key_rows)
        else:
            _add_rows(file, num_columns, sys.maxsize, key_rows, is_glove=True)
        return key_rows.vectors()


@contextlib.contextmanager
def _whole_gzip(path: Path) -> Iterator[gzip.GzipFile]:
    """A gzip file to read; InputError if the body finds that it is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            yield file
    except EOFError as error:
        reason = str(error).removeprefix(f"{path} ")
        raise InputEndError(f"{path} {reason}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}.") from error


def read_binary(path: Path, key_errors: KeyErrors = "strict") -> Vectors:
    """The vectors of a word2vec binary file.

    Raises:
      InputEndError: the file has fewer rows than its first line says.
      InputError: it is damaged, or has more rows.
    """
    with open(path, "rb") as file:
        num_rows, num_columns = _header(file, path)
        start = file.tell()
        size = path.stat().st_size
        # Bytes of the smallest row: a key of one byte, a blank, the values.
        if num_rows * (2 + 4 * num_columns) > size - start:
            raise InputEndError(
                f"{path} must hold {num_rows} rows of {num_columns} values, as line 1 "
                f"says, got {size} bytes."
            )
        key_rows = KeyRows(path, key_errors, "row")
        keys: list[str] = []
        numbers: list[int] = []
        matrix = np.empty((num_rows, num_columns), np.float32)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for row in range(num_rows):
                blank = data.find(b" ", start, size - 4 * num_columns)
                if blank < 0:
                    raise InputEndError(
                        f"{path} row {row}: must be a key, a blank and {num_columns} "
                        "float32, got the end of the file."
                    )
                # word2vec.c writes a newline after each row.
                key = key_rows.text(data[start:blank].lstrip(b"\n"), row)
                if key is not None:
                    at = blank + 1  # no name keeps the map open
                    matrix[len(keys)] = np.frombuffer(data, "<f4", num_columns, at)
                    keys.append(key)
                    numbers.append(row)
                start = blank + 1 + 4 * num_columns
            key_rows.add(keys, matrix[: len(keys)], numbers)
            if data[start : start + 1000].strip(b"\n"):
                raise InputError(
                    f"{path} must end after the {num_rows} rows that line 1 says, "
                    f"got {size - start} more bytes."
                )
    return key_rows.vectors()


def is_key(key: str) -> bool:
    """Whether word2vec formats can hold `key`: no white space, not too long."""
    return is_word(key) and len(key.encode()) <= MAX_TOKEN_BYTES


def check_plain_keys(keys: Sequence[str], kind: str) -> None:
    """Raises InputError unless `is_key` is true of all `keys`.

    Args:
      kind: of the file, for the message.
    """
    for key in keys:
        if not is_key(key):
            is_long = len(key.encode()) > MAX_TOKEN_BYTES
            rule = f"at most {MAX_TOKEN_BYTES} bytes" if is_long else "no white space"
            raise InputError(
                f"`vectors.keys` must have {rule} in {kind}, got "
                f"{short(key) if is_long else repr(key)}: write .safetensors, .npz or "
                ".parquet."
            )


def float32(matrix: np.ndarray, kind: str = _KIND) -> np.ndarray:
    """`matrix` in float32; InputError if a value overflows.

    Args:
      kind: of the file, for the message.
    """
    with np.errstate(over="ignore"):
        rounded = matrix.astype(np.float32, copy=False)
    if not np.isfinite(rounded).all():
        raise InputError(
            f"`vectors.matrix` must fit float32 in {kind}, got "
            f"{matrix[~np.isfinite(rounded)][0]}: write .safetensors, .npz or .parquet."
        )
    return rounded


def _write_rows(keys: list[str], matrix: np.ndarray, file: BufferedIOBase) -> None:
    """Writes a line `key v1 ... vD` for each row of f32[V, D]."""
    import polars as pl

    use_threads()
    num_rows = max(1, CHUNK_VALUES // matrix.shape[1])
    for start in range(0, len(keys), num_rows):
        chunk = slice(start, start + num_rows)
        key = pl.Series("key", keys[chunk], dtype=pl.String)
        rows = pl.DataFrame(matrix[chunk]).insert_column(0, key)
        text = rows.write_csv(include_header=False, separator=" ", quote_style="never")
        file.write(text.encode())


def _read_rows_after_header(file: BufferedIOBase, key_rows: KeyRows) -> None:
    """Adds the rows of a word2vec file to `key_rows`."""
    path = key_rows.path
    num_rows, num_columns = _header(file, path)
    num_read = _add_rows(file, num_columns, num_rows, key_rows)
    if num_read < num_rows:
        raise InputEndError(
            f"{path} line {num_read + 2}: must be one of {num_rows} rows, as line 1 "
            "says, got the end of the file."
        )
    if rest := file.read(1000).strip():
        raise InputError(
            f"{path} line {num_rows + 2}: must be the end, after the {num_rows} rows "
            f"that line 1 says, got {short(rest)}."
        )


def _add_rows(
    file: BufferedIOBase,
    num_columns: int,
    most_lines: int,
    key_rows: KeyRows,
    *,
    is_glove: bool = False,
) -> int:
    """Adds the rows of `most_lines` lines at most to `key_rows`; returns how many."""
    num_read = 0
    at_once = max(1, CHUNK_VALUES // num_columns)
    while lines := _next_lines(file, min(at_once, most_lines - num_read)):
        number = num_read + (1 if is_glove else 2)
        rows = _parse_fast(lines, num_columns, number)
        if rows is None:
            rows = _parse_strictly(
                lines, num_columns, number, key_rows, is_glove=is_glove
            )
        key_rows.add(*rows)
        num_read += len(lines)
    return num_read


def _glove_columns(file: BufferedIOBase) -> int | None:
    """Numbers of a vector by the first line; None: it is no line of GloVe."""
    _skip_mark(file)
    line = file.readline(CHUNK_BYTES)
    has_key = not line[:1].isspace()  # or one that is white space
    values = line.split()[has_key:]
    try:
        is_finite = all(math.isfinite(float(value)) for value in values)
    except ValueError:
        return None
    return len(values) if is_finite and len(values) >= _LEAST else None


def _skip_mark(file: BufferedIOBase) -> None:
    """Skips the byte order mark that a file may begin with."""
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)


def _next_lines(file: BufferedIOBase, max_lines: int) -> list[bytes]:
    """At most `max_lines` lines; one above CHUNK_BYTES is cut, and refused later."""
    lines: list[bytes] = []
    size = 0
    while len(lines) < max_lines and size < CHUNK_BYTES:
        line = file.readline(CHUNK_BYTES)
        if not line:
            break
        lines.append(line)
        size += len(line)
    return lines


def _header(file: BufferedIOBase, path: Path) -> tuple[int, int]:
    """Numbers of rows and columns from the first line."""
    line = file.readline(MAX_HEADER_BYTES)
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        num_rows, num_columns = map(int, fields)
        if line.endswith(b"\n") and num_rows > 0 and num_columns > 0:
            return num_rows, num_columns
    raise InputError(
        f"{path} line 1: must be the numbers of keys and of dimensions, "
        f"got {short(line)}."
    )


def _parse_fast(
    lines: list[bytes], num_columns: int, first_number: int
) -> tuple[list[str], np.ndarray, Sequence[int]] | None:
    """What `_parse_strictly` has of whole lines; None if one may be damaged."""
    import polars as pl

    use_threads()
    parts = [line.rstrip().partition(b" ") for line in lines]
    keys = [part[0] for part in parts]
    joined = b" ".join(keys)
    if joined.split() != keys or parts[0][2].count(b" ") != num_columns - 1:
        return None
    try:
        names = joined.decode().split(" ")
        values = pl.read_csv(
            b"\n".join([part[2] for part in parts]),
            has_header=False,
            separator=" ",
            quote_char=None,
            schema={str(column): pl.Float32 for column in range(num_columns)},
        ).to_numpy(order="c")
    except (ValueError, pl.exceptions.PolarsError):
        return None
    if values.shape != (len(lines), num_columns) or not np.isfinite(values).all():
        return None
    return names, values, range(first_number, first_number + len(lines))


def _parse_strictly(
    lines: list[bytes],
    num_columns: int,
    first_number: int,
    key_rows: KeyRows,
    *,
    is_glove: bool = False,
) -> tuple[list[str], np.ndarray, list[int]]:
    """Keys, f32[rows, D] and numbers of lines, but of those that are left out.

    Args:
      is_glove: whether keys may have blanks, and empty lines are left out.

    Raises:
      InputError: a line is damaged; the message names line and column.
    """
    keys, rows, numbers = [], [], []
    for number, line in enumerate(lines, start=first_number):
        if is_glove and not line.strip():
            continue
        where = f"{key_rows.path} line {number}"
        has_blanks = is_glove or not key_rows.is_strict
        key, *fields = _fields(line, num_columns, where, has_blanks=has_blanks)
        if not is_glove and len(key.split()) > 1:
            key = b""
        columns = enumerate(fields, start=2)
        row = [_value_of(field, f"{where}: column {i}") for i, field in columns]
        if (text := key_rows.text(key, number)) is not None:
            keys.append(text)
            rows.append(row)
            numbers.append(number)
    values = np.array(rows, np.float32).reshape(len(rows), num_columns)
    return keys, values, numbers


def _fields(
    line: bytes, num_columns: int, where: str, *, has_blanks: bool
) -> list[bytes]:
    """The key and the values of a line; b"" for a key that is white space.

    Args:
      has_blanks: whether the key may have blanks.
    """
    fields = line.strip().rsplit(None, num_columns)
    if len(fields) == num_columns and line[:1].isspace():
        return [b"", *fields]
    is_whole = len(fields) > num_columns
    if not is_whole or not (has_blanks or len(fields[0].split()) == 1):
        raise InputError(
            f"{where}: must be a key and {num_columns} values, as line 1 says, got "
            f"{len(line.split())} columns: {short(line)}"
            f"{f'; {SKIP}' if is_whole else ''}."
        )
    return fields


def _value_of(field: bytes, where: str) -> float:
    """The finite number in a field; InputError with `where` if it is none."""
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not abs(value) < FLOAT32_OVERFLOW:
        raise InputError(f"{where} must be a finite number, got {short(field)}.")
    return value
