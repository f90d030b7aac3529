"""`neighbors` and `analogy`: the next item of a session, and names of keys."""

import datetime
import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import embedder
from embedder.cli.main import main
from embedder.data.split import Sequences
from embedder.metrics.ranking import next_item, ranked_items
from embedder.tokens.artefact import read_model
from embedder.vectors.export import read_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import error_line
from tests.lookup.conftest import ITEMS, KINDS, NUMBERS, TRAIN

pytestmark = pytest.mark.usefixtures("here")
MODEL = Path("run/model.npz")


def printed(capsys, *arguments):
    """The lines of a command, and of `--json` its objects."""
    assert main([*arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line) for line in lines] if "--json" in arguments else lines


def next_items(path, session, topn, **options):
    """The next items by both tables of a model file."""
    model = read_model(path)
    vectors, output = Vectors(model.tokens, model.input), model.token_output
    return ranked_items(vectors, session, topn, output=output, **options)


@pytest.mark.parametrize("decay", [0.25, 1])
def test_next_items_have_the_highest_mean_products(decay):
    """They rank as held-out sessions are scored, without a decay."""
    model = read_model(MODEL)
    session = ("b2", "a1", "b2")
    rows = [model.tokens.index(item) for item in session]
    weights = [decay**2, decay, 1]
    products = [
        np.average([model.input[row] @ output for row in rows], weights=weights)
        for output in model.output
    ]
    others = [row for row in range(10) if row not in rows]
    expected = sorted(others, key=lambda row: -products[row])
    found = next_items(MODEL, session, topn=20, decay=decay)
    assert [item for item, _ in found] == [model.tokens[row] for row in expected]
    scores = [products[row] for row in expected]
    np.testing.assert_allclose([x for _, x in found], scores, rtol=1e-5, atol=1e-7)
    rows = [model.tokens.index(item) for item in ("a1", "b3")]
    found = [item for item, _ in next_items(MODEL, ("a1", "b3"), topn=10)]
    for rank, item in enumerate(found, 1):
        ids = np.array([*rows, model.tokens.index(item)], np.int32)
        case = Sequences(ids, np.array([3]))
        score = next_item(model.input, model.counts, case, output=model.output)
        assert score.mrr == pytest.approx(1 / rank)


def test_session_of_a_run_and_of_vectors(capsys):
    lines = printed(capsys, "neighbors", "run", "--session", "a1", "b3", "--topn", "2")
    expected = next_items(MODEL, ("a1", "b3"), 2)
    assert lines == ["after a1, b3", *(f"  {x:6.3f}  {item}" for item, x in expected)]
    vectors = read_vectors("two/vectors.safetensors")
    for source in ("two", "two/vectors.safetensors"):
        options = ["--session", "a1", "b3", "--topn", "1", "--decay", "1"]
        ((item, cosine),) = vectors.most_similar(["a1", "b3"], topn=1)
        lines = printed(capsys, "neighbors", source, *options)
        assert lines[1] == f"  {cosine:6.3f}  {item}"


@pytest.mark.parametrize("run", ["run", "two"])
def test_names_are_shown_and_looked_up(capsys, run):
    Path("mugs.csv").write_text('key,name\na1,RED MUG \na2,RED MUG\nb1,"tea, green"\n')
    command = ["neighbors", run, "--names", "mugs.csv"]
    lines = printed(capsys, *command, "--name", "red mug")
    titles = [line for line in lines if not line.startswith(" ")]
    assert [title[:12] for title in titles] == ["a1 (RED MUG)", "a2 (RED MUG)"]
    assert any(line.endswith("  b1 (tea, green)") for line in lines)
    assert any(line.endswith("  b2") for line in lines)
    (title, *_) = printed(capsys, *command, "--session", "b1")
    assert title == "after b1 (tea, green)"
    assert main([*command, "Red Mug"]) == 2
    expected = "'Red Mug' is not in the vocabulary, but a name: give --name 'Red Mug'."
    assert expected in capsys.readouterr().err


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
def test_rows_that_meet_the_conditions_are_shown_and_json_has_the_same(capsys, command):
    names = ["--names", "names.csv"]
    whole = printed(capsys, *command, "--topn", "9", *names)
    keys = [line.split()[-3] for line in whole[1:]]
    assert [line.split()[-1] for line in whole[1:]] == [f"{key})" for key in keys]
    first, second = {*"xyz"} - {KINDS[keys[0]]}
    where = ["--where", f"kind={first}", "--where", f"kind={second}"]
    lines = printed(capsys, *command, "--topn", "3", *where, *names)
    expected = [key for key in keys if KINDS[key] in (first, second)][:3]
    assert [line.split()[-3] for line in lines[1:]] == expected != keys[:3]
    assert lines[0] == whole[0]
    (found,) = printed(capsys, *command, "--topn", "3", *where, *names, "--json")
    assert found["query"][-1]["key"] == "a1"
    for near, line in zip(found["found"], lines[1:], strict=True):
        key = near["key"]
        assert near["names"] == {"name": f"the {key}", "kind": KINDS[key]}
        number = near.get("score", near.get("similarity"))
        assert line.startswith(f"  {number:6.3f}  ")
        assert line.endswith(f"{key} (the {key})")
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


