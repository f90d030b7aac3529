from embedder.config import Config
from migration.parity.ladder import ladder, subject
from migration.parity.report import scores
from tests.parity.cases import assert_pass


def test_the_port_is_as_near_to_the_asynchronous_oracle_as_that_is_to_itself():
    demo = subject(Config(), None, words=0, seeds=(1, 2, 3))
    assert_pass(ladder(demo, ["workers"]))


def test_scores_of_real_text_are_within_the_spread_of_the_oracle(data_folder, wiki):
    sets = data_folder / "word-eval"
    measured = scores(
        [sets / "wordsim353.tsv", sets / "simlex999.tsv"],
        [sets / "questions-words.txt"],
    )
    options = {"words": 300_000, "seeds": (1, 2, 3), "scores": measured}
    assert_pass(ladder(subject(Config(), str(wiki), **options), ["workers"]))
