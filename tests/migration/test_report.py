import json

import numpy as np
import pytest

from embedder.cli import main
from embedder.tables import blocks
from migration.parity.difference import difference, difference_of_tokens, worst
from migration.parity.ladder import RUNGS

OPTIONS = ["--vector-size", "8", "--epochs", "1", "--loader", "memory"]
QUICK = ["--rungs", "vocabulary", "blocks", "whole epoch"]


def parity(text_file, *options) -> int:
    return main(["parity", "--corpus", str(text_file), *OPTIONS, *options])


@pytest.mark.slow
def test_report_has_all_rungs(capsys, text_file):
    exact = [rung for rung in RUNGS if rung != "workers"]  # a matter of chance, here
    assert parity(text_file, "--rungs", *exact) == 0
    table = capsys.readouterr().out
    assert all(f"\n{rung} " in table for rung in exact)


@pytest.mark.slow
def test_report_shows_that_all_pass(capsys, text_file):
    assert parity(text_file, *QUICK) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"corpus {text_file}, words ")
    assert lines[1].split()[-2:] == ["tolerance", "verdict"]
    assert {line.split()[-1] for line in lines[2:]} == {"pass"}


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
    assert parity(text_file, *QUICK, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is True
    assert report["settings"]["vector_size"] == 8
    assert {line["rung"] for line in report["lines"]} == set(QUICK[1:])


@pytest.mark.slow
def test_words_bounds_what_is_trained_on(capsys, text_file):
    assert parity(text_file, *QUICK, "--json", "--words", "1000") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["words_trained"] == 1000 < report["words"]


@pytest.mark.slow
def test_several_files_are_one_corpus(capsys, tmp_path, text_file):
    (tmp_path / "b.txt").write_text("\ufeffw1 w2 new\n\nw1", encoding="utf-8")
    assert parity(tmp_path, *QUICK, "--min-count", "1") == 0


@pytest.mark.spread(7)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--words", "-1"], "`words` must be an integer >= 0, got -1."),
        (["--seeds", "-3"], "`seed` must be an integer from 0 to 2**64 - 1, got -3."),
        (["--seeds", str(2**64)], "`seed` must be an integer from 0 to 2**64 - 1"),
        (["--seeds", "1", "x"], "`--seeds` must be numbers, got '1', 'x'."),
        (["--replicas", "3"], "`replicas` must be 1 for parity, got 3. Its rung"),
        (["--bootstrap"], "`bootstrap` must be False for parity, got True. Its rung"),
        (["--rungs", "loses"], "did you mean `loss`? The rungs are: vocabulary, "),
        (["--epochs", "0", "--rungs", "workers"], "`epochs` must be an integer >= 1"),
        (["--sample", "1e-30", "--rungs", "loss"], "`sample` = 1e-30 leaves no token"),
        (["--min-count", "10000"], "No token occurs `min_count` = 10000 times"),
        (["--pairs", "no.tsv"], "File no.tsv does not exist."),
    ],
)
def test_bad_input_is_one_line(capsys, text_file, options, message):
    assert parity(text_file, *options) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_corpus_without_its_flag_is_refused_with_the_flag(capsys, text_file):
    assert main(["parity", str(text_file)]) == 2
    assert f"Give the corpus as --corpus {text_file}." in capsys.readouterr().err


def test_one_of_several_files_that_is_not_text_is_named(capsys, tmp_path, text_file):
    (tmp_path / "b.txt").write_bytes(b"fine\n\xe4 not\n")
    assert parity(tmp_path) == 2
    assert "b.txt is not UTF-8 text: line 2 has" in capsys.readouterr().err


def test_lines_before_an_error_are_printed(capsys, text_file):
    options = ["--rungs", "vocabulary", "whole epoch", "--alpha", "1e300"]
    assert parity(text_file, *options, "--max-pairs-per-row", "inf", "--json") == 3
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["passed"] is False
    assert {line["rung"] for line in report["lines"]} == {"vocabulary"}
    assert report["settings"]["max_pairs_per_row"] is None
    assert "diverged" in printed.err


def test_tables_that_are_not_finite_do_not_pass(capsys, text_file):
    options = [
        "--rungs",
        "100 updates",
        "--alpha",
        "1e300",
        "--max-pairs-per-row",
        "inf",
    ]
    assert parity(text_file, *options, "--sample", "0", "--dtype", "float64") == 1
    assert "FAIL" in capsys.readouterr().out


def test_difference_is_the_largest_and_relative_above_one():
    line = difference("r", "q", np.array([1.0, 8.5]), np.array([1, 8.0]), tolerance=0.1)
    assert (line.absolute, line.relative, line.passed) == (0.5, 0.0625, True)
    small = difference("r", "q", np.array([0.5]), np.array([0.3]), tolerance=0.1)
    assert not small.passed


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


def test_one_bit_is_a_difference():
    last_bit = np.array([2**32 - 2], np.uint32)
    assert not difference("r", "q", last_bit + np.uint32(1), last_bit).passed


def test_tokens_differ_by_value_and_by_place():
    assert difference_of_tokens("r", ["a", "b"], ["a", "b"]).passed
    assert difference_of_tokens("r", ["b", "a", "c"], ["a", "b"]).absolute == 3


def test_worst_keeps_the_largest():
    lines = [difference("r", "q", a, 1.0, tolerance=1e-3) for a in (1.0, 2.0, 1.5)]
    assert worst(lines).absolute == 1 and not worst(lines).passed
    assert worst(lines).size == 3
