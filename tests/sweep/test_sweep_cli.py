"""The verb `sweep`: what it prints, writes and refuses."""

import re
from pathlib import Path

import polars as pl
import pytest

from embedder.cli import main
from embedder.config import read_toml
from embedder.sweep import picture
from tests.commands import error_line, run_python

FAST = ["--vector-size", "6", "--min-count", "1", "--epochs", "2", "--block", "16"]
FAST += ["--blocks-per-update", "1", "--tile", "4"]
TEXT = "the quick brown fox jumps over the lazy dog\n" * 40
SPACE = """
alpha = [0.02, 0.05]
window = { low = 2, high = 8, steps = 3 }
vector_size = [4, 6]
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    Path("space.toml").write_text(SPACE)


def test_a_sweep_prints_the_best_trials_and_writes_all(capsys):
    assert main(["sweep", "space.toml", "text.txt", *FAST, "--best", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = re.compile(r"trial \d+, 2 epochs, held_out -\d\.\d{4}: .*alpha 0\.\d")
    assert all(row.match(line) for line in lines[:-1])
    assert len(lines) in (11, 12)  # ten, the given settings, and the conclusion
    assert sum(": as given (" in line for line in lines) == 1
    assert lines[-1].startswith(("Trial ", "No trial is better"))
    trials = pl.read_csv("embedder-sweep/trials.csv")
    assert trials.columns == [
        *("trial", "alpha", "window", "vector_size", "epochs", "held_out", "seconds")
    ]
    assert len(trials) == 13 and trials["alpha"].null_count() == 0
    assert trials["held_out"].is_sorted(descending=True)
    assert Path("embedder-sweep/trials.svg").read_text().count("<path") > 13
    best, run = (
        read_toml(Path("embedder-sweep/best.toml")),
        read_toml("run/config.toml"),
    )
    assert best.tables.window == run.tables.window == trials["window"][0]
    assert run.tables.holdout == 0.05
    assert main(["neighbors", "run", "fox", "--topn", "2"]) == 0


@pytest.mark.slow
def test_the_same_command_again_shows_the_same(capsys):
    arguments = ["sweep", "space.toml", "text.txt", *FAST, "--halving", "3"]
    assert main(arguments) == 0
    before = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == before


@pytest.mark.slow
def test_replicas_tell_how_much_is_chance(capsys):
    Path("one.toml").write_text("alpha = [0.05]")
    given = ["--alpha", "0.0002", "--replicas", "2"]  # it hardly learns
    assert main(["sweep", "one.toml", "text.txt", *FAST, *given]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"Trial 1 is the best: .* standard error.*\.", last)


def test_a_dry_run_says_what_would_be_done(capsys):
    arguments = ["sweep", "space.toml", "text.txt", *FAST, "--dry-run"]
    assert main([*arguments, "--side-by-side", "6", "--replicas", "2"]) == 0
    out = capsys.readouterr().out
    assert "trials: 13, compared by held_out after 2 epochs\n" in out
    assert "side by side: 6 models, at most" in out
    assert "memory: " in out and "tables" in out
    assert not Path("embedder-sweep").exists()


def test_memory_grows_with_the_models_side_by_side(capsys):
    needed = []
    for number in ("1", "12"):
        arguments = ["sweep", "space.toml", "text.txt", *FAST, "--dry-run"]
        assert main([*arguments, "--side-by-side", number]) == 0
        found = re.search(r"on each device: ([\d.]+) MiB", capsys.readouterr().out)
        assert found is not None
        needed.append(float(found[1]))
    assert needed[1] == pytest.approx(12 * needed[0], rel=0.1)


@pytest.mark.row("B1", "B8", "B14")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "SPACE"),
        (["missing.toml", "text.txt"], "missing.toml: No such file"),
        (["space.toml", "missing.txt"], "missing.txt"),
        (["text.txt", "text.txt"], "SPACE text.txt: "),
        (
            ["space.toml", "text.txt", "--score", "best"],
            "'best' for argument '--score'",
        ),
        (["space.toml", "text.txt", "--halving", "1"], "`halving` must be 0 or"),
        (
            ["space.toml", "text.txt", "--halving", "x"],
            "`--halving` must be an integer",
        ),
        (["space.toml", "text.txt", "--pairs", "p.tsv"], "`score` pairs needs --pairs"),
        (["space.toml", "text.txt", "--trails", "3"], "did you mean `--trials`?"),
        (["space.toml", "text.txt", "--workdir", "text.txt"], "must be a folder, got"),
        (["space.toml", "text.txt", "--best", "text.txt"], "`best` must be a folder"),
        (
            ["space.toml", "text.txt", "--best", "embedder-sweep"],
            "`best` must be outside of the sweep",
        ),
        (["space.toml", "text.txt", "--holdout", "1.5"], "`holdout` must be"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, message):
    assert main(["sweep", *arguments]) == 2
    assert message in error_line(capsys)
    assert not Path("embedder-sweep").exists()


@pytest.mark.row("F19")
def test_too_many_models_for_the_memory_are_refused(capsys):
    Path("one.toml").write_text("alpha = [0.02, 0.05]")
    wide = ["--vector-size", "2000000000", "--min-count", "1"]
    assert main(["sweep", "one.toml", "text.txt", *wide]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("embedder: ") and "GiB" in line


def test_without_matplotlib_the_log_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr(picture, "has_matplotlib", lambda: False)
    assert main(["sweep", "space.toml", "text.txt", *FAST]) == 0
    assert "pip install 'embedder-jax[sweep]'" in capsys.readouterr().err
    assert not Path("embedder-sweep/trials.svg").exists()


def test_a_dry_run_counts_the_largest_trials(capsys):
    Path("sizes.toml").write_text("vector_size = [8, 40000]")
    assert main(["sweep", "sizes.toml", "text.txt", *FAST, "--dry-run"]) == 0
    found = re.search(r"tables ([\d.]+)", capsys.readouterr().out)
    assert found is not None and float(found[1]) > 1


def test_help_answers_without_what_computes():
    code = "import sys; from embedder.cli import main; main(['sweep', '--help']); "
    done = run_python("-c", code + "print({'jax', 'numpy'} & {*sys.modules})")
    assert done.stdout.splitlines()[-1] == "set()", done.stderr
