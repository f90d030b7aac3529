from embedder.config import Config, with_options
from migration.parity.ladder import ladder, subject
from migration.parity.report import scores
from tests.parity.cases import assert_pass


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
