"""Tables larger than memory are read in pieces and sorted on disk."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.commands import run_python

PROGRAM = Path(__file__).with_name("read_sessions.py")
ROWS = 10**6  # of a file
SORTED_ROWS = 2**17  # at a time
GROUP_ROWS = 2**15  # of Parquet; polars reads several groups ahead


def write_table(folder: Path, num_files: int) -> Path:
    """Random sessions, so that no two rows of one are neighbours, and times as text."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(num_files):
        columns = {
            "session": rng.integers(0, num_files * ROWS // 10, ROWS),
            "item": rng.integers(0, 5000, ROWS),
            "order": rng.integers(0, 10**6, ROWS),
        }
        rows = pl.DataFrame(columns).with_columns(pl.col("order").cast(pl.String))
        rows.write_parquet(folder / f"{number}.parquet", row_group_size=GROUP_ROWS)
    return folder


def most_memory(table: Path, num_rows: int) -> int:
    """MiB that a process takes at most that reads these rows."""
    done = run_python(PROGRAM, table, table.parent, SORTED_ROWS)
    assert done.returncode == 0, done.stderr
    num_items, peak = map(int, done.stdout.split())
    assert num_items == num_rows
    return peak


@pytest.mark.slow
def test_memory_does_not_grow_with_a_table_of_unsorted_rows(tmp_path):
    """If all rows were in memory at a time, 4 M more would take 120 MiB more."""
    few, many = write_table(tmp_path / "few", 3), write_table(tmp_path / "many", 7)
    growth = most_memory(many, 7 * ROWS) - most_memory(few, 3 * ROWS)
    assert growth < 60, growth
