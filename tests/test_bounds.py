"""What settings may be: flags, configs, estimators and the oracle refuse the same."""

import math
import os
import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest

import embedder
import legacy
from embedder.cli import main
from embedder.config import Config, with_options
from tests.commands import error_line

COUNT = "an integer >= 1"
SEED = (r"(an integer )?from 0 to 2\*\*64 - 1", [-1, 2**64])
TABLES = {  # a pattern of the rule, and values that break it
    "vector_size": (COUNT, [0, -1]),
    "window": ("an integer from 1 to 127( or .session.)?", [0, 128]),
    "negative": ("an integer >= 1, or 0 with `hs`", [0, -1]),
    "hs": ("True or False", []),
    "cbow_mean": ("True or False", []),
    "min_count": (COUNT, [0, -5]),
    "sample": ("a number from 0 to 1", [-0.1, 1.1, math.nan, math.inf]),
    "ns_exponent": ("a finite number", [math.nan, math.inf, -math.inf, 10**400]),
    "alpha": ("a finite number > 0", [0.0, -1, math.nan, math.inf, 10**400]),
    "min_alpha": ("a number from 0 to `alpha`", [-1e-9, 0.5, math.nan]),
    "epochs": ("an integer >= 0", [-1]),
    "architecture": ("'skipgram' or 'cbow'", ["glove", "", "CBOW"]),
    "seed": SEED,
    "workers": (COUNT, [0]),
    "block": ("a positive multiple of `tile`", [0, -16, 15, 17]),
    "tile": (COUNT, [0]),
    "noise": (COUNT, [0]),
    "blocks_per_update": (COUNT, [0]),
    "dtype": ("'float32' or 'float64'", ["float16", "f4"]),
    "buckets": ("an integer from 1 to 2147483647", [0, 2**31]),
}
EVERY = ["often", "", "-1", "0epochs", "1.5h", 0, -3]
LIMIT = ("a number > 0", [0, -1.0, math.nan])
ESTIMATORS = TABLES | {
    "cap": LIMIT,
    "optimizer": ("'sgd' or 'adagrad'", ["adam", "", "SGD"]),
}
CONFIGS = TABLES | {"max_pairs_per_row": LIMIT}
RUNS = {  # settings of runs alone
    "bootstrap": ("True or False", []),
    "holdout": (r"a number in \[0, 1\)", [-0.1, 1, math.nan]),
    "loader": ("'auto' or 'tfdata' or 'memory'", ["torch"]),
    "update": ("'rows' or 'dense'", ["all"]),
    "save_every": ("a number of updates, a time as 30s, .*or never", ["10 days", 0]),
    "eval_every": ("a number of updates, a time as 30s, .*or never", EVERY),
    "patience": ("an integer >= 0", [-1]),
    "keep": (COUNT, [0]),
    "report": ("True or False", []),
    "walks": ("an integer >= 0", [-1]),
    "walk_length": ("an integer from 2 to 2000000", [0, 1, 2_000_001]),
    "p": ("a number from 1e-06 to 1000000.0", [0, -1.0, 1e-7, math.inf, math.nan]),
    "q": ("a number from 1e-06 to 1000000.0", [0, -1.0, 1e7, math.inf, math.nan]),
}
ENCODERS = {
    "learning_rate": ("a finite number > 0", [0, -0.1, math.nan, math.inf]),
    "batch_size": (COUNT, [0, -1]),
    "epochs": ("an integer >= 0", [-1]),
    "validation_fraction": (r"a number in \[0, 1\)", [-0.1, 1, math.nan]),
    "seed": SEED,
    "workers": (COUNT, [0, -2]),
    "dtype": ("'?float32'? or '?float64'?", ["float16", "f4", ""]),
}
PORT_OF_ENCODERS = ENCODERS | {
    **{name: RUNS[name] for name in ("eval_every", "patience")},
    "result": ("'last' or 'best'", ["first", ""]),
    "compute_dtype": ("'same' or 'bfloat16'", ["float16", ""]),
    "precision": ("'default' or 'high' or 'highest'", ["low"]),
}
OPTIONAL = ("alpha", "block", "blocks_per_update", "cap", "max_pairs_per_row", "noise")
OPTIONAL += ("learning_rate",)  # of the port; the oracle has no rules with other rates
X = np.random.default_rng(0).normal(size=(8, 3))


