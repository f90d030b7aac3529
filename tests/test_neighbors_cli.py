"""`neighbors`: unknown tokens, the next item of a session, and names of keys."""

import datetime
import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.evaluation.ranking import next_item
from embedder.tables.artefact import read_model
from embedder.tables.names import read_names
from embedder.tables.next_items import next_items
from embedder.tables.split import Sequences
from embedder.vectors.export import read_vectors
from tests.commands import error_line

NAMES = {"a1": "RED MUG ", "a2": "RED MUG", "b1": "tea, green", "zz": "unsold"}
ITEMS = [f"{group}{i}" for group in "ab" for i in range(1, 6)]
NUMBERS = {item: 100 + i for i, item in enumerate(ITEMS)}
TRAIN = [
    "--loader",
    "memory",
    "--vector-size",
    "4",
    "--min-count",
    "1",
    "--sample",
    "0",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("neighbors")
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {"session": np.arange(600) // 6, "item": rng.choice(ITEMS, 600)}
    )
    frame.write_csv(folder / "baskets.csv")
    frame.with_columns(pl.col("item").replace_strict(NUMBERS)).write_parquet(
        folder / "numbers.parquet"
    )
    pl.DataFrame(
        {"key": [*NAMES], "name": [*NAMES.values()], "price": [1, 2, 3, 4]}
    ).write_csv(folder / "names.csv")
    replicas = ("--replicas", "2")
    for run, corpus, options in (
        ("run", "baskets.csv", ()),
        ("two", "baskets.csv", replicas),
        ("numbered", "numbers.parquet", ()),
        ("two-numbered", "numbers.parquet", replicas),
    ):
        command = ["train", f"{folder}/{corpus}", "--workdir", f"{folder}/{run}"]
        assert main([*command, *TRAIN, "--epochs", "2", *options]) == 0
    return folder


@pytest.fixture(autouse=True)
def own_folder(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    capsys.readouterr()


@pytest.mark.slow
def test_unknown_tokens_have_suggestions(capsys):
    for run in ("run", "two", "run/vectors.txt"):
        assert main(["neighbors", run, "A1"]) == 2
        line = error_line(capsys)
        assert "Token 'A1' is not in the vocabulary: did you mean 'a1'?" in line
        assert main(["neighbors", run, "--session", "b1", "A1"]) == 2
        assert error_line(capsys) == line
        assert main(["analogy", run, "b1", "A1", "b2"]) == 2
        assert error_line(capsys) == line
    assert main(["neighbors", "run", "--session", "a1", "quite-other"]) == 2
    assert error_line(capsys).endswith("'quite-other' is not in the vocabulary.")


@pytest.mark.spread(1)
@pytest.mark.parametrize("decay", [0.25, 1])
def test_next_items_have_the_highest_mean_products(decay):
    model = read_model(Path("run/model.npz"))
    session = ("b2", "a1", "b2")
    rows = [model.tokens.index(item) for item in session]
    weights = [decay**2, decay, 1]
    products = [
        np.average([model.input[row] @ output for row in rows], weights=weights)
        for output in model.output
    ]
    others = [row for row in range(10) if row not in rows]
    expected = sorted(others, key=lambda row: -products[row])
    found = next_items(Path("run/model.npz"), session, topn=20, decay=decay)
    assert [item for item, _ in found] == [model.tokens[row] for row in expected]
    scores = [products[row] for row in expected]
    np.testing.assert_allclose([x for _, x in found], scores, rtol=1e-5, atol=1e-7)


def test_next_items_rank_as_the_score_of_held_out_sessions():
    model = read_model(Path("run/model.npz"))
    session = ("a1", "b3")
    rows = [model.tokens.index(item) for item in session]
    found = [item for item, _ in next_items(Path("run/model.npz"), session, topn=10)]
    for rank, item in enumerate(found, 1):
        ids = np.array([*rows, model.tokens.index(item)], np.int32)
        case = Sequences(ids, np.array([3]))
        score = next_item(model.input, model.counts, case, output=model.output)
        assert score.mrr == pytest.approx(1 / rank)


def test_session_of_a_run_and_of_vectors(capsys):
    assert main(["neighbors", "run", "--session", "a1", "b3", "--topn", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = next_items(Path("run/model.npz"), ("a1", "b3"), 2)
    assert lines == ["after a1, b3", *(f"  {x:6.3f}  {item}" for item, x in expected)]
    vectors = read_vectors("two/vectors.safetensors")
    for source in ("two", "two/vectors.safetensors"):
        command = ["neighbors", source, "--session", "a1", "b3", "--topn", "1"]
        assert main([*command, "--decay", "1"]) == 0
        ((item, cosine),) = vectors.most_similar(["a1", "b3"], topn=1)
        assert capsys.readouterr().out.splitlines()[1] == f"  {cosine:6.3f}  {item}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--session", "a1", "b3", "--decay", "0"], "`decay` must be a number in (0, "),
        (["--decay", "0.5", "--", "a1"], "`decay` applies only with --session."),
    ],
)
def test_decay_out_of_place(capsys, arguments, message):
    assert main(["neighbors", "run", *arguments]) == 2
    assert message in error_line(capsys)


