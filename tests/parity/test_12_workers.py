import pytest

from embedder.config import Config, with_options
from migration.parity.ladder import ladder, subject
from migration.parity.report import scores
from migration.parity.workers import compare_neighbours, compare_scores
from tests.parity.cases import assert_pass


def test_a_mean_within_the_spread_of_the_oracle_passes():
    oracle = [2.30, 2.34, 2.31, 2.35]
    assert compare_scores("score", [2.30, 2.31], oracle, "float32").passed
    line = compare_scores("score", [2.20, 2.31], oracle, "float32")
    assert not line.passed and line.tolerance == pytest.approx(0.05)


def test_as_many_neighbours_in_common_as_of_two_runs_of_the_oracle_pass():
    between = [7.5, 7.1, 6.9]
    for shared, passed in (([9.0, 9.1], True), ([6.7, 6.9], True), ([5, 5.1], False)):
        assert compare_neighbours(shared, between, "float32").passed == passed


@pytest.mark.slow  # not with Adagrad: see decision 52
def test_the_port_is_as_near_to_the_asynchronous_oracle_as_that_is_to_itself(
    data_folder, wiki
):
    sets = data_folder / "word-eval"
    measured = scores(
        [sets / "wordsim353.tsv", sets / "simlex999.tsv"],
        [sets / "questions-words.txt"],
    )
    config = with_options(Config(), vector_size=50, epochs=1)
    options = {"words": 0, "seeds": (1, 2, 3), "scores": measured}
    assert_pass(ladder(subject(config, str(wiki), **options), ["workers"]))
