"""Trainings that go wrong stop, and nothing of it becomes a result."""

import re
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.run.checkpoints import Checkpoints
from embedder.vectors.export import read_vectors
from tests.commands import error_line

TABLES = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
TABLES += ["--sample", "0", "--max-pairs-per-row", "inf", "--alpha", "1e30"]
ADAGRAD = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
ADAGRAD += ["--sample", "0", "--optimizer", "adagrad", "--alpha", "1e30"]
ENCODER = ["--model", "encoder", "--loader", "memory", "--learning-rate", "1e30"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b c d a c\n" * 400)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.normal(size=(90, 4)), y=rng.integers(3, size=90))


def train(source: str, *options: str) -> int:
    command = ["train", source, "--workdir", "run", "--save-every", "4"]
    return main([*command, *options])


def checkpoints() -> list[int]:
    return Checkpoints(Path("run/checkpoints")).steps()


@pytest.mark.spread(1)
@pytest.mark.row("F17")
@pytest.mark.parametrize(
    ("source", "options", "setting"),
    [
        ("text.txt", TABLES, "`alpha` or `max_pairs_per_row`"),
        ("text.txt", ADAGRAD, "Give a smaller `alpha`."),
        ("examples.npz", ENCODER, "`learning_rate`"),
    ],
    ids=["tables", "adagrad", "encoder"],
)
def test_what_is_not_finite_ends_the_run_with_the_setting(
    capsys, source, options, setting
):
    assert train(source, *options) == 3
    assert setting in error_line(capsys)
    names = {path.name for path in Path("run").iterdir()}
    assert not names & {"vectors.txt", "vectors.safetensors", "model.npz"}
    for step in checkpoints():
        for array in Checkpoints(Path("run/checkpoints")).read(step).arrays.values():
            assert np.isfinite(array).all()


@pytest.mark.slow
@pytest.mark.row("F17")
def test_the_step_and_the_loss_before_are_named(capsys):
    """Long before the end of the epoch, whose blocks would take days."""
    Path("text.txt").write_text("a b c d a c\n" * 40_000)
    assert train("text.txt", *TABLES, "--save-every", "never") == 3
    line = error_line(capsys)
    found = re.search(r"The loss near update ([0-9]+) is (nan|inf), of the epoch", line)
    assert found and int(found[1]) < 3000
    assert "before none: training diverged. Give a smaller" in line


@pytest.mark.slow
@pytest.mark.row("F17")
def test_the_last_checkpoint_goes_on_with_a_smaller_rate(stopped, capsys):
    """Rolling back is a new run, from what was still good."""
    stopped("text.txt", "--workdir", "run", *TABLES[:-4], "--epochs", "3")
    (newest, *_) = checkpoints()
    smaller = ["--resume", "run", "--workdir", "next", "--alpha", "0.01"]
    assert main(["train", "text.txt", *smaller]) == 0
    said = capsys.readouterr().err
    assert f"run is not finished: its checkpoint {newest} is used." in said
    assert "Starts from the vectors of 4 tokens; 0 are new" in said
    assert np.isfinite(read_vectors("next/vectors.safetensors").matrix).all()


@pytest.mark.slow
@pytest.mark.row("F18")
def test_gradients_of_zero_are_said(capsys):
    """The rate is too small to change a bit."""
    np.savez("examples.npz", X=-np.ones((8, 2)), y=np.arange(8) % 2)
    options = ["--model", "encoder", "--loader", "memory", "--learning-rate", "1e-30"]
    assert train("examples.npz", *options, "--save-every", "never") == 0
    said = capsys.readouterr().err
    assert "The loss of epoch 2 equals that of the epoch before to the last bit" in said


@pytest.mark.row("F18")
def test_a_corpus_without_pairs_is_said(capsys):
    Path("text.txt").write_text("a\nb\nc\n" * 20)
    assert train("text.txt", *TABLES[:-4]) == 0
    assert "nothing is learned" in capsys.readouterr().err
