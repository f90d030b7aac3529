"""Spaces of settings: what a file means, and what it must not have."""

import re

import numpy as np
import pytest

from embedder.config import Config, with_options
from embedder.errors import InputError
from embedder.sweep.space import (
    Choices,
    Range,
    grid,
    is_grid,
    read_space,
    values_of,
    with_settings,
)

TOKENS = Config()
ENCODER = with_options(Config(), model="encoder", optimizer_args=["nesterov=true"])


def space_of(tmp_path, text: str, config: Config = TOKENS):
    path = tmp_path / "space.toml"
    path.write_text(text)
    return read_space(path, config)


def test_lists_are_values_and_tables_are_ranges(tmp_path):
    space = space_of(
        tmp_path,
        """
        window = [2, 5]
        alpha = { low = 0.01, high = 0.1, scale = "log" }
        negative = { low = 2, high = 20 }
        """,
    )
    assert [*space] == ["window", "alpha", "negative"]
    assert space["window"] == Choices((2, 5))
    assert space["alpha"] == Range(0.01, 0.1, is_log=True, is_integer=False)
    assert space["negative"] == Range(2, 20, is_log=False, is_integer=True)
    assert not is_grid(space)


def test_steps_make_a_range_a_list(tmp_path):
    space = space_of(
        tmp_path,
        """
        sample = { low = 1e-5, high = 1e-2, scale = "log", steps = 4 }
        window = { low = 2, high = 4, steps = 9 }
        """,
    )
    assert is_grid(space)
    sample, window = space["sample"], space["window"]
    assert isinstance(sample, Choices) and isinstance(window, Choices)
    np.testing.assert_allclose(sample.values, [1e-5, 1e-4, 1e-3, 1e-2], rtol=1e-12)
    assert window.values == (2, 3, 4)


def test_a_grid_is_all_combinations(tmp_path):
    space = space_of(tmp_path, "window = [2, 5]\nseed = [1, 2, 3]")
    found = grid(space)
    assert len(found) == 6
    assert found[:2] == [{"window": 2, "seed": 1}, {"window": 2, "seed": 2}]


def test_former_names_are_those_of_now(tmp_path):
    assert [*space_of(tmp_path, "cap = [8.0]")] == ["max_pairs_per_row"]


def test_other_names_are_arguments_of_the_optimizer_of_an_encoder(tmp_path):
    space = space_of(tmp_path, "momentum = [0.0, 0.9]\nlayers = [[4, 8, 2]]", ENCODER)
    settings = {"momentum": 0.9, "layers": (4, 8, 2)}
    assert grid(space)[1] == settings
    config = with_settings(ENCODER, settings)
    assert config.encoder.layers == (4, 8, 2)
    assert config.encoder.optimizer_args == ("nesterov=true", "momentum=0.9")
    assert values_of(config, space) == settings
    assert values_of(ENCODER, space) == {"momentum": None, "layers": ()}


@pytest.mark.row("B8", "B14")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it names no setting to try."),
        ("alpha = [", "Unclosed array|Invalid value|Unexpected"),
        ("alhpa = [0.1]", "Unknown option `alhpa`, did you mean `alpha`?"),
        ("alpha = 0.1", "`alpha` must be a list of values, or a range"),
        ("alpha = []", "`alpha` must be a list of values, or a range"),
        ("alpha = [0.1, -1]", "`alpha` must be a finite number > 0, got -1."),
        ("window = [2.5]", "from 1 to 127 or 'session', got 2.5."),
        ("window = {low = 1}", "the range of `window` must have low and high"),
        ("window = {low = 1, high = 9, step = 2}", "may have scale and steps, got low"),
        ("window = {low = 9, high = 1}", "low of `window` must be less than high"),
        ("window = {low = 1, high = 500}", "from 1 to 127 or 'session', got 500."),
        ("window = {low = 1.5, high = 3}", "of `window` must be integers, got 1.5"),
        ("alpha = {low = 'a', high = 3}", "of `alpha` must be numbers, got 'a'."),
        ("alpha = {low = nan, high = 1.0}", "must be less than high, got nan"),
        ("alpha = {low = 0.1, high = 1, scale = 'ln'}", "must be 'lin' or 'log', got"),
        (
            "sample = {low = 0, high = 1, scale = 'log'}",
            "must be > 0 with 'log', got 0",
        ),
        ("alpha = {low = 0.1, high = 1, steps = 1}", "must be an integer >= 2, got 1."),
        ("cap = [1]\nmax_pairs_per_row = [2]", "`max_pairs_per_row` is given twice."),
        ("learning_rate = [0.1]", "applies only to `model` = 'encoder'"),
        ("momentum = [0.1]", "Unknown option `momentum`"),
        ("replicas = [2]", "`replicas` cannot be tried: give it as a flag"),
        ("unicode_errors = ['replace']", "the data are opened once for all trials"),
        ("best_by = ['a.tsv']", "give the set as --score pairs"),
        (
            "min_count = [2]",
            "`min_count` cannot be tried: trials are compared with the same vocabulary",
        ),
        (
            "epochs = [2]",
            "`epochs` cannot be tried: trials are compared after the same",
        ),
        ("holdout = [0.1]", "`holdout` cannot be tried"),
        ("threads = [1]", "`threads` cannot be tried: it does not change the vectors."),
    ],
)
def test_a_wrong_space_is_one_line(tmp_path, text, message):
    with pytest.raises(InputError) as error:
        space_of(tmp_path, text)
    assert str(error.value).startswith(f"SPACE {tmp_path / 'space.toml'}: ")
    assert re.search(
        message if "|" in message else re.escape(message), str(error.value)
    )
    assert "\n" not in str(error.value)


def test_a_grid_that_is_too_large_is_refused(tmp_path):
    many = ", ".join(map(str, range(1, 102)))
    with pytest.raises(InputError, match="10201 combinations, more than 10000"):
        space_of(tmp_path, f"window = [{many}]\nnegative = [{many}]")
