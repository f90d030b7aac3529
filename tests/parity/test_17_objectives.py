"""Each objective of tables, and rows that tokens share: every stage for which they mean
something. Of CBOW's means and skip-gram test_04 to test_08 have each case."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

from embedder.config import Config, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from migration.parity import continued, replicas, training, updates
from tests.parity.cases import CASES, Case, assert_pass

MANY = Case("many", 200, (100, 2, 32), tile=8, noise=6, window=5, padding=11)
SMALL = {"loader": "memory", "vector_size": 8, "min_count": 2, "block": 32}
CBOW = {"architecture": "cbow"}
TREE, ALONE = {"hs": True}, {"hs": True, "negative": 0}
TREES = [TREE, CBOW | ALONE, ALONE, CBOW | TREE]
SUMS = CBOW | {"cbow_mean": False}
SOFTMAX = {"architecture": "cbow-softmax"}
NGRAMS = {"subwords": (2, 4), "buckets": 300}
DENSE, KERNEL, NUMBA = {"update": "dense"}, {"update": "kernel"}, {"backend": "numba"}
ADAGRAD, FLOAT32 = {"optimizer": "adagrad"}, {"dtype": "float32"}


def name_of(first: Any) -> str:
    return str(getattr(first, "name", getattr(first, "__name__", first)))


def turns(name: str, firsts: Sequence[Any], *options: dict, times=1, fast=1) -> list:
    """Each of the first ones so often, with one of the options after the other; all but
    some are slow. Of four options, by two values each, three have each pair."""
    pairs = zip(times * [*firsts], itertools.cycle(options), strict=False)
    return [
        pytest.param(
            first,
            each,
            id=f"{name}-{name_of(first)}-{each}",
            marks=[pytest.mark.slow] if number >= fast else [],
        )
        for number, (first, each) in enumerate(pairs)
    ]


def each(*cells: list):
    """Parametrizes a test by a case, or some options, and more options."""
    return pytest.mark.parametrize(("first", "options"), [*itertools.chain(*cells)])


def sample(case: Case, attributes: bool = False, **options) -> updates.Sample:
    return case.sample(**options, attributes=case.attributes if attributes else None)


def small(options: dict) -> Config:
    return with_options(Config(), **SMALL | {"dtype": "float64"} | options)


TERMS = each(
    turns("tree", CASES, *TREES, times=3, fast=2),
    turns("sums", CASES, SUMS, SUMS | TREE, SUMS | ALONE),
    turns("softmax", CASES, SOFTMAX, SOFTMAX | TREE, SOFTMAX, SOFTMAX | ALONE),
)


@TERMS
def test_loss_is_that_of_the_oracle_and_of_the_equation(first, options):
    assert_pass(updates.loss_stage(sample(first, **options)))


@TERMS
def test_gradients_and_weights_are_those_of_the_oracle(first, options):
    assert_pass(updates.gradients_stage(sample(first, **options)))


WORDS = [CASES[i] for i in (3, 0, 1, 4, 5, 6, 7, 8, 10)]
OF_SUMS = [KERNEL, {}, DENSE, TREE, ALONE | KERNEL, TREE | KERNEL]
OF_SOFTMAX = [{}, DENSE, TREE, ADAGRAD]
OF_NGRAMS, OF_ATTRIBUTES = {"subwords": (1, 3)}, {"attributes": True}


@each(
    turns("tree", CASES, *(x | KERNEL for x in TREES), *TREES, times=3, fast=5),
    turns("sums", CASES, *(SUMS | x for x in OF_SUMS), times=2),
    turns("softmax", CASES, *(SOFTMAX | x for x in OF_SOFTMAX), times=2),
    turns("n-grams", WORDS, CBOW | OF_NGRAMS, OF_NGRAMS),
    turns("n-grams", WORDS, CBOW | OF_NGRAMS | KERNEL, OF_NGRAMS | KERNEL),
    turns("attributes", WORDS[:3], CBOW | OF_ATTRIBUTES, OF_ATTRIBUTES),
    turns("attributes", WORDS[:3], CBOW | OF_ATTRIBUTES | KERNEL, OF_ATTRIBUTES),
)
def test_tables_are_those_of_the_oracle(first, options):
    assert_pass(updates.updates_stage("one update", sample(first, **options)))


NO_CAP = {"cap": math.inf}
PATHS = [{}, DENSE, NO_CAP, FLOAT32, ADAGRAD, ADAGRAD | DENSE, KERNEL]
PATHS += [KERNEL | NO_CAP | FLOAT32, KERNEL | ADAGRAD]
SHORT = {"subwords": (2, 3)}
OF_SUMS += [NO_CAP, FLOAT32, KERNEL | FLOAT32, ADAGRAD, KERNEL | ADAGRAD]
OF_SUMS += [SHORT, KERNEL | TREE | SHORT]
OF_SOFTMAX += [NO_CAP, FLOAT32, SHORT]
OF_WORDS = [KERNEL, CBOW, CBOW | KERNEL | NO_CAP, FLOAT32]
OF_WORDS += [KERNEL | TREE | FLOAT32, CBOW | ALONE]


@each(
    turns("tree", PATHS, *TREES, times=3, fast=2),
    turns("sums", OF_SUMS, SUMS),
    turns("softmax", OF_SOFTMAX, SOFTMAX),
    turns("n-grams", OF_WORDS, SHORT),
    turns("attributes", [KERNEL, CBOW | FLOAT32], OF_ATTRIBUTES),
)
def test_tables_after_100_updates_are_those_of_the_oracle(first, options):
    assert_pass(updates.updates_stage("100 updates", sample(MANY, **first, **options)))


@pytest.mark.slow
@each(turns("tree", [{}, {}, ADAGRAD, ADAGRAD], *TREES))
def test_rows_have_factors(first, options):
    factors = updates.random_factors(MANY.num_rows, 1 + ("negative" not in options))
    for given in (factors, RowLrMultipliers(output=factors.output)):
        made = sample(MANY, **first, **options, factors=given)
        assert_pass(updates.updates_stage("row factors", made))


EPOCHS = [{}, DENSE, ADAGRAD, FLOAT32, NUMBA]
OF_NUMBA = [NUMBA, CBOW, CBOW | NUMBA | TREE, FLOAT32 | ALONE]


@each(
    turns("tree", EPOCHS, *TREES, times=3, fast=2),
    turns("sums", [NUMBA, *EPOCHS[:4], TREE, ALONE | NUMBA, NGRAMS], SUMS),
    turns("n-grams", OF_NUMBA, NGRAMS),
)
def test_an_epoch_is_that_of_the_oracle(sequences, first, options):
    config = small(first | options)
    encoded = encode(sequences_corpus(sequences), config.tables.min_count)
    assert_pass(training.epoch_stage(config, encoded, sequences))


@each(
    turns("tree", TREES, {}),
    turns("sums", [{}, TREE], SUMS),
    turns("n-grams", [CBOW], NGRAMS),
)
def test_training_goes_on_from_a_file_of_either_program(sequences, first, options):
    assert_pass(training.resume_stage(small(first | options), sequences))


@each(
    turns("tree", 2 * [{}, ADAGRAD], TREE, TREE, ALONE, ALONE, fast=4),
    turns("sums", [{}], SUMS),
    turns("n-grams", [{}], NGRAMS),
)
def test_a_model_file_is_the_same_after_the_way_there_and_back(
    sequences, first, options
):
    assert_pass(training.converters_stage(small(first | options), sequences))


BOTH = [replicas.replicas_stage, replicas.bootstrap_stage]


@each(
    turns("tree", BOTH, ALONE, CBOW | TREE, fast=2),
    turns("tree", BOTH, CBOW | TREE, ALONE, fast=0),
    turns("sums", BOTH, SUMS | NUMBA, SUMS),
    turns("n-grams", BOTH, NGRAMS | CBOW | NUMBA, NGRAMS | CBOW),
)
def test_replicas_are_the_models_of_the_oracle(sequences, first, options):
    assert_pass(first(small(options | {"blocks_per_update": 2}), sequences))


@each(
    turns("tree", [continued.frozen_rows_stage], ALONE),
    turns("tree", [continued.frozen_rows_stage], TREE, fast=0),
    turns("sums", [continued.update_stage, continued.frozen_rows_stage], SUMS, fast=0),
)
def test_a_training_that_goes_on_is_that_of_the_oracle(sequences, first, options):
    assert_pass(first(small(options), sequences))
