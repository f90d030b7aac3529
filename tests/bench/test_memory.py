"""Memory is measured in a child process under a limit."""

import polars as pl
import pytest

from bench import memory


def test_copies_of_a_text_end_with_a_line(tmp_path):
    path = tmp_path / "corpus.txt"
    memory.write_copies(b"one two\nthree\n", 40, path)
    assert path.read_bytes() == b"one two\nthree\n" * 2 + b"one two\n"
    memory.write_copies(b"one two\nthree\n", 10, path)
    assert path.read_bytes() == b"one two\n"


def test_a_text_has_every_type():
    tokens = memory.many_types(30, 200).split()
    assert len(tokens) == 200 and len({*tokens}) == 30


def test_sessions_have_names_as_uuids(tmp_path):
    memory.write_sessions(1000, tmp_path / "table")
    rows = pl.read_parquet(tmp_path / "table")
    form = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    assert len(rows) == 1000 and rows["session"].str.contains(form).all()
    assert 90 < rows["session"].n_unique() <= 100  # 10 rows each, in any order
    assert not rows["session"].is_sorted()


def test_a_table_of_sessions_is_compared_with_its_limit_and_its_peak():
    done = {"code": 0, "peak": 2**28, "data": 2**27, "seconds": 7}
    samples = [{"bytes": 2**30, "rows": 2 * 10**7, **done}]
    found = memory.sessions_table({"settings": {"limit_gib": 2}, "samples": samples})
    assert found.columns[3:5] == ["peak resident, MiB", "table / peak"]
    assert found.rows == [["1.074", "20.00", "0.5", "256", "4", "128", "7"]]


def test_tables_show_failures_and_estimates():
    done = {"code": 0, "peak": 2**30, "data": 2**29, "seconds": 7}
    samples = [{"bytes": 2**30, **done}, {"bytes": 2**31, "code": -6, "error": ""}]
    rows = memory.table({"settings": {"limit_gib": 2}, "samples": samples}).rows
    assert rows[0] == ["1.074", "0.5", "1024", "512", "7"]
    assert rows[1] == ["2.147", "1", "failed", "", ""]
    sample = {"name": "small", "floor": 2**29, "estimate": 2**28, **done}
    rows = memory.estimates_table({"samples": [sample]}).rows
    assert rows == [["small", "1024", "512", "256", "0.50"]]


@pytest.mark.slow
def test_a_training_is_measured_and_fails_under_a_low_limit(text_file):
    options = {"epochs": 1, "min_count": 1, "vector_size": 8, "loader": "memory"}
    found = memory.measure(0, text_file, **options)
    assert found["code"] == 0 and 2**26 < found["peak"] < 2**34
    assert memory.estimate(text_file, **options) < found["peak"]
    assert memory.measure(2**26, text_file, **options)["code"] != 0