def test_a_table_without_the_keys_is_named(capsys):
    Path("other.csv").write_text("name,code\nRED MUG,a1\n")
    message = "`names` other.csv has no name of these keys: its first column, 'name',"
    export = ["export", "run", "--to", "without.parquet", "--names"]
    for command in (["neighbors", "run", "a1", "--names"], export):
        assert main([*command, "other.csv"]) == 0
        assert message in capsys.readouterr().err
    assert main([*export, "names.csv"]) == 0
    assert "has no name" not in capsys.readouterr().err


@pytest.mark.parametrize("run", ["numbered", "two-numbered"])
def test_integer_keys_have_names_and_are_integers_in_json(capsys, run):
    where = ["--names", "kinds.parquet", "--where", "kind=x", "--json"]
    (found,) = printed(capsys, "neighbors", run, "100", *where)
    assert found["query"][0]["key"] == 100
    keys = [near["key"] for near in found["found"]]
    assert sorted(keys) == [NUMBERS[x] for x in ITEMS[1:] if KINDS[x] == "x"]
    assert main(["neighbors", run, "1009"]) == 2
    assert "did you mean '109' or '100'" in error_line(capsys)
    (found,) = printed(capsys, "neighbors", run, "--session", "100", "--json")
    assert {*(near["key"] for near in found["found"])} == {*range(101, 110)}


def test_verbs_read_files_with_rows_without_a_key(capsys):
    """Each says how many it left out."""
    rows = b"".join(b"w%d %d %d\n" % (i, i, 9 - i * i) for i in range(5))
    Path("wrong.txt").write_bytes(b"7 2\n" + rows + b"w1 1 1\n\xe7 3 4\n")
    Path("pairs.tsv").write_text("w1\tw2\t1\nw3\tw4\t2\nw1\tw4\t3\n")
    Path("text.txt").write_text("w1 w2 w3\n" * 9)
    start = f"train text.txt {' '.join(TRAIN)} --vector-size 2 --workdir started"
    for command in (
        f"{start} --init-from wrong.txt --freeze known",
        "neighbors wrong.txt w1",
        "analogy wrong.txt w1 w2 w3",
        "evaluate wrong.txt --pairs pairs.tsv",
        "export wrong.txt --to whole.txt",
        "compare wrong.txt wrong.txt",
        "index wrong.txt",
    ):
        assert main(command.split()) == 2
        assert "--key-errors skip leaves such rows out" in capsys.readouterr().err
        assert main([*command.split(), "--key-errors", "skip"]) == 0
        assert ", left out: 2.\n" in capsys.readouterr().err
    assert embedder.read_vectors("started")["w2"].tolist() == [2, 5]
    assert read_vectors("whole.txt").keys == [f"w{i}" for i in range(5)]
    assert main("export wrong.txt --to whole.txt --key-errors replace".split()) == 0
    vectors = embedder.read_vectors("wrong.txt", key_errors="replace")
    assert vectors.keys == read_vectors("whole.txt").keys
    assert vectors["\ufffd"].tolist() == [3, 4]


def test_exports_have_the_columns_of_names(capsys):
    item_of = {number: item for item, number in NUMBERS.items()}
    for path, command in {
        "v.parquet": "numbered",
        "r.parquet": "two-numbered --replicas",
        "s.csv": "two-numbered --stability 4",
    }.items():
        options = ["--names", "kinds.parquet", "--to", path]
        assert main(["export", *command.split(), *options]) == 0
        frame = pl.read_csv(path) if path == "s.csv" else pl.read_parquet(path)
        assert frame.columns[1:3] == ["name", "kind"] and frame.dtypes[0] == pl.Int64
        for key, name, kind in frame[:, :3].iter_rows():
            assert name == f"the {item_of[key]}" and kind == KINDS[item_of[key]]
        assert len(frame) == {"r": 20, "s": 4}.get(path[0], 10)
    capsys.readouterr()
    again = ["neighbors", "v.parquet", "100", "--names", "v.parquet", "--topn", "1"]
    assert printed(capsys, *again)[0] == "100 (the a1)"
    (found,) = printed(capsys, *again, "--json")
    assert found["query"][0]["key"] == 100
