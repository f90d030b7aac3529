"""Settings of the oracle: what a check makes of them.

Their bounds are in tests/test_bounds.py, model files in tests/tables/test_file.py.
"""

import inspect
import math

import numpy as np
import pytest

from legacy import EmbeddingTrainer
from legacy.model import check_settings

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(EmbeddingTrainer).parameters.items()
}


def test_settings_become_python_values():
    given = {
        "window": np.int8(3),
        "sample": 0,
        "alpha": np.float32(0.5),
        "cap": math.inf,
        "dtype": np.str_("float64"),
    }
    checked = check_settings(DEFAULTS | given)
    expected = DEFAULTS | given | {"alpha": 0.5}
    assert checked == expected
    for name, kind in [("window", int), ("sample", float), ("dtype", str)]:
        assert type(checked[name]) is kind
    assert type(checked["alpha"]) is float


def test_min_alpha_is_bounded_by_the_alpha_of_the_architecture():
    assert check_settings(DEFAULTS | {"architecture": "cbow", "min_alpha": 0.1})
    with pytest.raises(ValueError, match="`min_alpha` must be"):
        check_settings(DEFAULTS | {"min_alpha": 0.026})
    with pytest.raises(ValueError, match="`min_alpha` must be"):
        check_settings(DEFAULTS | {"alpha": 1e-5})


def test_block_is_a_multiple_of_the_tile_given():
    assert check_settings(DEFAULTS | {"tile": 5, "block": 15})["block"] == 15
    with pytest.raises(ValueError, match="`block` must be .*, got 16"):
        check_settings(DEFAULTS | {"tile": 5, "block": 16})
