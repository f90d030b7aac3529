import math

import pytest

from embedder.config import Config, with_options
from migration.parity.training import converters_stage
from tests.parity.cases import assert_pass


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float64"},
        {"max_pairs_per_row": math.inf, "architecture": "cbow"},
        {"optimizer": "adagrad"},
        {"optimizer": "adagrad", "architecture": "cbow", "dtype": "float64"},
    ],
    ids=["float32", "float64", "no_cap", "adagrad", "adagrad_cbow"],
)
def test_a_model_file_is_the_same_after_the_way_there_and_back(sequences, options):
    config = with_options(Config(), vector_size=8, min_count=2, **options)
    assert_pass(converters_stage(config, sequences))
