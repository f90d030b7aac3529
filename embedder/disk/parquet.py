"""Parquet files of anyone, read on trial by another process first.

Of counts that are damaged Polars makes room for so many rows, which can end a process.
This file is the program of that other process, too: it imports nothing of the package.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import polars as pl


def read_table(path: Path) -> pl.DataFrame:
    """The table in a parquet file.

    Raises:
      OSError: it cannot be opened.
      ValueError: it is not a parquet file, or not a whole one.
    """
    with open(path, "rb") as file:
        start = file.read(4)
        file.seek(max(0, os.path.getsize(path) - 4))
        if not start == file.read() == b"PAR1":
            raise ValueError("it does not begin and end with PAR1")
    command = [sys.executable, "-P", __file__, os.path.abspath(path)]
    trial = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if trial.returncode:
        code = f"a process that reads it ends with code {trial.returncode}"
        raise ValueError(_short(trial.stdout.decode() or code))
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(_short(str(error))) from error


def _short(text: str) -> str:
    return " ".join(text.split())[:200].removesuffix(".")


def _try(path: str) -> None:
    """Reads it with bounded memory; what goes wrong is on the standard output."""
    import resource

    room = 2**32 + 1000 * os.path.getsize(path)
    with contextlib.suppress(OSError, ValueError):  # where less was allowed already
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        pl.read_parquet(path, glob=False)
    except BaseException as error:  # what a panic raises is no Exception
        sys.stdout.buffer.write(str(error).encode(errors="replace"))
        sys.exit(1)


if __name__ == "__main__":
    _try(sys.argv[1])
