"""Hierarchical softmax: every stage with it, alone and beside negative sampling."""

import math

import pytest

from embedder.config import Config, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from migration.parity import continued, replicas, training, updates
from tests.pairs import pairwise
from tests.parity.cases import CASES, Case, assert_pass

MANY = Case("many", 200, (100, 2, 32), tile=8, noise=6, window=5, padding=11)
SMALL = {"loader": "memory", "vector_size": 8, "min_count": 2, "block": 32, "hs": True}

ALL = {"case": CASES, "architecture": ["skipgram", "cbow"], "negative": [0, 5]}
ONE = {name: ALL[name] for name in ("architecture", "negative")}
WAYS = [
    {},
    {"update": "dense"},
    {"cap": math.inf},
    {"dtype": "float32"},
    {"optimizer": "adagrad"},
    {"optimizer": "adagrad", "update": "dense"},
    {"update": "kernel"},
    {"update": "kernel", "cap": math.inf, "dtype": "float32"},
    {"update": "kernel", "optimizer": "adagrad"},
]
EPOCHS = [
    {},
    {"update": "dense"},
    {"optimizer": "adagrad"},
    {"dtype": "float32"},
    {"backend": "numba"},
]
negatives = pytest.mark.parametrize("negative", [0, 5])


def small(**options) -> Config:
    return with_options(Config(), **SMALL | {"dtype": "float64"} | options)


@pytest.mark.spread(2)
@pairwise(**ALL)
def test_loss_is_that_of_the_oracle_and_of_the_equation(case, architecture, negative):
    sample = case.sample(architecture, hs=True, negative=negative)
    assert_pass(updates.loss_stage(sample))


@pytest.mark.spread(3)
@pairwise(**ALL)
def test_gradients_and_weights_are_those_of_the_oracle(case, architecture, negative):
    sample = case.sample(architecture, hs=True, negative=negative)
    assert_pass(updates.gradients_stage(sample))


@pytest.mark.spread(2)
@pairwise(**ALL, update=["rows", "kernel"])
def test_tables_are_those_of_the_oracle(case, architecture, negative, update):
    sample = case.sample(architecture, hs=True, negative=negative, update=update)
    assert_pass(updates.updates_stage("one update", sample))


@pytest.mark.spread(2)
@pairwise(options=WAYS, **ONE)
def test_tables_after_100_updates_are_those_of_the_oracle(
    architecture, negative, options
):
    sample = MANY.sample(architecture, hs=True, negative=negative, **options)
    assert_pass(updates.updates_stage("100 updates", sample))


@pytest.mark.slow
@pairwise(**ONE, optimizer=["sgd", "adagrad"])
def test_rows_have_factors(architecture, negative, optimizer):
    num_tables = 1 + bool(negative)
    factors = updates.random_factors(MANY.num_rows, num_tables)
    for given in (factors, RowLrMultipliers(output=factors.output)):
        sample = MANY.sample(
            architecture, hs=True, negative=negative, optimizer=optimizer, factors=given
        )
        assert_pass(updates.updates_stage("row factors", sample))


@pytest.mark.spread(2)
@pairwise(options=EPOCHS, **ONE)
def test_an_epoch_is_that_of_the_oracle(sequences, architecture, negative, options):
    config = small(architecture=architecture, negative=negative, **options)
    encoded = encode(sequences_corpus(sequences), config.tables.min_count)
    assert_pass(training.epoch_stage(config, encoded, sequences))


@pytest.mark.spread(2)
@pairwise(**ONE)
def test_training_goes_on_from_a_file_of_either_program(
    sequences, architecture, negative
):
    config = small(architecture=architecture, negative=negative)
    assert_pass(training.resume_stage(config, sequences))


@negatives
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_model_file_is_the_same_after_the_way_there_and_back(
    sequences, negative, optimizer
):
    config = small(negative=negative, optimizer=optimizer)
    assert_pass(training.converters_stage(config, sequences))


@pytest.mark.spread(2)
@pairwise(stage=[replicas.replicas_stage, replicas.bootstrap_stage], negative=[0, 5])
def test_replicas_are_the_models_of_the_oracle(sequences, negative, stage):
    architecture = "cbow" if negative else "skipgram"
    config = small(negative=negative, architecture=architecture, blocks_per_update=2)
    assert_pass(stage(config, sequences))


@pytest.mark.spread(2)
@negatives
def test_frozen_rows_stay(sequences, negative):
    assert_pass(continued.frozen_rows_stage(small(negative=negative), sequences))
