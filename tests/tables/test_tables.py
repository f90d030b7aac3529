import numpy as np
import pytest

from embedder.tables import lookup as tables
from embedder.tables.objective import Rows


def test_initial_input_is_uniform_within_half_over_d():
    table = tables.initial_input(1000, 10, np.float64, seed=1)
    assert table.min() >= -0.05 and table.max() < 0.05
    assert abs(table.mean()) < 0.001
    assert table.std() == pytest.approx(0.1 / np.sqrt(12), rel=0.02)


def test_initial_input_depends_on_the_seed_alone(monkeypatch):
    whole = tables.initial_input(50, 4, np.float32, seed=1)
    monkeypatch.setattr(tables, "_ROWS_AT_ONCE", 7)
    again = tables.initial_input(50, 4, np.float32, seed=1)
    np.testing.assert_array_equal(again, whole, strict=True)
    assert not np.array_equal(tables.initial_input(50, 4, np.float32, seed=2), whole)


def test_initial_input_is_the_same_in_both_dtypes():
    single = tables.initial_input(50, 4, np.float32, seed=1)
    double = tables.initial_input(50, 4, np.float64, seed=1)
    np.testing.assert_allclose(single, double, rtol=1e-6, atol=1e-9)


def test_lookup_gathers_rows_of_both_tables():
    lookup = tables.tables(5, 3, dtype=np.float32, seed=1)
    ids = np.array([4, 0, 4], np.int32)
    params = lookup.init(None, Rows(ids, ids))
    assert set(params["tables"]) == {"input", "output"}
    input_rows, output_rows = lookup.apply(params, Rows(ids, ids[:1]))
    np.testing.assert_array_equal(input_rows, params["tables"]["input"][ids])
    np.testing.assert_array_equal(output_rows, np.zeros((1, 3)))
