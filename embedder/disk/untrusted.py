"""Untrusted tables, which a child process with bounded memory reads first.

Polars allocates as many rows as the metadata claims, and holds a cell as long as a
packed file makes it, so a hostile file can kill the process that reads it. On Windows
the memory of the child process is not bounded. This file is also its program: it
imports nothing of the package.
"""

import contextlib
import io
import math
import os
import subprocess
import sys
from pathlib import Path

import polars as pl


class TooLargeError(ValueError):
    """The table takes more memory than `max_bytes`."""


class UnreadableError(ValueError):
    """The child process did not read the table to its end."""


_TOO_LARGE = 3  # exit code of the child process
_PROGRAM_BYTES = 2**31  # of address space, without data: 1.7 GiB with 64 cores
_BATCH_ROWS = 2**16
_BYTES: dict[object, int] = {
    **{pl.Boolean: 1, pl.Int8: 1, pl.UInt8: 1, pl.Int16: 2, pl.UInt16: 2},
    **{pl.Int32: 4, pl.UInt32: 4, pl.Float32: 4, pl.String: 16, pl.Binary: 16},
}  # of a value; other types take 8


def read_table(path: Path, max_bytes: float = math.inf) -> pl.DataFrame:
    """The table of an untrusted Parquet file.

    Args:
      max_bytes: of memory that the table may take.

    Raises:
      OSError: the file cannot be opened.
      TooLargeError: the table takes more than `max_bytes`.
      ValueError: the file is not Parquet, or is damaged.
    """
    with open(path, "rb") as file:
        start = file.read(4)
        file.seek(max(0, os.path.getsize(path) - 4))
        if not start == file.read() == b"PAR1":
            raise ValueError("it does not begin and end with PAR1")
    _run_child("parquet", os.path.abspath(path), str(max_bytes))
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(_short(str(error))) from error


def read_arrow_stream(path: Path, max_bytes: float = math.inf) -> pl.DataFrame:
    """The table of an untrusted Arrow IPC stream.

    Raises:
      TooLargeError: the table takes more than `max_bytes`.
      UnreadableError: the file is no such stream, or is damaged.
    """
    _run_child("stream", os.path.abspath(path), str(max_bytes))
    return pl.read_ipc_stream(path)


def check_scan(frame: pl.LazyFrame, data_bytes: int) -> int:
    """Bytes that the rows of `frame`, a scan of untrusted files, take in memory.

    The child process reads all rows in pieces, as the caller then may.

    Args:
      data_bytes: of memory for reading, with those of the files.

    Raises:
      UnreadableError: reading fails, or takes more than `data_bytes`.
    """
    return int(_run_child("scan", str(data_bytes), plan=frame.serialize()))


def _run_child(*arguments: str, plan: bytes = b"") -> str:
    """What the child process prints."""
    command = [sys.executable, "-P", __file__, *arguments]
    child = subprocess.run(command, input=plan, capture_output=True)
    printed = child.stdout.decode()
    if child.returncode == _TOO_LARGE:
        raise TooLargeError(printed)
    if child.returncode:
        code = (
            f"a process that reads it ends with code {child.returncode}: it is "
            "damaged, or takes too much memory"
        )
        raise UnreadableError(_short(printed or code))
    return printed


def _short(text: str) -> str:
    return " ".join(text.split())[:200].removesuffix(".")


def _claimed(path: str) -> tuple[int, int]:
    """Rows that the metadata claims, and the fewest bytes that they can take."""
    table = pl.scan_parquet(path, glob=False)
    rows = table.select(pl.len()).collect().item()
    return rows, rows * sum(map(_width, table.collect_schema().dtypes()))


def _width(dtype: pl.DataType | pl.datatypes.DataTypeClass) -> int:
    """Bytes of a value in memory; of a list, those of its offset."""
    if isinstance(dtype, pl.Array):
        return math.prod(dtype.shape) * _width(dtype.inner)
    return _BYTES.get(dtype.base_type(), 8)


def _check_size(rows: int, size: int, max_bytes: float) -> None:
    if size > max_bytes:
        print(f"its {rows} rows take {size / 2**20:.1f} MiB", end="", flush=True)
        sys.exit(_TOO_LARGE)


def _read_whole(kind: str, path: str, max_bytes: float) -> None:
    _limit_memory(2 * _PROGRAM_BYTES + 1000 * os.path.getsize(path))
    if kind == "parquet":
        _check_size(*_claimed(path), max_bytes)
        frame = pl.read_parquet(path, glob=False)
    else:
        frame = pl.read_ipc_stream(path)
    _check_size(frame.height, int(frame.estimated_size()), max_bytes)


def _read_in_pieces(data_bytes: int) -> None:
    """Prints the bytes of all rows; a piece of more than `data_bytes` is an error.

    The address space of the program is bounded by its largest: with few cores it takes
    less, and leaves room for a piece that is too large.
    """
    plan = io.BytesIO(sys.stdin.buffer.read())
    _limit_memory(_PROGRAM_BYTES + data_bytes)
    frame = pl.LazyFrame.deserialize(plan)
    total = 0
    for batch in frame.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True):
        size = _size(batch)
        if size > data_bytes:
            rows = f"{batch.height} of its rows take {size / 2**20:.1f} MiB"
            raise MemoryError(f"{rows}, which is too much memory")
        total += size
    print(total, end="", flush=True)


def _size(batch: pl.DataFrame) -> int:
    """Bytes of a batch; polars does not count the 16 of each text."""
    return int(batch.estimated_size()) + 16 * batch.height * batch.width


def _limit_memory(address_space: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    with contextlib.suppress(OSError, ValueError):  # the limit is lower already
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main(kind: str, *arguments: str) -> None:
    """Reads with bounded memory; prints an error and exits with its code."""
    try:
        if kind == "scan":
            _read_in_pieces(int(arguments[0]))
        else:
            _read_whole(kind, arguments[0], float(arguments[1]))
    except SystemExit:
        raise
    except BaseException as error:  # a panic of Polars is no Exception
        sys.stdout.buffer.write(str(error).encode(errors="replace"))
        sys.exit(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
