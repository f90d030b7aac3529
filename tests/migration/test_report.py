import json

import numpy as np
import pytest

from embedder.cli.main import main
from embedder.data import blocks
from migration.parity.difference import difference, difference_of_tokens, worst
from migration.parity.ladder import STAGES

OPTIONS = ["--vector-size", "8", "--epochs", "1", "--loader", "memory"]
QUICK = ["--stages", "vocabulary", "blocks", "whole epoch"]


def parity(text_file, *options) -> int:
    return main(["parity", "--corpus", str(text_file), *OPTIONS, *options])


@pytest.mark.slow
def test_report_has_all_stages(capsys, text_file):
    exact = [
        stage for stage in STAGES if stage != "workers"
    ]  # a matter of chance, here
    assert parity(text_file, "--stages", *exact) == 0
    table = capsys.readouterr().out
    lines = table.splitlines()
    assert lines[0].startswith(f"corpus {text_file}, words ")
    assert lines[1].split()[-2:] == ["tolerance", "verdict"]
    assert {line.split()[-1] for line in lines[2:]} == {"pass"}
    assert all(f"\n{stage} " in table for stage in exact)


def test_report_shows_what_differs(capsys, monkeypatch, text_file):
    original = blocks.draw_noise
    monkeypatch.setattr(
        blocks, "draw_noise", lambda *args: np.zeros_like(original(*args))
    )
    assert parity(text_file, *QUICK) == 1
    verdicts = {
        line[:60].strip(): line.split()[-1]
        for line in capsys.readouterr().out.splitlines()
    }
    failed = [name for name, verdict in verdicts.items() if verdict == "FAIL"]
    assert any("noise, memory" in name for name in failed)
    assert not any("ids" in name for name in failed)


def test_report_as_json(capsys, text_file):
    (text_file.parent / "b.txt").write_text("\ufeffw1 w2 new\n\nw1", "utf-8")
    assert parity(text_file.parent, *QUICK, "--json", "--words", "1000") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is True
    assert report["words_trained"] == 1000 < report["words"]
    assert report["settings"]["vector_size"] == 8
    assert {line["stage"] for line in report["lines"]} == set(QUICK[1:])


def test_lines_before_an_error_are_printed(capsys, text_file):
    options = ["--stages", "vocabulary", "whole epoch", "--alpha", "1e300"]
    assert parity(text_file, *options, "--max-pairs-per-row", "inf", "--json") == 3
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["passed"] is False
    assert {line["stage"] for line in report["lines"]} == {"vocabulary"}
    assert report["settings"]["max_pairs_per_row"] is None
    assert "diverged" in printed.err


@pytest.mark.parametrize("tolerance", [0, 1e-3])
@pytest.mark.parametrize(
    ("actual", "desired"),
    [
        (np.zeros(3), np.zeros(2)),
        (np.zeros(3, np.float32), np.zeros(3)),
        (np.array([np.nan]), np.array([0.0])),
        (np.array([0.0]), np.array([np.nan])),
        (np.array([np.nan]), np.array([np.nan])),
        (np.array([1.0]), np.array([np.inf])),
        (np.array([np.inf]), np.array([1.0])),
    ],
    ids=["shape", "dtype", "nan", "nan_of_oracle", "nan_of_both", "inf", "inf_of_port"],
)
def test_difference_does_not_pass(actual, desired, tolerance):
    line = difference("r", "q", actual, desired, tolerance=tolerance)
    assert not line.passed and line.absolute == np.inf


def test_differences_are_the_largest_and_relative_above_one():
    line = difference("r", "q", np.array([1.0, 8.5]), np.array([1, 8.0]), tolerance=0.1)
    assert (line.absolute, line.relative, line.passed) == (0.5, 0.0625, True)
    assert not difference(
        "r", "q", np.array([0.5]), np.array([0.3]), tolerance=0.1
    ).passed
    last_bit = np.array([2**32 - 2], np.uint32)
    assert not difference("r", "q", last_bit + np.uint32(1), last_bit).passed
    assert difference_of_tokens("r", ["a", "b"], ["a", "b"]).passed
    assert difference_of_tokens("r", ["b", "a", "c"], ["a", "b"]).absolute == 3
    lines = [difference("r", "q", a, 1.0, tolerance=1e-3) for a in (1.0, 2.0, 1.5)]
    assert worst(lines).absolute == 1 and not worst(lines).passed
    assert worst(lines).size == 3
