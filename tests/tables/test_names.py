"""Names of keys: conditions on their columns, and rows for exports."""

import datetime
import math
from pathlib import Path

import polars as pl
import pytest

from embedder import read_names
from embedder.errors import InputError

ROWS = [
    ("a", " Red Mug ", "Kitchen", 2.5, 9, ["new", "Sale"]),
    ("b", "Mug, Blue", "Kitchen", 7.0, 10, []),
    ("c", "Spade", "Garden", None, 11, ["sale"]),
    ("d", None, None, 1.0, None, None),
    ("a", "Other", "Gifts", 3.0, 12, ["old"]),
]
COLUMNS = ("id", "title", "category", "price", "stock=now", "tags")
FLAT = COLUMNS[:-1]  # what CSV files can hold


def frame() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema=COLUMNS, orient="row")


@pytest.fixture(params=["parquet", "csv", "jsonl"])
def names(request, tmp_path):
    path = tmp_path / f"names.{request.param}"
    if request.param == "parquet":
        frame().write_parquet(path)
    elif request.param == "csv":
        frame().select(FLAT).write_csv(path)
    else:
        frame().write_ndjson(path)
    return read_names(path)


@pytest.mark.spread(12)
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], "abcd"),
        (["category=Kitchen"], "ab"),
        (["category=Kitchen", "category=Garden"], "abc"),
        (["category=Kitchen", "title=Other"], ""),  # of different rows
        (["category=Kitchen", "title~mug", "price>3"], "b"),
        (["title~MUG"], "ab"),
        (["title~mug", "title~blue"], "b"),
        (["title=Red Mug"], "a"),
        (["title=Mug, Blue"], "b"),
        (["price<3"], "ad"),
        (["price<=2.5"], "ad"),
        (["price > 2.5", "price<7"], "a"),
        (["price>=2.5"], "ab"),
        (["stock=now>9"], "abc"),
        (["stock=now=10"], "b"),
        (["id=d"], "d"),
    ],
    ids=str,
)
def test_keys_that_meet_conditions(names, conditions, expected):
    assert names.keys_where(conditions) == {*expected}


def test_elements_of_lists_are_values(tmp_path):
    frame().write_parquet(tmp_path / "names.parquet")
    names = read_names(tmp_path / "names.parquet")
    assert names.keys_where(["tags=sale"]) == {"c"}
    assert names.keys_where(["tags=Sale", "tags=old"]) == {"a"}
    assert names.keys_where(["tags~sale"]) == {"a", "c"}
    assert names.keys_where(["tags~sale", "category=Garden"]) == {"c"}


def test_types_of_columns(tmp_path):
    table = pl.DataFrame(
        {
            "key": [2**60 + 1, 2**60, 7],
            "name": [1, 2, 3],
            "day": [datetime.date(2024, 1, day) for day in (1, 2, 3)],
            "kind": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
            "is_new": [True, False, None],
            "size": [0.5, math.nan, math.inf],
        }
    )
    table.write_parquet(tmp_path / "names.parquet")
    names = read_names(tmp_path / "names.parquet")
    for condition, rows in (
        ("day=2024-01-02", [1]),
        ("kind=x", [0, 2]),
        ("is_new=true", [0]),
        ("size=0.50", [0]),
        ("size>0.1", [0, 2]),
        ("name>=2", [1, 2]),
        (f"key={2**60}", [1]),
    ):
        expected = {str(table["key"][row]) for row in rows}
        assert names.keys_where([condition]) == expected, condition


def test_names_are_the_first_without_white_space_at_their_ends(names):
    assert names.of_key == {"a": "Red Mug", "b": "Mug, Blue", "c": "Spade"}
    assert names.keys_named("red MUG", ["a", "b"]) == ["a"]


def test_rows_are_the_first_values_of_keys(names):
    found = names.rows(["zz", "d", "a"])
    assert found.columns == names.columns[1:]
    assert found["title"].to_list() == [None, None, "Red Mug"]
    prices = found["price"].cast(pl.Float64).to_list()
    assert prices == [None, 1.0, 2.5]
    assert found["category"].to_list() == [None, None, "Kitchen"]


def test_keys_that_are_floats_are_integers(tmp_path):
    """As in tables of sessions: programs make them of columns with missing values."""
    rows = {"key": [7.0, None, math.nan, 8.5, -3.0, 1e300], "name": [*"abcdef"]}
    pl.DataFrame(rows).write_parquet(tmp_path / "names.parquet")
    names = read_names(tmp_path / "names.parquet")
    assert names.of_key == {"7": "a", "8.5": "d", "-3": "e", "1e+300": "f"}
    assert names.rows(["7"])["name"].to_list() == ["a"]
    assert names.keys_where(["key<0"]) == {"-3"}


def test_numbers_with_blanks_beside_them_are_numbers(tmp_path):
    rows = {"key": ["a", "b", "c"], "name": [*"abc"], "price": [" 3.5 ", "n/a", "9"]}
    pl.DataFrame(rows).write_csv(tmp_path / "names.csv")
    assert read_names(tmp_path / "names.csv").keys_where(["price<5"]) == {"a"}


@pytest.mark.row("B33")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("Kitchen", "`where` must be COLUMN=VALUE, or have one of ~ < <= > >= for =,"),
        (
            "colour=red",
            "has no column 'colour'; it has 'id', 'title', 'category', 'price',",
        ),
        ("category=kitchen", "no row of {path} has it: did you mean 'Kitchen'?"),
        ("category=x", "did you mean 'Kitchen' or 'Garden' or 'Gifts'?"),
        ("title~zebra", "`where` 'title~zebra': no row of {path} has it: did you"),
        ("price>cheap", "the value must be a number, got 'cheap'."),
        ("price<nan", "the value must be a number, got 'nan'."),
        ("title<3", "`where` 'title<3': 'title' of {path} has no numbers."),
        ("price<0", "`where` 'price<0': no row of {path} has it."),
    ],
)
def test_wrong_conditions_are_refused(tmp_path, condition, message):
    path = tmp_path / "names.csv"
    frame().select(FLAT).write_csv(path)
    with pytest.raises(InputError) as found:
        read_names(path).keys_where(["id=a", condition])
    assert message.format(path=path) in str(found.value)


@pytest.mark.row("B33")
def test_a_table_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "names.csv"
    Path(path).write_text('key,name,more\na,"x\n')
    with pytest.raises(InputError, match=r"`names` .*names.csv cannot be read"):
        read_names(path)
