"""A finished run answers before it reads its corpus, and refuses other settings."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from embedder import families
from embedder.cli import main
from embedder.encoders.problem import EncoderProblem
from embedder.run.workdir import Workdir
from embedder.tables import corpus
from embedder.tables.problem import TablesProblem
from tests.commands import error_line

TEXT = "a b c d a c a b\n" * 30
FAST = ["--loader", "memory", "--min-count", "2", "--vector-size", "4", "--epochs", "1"]
TOKENS = ["text.txt", *FAST]
ENCODER = ["examples.npz", "--model", "encoder", "--loader", "memory", "--epochs", "1"]
FINISHED = "finished before"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", x=rng.random((40, 4)), y=np.arange(40) % 2)


def train(*arguments: str) -> int:
    return main(["train", *arguments])


@pytest.fixture
def plans(monkeypatch) -> list[str]:
    """The plans that were made since the fixture was set up."""
    made: list[str] = []
    for kind in (TablesProblem, EncoderProblem):

        def plan(self, *arguments, before=kind.plan):
            made.append(type(self).__name__)
            return before(self, *arguments)

        monkeypatch.setattr(kind, "plan", plan)
    return made


@pytest.mark.spread(1)
@pytest.mark.parametrize("command", [TOKENS, ENCODER], ids=["tokens", "encoder"])
def test_a_finished_run_is_not_planned_again(command, plans, capsys):
    assert train(*command, "--workdir", "run") == 0
    assert len(plans) == 1
    for again in (command, []):
        assert train(*again, "--workdir", "run") == 0
        assert FINISHED in capsys.readouterr().out
    assert len(plans) == 1


def test_a_finished_run_reads_no_line_of_its_corpus(monkeypatch, capsys):
    assert train(*TOKENS, "--workdir", "run") == 0

    def chunks(*arguments):
        raise AssertionError("the corpus is read")

    monkeypatch.setattr(corpus, "_file_chunks", chunks)
    assert train(*TOKENS, "--workdir", "run") == 0
    assert FINISHED in capsys.readouterr().out


def test_the_corpus_is_opened_once(monkeypatch):
    opened = []

    def open_problem(*arguments):
        opened.append(arguments)
        return families.open_problem(*arguments)

    monkeypatch.setattr("embedder.run.train.open_problem", open_problem)
    assert train(*TOKENS) == 0
    assert Path("embedder-text/vectors.txt").exists() and len(opened) == 1


def test_a_setting_as_it_was_resolved_is_the_same(plans, capsys):
    assert train(*TOKENS, "--workdir", "run") == 0
    assert train(*TOKENS, "--alpha", "0.1", "--block", "64", "--workdir", "run") == 0
    assert FINISHED in capsys.readouterr().out and len(plans) == 1


def test_a_setting_that_was_given_and_is_open_now_is_planned(plans, capsys):
    assert train(*TOKENS, "--alpha", "0.1", "--workdir", "same") == 0
    assert train(*TOKENS, "--workdir", "same") == 0
    assert FINISHED in capsys.readouterr().out and len(plans) == 2
    assert train(*TOKENS, "--alpha", "0.04", "--workdir", "other") == 0
    capsys.readouterr()
    assert train(*TOKENS, "--workdir", "other") == 2
    assert "`alpha` 0.04 there, 0.1 now" in error_line(capsys)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (TOKENS, ["--window", "3"], "`window` 5 there, 3 now"),
        (TOKENS, ["--tile", "48"], "settings: `tile` 16 there, 48 now. Give"),
        (TOKENS, ["--optimizer", "adagrad"], "`optimizer` 'sgd' there, 'adagrad'"),
        (ENCODER, ["--layers", "4", "9", "2"], r"`layers` .*128.* there, .*9.* now"),
    ],
)
def test_other_settings_are_refused(command, flags, message, capsys):
    assert train(*command, "--workdir", "run") == 0
    capsys.readouterr()
    assert train(*command, *flags, "--workdir", "run") == 2
    line = error_line(capsys)
    assert all(part in line for part in message.split(".*")) or message in line


def test_another_family_is_refused(capsys):
    assert train(*TOKENS, "--workdir", "run") == 0
    capsys.readouterr()
    assert train(*ENCODER, "--workdir", "run") == 2
    assert "`model` 'tokens' there, 'encoder' now" in error_line(capsys)


@pytest.mark.parametrize("change", ["text", "time"])
def test_a_changed_corpus_is_refused(change, capsys):
    assert train(*TOKENS, "--workdir", "run") == 0
    capsys.readouterr()
    if change == "text":
        Path("text.txt").write_text(TEXT.replace("d", "e"))
    os.utime("text.txt", (1, 1))
    assert train(*TOKENS, "--workdir", "run") == 2
    assert "another corpus" in error_line(capsys)


@pytest.mark.slow
def test_another_base_is_refused_and_the_same_is_not_planned(plans, capsys):
    assert train(*TOKENS, "--workdir", "old") == 0
    again = ["text.txt", "--resume", "old", "--workdir", "new"]
    assert train(*again) == train(*again) == 0
    assert FINISHED in capsys.readouterr().out and len(plans) == 2
    assert train(*again, "--grow") == 2
    assert "`resume` of another run" in error_line(capsys)


def test_a_run_of_a_version_before_is_planned(plans, capsys):
    """Which did not write the settings that were open, nor their checksum."""
    assert train(*TOKENS, "--workdir", "run") == 0
    run = Workdir("run")
    facts = json.loads(run.corpus.read_text())
    assert {*facts.pop("open")} == {
        *("block", "noise", "blocks_per_update", "alpha", "max_pairs_per_row")
    }
    run.corpus.write_text(json.dumps(facts))
    run.sums.unlink()
    assert train(*TOKENS, "--workdir", "run") == 0
    assert FINISHED in capsys.readouterr().out and len(plans) == 2


def test_a_damaged_finished_run_is_refused(plans, capsys):
    assert train(*TOKENS, "--workdir", "run") == 0
    capsys.readouterr()
    with open("run/config.toml", "a") as file:
        file.write("# changed\n")
    assert train(*TOKENS, "--workdir", "run") == 2
    assert "run is damaged: config.toml" in error_line(capsys) and len(plans) == 1


def test_a_run_that_is_overwritten_meanwhile_is_left_alone(monkeypatch, capsys):
    """Another process starts it anew while this one plans, without the lock."""
    assert train(*TOKENS, "--alpha", "0.1", "--workdir", "run") == 0
    plan = TablesProblem.plan

    def plan_late(self, *arguments):
        Workdir("run").vectors.unlink()
        return plan(self, *arguments)

    monkeypatch.setattr(TablesProblem, "plan", plan_late)
    before = Path("run/model.npz").read_bytes()
    capsys.readouterr()
    assert train(*TOKENS, "--workdir", "run") == 2
    assert "now another process writes there" in error_line(capsys)
    assert Path("run/model.npz").read_bytes() == before


def test_grow_needs_the_run_to_resume(capsys):
    assert train(*TOKENS, "--workdir", "run") == 0
    capsys.readouterr()
    assert train("--workdir", "run", "--grow") == 2
    assert "run was started without --grow: give --resume too." in error_line(capsys)
