"""`neighbors`: unknown tokens, the next item of a session, and names of keys."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.tables import heldout
from embedder.tables.artefact import read_model
from embedder.tables.names import read_names
from embedder.tables.next_items import next_items
from embedder.tables.split import Sequences
from embedder.vectors.export import read_vectors
from tests.commands import error_line

NAMES = {"a1": "RED MUG ", "a2": "RED MUG", "b1": "tea, green", "zz": "unsold"}
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
    items = [f"{group}{i}" for group in "ab" for i in range(1, 6)]
    frame = pl.DataFrame(
        {"session": np.arange(600) // 6, "item": rng.choice(items, 600)}
    )
    frame.write_csv(folder / "baskets.csv")
    pl.DataFrame(
        {"key": [*NAMES], "name": [*NAMES.values()], "price": [1, 2, 3, 4]}
    ).write_csv(folder / "names.csv")
    for run, options in (("run", ()), ("two", ("--replicas", "2"))):
        command = ["train", f"{folder}/baskets.csv", "--workdir", f"{folder}/{run}"]
        assert main([*command, *TRAIN, "--epochs", "2", *options]) == 0
    return folder


@pytest.fixture(autouse=True)
def own_folder(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    capsys.readouterr()


def test_unknown_tokens_have_suggestions(capsys):
    for run in ("run", "two", "run/vectors.txt"):
        assert main(["neighbors", run, "A1"]) == 2
        line = error_line(capsys)
        assert "Token 'A1' is not in the vocabulary: did you mean 'a1'?" in line
    assert main(["neighbors", "run", "--session", "a1", "quite-other"]) == 2
    assert error_line(capsys).endswith("'quite-other' is not in the vocabulary.")


def test_next_items_have_the_highest_mean_products():
    model = read_model(Path("run/model.npz"))
    session = ("b2", "a1", "b2")
    rows = [model.tokens.index(item) for item in session]
    products = [
        np.mean([model.input[row] @ output for row in rows]) for output in model.output
    ]
    others = [row for row in range(10) if row not in rows]
    expected = sorted(others, key=lambda row: -products[row])
    found = next_items(Path("run/model.npz"), session, topn=20)
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
        score = heldout.next_item(model.input, model.counts, case, output=model.output)
        assert score.mrr == pytest.approx(1 / rank)


def test_session_of_a_run_and_of_vectors(capsys):
    assert main(["neighbors", "run", "--session", "a1", "b3", "--topn", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = next_items(Path("run/model.npz"), ("a1", "b3"), 2)
    assert lines == ["after a1, b3", *(f"  {x:6.3f}  {item}" for item, x in expected)]
    vectors = read_vectors("two/vectors.safetensors")
    for source in ("two", "two/vectors.safetensors"):
        assert main(["neighbors", source, "--session", "a1", "b3", "--topn", "1"]) == 0
        ((item, cosine),) = vectors.most_similar(["a1", "b3"], topn=1)
        assert capsys.readouterr().out.splitlines()[1] == f"  {cosine:6.3f}  {item}"


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


def test_names_of_any_format_and_type():
    frame = pl.DataFrame(
        {"id": [7, 8, 7], "title": ["x", None, "y"], "more": [1, 2, 3]}
    )
    frame.write_parquet("names.parquet")
    assert read_names(Path("names.parquet")).of_key == {"7": "x"}


@pytest.mark.row("B28")
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
        ([], "WORD: give at least one token"),
    ],
)
def test_wrong_options_are_refused(capsys, options, message):
    Path("one.csv").write_text("key\na1\n")
    Path("bad.parquet").write_text("key,name\na1,x\n")
    assert main(["neighbors", "two", *options]) == 2
    assert message in error_line(capsys)