def fit_encoder(kind, options: dict) -> None:
    kind(**options).fit(X, ["a", "b"] * 4)


def config(options: dict) -> None:
    with_options(Config(), **options)


def config_of_encoder(options: dict) -> None:
    with_options(Config(), model="encoder", **options)


SURFACES = {
    "config": (CONFIGS | RUNS, config),
    "estimator": (
        ESTIMATORS,
        lambda each: embedder.EmbeddingTrainer(**each),
    ),
    "oracle": (ESTIMATORS, lambda each: legacy.EmbeddingTrainer(**each)),
    "encoder config": (PORT_OF_ENCODERS, config_of_encoder),
    "encoder": (
        PORT_OF_ENCODERS,
        lambda each: fit_encoder(embedder.FeatureEncoder, each),
    ),
    "oracle encoder": (ENCODERS, lambda each: fit_encoder(legacy.FeatureEncoder, each)),
}
CASES = [
    pytest.param(use, name, *rules[name], id=f"{surface}-{name}")
    for surface, (rules, use) in SURFACES.items()
    for name in rules
]


def wrong_types(name: str, rule: str) -> list:
    values = [np.True_, [1], 1j, np.ones(1), Decimal(1)]
    values += [1, "True"] if rule == "True or False" else [True]
    is_text = "'" in rule or "never" in rule
    values += [] if is_text else ["1"]
    values += [] if name in OPTIONAL else [None]
    values += [] if "number" in rule and "never" not in rule else [1.5]
    return values


def check_refused(use: Callable, name: str, rule: str, value, error: type) -> None:
    with pytest.raises(error) as found:
        use({name: value})
    shown = re.escape(repr(value)).replace(r"np\.True_", r"(np\.True_|True)")
    assert re.fullmatch(f"`{name}` must be {rule}, got {shown}\\.", str(found.value))


@pytest.mark.row("B8")
@pytest.mark.parametrize(("use", "name", "rule", "values"), CASES)
def test_values_out_of_bounds_are_refused(use, name, rule, values):
    for value in values:
        check_refused(use, name, rule, value, ValueError)


@pytest.mark.parametrize(("use", "name", "rule", "values"), CASES)
def test_values_of_the_wrong_type_are_refused(use, name, rule, values):
    for value in wrong_types(name, rule):
        check_refused(use, name, rule, value, TypeError)


def test_the_oracle_needs_a_learning_rate():
    with pytest.raises(TypeError, match="`learning_rate` must be .* got None"):
        fit_encoder(legacy.FeatureEncoder, {"learning_rate": None})


@pytest.mark.spread(5)
@pytest.mark.row("B8")
@pytest.mark.parametrize(
    ("family", "name", "rule", "values"),
    [
        pytest.param(family, name, *rule, id=f"{family}-{name}")
        for family, rules in (("tokens", CONFIGS), ("encoder", ENCODERS))
        for name, rule in rules.items()
        if name not in ("architecture", "dtype")  # choices: `test_cli` has them
    ],
)
def test_flags_out_of_bounds_are_one_line(
    tmp_path, monkeypatch, capsys, family, name, rule, values
):
    monkeypatch.chdir(tmp_path)
    flag = f"--{name.replace('_', '-')}"
    for value in values:
        if value == 10**400:  # as a flag it is inf
            continue
        shown = float(value) if "number" in rule else value
        code = main(["train", "corpus", "--model", family, flag, str(value)])
        line = error_line(capsys)
        assert code == 2 and re.search(f"`{name}` must be {rule}, got {shown}", line)
    assert os.listdir() == []
