"""Names of keys: conditions on their columns, and rows for exports."""

import datetime
import json
import math
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from embedder import read_names, read_vectors
from embedder.cli.main import main

ROWS = [
    ("a", " Red Mug ", "Kitchen", 2.5, 9, ["new", "Sale"]),
    ("b", "Mug, Blue", "Kitchen", 7.0, 10, []),
    ("c", "Spade", "Garden", None, 11, ["sale"]),
    ("d", None, None, 1.0, None, None),
    ("a", "Other", "Gifts", 3.0, 12, ["old"]),
]
COLUMNS = ("id", "title", "category", "price", "stock=now", "tags")


def frame() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema=COLUMNS, orient="row")


@pytest.fixture(scope="module", params=["parquet", "csv", "ndjson"])
def names(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / f"names.{request.param}"
    flat = frame().select(COLUMNS[:-1])  # what CSV files can hold
    getattr(flat if request.param == "csv" else frame(), f"write_{request.param}")(path)
    return read_names(path)


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


def written(path, **columns):
    """Names of a table with these columns."""
    table = pl.DataFrame(columns)
    (table.write_csv if path.suffix == ".csv" else table.write_parquet)(path)
    return read_names(path)


def test_elements_of_lists_are_values(tmp_path):
    names = written(tmp_path / "names.parquet", **frame().to_dict(as_series=False))
    for conditions, expected in (
        (["tags=sale"], "c"),
        (["tags=Sale", "tags=old"], "a"),
        (["tags~sale"], "ac"),
        (["tags~sale", "category=Garden"], "c"),
    ):
        assert names.keys_where(conditions) == {*expected}, conditions


def test_types_of_columns(tmp_path):
    keys = [2**60 + 1, 2**60, 7]
    names = written(
        tmp_path / "names.parquet",
        key=keys,
        name=[1, 2, 3],
        day=[datetime.date(2024, 1, day) for day in (1, 2, 3)],
        kind=pl.Series(["x", "y", "x"], dtype=pl.Categorical),
        is_new=[True, False, None],
        size=[0.5, math.nan, math.inf],
    )
    for condition, rows in (
        ("day=2024-01-02", [1]),
        ("kind=x", [0, 2]),
        ("is_new=true", [0]),
        ("size=0.50", [0]),
        ("size>0.1", [0, 2]),
        ("name>=2", [1, 2]),
        (f"key={2**60}", [1]),
    ):
        assert names.keys_where([condition]) == {str(keys[row]) for row in rows}


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
    keys = [7.0, None, math.nan, 8.5, -3.0, 1e300]
    names = written(tmp_path / "names.parquet", key=keys, name=[*"abcdef"])
    assert names.of_key == {"7": "a", "8.5": "d", "-3": "e", "1e+300": "f"}
    assert names.rows(["7"])["name"].to_list() == ["a"]
    assert names.keys_where(["key<0"]) == {"-3"}


def test_numbers_with_blanks_beside_them_are_numbers(tmp_path):
    prices = {"key": [*"abc"], "name": [*"abc"], "price": [" 3.5 ", "n/a", "9"]}
    assert written(tmp_path / "names.csv", **prices).keys_where(["price<5"]) == {"a"}


@pytest.fixture
def text(own_folder):
    """A corpus of the tokens a to d, and two tables of names."""
    Path("text.txt").write_text("a b c d\nb c a\nd a b\n" * 20)
    Path("names.csv").write_text("id,title,kind\na,Apple,x\nb,Bean,y\n")
    Path("other.csv").write_text("id,title\na,Ape\n")


TRAIN = "train text.txt --loader memory --vector-size 4 --min-count 1 --epochs 2"
TRAIN += " --no-report"
NAMED = f"{TRAIN} --names names.csv --workdir"


def run(command: str, code: int = 0) -> None:
    assert main(command.split()) == code


def shown(capsys, run: str, *flags: str) -> str:
    """The first line of the neighbours of a."""
    capsys.readouterr()
    assert main(["neighbors", run, "a", *flags]) == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.spread(1)
@pytest.mark.parametrize("more", ["", " --replicas 2"])
def test_names_given_at_a_training_belong_to_its_run(text, capsys, more):
    run(f"{NAMED} run{more}".replace("--no-report", ""))
    run(f"{TRAIN} --workdir without{more}")
    same = [read_vectors(path).matrix.tobytes() for path in ("run", "without")]
    assert same[0] == same[1]
    Path("names.csv").unlink()
    assert shown(capsys, "run").startswith("a (Apple)")
    run("neighbors run --name bean --where kind=x --json")
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["query"][0]["names"] == {"title": "Bean", "kind": "y"}
    assert [each["key"] for each in found["found"]] == ["a"]
    run("watch run --once --probe a")
    assert "a (Apple): " in capsys.readouterr().out
    run("export run --to v.parquet")
    columns = pl.read_parquet("v.parquet").select("key", "title", "kind").sort("key")
    assert columns.rows()[:2] == [("a", "Apple", "x"), ("b", "Bean", "y")]
    run("export run --to v.txt")  # whose format has no column of names
    assert "Apple" in Path("run/report.html").read_text()
    run("report run --label kind")
    assert '"kind"' in Path("run/report.html").read_text()
    run("verify run")
    assert "names.parquet: whole" in capsys.readouterr().out


@pytest.mark.spread(1)
@pytest.mark.parametrize("verb", ["report run", "export run --to v.npz"])
def test_names_given_later_are_kept_by_a_run_without_names(text, capsys, verb):
    run(f"{TRAIN} --workdir run")
    Path("strange.csv").write_text("id,title\nz,Zebra\n")
    if "export" in verb:  # to a format with columns
        verb = verb.replace("npz", "parquet")
    run(f"{verb} --names strange.csv")
    assert not Path("run/names.parquet").exists()  # which has no name of a token
    run(f"{verb} --names names.csv")
    assert "run/names.parquet: kept" in capsys.readouterr().err
    run(f"{verb} --names other.csv")  # for this time
    assert shown(capsys, "run", "--names", "other.csv") == "a (Ape)"
    assert shown(capsys, "run") == "a (Apple)"
    run("verify run")


def test_a_resume_keeps_the_names_or_has_others(text, capsys, caplog):
    caplog.set_level("INFO")
    run(f"{NAMED} run")
    before = Path("run/vectors.safetensors").read_bytes()
    Path("names.csv").write_text("id,title\na,Changed\n")
    run("train --workdir run")
    assert shown(capsys, "run") == "a (Apple)"
    Path("names.csv").unlink()
    run(f"{NAMED} run")  # the table is gone, its names are there
    assert shown(capsys, "run") == "a (Apple)" and not caplog.messages[-1:] == []
    run("train --workdir run --names other.csv")
    assert "run/names.parquet: other names replace those of before." in caplog.text
    assert shown(capsys, "run") == "a (Ape)"
    assert Path("run/vectors.safetensors").read_bytes() == before
    run("train --workdir run --epochs 3")  # goes on
    assert shown(capsys, "run") == "a (Ape)"
    run("train text.txt --resume run --workdir next --epochs 1")
    assert shown(capsys, "next") == "a (Ape)"
    os.rename("run", "moved")
    run("train --workdir moved --overwrite")
    assert shown(capsys, "moved") == "a (Ape)"
    run("verify moved")
    run(f"{TRAIN} --workdir moved --overwrite")  # starts anew, without names
    assert shown(capsys, "moved") == "a"


def test_names_of_a_damaged_file_are_refused_and_can_be_given_again(text, capsys):
    run(f"{NAMED} run")
    path = Path("run/names.parquet")
    path.write_bytes(path.read_bytes() + b"x")
    capsys.readouterr()
    for verb in ("neighbors run a", "report run", "watch run --once"):
        run(verb, code=2)
        (line,) = capsys.readouterr().err.splitlines()
        advice = "delete it, and give --names again."
        assert "run/names.parquet is damaged" in line and line.endswith(advice)
    run("verify run", code=1)
    assert "delete run/names.parquet and give --names" in capsys.readouterr().out
    shutil.copytree("run", "copy")
    Path("copy/names.parquet").unlink()
    run("report copy --names names.csv")
    assert shown(capsys, "copy") == "a (Apple)"
    run("verify copy")
    run(f"{NAMED} run")
    assert shown(capsys, "run") == "a (Apple)"
    run("verify run")


def test_names_of_walks_sweeps_and_runs_at_urls(text, capsys):
    Path("edges.tsv").write_text("a b\nb c\nc d\nd a\n")
    run(f"{NAMED.replace('text.txt', 'edges.tsv')} walks --walks 2")
    assert shown(capsys, "walks") == "a (Apple)"
    url = Path("walks").resolve().as_uri()
    assert shown(capsys, url) == "a (Apple)"
    Path("space.toml").write_text("window = [1, 2]")
    sweep = NAMED.replace("train", "sweep space.toml").removesuffix(" --workdir")
    run(f"{sweep} --holdout .2 --best best")
    assert shown(capsys, "best") == "a (Apple)"


def test_names_of_no_token_are_warned_of(text, caplog):
    Path("names.csv").write_text("what,code\nApple,a\n")
    run(f"{NAMED} run")
    Path("names.csv").write_text("title,id\nApple,a\n")
    run(f"{NAMED} usual")
    (line,) = [x for x in caplog.messages if "`names`" in x]
    assert "run/names.parquet has no name of these keys: its first column" in line
