"""Frames of pandas as tables, without pyarrow."""

import datetime
import importlib.util

import numpy as np
import polars as pl
import pytest

from embedder import EmbeddingTrainer
from embedder.errors import InputError
from embedder.tables import frames

pandas = pytest.importorskip("pandas", reason="needs the extra `dev`")
BIG = 2**60 + 1  # no float64
DAY = datetime.datetime(2024, 7, 1)


@pytest.fixture(autouse=True)
def no_pyarrow(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        frames.importlib.util,
        "find_spec",
        lambda name: None if name == "pyarrow" else find_spec(name),
    )


def typed(values, dtype):
    return pandas.Series(values, dtype=dtype)


def read(column) -> pl.Series:
    frame = frames.lazy_frame(pandas.DataFrame({"x": column}))
    assert frame is not None
    return frame.collect()["x"]


@pytest.mark.parametrize(
    ("column", "dtype", "expected"),
    [
        (["a", None], pl.String, ["a", None]),
        (typed(["a", np.nan], object), pl.String, ["a", None]),
        (typed(["a", None], "string"), pl.String, ["a", None]),
        ([7, BIG], pl.Int64, [7, BIG]),
        (np.array([7, 8], ">i2"), pl.Int16, [7, 8]),
        ([7.0, np.nan], pl.Float64, [7.0, None]),
        (typed([None, BIG], "Int64"), pl.Int64, [None, BIG]),
        (typed([2**63, None], "UInt64"), pl.UInt64, [2**63, None]),
        (typed([None, BIG], object), pl.Int64, [None, BIG]),
        (typed([1.5, None], "Float32"), pl.Float32, [1.5, None]),
        (typed([True, None], "boolean"), pl.Boolean, [True, None]),
        ([True, False], pl.Boolean, [True, False]),
        (typed(["b", None, "a", "b"], "category"), pl.String, ["b", None, "a", "b"]),
        (typed([BIG, None, 7], "category"), pl.Int64, [BIG, None, 7]),
        (typed([1, 0], "Sparse[int]"), pl.Int64, [1, 0]),
        (pandas.to_datetime([DAY, None]).as_unit("s"), pl.Datetime("ms"), [DAY, None]),
        (pandas.to_datetime([DAY]).as_unit("ns"), pl.Datetime("ns"), [DAY]),
        (
            pandas.to_datetime([DAY, None]).as_unit("us").tz_localize("Europe/Berlin"),
            pl.Datetime("us", "UTC"),
            [datetime.datetime(2024, 6, 30, 22, tzinfo=datetime.UTC), None],
        ),
        (
            pandas.to_timedelta([1, None], unit="s").as_unit("ms"),
            pl.Duration("ms"),
            [datetime.timedelta(seconds=1), None],
        ),
        ([DAY.date(), None], pl.Date, [DAY.date(), None]),
        ([["a", "b"], None, ["c"]], pl.List(pl.String), [["a", "b"], None, ["c"]]),
        ([np.array([1, 2]), np.array([3, 4])], pl.List(pl.Int64), [[1, 2], [3, 4]]),
        ([("a", "b"), ("c",)], pl.List(pl.String), [["a", "b"], ["c"]]),
        ([], None, []),
    ],
    ids=str,
)
def test_columns_keep_values_types_and_gaps(column, dtype, expected):
    found = read(column)
    assert found.to_list() == expected
    assert dtype is None or found.dtype == dtype


def test_frames_of_pandas_and_polars_give_the_same_vectors():
    rng = np.random.default_rng(3)
    columns = {
        "session": np.arange(400) // 4,
        "item": rng.choice([7, BIG, 9, 11], 400),
        "date": np.datetime64("2024-01-01", "s") + rng.permutation(400),
        "unused": np.full(400, 1.5),
    }
    given = pandas.DataFrame(columns).astype({"item": "Int64"}).sample(frac=1)
    given["odd"] = pandas.period_range("2024", periods=400)  # polars has no such type
    same = pl.DataFrame(columns | {"date": columns["date"].astype("datetime64[ms]")})

    def trained(frame):
        return EmbeddingTrainer(vector_size=4, epochs=1, sample=0).fit(frame)

    found, expected = trained(given), trained(same)
    assert found.index_to_key == expected.index_to_key
    assert {*found.index_to_key} == {7, BIG, 9, 11}
    np.testing.assert_array_equal(found.vectors, expected.vectors)


@pytest.mark.row("B33")
@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            pandas.DataFrame({"session": [1, 1], "item": ["a", 1]}),
            "column `item`: unexpected value while building Series of type String",
        ),
        (
            pandas.DataFrame([[1, 2]], columns=["a", "a"]),
            "column with name 'a' has more than one occurrence",
        ),
    ],
)
def test_frames_that_are_no_table_are_refused(frame, message):
    with pytest.raises(InputError, match="The DataFrame cannot be read") as found:
        EmbeddingTrainer().fit(frame)
    assert message in str(found.value)
    assert "\n" not in str(found.value)
