"""Rows that tokens share, of n-grams and of attributes: every stage with them, for
which they mean something."""

import math

import pytest

from embedder.config import Config, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from migration.parity import replicas, training, updates
from tests.parity.cases import CASES, Case, assert_pass

MANY = Case("many", 200, (100, 2, 32), tile=8, noise=6, window=5, padding=11)
SMALL = {"loader": "memory", "vector_size": 8, "min_count": 2, "block": 32}
SUBWORDS = {"subwords": (2, 4), "buckets": 300}


def cells(*values, slow: bool = True):
    """The first cell; the others are slow."""
    return [
        pytest.param(*each, marks=[pytest.mark.slow] if slow and number else [])
        for number, each in enumerate(values)
    ]


def small(**options) -> Config:
    return with_options(Config(), **SMALL | SUBWORDS | {"dtype": "float64"} | options)


@pytest.mark.parametrize("update", ["rows", "kernel"])
@pytest.mark.parametrize(
    ("case", "architecture"),
    cells(
        *[(CASES[3], "cbow"), (CASES[0], "skipgram"), (CASES[1], "cbow")],
        *[(CASES[4], "skipgram"), (CASES[5], "cbow"), (CASES[6], "cbow")],
        *[(CASES[7], "skipgram"), (CASES[8], "skipgram"), (CASES[10], "cbow")],
    ),
    ids=lambda each: getattr(each, "name", each),
)
def test_tables_are_those_of_the_oracle(case, architecture, update):
    sample = case.sample(architecture, subwords=(1, 3), update=update)
    assert_pass(updates.updates_stage("one update", sample))


@pytest.mark.parametrize("update", ["rows", "kernel"])
@pytest.mark.parametrize(
    ("case", "architecture"),
    cells((CASES[3], "cbow"), (CASES[0], "skipgram"), (CASES[6], "skipgram")),
    ids=lambda each: getattr(each, "name", each),
)
def test_tables_with_attributes_are_those_of_the_oracle(case, architecture, update):
    sample = case.sample(architecture, attributes=case.attributes, update=update)
    assert_pass(updates.updates_stage("one update", sample))


@pytest.mark.parametrize(
    ("architecture", "options"),
    cells(("skipgram", {"update": "kernel"}), ("cbow", {"dtype": "float32"})),
)
def test_tables_with_attributes_are_the_oracles_after_100_updates(
    architecture, options
):
    sample = MANY.sample(architecture, attributes=MANY.attributes, **options)
    assert_pass(updates.updates_stage("100 updates", sample))


@pytest.mark.parametrize(
    ("architecture", "options"),
    cells(
        ("skipgram", {"update": "kernel"}),
        ("cbow", {}),
        ("cbow", {"update": "kernel", "cap": math.inf}),
        ("skipgram", {"dtype": "float32"}),
        ("skipgram", {"update": "kernel", "hs": True, "dtype": "float32"}),
        ("cbow", {"hs": True, "negative": 0}),
    ),
)
def test_tables_after_100_updates_are_those_of_the_oracle(architecture, options):
    sample = MANY.sample(architecture, subwords=(2, 3), **options)
    assert_pass(updates.updates_stage("100 updates", sample))


@pytest.mark.parametrize(
    ("architecture", "options"),
    cells(
        ("skipgram", {"backend": "numba"}),
        ("cbow", {}),
        ("cbow", {"backend": "numba", "hs": True}),
        ("skipgram", {"dtype": "float32", "hs": True, "negative": 0}),
    ),
)
def test_an_epoch_is_that_of_the_oracle(sequences, architecture, options):
    config = small(architecture=architecture, **options)
    encoded = encode(sequences_corpus(sequences), config.tables.min_count)
    assert_pass(training.epoch_stage(config, encoded, sequences))


@pytest.mark.parametrize("architecture", ["cbow"])
def test_training_goes_on_from_a_file_of_either_program(sequences, architecture):
    assert_pass(training.resume_stage(small(architecture=architecture), sequences))


def test_a_model_file_is_the_same_after_the_way_there_and_back(sequences):
    assert_pass(training.converters_stage(small(), sequences))


@pytest.mark.parametrize(
    ("stage", "backend"),
    cells((replicas.replicas_stage, "numba"), (replicas.bootstrap_stage, "xla")),
)
def test_replicas_are_the_models_of_the_oracle(sequences, stage, backend):
    config = small(architecture="cbow", blocks_per_update=2, backend=backend)
    assert_pass(stage(config, sequences))
