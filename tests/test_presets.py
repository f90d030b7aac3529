"""Presets: defaults of a kind of data, which files and flags override."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.config import Config, options_of
from embedder.parsing import parse, settings
from embedder.presets import PRESETS, with_preset
from embedder.tables.estimator import EmbeddingTrainer
from embedder.vectors.export import read_vectors
from tests.commands import error_line

NAMES = [name for name in PRESETS if name != "none"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("tea milk sugar\nnail hammer screw\n" * 60)


def given(*arguments: str) -> dict:
    """The settings of a command line by flat names."""
    verb = parse([*arguments])
    return options_of(settings(verb))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_changes_what_it_names_and_nothing_else(name):
    expected = options_of(Config()) | PRESETS[name]
    assert given("train", "text.txt", "--preset", name) == expected
    assert given("sweep", "space.toml", "text.txt", f"--preset={name}") == expected
    assert options_of(with_preset(Config(), name)) == expected


def test_a_file_and_then_flags_override_a_preset():
    Path("my.toml").write_text("[tokens]\nnegative = 7\nsample = 0.5\n")
    preset = ["train", "text.txt", "--preset", "items"]
    assert PRESETS["items"]["sample"] == 0 and PRESETS["items"]["negative"] != 7
    of_file = given(*preset, "--config", "my.toml")
    assert (of_file["negative"], of_file["sample"]) == (7, 0.5)
    assert of_file["epochs"] == PRESETS["items"]["epochs"]
    both = given(*preset, "--config", "my.toml", "--negative", "3")
    assert (both["negative"], both["sample"]) == (3, 0.5)


def test_the_settings_are_in_the_plan_and_the_same_command_resumes(capsys):
    command = ["train", "text.txt", "--preset", "items", "--vector-size", "4"]
    command += ["--min-count", "1", "--loader", "memory", "--workdir", "run"]
    assert main([*command, "--dry-run"]) == 0
    assert f"negative = {PRESETS['items']['negative']}" in capsys.readouterr().out
    assert main(command) == 0
    capsys.readouterr()
    assert main(command) == 0
    assert "run: finished before" in capsys.readouterr().out
    assert main(["train", "--workdir", "run"]) == 0
    assert "run: finished before" in capsys.readouterr().out


def test_a_preset_is_new_settings_for_a_run_with_others(capsys):
    command = ["train", "text.txt", "--min-count", "1", "--loader", "memory"]
    command += ["--workdir", "run"]
    assert main(command) == 0
    capsys.readouterr()
    for source in (command, ["train", "--workdir", "run"]):
        assert main([*source, "--preset", "items"]) == 2
        line = error_line(capsys)
        assert f"`negative` 5 there, {PRESETS['items']['negative']} now" in line


def test_an_encoder_has_no_preset(capsys):
    message = "`preset` applies only to `model` = 'tokens', got 'items' with 'encoder'."
    Path("my.toml").write_text('[run]\nmodel = "encoder"\n')
    for flags in (["--model", "encoder"], ["--config", "my.toml"]):
        assert main(["train", "text.txt", "--preset", "items", *flags]) == 2
        assert message in error_line(capsys)


def test_an_unknown_preset_is_refused_with_the_known_ones(capsys):
    assert main(["train", "text.txt", "--preset", "item"]) == 2
    line = error_line(capsys)
    assert "'item'" in line and all(repr(name) in line for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_has_the_settings_of_a_preset(name):
    trainer = EmbeddingTrainer.preset(name, seed=7)
    assert trainer.seed == 7
    arguments = {f.name for f in dataclasses.fields(Config().tables)} | {"epochs"}
    assert {*PRESETS[name]} <= arguments
    for key, value in PRESETS[name].items():
        if key not in ("walks", "walk_length"):
            assert getattr(trainer, key) == value


@pytest.mark.parametrize("name", ["item", None, 3])
def test_a_trainer_of_an_unknown_preset_is_refused(name):
    with pytest.raises((TypeError, ValueError), match="`preset` must be .*'items'"):
        EmbeddingTrainer.preset(name)


def test_a_trainer_of_a_preset_has_the_vectors_of_the_command():
    """Also the noise tokens, which are others for whole sessions."""
    command = ["train", "text.txt", "--preset", "items", "--vector-size", "4"]
    command += ["--min-count", "1", "--loader", "memory", "--workdir", "run"]
    assert main(command) == 0
    trainer = EmbeddingTrainer.preset("items", vector_size=4, min_count=1)
    trainer.fit("text.txt")
    run = read_vectors("run/vectors.safetensors")
    assert run.keys == trainer.index_to_key
    np.testing.assert_array_equal(run.matrix, trainer.vectors)


def test_the_walks_of_a_preset_are_the_defaults_of_fit_graph():
    defaults = EmbeddingTrainer.fit_graph.__wrapped__.__defaults__
    graph = PRESETS["graph"]
    assert defaults == (graph["walks"], graph["walk_length"])