@pytest.mark.parametrize("run", ["run", "two"])
def test_names_are_shown_and_looked_up(capsys, run):
    command = ["neighbors", run, "--names", "names.csv"]
    assert main([*command, "--name", "red mug"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if not line.startswith(" ")]
    assert [title[:12] for title in titles] == ["a1 (RED MUG)", "a2 (RED MUG)"]
    assert any(line.endswith("  b1 (tea, green)") for line in lines)
    assert any(line.endswith("  b2") for line in lines)
    assert main([*command, "--session", "b1"]) == 0
    assert capsys.readouterr().out.startswith("after b1 (tea, green)\n")


def printed(capsys, *arguments):
    """The lines of a command, and of `--json` its objects."""
    assert main([*arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line) for line in lines] if "--json" in arguments else lines


@pytest.fixture(scope="module")
def kinds(folder):
    rows = {
        "key": ITEMS,
        "name": [f"the {x}" for x in ITEMS],
        "kind": [*"xyz" * 3, "x"],
    }
    pl.DataFrame(rows).write_csv(folder / "kinds.csv")
    keys = {"key": [NUMBERS[x] for x in ITEMS]}
    pl.DataFrame(rows | keys).write_parquet(folder / "kinds.parquet")
    return {key: kind for key, kind in zip(ITEMS, rows["kind"], strict=True)}


COMMANDS = {
    "vectors": ["neighbors", "run", "a1"],
    "replicas": ["neighbors", "two", "a1"],
    "stable": ["neighbors", "two", "a1", "--stable"],
    "file": ["neighbors", "run/vectors.txt", "a1"],
    "session": ["neighbors", "run", "--session", "a1"],
    "session of replicas": ["neighbors", "two", "--session", "a1"],
    "analogy": ["analogy", "run", "a2", "a3", "a1"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_only_rows_that_meet_the_conditions_are_shown(capsys, kinds, command):
    names = ["--names", "kinds.csv"]
    whole = printed(capsys, *command, "--topn", "9", *names)
    keys = [line.split()[-3] for line in whole[1:]]
    assert [line.split()[-1] for line in whole[1:]] == [f"{key})" for key in keys]
    first, second = {*"xyz"} - {kinds[keys[0]]}
    where = ["--where", f"kind={first}", "--where", f"kind={second}"]
    found = printed(capsys, *command, "--topn", "3", *where, *names)
    expected = [key for key in keys if kinds[key] in (first, second)][:3]
    assert [line.split()[-3] for line in found[1:]] == expected != keys[:3]
    assert found[0] == whole[0]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_json_has_the_numbers_and_names_of_the_text(capsys, kinds, command):
    command = [*command, "--topn", "3", "--names", "kinds.csv"]
    lines = printed(capsys, *command)
    (found,) = printed(capsys, *command, "--json")
    assert found["query"][-1]["key"] == "a1"
    for near, line in zip(found["found"], lines[1:], strict=True):
        names = {"name": f"the {near['key']}", "kind": kinds[near["key"]]}
        assert near["names"] == names
        number = near.get("score", near.get("similarity"))
        assert line.startswith(f"  {number:6.3f}  ")
        assert line.endswith(f"{near['key']} (the {near['key']})")
        if "lower" in near:
            interval = f"[{near['lower']:5.2f}, {near['upper']:5.2f}]"
            assert f"{interval}  {near['replicas']}/2" in line
    if "stability" in found:
        about = f"stability {found['stability']:.2f}, count {found['count']}"
        remark = ", too little data" if found["too_little_data"] else ""
        assert lines[0] == f"a1 (the a1): {about}{remark}"


def test_json_is_valid_whatever_the_columns_hold(capsys):
    """Lists stay lists, missing and infinite numbers are null, times are text."""
    rows = {
        "key": ["a1"],
        "name": ['tab\t, "quote"\nand line'],
        "tags": [["x", None]],
        "size": [[math.inf, 1.5]],
        "about": [{"day": datetime.date(2024, 1, 2), "nan": math.nan}],
    }
    pl.DataFrame(rows).write_parquet("odd.parquet")
    assert main(["neighbors", "run", "a1", "--names", "odd.parquet", "--json"]) == 0

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    (line,) = capsys.readouterr().out.splitlines()
    names = json.loads(line, parse_constant=refuse)["query"][0]["names"]
    assert names == {
        "name": rows["name"][0],
        "tags": ["x", None],
        "size": [None, 1.5],
        "about": {"day": "2024-01-02", "nan": None},
    }


def test_lists_do_not_fit_into_csv(capsys):
    pl.DataFrame({"key": ["a1"], "name": ["x"], "tags": [["y"]]}).write_parquet(
        "lists.parquet"
    )
    command = ["export", "two", "--stability", "3", "--names", "lists.parquet"]
    assert main([*command, "--to", "lists.csv"]) == 2
    message = "has no column of lists or structs, got 'tags': give a .parquet file."
    assert message in error_line(capsys)
    assert not Path("lists.csv").exists()


def test_a_table_without_the_keys_is_named(capsys):
    Path("other.csv").write_text("name,code\nRED MUG,a1\n")
    assert main(["neighbors", "run", "a1", "--names", "other.csv"]) == 0
    message = "`names` other.csv has no name of these keys: its first column, 'name',"
    assert message in capsys.readouterr().err
    export = ["export", "run", "--to", "without.parquet", "--names"]
    assert main([*export, "other.csv"]) == 0
    assert message in capsys.readouterr().err
    assert main([*export, "names.csv"]) == 0
    assert "has no name" not in capsys.readouterr().err


@pytest.mark.parametrize("run", ["numbered", "two-numbered"])
def test_integer_keys_have_names_and_are_integers_in_json_and_parquet(
    capsys, kinds, run
):
    where = ["--names", "kinds.parquet", "--where", "kind=x", "--json"]
    (found,) = printed(capsys, "neighbors", run, "100", *where)
    assert found["query"][0]["key"] == 100
    keys = [near["key"] for near in found["found"]]
    assert sorted(keys) == [NUMBERS[x] for x in ITEMS[1:] if kinds[x] == "x"]
    assert main(["neighbors", run, "1009"]) == 2
    assert "did you mean '109' or '100'" in error_line(capsys)
    (found,) = printed(capsys, "neighbors", run, "--session", "100", "--json")
    assert {*(near["key"] for near in found["found"])} == {*range(101, 110)}


@pytest.mark.slow
def test_exports_have_the_columns_of_names(capsys, kinds):
    names = ["--names", "kinds.parquet"]
    exports = {
        "v.parquet": ["numbered", *names],
        "mean.parquet": ["two-numbered", *names],
        "r.parquet": ["two-numbered", "--replicas", *names],
        "s.parquet": ["two-numbered", "--stability", "4", *names],
        "s.csv": ["two-numbered", "--stability", "4", *names],
    }
    item_of = {number: item for item, number in NUMBERS.items()}
    for path, options in exports.items():
        assert main(["export", *options, "--to", path]) == 0
        frame = pl.read_csv(path) if path == "s.csv" else pl.read_parquet(path)
        assert frame.columns[1:3] == ["name", "kind"]
        assert frame.dtypes[0] == pl.Int64
        for key, name, kind in frame[:, :3].iter_rows():
            assert name == f"the {item_of[key]}" and kind == kinds[item_of[key]]
        assert len(frame) == {"r": 20, "s": 4}.get(path[0], 10)
    capsys.readouterr()
    again = ["neighbors", "v.parquet", "100", "--names", "v.parquet", "--topn", "1"]
    assert printed(capsys, *again)[0] == "100 (the a1)"
    (found,) = printed(capsys, *again, "--json")
    assert found["query"][0]["key"] == 100


def test_names_of_any_format_and_type():
    frame = pl.DataFrame(
        {"id": [7, 8, 7], "title": ["x", None, "y"], "more": [1, 2, 3]}
    )
    frame.write_parquet("names.parquet")
    assert read_names(Path("names.parquet")).of_key == {"7": "x"}


@pytest.mark.row("B28", "B33")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "x"], "`name` needs `names`"),
        (["--names", "none.csv", "a1"], "none.csv: No such file or directory"),
        (
            ["--names", "one.csv", "a1"],
            "`names` must be a table with the columns key and",
        ),
        (
            ["--names", "bad.parquet", "a1"],
            "bad.parquet is not Parquet, which its name",
        ),
        (["--names", "names.csv", "--name", "RED MAG"], "did you mean 'RED MUG'"),
        (["--names", "names.csv", "--name", "unsold"], "is the name of no key in the"),
        (["--session", "a1", "--stable"], "`session` goes with neither"),
        (["a1", "--where", "price=1"], "`where` needs `names`, the table of"),
        (
            ["a1", "--names", "names.csv", "--where", "cost=1"],
            "names.csv has no column 'cost'; it has 'key', 'name', 'price'.",
        ),
        (
            ["a1", "--names", "names.csv", "--where", "name=red mug"],
            "no row of names.csv has it: did you mean 'RED MUG'",
        ),
        (
            ["a1", "--names", "names.csv", "--where", "price=4"],
            "`where` 'price=4' leaves no key of the vocabulary.",
        ),
        (
            ["--session", "a1", "--names", "names.csv", "--where", "price=4"],
            "`where` 'price=4' leaves no key of the vocabulary.",
        ),
    ],
)
def test_wrong_options_are_refused(capsys, options, message):
    Path("one.csv").write_text("key\na1\n")
    Path("bad.parquet").write_text("key,name\na1,x\n")
    assert main(["neighbors", "two", *options]) == 2
    assert message in error_line(capsys)


@pytest.mark.row("B33")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["run", "--to", "v.bin"],
            "Names can be written only to .parquet, got 'v.bin'",
        ),
        (
            ["two", "--to", "v.npz"],
            "Names can be written only to .parquet, got 'v.npz'",
        ),
        (
            ["two", "--to", "r.safetensors", "--replicas"],
            "Names can be written only to .parquet, got 'r.safetensors'",
        ),
    ],
)
def test_names_need_files_with_columns(capsys, options, message):
    assert main(["export", *options, "--names", "names.csv"]) == 2
    assert message in error_line(capsys)
    assert not Path(options[2]).exists()
