import pytest

from embedder.config import Config, with_options
from migration.parity.training import resume_stage
from tests.parity.cases import assert_pass


@pytest.mark.spread(2)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "optimizer", ["sgd", pytest.param("adagrad", marks=pytest.mark.slow)]
)
def test_training_goes_on_from_a_file_of_either_program(
    sequences, architecture, dtype, optimizer
):
    config = with_options(
        Config(),
        architecture=architecture,
        dtype=dtype,
        optimizer=optimizer,
        vector_size=8,
        min_count=2,
        block=32,
    )
    assert_pass(resume_stage(config, sequences))
