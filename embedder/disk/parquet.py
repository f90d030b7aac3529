"""Untrusted Parquet files, which a child process with bounded memory reads first.

Polars allocates as many rows as the metadata claims, so a damaged file can kill the
process that reads it. This file is also the program of the child process: it imports
nothing of the package.
"""

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path

import polars as pl


class TooLargeError(ValueError):
    """The table takes more memory than `max_bytes`."""


_TOO_LARGE = 3  # exit code of the child process
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
    command = [sys.executable, "-P", __file__, os.path.abspath(path), str(max_bytes)]
    child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if child.returncode:
        if child.returncode == _TOO_LARGE:
            raise TooLargeError(child.stdout.decode())
        code = f"a process that reads it ends with code {child.returncode}"
        raise ValueError(_short(child.stdout.decode() or code))
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(_short(str(error))) from error


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


def _read_in_child(path: str, max_bytes: float) -> None:
    """Reads the file with bounded memory; prints an error and exits with its code."""
    import resource

    address_space = 2**32 + 1000 * os.path.getsize(path)
    with contextlib.suppress(OSError, ValueError):  # the limit is lower already
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _check_size(*_claimed(path), max_bytes)
        frame = pl.read_parquet(path, glob=False)
        _check_size(frame.height, int(frame.estimated_size()), max_bytes)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of Polars is no Exception
        sys.stdout.buffer.write(str(error).encode(errors="replace"))
        sys.exit(1)


if __name__ == "__main__":
    _read_in_child(sys.argv[1], float(sys.argv[2]))
