"""Untrusted tables, which a child process with bounded memory reads first.

Polars allocates as many rows as the metadata claims, and holds a cell as long as a
packed file makes it, so a hostile file can kill the process that reads it. On Windows
the memory of the child process is not bounded. This file is also its program: it
imports nothing of the package.
"""

import contextlib
import functools
import io
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import polars as pl


class TooLargeError(ValueError):
    """The table takes more memory than `max_bytes`."""


class UnreadableError(ValueError):
    """The child process did not read the table to its end."""


_TOO_LARGE = 3  # exit code of the child process
_PROGRAM_BYTES = 2**31  # of address space, without data: 1.7 GiB with 64 cores
_BATCH_ROWS = 2**16


def read_table(path: Path) -> pl.DataFrame:
    """The table of an untrusted Parquet file.

    Raises:
      OSError: the file cannot be opened.
      ValueError: the file is not Parquet, or is damaged.
    """
    with open(path, "rb") as file:
        start = file.read(4)
        file.seek(max(0, os.path.getsize(path) - 4))
        if not start == file.read() == b"PAR1":
            raise ValueError("it does not begin and end with PAR1")
    _read_by_child("parquet", os.path.abspath(path), files=_states([path]))
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(_short(str(error))) from error


def read_arrow_stream(path: Path, max_bytes: int) -> pl.DataFrame:
    """The table of an untrusted Arrow IPC stream.

    Raises:
      TooLargeError: the table takes more than `max_bytes`.
      UnreadableError: the file is no such stream, or is damaged.
    """
    arguments = "stream", os.path.abspath(path), str(max_bytes)
    _read_by_child(*arguments, files=_states([path]))
    return pl.read_ipc_stream(path)


def check_scan(frame: pl.LazyFrame, data_bytes: int, paths: Iterable[Path]) -> int:
    """Bytes that the rows of `frame`, a scan of untrusted files, take in memory.

    The child process reads all rows in pieces, as the caller then may.

    Args:
      data_bytes: of memory for reading, with those of the files.
      paths: of the files.

    Raises:
      TooLargeError: some rows take more than `data_bytes`.
      UnreadableError: reading fails.
    """
    plan, files = frame.serialize(), _states(paths)
    return int(_read_by_child("scan", str(data_bytes), plan=plan, files=files))


def _states(paths: Iterable[Path]) -> tuple[object, ...]:
    """What changes when one of the files does."""
    states = map(os.stat, paths)
    return tuple(
        (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in states
    )


@functools.lru_cache(256)
def _read_by_child(
    *arguments: str, files: tuple[object, ...], plan: bytes = b""
) -> str:
    """What the child process prints, which reads the same files in one way once."""
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
        # Polars does not count the 16 bytes of each text.
        num_texts = sum(dtype in (pl.String, pl.Binary) for dtype in batch.dtypes)
        size = int(batch.estimated_size()) + 16 * batch.height * num_texts
        if size > data_bytes:
            print(f"{batch.height} of its rows take {size / 2**20:.1f} MiB", end="")
            sys.exit(_TOO_LARGE)
        total += size
    print(total, end="", flush=True)


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
            return
        path, *max_bytes = arguments
        _limit_memory(2 * _PROGRAM_BYTES + 1000 * os.path.getsize(path))
        if kind == "parquet":
            pl.read_parquet(path, glob=False)
            return
        frame = pl.read_ipc_stream(path)
        if (size := int(frame.estimated_size())) > int(max_bytes[0]):
            print(f"its {frame.height} rows take {size / 2**20:.1f} MiB", end="")
            sys.exit(_TOO_LARGE)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of Polars is no Exception
        sys.stdout.buffer.write(str(error).encode(errors="replace"))
        sys.exit(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
