"""Sessions in Python: frames, paths of tables, and integers as items."""

import numpy as np
import polars as pl
import pytest

import legacy
from embedder import EmbeddingTrainer
from embedder.errors import InputError, InputTypeError

ITEMS = [2**53, 2**53 + 1, -3, 12]
OPTIONS = {"vector_size": 4, "min_count": 1, "epochs": 1, "sample": 0}
FRAME = pl.DataFrame(
    {
        "visit": [i // 5 for i in range(100)],
        "thing": [ITEMS[(7 * i + i // 3) % 4] for i in range(100)],
        "at": [-i for i in range(100)],
    }
)
COLUMNS = {"session": "visit", "item": "thing", "order": "at"}


class NotReadable:
    """A table that says so, but is none."""

    columns = ("visit", "thing")

    def __arrow_c_stream__(self, requested_schema=None):
        raise ImportError("pyarrow is missing")


class Stream:
    """A table of another library, which has the Arrow C stream."""

    column_names = FRAME.columns

    def __arrow_c_stream__(self, requested_schema=None):
        return FRAME.__arrow_c_stream__(requested_schema)


def sequences() -> list[list[int]]:
    groups = FRAME.sort("visit", "at").group_by("visit").agg("thing")
    by_text = sorted(groups.rows(), key=lambda row: str(row[0]))
    return [items for _, items in by_text]


def trained(source, **columns) -> EmbeddingTrainer:
    return EmbeddingTrainer(**OPTIONS).fit(source, **columns)


@pytest.mark.parametrize("source", [FRAME, FRAME.lazy(), Stream()])
def test_frames_are_trained_on_as_their_sequences(source):
    expected = trained(sequences())
    found = trained(source, **COLUMNS)
    assert found.index_to_key == expected.index_to_key
    np.testing.assert_array_equal(found.vectors, expected.vectors)


def test_paths_of_tables_have_columns(tmp_path):
    FRAME.write_parquet(tmp_path / "a.parquet")
    found = trained(tmp_path / "a.parquet", **COLUMNS)
    np.testing.assert_array_equal(found.vectors, trained(sequences()).vectors)


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


@pytest.mark.slow
def test_tokens_of_ensembles_are_integers_where_items_are():
    trainer = EmbeddingTrainer(min_count=1, vector_size=4, epochs=1)
    ensemble = trainer.fit_ensemble(sequences(), replicas=2).ensemble_
    assert ensemble.tokens == trainer.index_to_key
    ((near, *_),) = ensemble.neighbors([np.int64(2**53 + 1)], topn=3, among=[12, 5])
    assert type(near.token) is int and near.token == 12
    as_text = [[*map(str, items)] for items in sequences()]
    other = trainer.fit_ensemble(as_text, replicas=2).ensemble_
    assert other.tokens == ensemble.texts
    np.testing.assert_array_equal(other.vectors, ensemble.vectors)


def test_integers_are_trained_on_as_their_text():
    as_text = trained([[*map(str, items)] for items in sequences()])
    np.testing.assert_array_equal(as_text.vectors, trained(sequences()).vectors)
    arrays = trained([np.array(items) for items in sequences()])
    np.testing.assert_array_equal(as_text.vectors, arrays.vectors)
    assert {type(key) for key in as_text.index_to_key} == {str}


@pytest.mark.row("B26")
@pytest.mark.parametrize("bad", ["a", None, 1.5, True])
def test_integers_and_others_are_refused_together(bad):
    with pytest.raises(InputTypeError, match="must be an integer, as the first one is"):
        trained([[1, 2], [3, bad]])


@pytest.mark.row("B26")
def test_unclear_frames_and_columns_of_sequences_are_refused():
    with pytest.raises(InputError, match=r"columns x Int64 \(0, 0, 0\), thing"):
        trained(FRAME.rename({"visit": "x"}))
    with pytest.raises(InputError, match=r"apply only to tables, got \('visit',\)"):
        trained(sequences(), session="visit")


@pytest.mark.row("B26")
def test_more_training_needs_keys_of_the_same_type():
    trainer = trained(sequences())
    trainer.partial_fit(FRAME, **COLUMNS)
    assert len(trainer.loss_history) == 2
    with pytest.raises(InputTypeError, match="Tokens must be integer, .* got text"):
        trainer.partial_fit([["12", "-3"]])


@pytest.mark.row("B26")
def test_a_table_that_cannot_be_read_is_named():
    with pytest.raises(
        InputError, match="The NotReadable cannot be read as a table: py"
    ):
        trained(NotReadable())
