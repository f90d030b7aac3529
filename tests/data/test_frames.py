"""Tables in Python: of polars, pandas and others, and integers as items."""

import datetime
import importlib.util

import numpy as np
import polars as pl
import pytest

import legacy
from embedder import EmbeddingTrainer
from embedder.data.tables import frames
from embedder.errors import InputError

pandas = pytest.importorskip("pandas", reason="needs the extra `dev`")
BIG = 2**60 + 1  # no float64
DAY = datetime.datetime(2024, 7, 1)
ITEMS = [2**53, 2**53 + 1, -3, 12]
FRAME = pl.DataFrame(
    {
        "visit": [i // 5 for i in range(100)],
        "thing": [ITEMS[(7 * i + i // 3) % 4] for i in range(100)],
        "at": [-i for i in range(100)],
    }
)
COLUMNS = {"session": "visit", "item": "thing", "order": "at"}


class Stream:
    """A table of another library, which has the Arrow C stream."""

    column_names = FRAME.columns

    def __arrow_c_stream__(self, requested_schema=None):
        return FRAME.__arrow_c_stream__(requested_schema)


def sequences() -> list[list[int]]:
    groups = FRAME.sort("visit", "at").group_by("visit").agg("thing")
    return [items for _, items in groups.sort("visit").rows()]


def trained(source, **columns) -> EmbeddingTrainer:
    options = {"vector_size": 4, "min_count": 1, "epochs": 1, "sample": 0}
    return EmbeddingTrainer(**options).fit(source, **columns)


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


def test_tables_and_lists_are_trained_on_as_their_sequences():
    expected = trained(sequences())
    rows = pandas.DataFrame(FRAME.to_dict(as_series=False)).astype({"thing": "Int64"})
    rows["at"] = np.datetime64("2024-01-01", "s") + rows["at"].to_numpy()
    rows["odd"] = pandas.period_range("2024", periods=100)  # polars has no such type
    rows = rows.sample(frac=1, random_state=1)
    for source in (FRAME, FRAME.lazy(), Stream(), rows):
        found = trained(source, **COLUMNS)
        assert found.index_to_key == expected.index_to_key
        np.testing.assert_array_equal(found.vectors, expected.vectors)
    arrays = trained([np.array(items) for items in sequences()])
    as_text = trained([[*map(str, items)] for items in sequences()])
    assert as_text.index_to_key == [*map(str, arrays.index_to_key)]
    for found in (arrays, as_text):
        np.testing.assert_array_equal(found.vectors, expected.vectors)


def test_keys_are_integers_where_items_are(tmp_path):
    trainer = trained(sequences())
    assert sorted(trainer.index_to_key) == sorted(ITEMS)
    assert {type(key) for key in trainer.key_to_index} == {int}
    assert trainer.index_to_key[trainer.key_to_index[2**53 + 1]] == 2**53 + 1
    near = trainer.most_similar([12, np.int64(-3)], negative=2**53)
    assert [key for key, _ in near] == [2**53 + 1]
    assert trainer.similarity(12, -3) == trainer.similarity(np.int32(-3), 12)
    with pytest.raises(KeyError, match="'5' is not in the vocabulary"):
        trainer.most_similar(5)
    trainer.save(tmp_path / "a.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "a.npz")
    assert loaded.most_similar([12, -3], 2**53) == near
    as_text = legacy.EmbeddingTrainer.load(tmp_path / "a.npz")
    assert as_text.index_to_key == [*map(str, trainer.index_to_key)]
    trainer.partial_fit(FRAME, **COLUMNS)
    assert len(trainer.loss_history) == 2
    ensemble = trainer.fit_ensemble(FRAME, replicas=2, **COLUMNS).ensemble_
    assert ensemble.tokens == trainer.index_to_key
    ((near, *_),) = ensemble.neighbors([np.int64(2**53 + 1)], topn=3, among=[12, 5])
    assert type(near.token) is int and near.token == 12


@pytest.mark.row("B33")
def test_frames_that_are_no_table_are_refused():
    mixed = pandas.DataFrame({"session": [1, 1], "item": ["a", 1]})
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    for frame, message in (
        (mixed, "column `item`: unexpected value while building Series of type String"),
        (twice, "column with name 'a' has more than one occurrence"),
    ):
        with pytest.raises(InputError, match="The DataFrame cannot be read") as found:
            trained(frame)
        assert message in str(found.value) and "\n" not in str(found.value)
