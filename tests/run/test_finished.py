"""A finished run answers before it reads its corpus, and refuses other settings;
names of settings of earlier versions are known."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from embedder.api import families
from embedder.cli.main import main
from embedder.cli.parsing import parse, settings
from embedder.data import encode
from embedder.encoders.task import EncoderTask
from embedder.tokens.task import TokensTask
from tests.commands import error_line

FAST = ["--loader", "memory", "--min-count", "2", "--vector-size", "4", "--epochs", "1"]
TOKENS = ["text.txt", *FAST]
ENCODER = ["examples.npz", "--model", "encoder", "--loader", "memory", "--epochs", "1"]
ENCODER += ["--no-report"]


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text("a b c d a c a b\n" * 30)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", x=rng.random((40, 4)), y=np.arange(40) % 2)


def train(*arguments: str, run: str = "run") -> int:
    return main(["train", *arguments, "--workdir", run])


def is_known(capsys, *arguments: str, run: str = "run") -> bool:
    capsys.readouterr()
    assert train(*arguments, run=run) == 0
    return "finished before" in capsys.readouterr().out


@pytest.fixture
def plans(monkeypatch) -> list[str]:
    """The plans that were made since the fixture was set up."""
    made: list[str] = []
    for kind in (TokensTask, EncoderTask):

        def plan(self, *arguments, before=kind.plan):
            made.append(type(self).__name__)
            return before(self, *arguments)

        monkeypatch.setattr(kind, "plan", plan)
    return made


@pytest.mark.spread(1)
@pytest.mark.parametrize("command", [TOKENS, ENCODER], ids=["tokens", "encoder"])
def test_a_finished_run_is_not_planned_again(command, plans, capsys):
    assert train(*command) == 0
    before = Path("run/vectors.safetensors").stat().st_mtime_ns
    assert is_known(capsys, *command) and is_known(capsys)
    assert len(plans) == 1
    assert Path("run/vectors.safetensors").stat().st_mtime_ns == before


def test_no_line_of_the_corpus_is_read_again_and_it_is_opened_once(monkeypatch, capsys):
    opened = []

    def open_task(*arguments):
        opened.append(arguments)
        return families.open_task(*arguments)

    def chunks(*arguments):
        raise AssertionError("the corpus is read")

    monkeypatch.setattr("embedder.api.train.open_task", open_task)
    assert train(*TOKENS) == 0 and len(opened) == 1
    monkeypatch.setattr(encode, "_count_tokens", chunks)
    assert is_known(capsys, *TOKENS)


def test_settings_are_compared_as_they_were_resolved(plans, capsys):
    assert train(*TOKENS) == 0
    assert is_known(capsys, *TOKENS, "--alpha", "0.1", "--block", "64")
    assert train(*TOKENS, "--window", "3", "--alpha", "0.07") == 2
    found = "other settings: `window` 5 there, 3 now, `alpha` 0.1 there, 0.07 now. Give"
    assert found in error_line(capsys) and len(plans) == 1  # before it is planned
    assert train(*TOKENS, "--alpha", "0.1", run="same") == 0
    assert is_known(capsys, *TOKENS, run="same") and len(plans) == 3
    assert train(*TOKENS, "--alpha", "0.04", run="other") == 0
    capsys.readouterr()
    assert train(*TOKENS, run="other") == 2
    assert "`alpha` 0.04 there, 0.1 now" in error_line(capsys)


def test_a_changed_corpus_or_run_is_refused(capsys, plans):
    assert train(*TOKENS) == 0
    capsys.readouterr()
    os.utime("text.txt", (1, 1))  # the same bytes are the same corpus at any time
    assert is_known(capsys, *TOKENS)
    text = Path("text.txt").read_text()
    Path("text.txt").write_text(text[::-1])
    assert train(*TOKENS) == 2
    assert "another corpus (other content of text.txt)" in error_line(capsys)
    Path("text.txt").write_text(text)
    with open("run/config.toml", "a") as file:
        file.write("# changed\n")
    assert train(*TOKENS) == 2
    assert "run is damaged: config.toml" in error_line(capsys) and len(plans) == 1


def test_a_run_that_is_overwritten_meanwhile_is_left_alone(monkeypatch, capsys):
    """Another process starts it anew while this one plans, without the lock."""
    assert train(*TOKENS, "--alpha", "0.1") == 0
    plan = TokensTask.plan

    def plan_late(self, *arguments):
        Path("run/vectors.safetensors").unlink()
        return plan(self, *arguments)

    monkeypatch.setattr(TokensTask, "plan", plan_late)
    before = Path("run/model.npz").read_bytes()
    capsys.readouterr()
    assert train(*TOKENS) == 2
    assert "now another process writes there" in error_line(capsys)
    assert Path("run/model.npz").read_bytes() == before


def test_names_of_the_numpy_trainer_are_read(capsys):
    one, other = "--cap 7", "--max-pairs-per-row 7"
    one, other = (parse(["train", *x.split()]) for x in (one, other))
    assert settings(one) == settings(other)
    found = settings(parse(["train", "--best-by", "cap"]))
    assert found.tables.best_by.endswith("/cap")  # a value of another flag
    assert main(["train", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--max-pairs-per-row" in printed and "--cap" not in printed


def test_a_run_without_the_settings_that_were_open_is_planned(plans, capsys):
    """Of a version before, which did not write them, nor their checksum."""
    assert train(*TOKENS) == 0
    facts = json.loads(Path("run/corpus.json").read_text())
    assert facts.pop("open")
    Path("run/corpus.json").write_text(json.dumps(facts))
    Path("run/SHA256SUMS").unlink()
    assert is_known(capsys, *TOKENS) and len(plans) == 2
