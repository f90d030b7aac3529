"""Presets: defaults of a kind of data, which files and flags override."""

import inspect
import re
from pathlib import Path

import pytest

from embedder.api.token_estimator import EmbeddingTrainer
from embedder.cli.parsing import parse, settings
from embedder.config import Config, options_of
from embedder.config.presets import PRESETS, with_preset

NAMES = [name for name in PRESETS if name != "none"]


@pytest.fixture(autouse=True)
def own_folder(own_folder):
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
    trainer = EmbeddingTrainer.preset(name, seed=7)
    assert trainer.seed == 7
    of_fit = {"walks", "walk_length", "next_items"}
    of_trainer = {x: PRESETS[name][x] for x in {*PRESETS[name]} - of_fit}
    assert {x: getattr(trainer, x) for x in of_trainer} == of_trainer


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_what_the_documentation_says(name):
    page = Path(__file__).parents[1] / "docs/how-to/choose-settings.md"
    text = page.read_text()
    (flags,) = re.findall(rf"^\| `{name}` \|.*`(--.*)` \|", text, re.MULTILINE)
    preset = given("train", "text.txt", "--preset", name)
    assert given("train", "text.txt", *flags.split()) == preset


def test_a_file_and_then_flags_override_a_preset():
    Path("my.toml").write_text("[tokens]\nnegative = 7\nsample = 0.5\n")
    preset = ["train", "text.txt", "--preset", "items"]
    assert PRESETS["items"]["sample"] == 0 and PRESETS["items"]["negative"] != 7
    of_file = given(*preset, "--config", "my.toml")
    assert (of_file["negative"], of_file["sample"]) == (7, 0.5)
    assert of_file["epochs"] == PRESETS["items"]["epochs"]
    both = given(*preset, "--config", "my.toml", "--negative", "3")
    assert (both["negative"], both["sample"]) == (3, 0.5)


def test_walks_are_those_of_the_preset_unless_they_are_given():
    parameters = inspect.signature(EmbeddingTrainer.fit_graph).parameters
    walks = {name: parameters[name].default for name in ("walks", "walk_length")}
    assert walks.items() <= PRESETS["graph"].items()
