"""The tables of the READMEs agree with bench/results."""

import json
import re
from pathlib import Path

import pytest

from bench import __main__, commands, registry, render, results

NO_TABLE = {"gpu-kit", "gpu-session"}
KEPT = sorted(path.stem for path in results.RESULTS.glob("*.json"))
SMALL = {"samples": [{"program": "a", "score": 0.25, "chance": 0.125}]}
TABLE = """| program | mean reference cosine of 10 neighbours |
| --- | --- |
| a | 0.2500 |
| chance | 0.1250 |
"""


def test_the_readmes_agree_with_the_results_and_are_short():
    different = render.differences(render.READMES)
    assert not different, "`python -m bench render` writes them"
    lines = [len(path.read_text().splitlines()) for path in render.READMES[:2]]
    assert lines[0] <= 120 and lines[1] <= 300, lines


def medians(name: str, column: str, **cells: str) -> list[float]:
    """Of the rows of the table of `name` that have these cells."""
    table = render.TABLES[name](results.read_results(name))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    found = [row[column] for row in rows if cells.items() <= row.items()]
    assert found
    return [float(cell.split()[0]) for cell in found]


def as_often(case: str) -> list[float]:
    mine, popular = (
        medians("attributes", column, case=case)
        for column in ("attributes", "popularity within the category")
    )
    return [a / b for a, b in zip(mine, popular, strict=True)]


def of_speed(*names: str) -> list[float]:
    column = "to gensim, 2 workers"
    return [x for name in names for x in medians(name, column, program="embedder")]


def in_archive(row: str) -> list[float]:
    """The figures in the last cells of a row that begins so: MiB, MiB, minutes."""
    (line,) = re.findall(rf"^\| {row}.*$", read("bench/archive.md"), re.M)
    resident, _, minutes = map(float, line.strip("| ").split(" | ")[-3:])
    return [resident / 1024, minutes]


def read(page: str) -> str:
    return (results.CHECKOUT / page).read_text(encoding="utf-8")


GRAPH = r"p = 0.5, q = 2, text, a checkpoint"
SAVES = [f"tables, V = {size}" for size in ("68 k", "1 M")]
SHARE = "% of 600 s"
# The figures in a sentence, and what was measured: one number each, or with "to" the
# least and the greatest of any.
SENTENCES = [
    ("README.md", "Skip-gram # to # times as fast", lambda: of_speed("cpu", "cpu-300")),
    ("README.md", "CBOW # to # times", lambda: of_speed("cpu-cbow")),
    (
        "README.md",
        "runs unchanged, in # to # of its time",
        lambda: medians("recipes", "time, embedder to gensim"),
    ),
    (
        "README.md",
        "100 M edges in # GiB.*?: # minutes on two cores",
        lambda: in_archive(GRAPH),
    ),
    (
        "docs/how-to/train-on-a-graph.md",
        "between 5 M nodes took # GiB",
        lambda: in_archive(GRAPH)[:1],
    ),
    (
        "docs/how-to/update-a-model.md",
        "costs # % of throughput with 68 thousand rows .*? # % with a million rows",
        lambda: [
            x for row in SAVES for x in medians("checkpoints", SHARE, training=row)
        ],
    ),
    (
        "docs/how-to/train-on-sessions.md",
        "nobody has bought is found # to # times as often",
        lambda: as_often("after an unseen item"),
    ),
    (
        "docs/how-to/train-on-sessions.md",
        "It happens # to # times as often",
        lambda: as_often("to an unseen item"),
    ),
    (
        "docs/reference/limits.md",
        "a table of sessions needs about # GiB",
        lambda: [max(medians("memory-sessions", "peak resident, MiB")) / 1024],
    ),
]


@pytest.mark.parametrize("page, sentence, measured", SENTENCES)
def test_figures_in_sentences_are_those_of_the_results(page, sentence, measured):
    pattern = re.escape(sentence).replace(r"\.\*\?", ".*?").replace(r"\ ", r"\s+")
    found = re.findall(pattern.replace(r"\#", r"(\d+(?:\.\d+)?)"), read(page), re.S)
    assert len(found) == 1, "the sentence stands once"
    figures = [found[0]] if isinstance(found[0], str) else found[0]
    if "# to #" in sentence:
        low, high = figures
        ends = [(low, high)] * len(measured())
    else:
        ends = [(figure, figure) for figure in figures]
    for value, (low, high) in zip(measured(), ends, strict=True):
        digits = len(low.partition(".")[2])
        assert float(low) <= round(value, digits) <= float(high)


@pytest.mark.parametrize("name", KEPT)
def test_results_have_a_table(name):
    table = render.TABLES[name](results.read_results(name))
    assert table.rows
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_every_bench_has_a_table():
    for bench in {*commands.BENCHES, *registry.OWN_COMMANDS} - NO_TABLE:
        names = [name for name in render.TABLES if f"{name}-".startswith(f"{bench}-")]
        assert names, bench


@pytest.fixture
def readme(tmp_path, monkeypatch) -> Path:
    """The only README, and results of the bench `small`."""
    path = tmp_path / "README.md"
    monkeypatch.setattr(render, "READMES", (path,))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    return path


def marked(table: str, marker: str = "small") -> str:
    return f"Before:\n\n<!-- table: {marker} -->\n{table}<!-- end -->\n\nAfter.\n"


def run(*arguments: str) -> None:
    __main__.main(["render", *arguments])


def test_render_writes_the_table_and_nothing_else(readme, capsys):
    """With --check it names a table that differs."""
    text = marked("| old |\n| --- |\n")
    readme.write_text(text)
    with pytest.raises(SystemExit) as ended:
        run("--check")
    assert ended.value.code == 1 and readme.read_text() == text
    assert "README.md: small: differs" in capsys.readouterr().out
    run()
    assert readme.read_text() == marked(TABLE)
    assert "README.md: small: written" in capsys.readouterr().out
    run("--check")
    assert not capsys.readouterr().out


def test_a_marker_leaves_out_columns_and_rows():
    table = results.Table(["a", "b"], [["x", "1"], ["y", "2"], ["z", "2"]])
    assert table.without(["b", "y"]) == results.Table(["a"], [["x"], ["z"]])
    assert table.without(["2"]) == results.Table(["a", "b"], [["x", "1"]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (marked("", "tiny"), "tiny"),
        (marked("", "small with rows"), "small with rows"),
        (marked("", "small without colour"), "colour"),
        (marked("", "cpu"), "cpu.json"),
        (marked("| a |\nwords\n"), "<!-- table: small -->"),
        ("<!-- table: small -->\n| a |\n", "<!-- table: small -->"),
        ("| a |\n<!-- end -->\n", "<!-- end -->"),
        ("<!-- table:small -->\n| a |\n<!-- end -->\n", "<!-- table:small -->"),
    ],
)
def test_a_malformed_marker_is_named(readme, text, reason):
    readme.write_text(text)
    with pytest.raises(SystemExit, match=re.escape(reason)):
        run()
    assert readme.read_text() == text


@pytest.mark.parametrize(
    ("values", "digits", "text"),
    [
        ([2, 1, 3], None, "2.00 (1.00 to 3.00)"),
        ([0.25], None, "0.250"),
        ([9, 12], None, "10.5 (9.0 to 12.0)"),
        ([1.001, 1.002], 2, "1.00"),
        ([1.001, 1.002, 1.002], 3, "1.002 (1.001 to 1.002)"),
    ],
)
def test_a_spread_is_a_median_and_a_range(values, digits, text):
    assert results.spread(values, digits) == text
