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
