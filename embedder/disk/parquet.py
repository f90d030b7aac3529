"""Parquet files of anyone, read on trial by another process first.

Of counts that are damaged Polars makes room for so many rows, which can end a process.
This file is the program of that other process, too: it imports nothing of the package.
"""

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path

import polars as pl


class TooLargeError(ValueError):
    """The table is larger than it may be."""


_TOO_LARGE = 3  # the exit code that says so
_BYTES = {pl.Boolean: 1, pl.Int8: 1, pl.UInt8: 1, pl.Int16: 2, pl.UInt16: 2}
_BYTES |= {pl.Int32: 4, pl.UInt32: 4, pl.Float32: 4, pl.String: 16, pl.Binary: 16}


def read_table(path: Path, most: float = math.inf) -> pl.DataFrame:
    """The table in a parquet file.

    Args:
      most: bytes of memory that the table may take.

    Raises:
      OSError: it cannot be opened.
      TooLargeError: it takes more.
      ValueError: it is not a parquet file, or not a whole one.
    """
    with open(path, "rb") as file:
        start = file.read(4)
        file.seek(max(0, os.path.getsize(path) - 4))
        if not start == file.read() == b"PAR1":
            raise ValueError("it does not begin and end with PAR1")
    command = [sys.executable, "-P", __file__, os.path.abspath(path), str(most)]
    trial = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if trial.returncode:
        if trial.returncode == _TOO_LARGE:
            raise TooLargeError(trial.stdout.decode())
        code = f"a process that reads it ends with code {trial.returncode}"
        raise ValueError(_short(trial.stdout.decode() or code))
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(_short(str(error))) from error


def _short(text: str) -> str:
    return " ".join(text.split())[:200].removesuffix(".")


def _claimed(path: str) -> tuple[int, int]:
    """Rows, and the bytes that they take at least, by the metadata alone."""
    table = pl.scan_parquet(path, glob=False)
    rows = table.select(pl.len()).collect().item()
    return rows, rows * sum(map(_width, table.collect_schema().dtypes()))


def _width(kind: pl.DataType) -> int:
    """Bytes of a value; of a list those of where it ends."""
    if isinstance(kind, pl.Array):
        return math.prod(kind.shape) * _width(kind.inner)
    return _BYTES.get(kind.base_type(), 8)


def _check_size(rows: int, size: int, most: float) -> None:
    if size > most:
        print(f"its {rows} rows take {size / 2**20:.1f} MiB", end="", flush=True)
        sys.exit(_TOO_LARGE)


def _try(path: str, most: float) -> None:
    """Reads it with bounded memory; what goes wrong is on the standard output."""
    import resource

    room = 2**32 + 1000 * os.path.getsize(path)
    with contextlib.suppress(OSError, ValueError):  # where less was allowed already
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _check_size(*_claimed(path), most)
        frame = pl.read_parquet(path, glob=False)
        _check_size(frame.height, int(frame.estimated_size()), most)
    except SystemExit:
        raise
    except BaseException as error:  # what a panic raises is no Exception
        sys.stdout.buffer.write(str(error).encode(errors="replace"))
        sys.exit(1)


if __name__ == "__main__":
    _try(sys.argv[1], float(sys.argv[2]))
