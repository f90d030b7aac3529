"""Memory is measured in a child process under a limit."""

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
