"""A run that goes on from another one's tables, on other text, and perhaps grows."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from embedder.api.token_estimator import EmbeddingTrainer
from embedder.cli.main import main
from embedder.config import read_toml
from embedder.config.token_objectives import ADAGRAD_ALPHA
from embedder.config.token_options import default_max_pairs_per_row
from embedder.tokens.artefact import ModelFile, read_model
from tests.commands import error_line, json_lines, train_runs

OLD = "a b c d a c a b\n" * 30
NEW = "e a f b e a z c\n" * 30 + "q\n"
OPTIONS = ["--loader", "memory", "--vector-size", "4", "--min-count", "2"]
OPTIONS += ["--sample", "0", "--epochs", "2"]


@pytest.fixture(autouse=True)
def own_folder(own_folder, made):
    """Every test has a copy of the finished run `old`, and more text."""
    shutil.copytree(made, own_folder, dirs_exist_ok=True)
    Path("more.txt").write_text(NEW)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "old.txt").write_text(OLD)
    train_runs(folder, old=f"old.txt {' '.join(OPTIONS)}")
    return folder


def resume(*options: str, run: str = "new") -> int:
    command = ["train", "more.txt", "--workdir", run, "--resume", "old"]
    return main([*command, *options])


def model(run: str) -> ModelFile:
    return read_model(Path(run, "model.npz"))


@pytest.mark.spread(1)
@pytest.mark.parametrize("schedule", ["continue", "restart"])
def test_no_epochs_leave_old_rows_and_add_new_ones(schedule):
    assert resume("--grow", "--epochs", "0", "--schedule", schedule) == 0
    old, new = model("old"), model("new")
    assert new.tokens == [*old.tokens, "e", "f", "z"]  # by count; q occurs once
    assert (new.input[:4] == old.input).all() and (new.output[:4] == old.output).all()
    fresh = EmbeddingTrainer(vector_size=4, min_count=1, epochs=0, sample=0)
    fresh.fit([["a"] * 9, ["b"] * 8, ["c"] * 7, ["d"] * 6, [*"efz"]])
    assert (new.input[4:] == fresh.vectors[4:]).all()
    start = old.output.mean(axis=0) if schedule == "continue" else np.zeros(4)
    np.testing.assert_allclose(new.output[4:], [start] * 3, rtol=1e-6)
    counts = dict(zip(new.tokens, new.counts.tolist(), strict=True))
    assert counts == {"a": 150, "b": 90, "c": 90, "d": 30, "e": 60, "f": 30, "z": 30}


def test_without_a_corpus_it_is_that_of_the_run(capsys):
    """Not the demo corpus; and not in the folder of the run itself."""
    assert main(["train", "--resume", "old", "--workdir", "new", "--epochs", "1"]) == 0
    texts = (Path(run, "corpus.json").read_text() for run in ("old", "new"))
    corpora = [*map(json.loads, texts)]
    assert corpora[0]["source"] == corpora[1]["source"] is not None
    assert corpora[0]["manifest"] == corpora[1]["manifest"]
    assert model("new").loss_history[:2] == model("old").loss_history


def test_rates_of_another_optimizer_are_not_those_of_the_run(capsys):
    """Nor is its state, and accumulators start at 0."""
    command = "--optimizer", "adagrad", "--epochs", "0"
    assert resume(*command) == resume(*command, "--min-alpha", "0.1", run="given") == 0
    message = "The optimizer is adagrad, that of the base sgd: the state of that"
    assert message in capsys.readouterr().err
    assert not any(x.any() for x in model("new").row_state.values())
    for run, least in (("new", 1e-4), ("given", 0.1)):
        settings = model(run).settings
        assert settings["cap"] is None and settings["alpha"] == ADAGRAD_ALPHA
        assert settings["min_alpha"] == least


@pytest.mark.slow
def test_whole_sessions_have_blocks_and_limits_of_their_own():
    """Not those that the run with a window of numbers was not given; and back."""
    assert resume("--window", "session", "--epochs", "1") == 0
    new = read_toml(Path("new/config.toml")).tables
    assert (new.window, new.block, new.noise) == ("session", 128, 256)
    expected = default_max_pairs_per_row(new.alpha, 128, 127)
    assert new.max_pairs_per_row == pytest.approx(expected)
    back = ["train", "more.txt", "--resume", "new", "--window", "5"]
    assert main([*back, "--workdir", "back"]) == 0
    old = read_toml(Path("back/config.toml")).tables
    assert (old.window, old.block, old.noise) == (5, 64, 32)
    given = ["train", "more.txt", "--workdir", "given", *OPTIONS, "--noise", "8"]
    assert main([*given, "--epochs", "0"]) == 0
    resumed = ["train", "--resume", "given", "--window", "session", "--epochs", "0"]
    assert main([*resumed, "--workdir", "own", "--block", "32"]) == 0
    own = read_toml(Path("own/config.toml")).tables
    assert (own.block, own.noise) == (32, 8)


def test_it_needs_its_base_no_more(stopped, capsys):
    """Neither where the base has gone, nor where it has changed."""
    assert resume("--grow") == 0
    stopped("more.txt", "--workdir", "cut", "--resume", "old", "--grow", epoch=3)
    shutil.move("old", "elsewhere")
    for run in ("cut", "new"):
        assert main(["train", "--workdir", run]) == 0
    assert Path("cut/model.npz").read_bytes() == Path("new/model.npz").read_bytes()
    command = ["train", "more.txt", "--workdir", "new", "--resume", "elsewhere"]
    capsys.readouterr()
    assert main([*command, "--grow"]) == 0
    assert "new: finished before" in capsys.readouterr().out


def test_another_base_is_refused(capsys):
    assert resume() == 0
    with np.load("old/model.npz") as members:
        arrays = dict(members)
    arrays["input"] = arrays["input"] + 1
    np.savez("old/model.npz", **arrays)
    capsys.readouterr()
    assert resume() == 2
    assert "`resume` of another run" in error_line(capsys)


def test_it_goes_on_from_adagrad_by_any_optimizer(stopped, capsys):
    """From a run, an unfinished one, or a model file; new rows start at 0."""
    adagrad = ["old.txt", *OPTIONS, "--optimizer", "adagrad", "--workdir"]
    assert main(["train", *adagrad, "old", "--overwrite"]) == 0
    assert resume("--grow", "--epochs", "0") == 0
    old, new = model("old"), model("new")
    assert new.settings["optimizer"] == "adagrad"
    assert {*new.row_state} == {"input_accumulator", "output_accumulator"}
    for name, accumulator in old.row_state.items():
        assert (accumulator > 0).all()
        np.testing.assert_array_equal(new.row_state[name], [*accumulator, 0, 0, 0])
    capsys.readouterr()
    assert resume("--epochs", "0", "--optimizer", "sgd", run="sgd") == 0
    assert "The optimizer is sgd, that of the base adagrad" in capsys.readouterr().err
    np.testing.assert_array_equal(model("sgd").input, old.input)
    assert not model("sgd").row_state
    stopped(*adagrad, "half")
    for base in ("half", "old/model.npz"):
        command = ["train", "more.txt", "--workdir", f"of-{base[:3]}", "--resume", base]
        assert main([*command, *OPTIONS, "--optimizer", "adagrad"]) == 0
        kept = model(f"of-{base[:3]}")
        assert len(kept.row_state) == 2 and len(kept.loss_history) > 2


def test_settings_and_epochs_go_on_from_those_of_the_run():
    assert resume("--window", "3", "--grow") == 0
    old, new = model("old"), model("new")
    assert new.settings == old.settings | {"window": 3}
    known = [new.tokens.index(token) for token in "abc"]
    assert (new.input[known] != old.input[known]).any(axis=1).all()
    assert new.output[4:].any(axis=1).all() and len(new.loss_history) == 4
    assert [line["epoch"] for line in json_lines("new/metrics.jsonl")] == [3, 4]
