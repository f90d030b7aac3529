"""Tables larger than memory are read in pieces and sorted on disk."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.base.limits import Limit
from embedder.cli.main import main
from embedder.data import row_sort
from embedder.data.tables import reader as data_tables
from tests.commands import run_python

READ = """
import re, sys
from pathlib import Path
from embedder.data import row_sort
from embedder.data.sources import file_corpus

row_sort.RUN_ROWS = int(sys.argv[3])
corpus = file_corpus(sys.argv[1])
print(sum(len(chunk.tokens) for chunk in corpus.chunks_in(Path(sys.argv[2]))))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
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
    done = run_python("-c", READ, table, table.parent, SORTED_ROWS)
    assert done.returncode == 0, done.stderr
    num_items, peak = map(int, done.stdout.split())
    assert num_items == num_rows
    return peak // 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_a_table_of_unsorted_rows(tmp_path):
    """If all rows were in memory at a time, 4 M more would take 120 MiB more."""
    few, many = write_table(tmp_path / "few", 3), write_table(tmp_path / "many", 7)
    growth = most_memory(many, 7 * ROWS) - most_memory(few, 3 * ROWS)
    assert growth < 60, growth


@pytest.mark.row("B41")
def test_a_table_that_cannot_be_sorted_is_refused(own_folder, monkeypatch, capsys):
    """Before polars is out of memory: it would end the process."""
    rows = {"session": np.arange(1200) % 300, "item": np.arange(1200) % 7}
    pl.DataFrame(rows).write_parquet("t.parquet")
    monkeypatch.setattr(row_sort, "RUN_ROWS", 500)
    monkeypatch.setattr(data_tables, "BATCH_ROWS", 100)
    limit = Limit(2**14, "data (ulimit -d)")
    command = "train t.parquet --workdir run --loader memory --min-count 1 --epochs 1"
    assert main([*command.split(), "--dry-run"]) == 0, capsys.readouterr().err
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    assert main([*command.split(), "--dry-run"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "embedder: Sorting the rows of the table takes 0.1 MiB" in line
    assert "more than the 0.0 MiB of data (ulimit -d): raise that limit." in line
