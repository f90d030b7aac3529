"""Runs that start from the vectors of a file, and runs with frozen rows."""

import logging
from pathlib import Path

import numpy as np
import pytest

from embedder.cli.main import main
from embedder.config import read_toml
from embedder.tokens.artefact import ModelFile, read_model
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import error_line

OPTIONS = ["--loader", "memory", "--vector-size", "5", "--min-count", "1"]
OPTIONS += ["--epochs", "2", "--blocks-per-update", "3", "--block", "32"]
KNOWN = [f"w{i}" for i in range(40)]


@pytest.fixture(autouse=True)
def own_folder(own_folder, text_file):
    """Every test has a text, and vectors of 40 of its 60 tokens and of 3 others."""
    rng = np.random.default_rng(3)
    keys = [*KNOWN, "x", "y", "z"]
    matrix = rng.normal(size=(43, 5)).astype(np.float32)
    write_vectors(Vectors(keys, matrix), "given.npz")


def train(*options: str, run: str = "run") -> int:
    return main(["train", "corpus.txt", "--workdir", run, *OPTIONS, *options])


def model(run: str = "run") -> ModelFile:
    return read_model(Path(run, "model.npz"))


def test_a_dry_run_says_what_starts_and_what_is_frozen(capsys):
    num = len({*Path("corpus.txt").read_text().split()})
    for freeze, frozen in (("all", num), ("known", 40)):
        assert train("--init-from", "given.npz", "--freeze", freeze, "--dry-run") == 0
        printed = capsys.readouterr().out
        assert f"start: 40 of {num} rows (" in printed
        assert f"frozen: {frozen} of {num} rows of the input table\n" in printed
        assert "row factors" in printed and "vectors to start from" in printed
    assert not Path("run").exists()


def test_rows_of_a_file_are_frozen(caplog):
    caplog.set_level(logging.INFO)
    Path("keys.txt").write_text("w3\nw7\n\nnobody\nw3\r\n")
    assert train("--epochs", "0", run="start") == 0
    assert train("--freeze", "keys.txt", run="two") == 0
    moved = (model("two").input != model("start").input).any(axis=1)
    still = {model("two").tokens[i] for i in np.flatnonzero(~moved)}
    assert {"w3", "w7"} <= still and moved.mean() > 0.8
    said = f"frozen: 2 of {len(moved)} rows of the input table; 1 of 3 keys of "
    said += f"{Path('keys.txt').absolute()} are unknown"
    assert said in caplog.messages


@pytest.mark.slow
@pytest.mark.parametrize("grow", [True, False])
def test_old_rows_are_frozen_when_a_run_goes_on(grow):
    assert train(run="old") == 0
    Path("more.txt").write_text("w1 new w2 new w3 other\n" * 60)
    command = ["train", "more.txt", "--resume", "old", "--workdir", "run"]
    options = ["--freeze", "known", *["--grow"] * grow]
    assert main([*command, *options]) == 0
    old, new = model("old"), model()
    assert new.input[: len(old.tokens)].tobytes() == old.input.tobytes()
    assert (new.output[: len(old.tokens)] != old.output).any()
    assert main([*command[:-1], "next"]) == 0  # it is not inherited
    assert read_toml(Path("next/config.toml")).tables.freeze == ""
    after = ["train", "--resume", "run", "--workdir", "after", "--epochs", "1"]
    assert main(after) == 0
    assert (model("after").input != new.input).any()


@pytest.mark.spread(1)
@pytest.mark.row("B36", "B16")
@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--init-from", "given.npz"], "`init_from` of other vectors"),
        (["--freeze", "keys.txt"], "`freeze` of other rows"),
    ],
)
def test_a_changed_file_is_another_run(stopped, capsys, options, what, is_stopped):
    Path("keys.txt").write_text("w1\n")
    if is_stopped:
        stopped("corpus.txt", "--workdir", "run", *OPTIONS, *options)
    else:
        assert train(*options) == 0
    capsys.readouterr()
    vectors = read_vectors("given.npz")
    write_vectors(Vectors(vectors.keys, vectors.matrix * 2), "given.npz")
    Path("keys.txt").write_text("w2\n")
    for now in (options, []):
        assert train(*now) == 2
        assert f"{what} (--workdir alone resumes its own)" in error_line(capsys)
    assert main(["train", "--workdir", "run"]) == 0  # with what it has kept
