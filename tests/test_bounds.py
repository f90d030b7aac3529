"""What settings may be: flags, configs and estimators refuse the same."""

import functools
import math
import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest

from embedder import EmbeddingTrainer, FeatureEncoder
from embedder.config import make_config

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
    "architecture": (
        "'skipgram' or 'cbow'( or 'cbow-softmax')?",
        ["glove", "", "CBOW"],
    ),
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
OF_TRAINERS = {"cap": LIMIT, "optimizer": ("'sgd' or 'adagrad'", ["adam", "", "SGD"])}
RUNS = {  # settings of runs alone
    "max_pairs_per_row": LIMIT,
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
    "eval_every": RUNS["eval_every"],
    "patience": RUNS["patience"],
    "result": ("'last' or 'best'", ["first", ""]),
    "compute_dtype": ("'same' or 'bfloat16'", ["float16", ""]),
    "precision": ("'default' or 'high' or 'highest'", ["low"]),
}
OPTIONAL = ("alpha", "block", "blocks_per_update", "cap", "max_pairs_per_row", "noise")
OPTIONAL += ("learning_rate", "holdout")
X = np.ones((8, 3))


def config(**options) -> None:
    make_config(options)


def fit_encoder(**options) -> None:
    FeatureEncoder(**options).fit(X, ["a", "b"] * 4)


SURFACES = {
    "config": (TABLES | RUNS, config),
    "estimator": (TABLES | OF_TRAINERS, EmbeddingTrainer),
    "encoder config": (ENCODERS, functools.partial(config, model="encoder")),
    "encoder": (ENCODERS, fit_encoder),
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


@pytest.mark.row("B8")
@pytest.mark.parametrize(("use", "name", "rule", "values"), CASES)
def test_values_out_of_bounds_and_of_the_wrong_type_are_refused(
    use: Callable, name, rule, values
):
    of_wrong_types = [(value, TypeError) for value in wrong_types(name, rule)]
    for value, error in [*((value, ValueError) for value in values), *of_wrong_types]:
        with pytest.raises(error) as found:
            use(**{name: value})
        shown = re.escape(repr(value)).replace(r"np\.True_", r"(np\.True_|True)")
        assert re.fullmatch(
            f"`{name}` must be {rule}, got {shown}\\.", str(found.value)
        )
