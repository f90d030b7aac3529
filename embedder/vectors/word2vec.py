"""The word2vec text and binary formats, as word2vec.c, gensim and fastText write them.

Text: a line `V D`, then a line `key v1 ... vD` for each key. Binary: a line `V D`, then
for each key the key, a blank, D little-endian float32 and perhaps a newline. V is the
number of keys, D of dimensions.
"""

import contextlib
import gzip
import math
import mmap
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from embedder.errors import InputEndError, InputError
from embedder.threads import use_threads
from embedder.vectors.vectors import Vectors

CHUNK_VALUES = 2**20  # values that are formatted or parsed at a time
CHUNK_BYTES = 2**24  # of lines that are parsed at a time; no line is longer
MAX_TOKEN_BYTES = 2**20  # of a key in UTF-8; a corpus is read without longer tokens
MAX_HEADER_BYTES = 100
_KIND = "a word2vec file"
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # the least value that rounds to infinity


def write_text(vectors: Vectors, path: Path) -> None:
    """Writes word2vec text; each value has the fewest digits that give its float32.

    Raises:
      InputError: a key has white space or is too long, or a value overflows float32.
    """
    check_plain_keys(vectors.keys, _KIND)
    matrix = float32(vectors.matrix)
    with open(path, "wb") as file:
        _write_text(vectors.keys, matrix, file)


def write_gzip_text(vectors: Vectors, path: Path) -> None:
    """Writes gzip of what `write_text` writes; equal vectors give equal bytes."""
    check_plain_keys(vectors.keys, _KIND)
    matrix = float32(vectors.matrix)
    with gzip_file(path) as file:
        _write_text(vectors.keys, matrix, file)


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


def read_text(path: Path) -> Vectors:
    """The vectors of a word2vec text file.

    Raises:
      InputEndError: the file has fewer rows than its first line says.
      InputError: a line is damaged; the message names line and column.
    """
    with open(path, "rb") as file:
        return _read_text(file, path)


def read_gzip_text(path: Path) -> Vectors:
    """The vectors of a gzip of word2vec text; raises what `read_text` raises."""
    with whole_gzip(path), gzip.open(path, "rb") as file:
        return _read_text(file, path)


@contextlib.contextmanager
def whole_gzip(path: Path) -> Iterator[None]:
    """Turns the errors of a damaged gzip file in the body into an InputError."""
    try:
        yield
    except EOFError as error:
        reason = str(error).removeprefix(f"{path} ")
        raise InputEndError(f"{path} {reason}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}.") from error


def read_binary(path: Path) -> Vectors:
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
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            keys, matrix, end = _binary_rows(data, start, num_rows, num_columns, path)
            if data[end : end + 1000].strip(b"\n"):
                raise InputError(
                    f"{path} must end after the {num_rows} rows that line 1 says, "
                    f"got {size - end} more bytes."
                )
    return make_vectors(keys, matrix, path)


def is_key(key: str) -> bool:
    """Whether word2vec formats can hold `key`: no white space, not too long."""
    encoded = key.encode()
    return len(encoded) <= MAX_TOKEN_BYTES and encoded.split() == [encoded]


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


def _write_text(keys: list[str], matrix: np.ndarray, file: BufferedIOBase) -> None:
    file.write(b"%d %d\n" % matrix.shape)
    write_rows(keys, matrix, file)


def write_rows(keys: list[str], matrix: np.ndarray, file: BufferedIOBase) -> None:
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


def _read_text(file: BufferedIOBase, path: Path) -> Vectors:
    num_rows, num_columns = _header(file, path)
    keys: list[str] = []
    chunks = []
    max_lines = max(1, CHUNK_VALUES // num_columns)
    while len(keys) < num_rows:
        lines = next_lines(file, min(max_lines, num_rows - len(keys)))
        if not lines:
            raise InputEndError(
                f"{path} line {len(keys) + 2}: must be one of {num_rows} rows, as line "
                "1 says, got the end of the file."
            )
        rows = parse_fast(lines, num_columns)
        if rows is None:
            rows = _parse_strictly(lines, num_columns, path, len(keys) + 2)
        keys += rows[0]
        chunks.append(rows[1])
    if rest := file.read(1000).strip():
        raise InputError(
            f"{path} line {num_rows + 2}: must be the end, after the {num_rows} rows "
            f"that line 1 says, got {short(rest)}."
        )
    check_unique(keys, path)
    return make_vectors(keys, np.concatenate(chunks), path)


def next_lines(file: BufferedIOBase, max_lines: int) -> list[bytes]:
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


def parse_fast(
    lines: list[bytes], num_columns: int
) -> tuple[list[str], np.ndarray] | None:
    """Keys and f32[rows, D] of well-formed lines; None if a line may be damaged."""
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
    return names, values


def _parse_strictly(
    lines: list[bytes], num_columns: int, path: Path, first_number: int
) -> tuple[list[str], np.ndarray]:
    """Keys and f32[rows, D]; InputError names the damaged line and column."""
    keys, rows = [], []
    for line_number, line in enumerate(lines, start=first_number):
        where = f"{path} line {line_number}"
        fields = line.split()
        if len(fields) != num_columns + 1:
            raise InputError(
                f"{where}: must be a key and {num_columns} values, got "
                f"{len(fields)} columns: {short(line)}."
            )
        keys.append(key_of(fields[0], where))
        columns = enumerate(fields[1:], start=2)
        rows.append([value_of(field, f"{where}: column {i}") for i, field in columns])
    return keys, np.array(rows, np.float32)


def value_of(field: bytes, where: str) -> float:
    """The finite number in a field; InputError with `where` if it is none."""
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not abs(value) < FLOAT32_OVERFLOW:
        raise InputError(f"{where} must be a finite number, got {short(field)}.")
    return value


def key_of(field: bytes, where: str) -> str:
    """The text of a field; InputError with `where` if it is not UTF-8."""
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise InputError(
            f"{where}: column 1 must be UTF-8, got {short(field)}."
        ) from None


def _binary_rows(
    data: mmap.mmap, start: int, num_rows: int, num_columns: int, path: Path
) -> tuple[list[str], np.ndarray, int]:
    """Keys, f32[V, D], and the offset of the end of the last row."""
    keys = []
    matrix = np.empty((num_rows, num_columns), np.float32)
    for row in range(num_rows):
        blank = data.find(b" ", start, len(data) - 4 * num_columns)
        if blank < 0:
            raise InputEndError(
                f"{path} row {row}: must be a key, a blank and {num_columns} float32, "
                "got the end of the file."
            )
        # word2vec.c writes a newline after each row.
        keys.append(key_of(data[start:blank].lstrip(b"\n"), f"{path} row {row}"))
        matrix[row] = np.frombuffer(data, "<f4", num_columns, blank + 1)
        start = blank + 1 + 4 * num_columns
    return keys, matrix, start


def check_unique(keys: list[str], path: Path, first_line: int = 2) -> None:
    """Refuses a repeated key, with the numbers of both lines."""
    seen: dict[str, int] = {}
    for line, key in enumerate(keys, start=first_line):
        if seen.setdefault(key, line) != line:
            raise InputError(
                f"{path} line {line}: column 1 must be another key than on line "
                f"{seen[key]}, got {short(key)}."
            )


def make_vectors(keys: list[str], matrix: np.ndarray, path: Path) -> Vectors:
    """Vectors of a file; InputError with its path if they are none."""
    try:
        return Vectors(keys, matrix)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def short(value: bytes | str) -> str:
    """A value for a message: quoted, at most 40 characters."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    text = text.rstrip("\r\n")
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
