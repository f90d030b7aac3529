"""Lookups of an `EmbeddingTrainer`, scikit-learn's clone, and names of gensim."""

import copy
import math
import pickle

import numpy as np
import pytest
import sklearn.base

from embedder import EmbeddingTrainer
from embedder.tables.gensim_names import ATTRIBUTES, SUCCESSORS

WORDS = [["tea", "milk", "sugar"], ["nail", "hammer", "screw"]] * 100
SETTINGS = {"vector_size": 8, "min_count": 1, "sample": 0, "epochs": 8}


@pytest.fixture(scope="module")
def trained() -> EmbeddingTrainer:
    return EmbeddingTrainer(**SETTINGS).fit(WORDS)


@pytest.fixture(scope="module")
def integers() -> EmbeddingTrainer:
    ids = {word: 10 * i for i, word in enumerate(WORDS[0] + WORDS[1])}
    return EmbeddingTrainer(**SETTINGS).fit([[ids[x] for x in line] for line in WORDS])


def test_tokens_are_looked_up_by_brackets(trained, integers):
    np.testing.assert_array_equal(
        trained["nail"], trained.vectors[trained.key_to_index["nail"]]
    )
    np.testing.assert_array_equal(integers[30], trained["nail"])
    assert len(trained) == len(integers) == 6
    with pytest.raises(KeyError, match="'pin' is not in the vocabulary"):
        _ = trained["pin"]


def test_lists_of_tokens_have_rows(trained, integers):
    rows = [trained["nail"], trained["tea"]]
    np.testing.assert_array_equal(trained[["nail", "tea"]], rows)
    np.testing.assert_array_equal(integers[[30, 0]], rows)
    assert trained[[]].shape == (0, 8)
    with pytest.raises(KeyError, match="'pin' is not in the vocabulary"):
        _ = trained[["nail", "pin"]]


def test_a_trainer_iterates_over_its_tokens(trained, integers):
    assert [*trained] == trained.index_to_key and {*integers} == {*range(0, 60, 10)}
    assert [*EmbeddingTrainer()] == []


def test_similarity_takes_vectors(trained, integers):
    expected = trained.similarity("nail", "tea")
    for found in (
        trained.similarity(trained["nail"], "tea"),
        trained.similarity("nail", 2 * trained["tea"]),
        integers.similarity(integers[30], 0),
    ):
        assert found == pytest.approx(expected)
    assert trained.similarity(np.zeros(8), "tea") == 0
    for wrong in (np.ones(2), np.array(["nail"] * 8)):
        with pytest.raises(ValueError, match=r"A vector must be numbers \[8\], got"):
            trained.similarity(wrong, "tea")


def test_tokens_are_in_the_trainer_in_their_own_type(trained, integers):
    assert "nail" in trained and "pin" not in trained and 30 not in trained
    assert 30 in integers and np.int64(30) in integers and 35 not in integers
    assert "30" not in integers


def test_an_untrained_trainer_is_true_and_empty():
    trainer = EmbeddingTrainer()
    assert trainer and len(trainer) == 0 and "tea" not in trainer
    with pytest.raises(RuntimeError, match="not trained yet"):
        _ = trainer["tea"]


def test_the_odd_token(trained, integers):
    assert trained.doesnt_match(["tea", "milk", "nail", "sugar"]) == "nail"
    assert integers.doesnt_match((0, 10, 30, 20)) == 30
    with pytest.raises(KeyError, match="'pin'"):
        trained.doesnt_match(["tea", "pin"])
    with pytest.raises(ValueError, match="`keys` must have a token, got none"):
        trained.doesnt_match([])


def test_queries_by_vector(trained, integers):
    (first, score), *rest = trained.most_similar(trained["nail"], topn=3)
    assert first == "nail" and score == pytest.approx(1)
    others = trained.most_similar("nail", topn=2)
    assert [key for key, _ in rest] == [key for key, _ in others]
    assert integers.most_similar(integers[30], topn=1)[0][0] == 30
    message = r"a vector \[8\] alone, got a vector \[2\]"
    with pytest.raises(ValueError, match=message):
        trained.most_similar(np.ones(2))
    with pytest.raises(ValueError, match="beside negative='tea'"):
        trained.most_similar(trained["nail"], "tea")


@pytest.mark.parametrize(
    "settings", [{}, SETTINGS, {"cap": math.inf}, {"window": "session", "noise": None}]
)
def test_scikit_learn_clones_a_trainer(settings):
    trainer = EmbeddingTrainer(**settings)
    again = sklearn.base.clone(trainer)
    assert repr(again) == repr(trainer) and again is not trainer
    assert again.get_params() == trainer.get_params()
    assert {*settings} <= {*trainer.get_params()}


def test_a_clone_is_not_trained(trained):
    assert len(sklearn.base.clone(trained)) == 0


def test_parameters_are_set_and_checked():
    trainer = EmbeddingTrainer()
    assert trainer.set_params(epochs=2, window=3) is trainer
    assert (trainer.epochs, trainer.window) == (2, 3)
    with pytest.raises(ValueError, match="`window` must be"):
        trainer.set_params(window=0, epochs=7)
    assert trainer.epochs == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'widow'"):
        trainer.set_params(widow=1)


@pytest.mark.parametrize("name", SUCCESSORS)
def test_arguments_of_gensim_name_their_successor(name):
    for call in (EmbeddingTrainer, EmbeddingTrainer().set_params):
        with pytest.raises(TypeError) as error:
            call(**{name: 1})
        assert f"unexpected keyword argument {name!r}" in str(error.value)
        (note,) = error.value.__notes__  # so the message stays that of `legacy`
        assert SUCCESSORS[name] in note and "\n" not in note


def test_successors_exist():
    named = {name.split("`")[1] for name in SUCCESSORS.values() if "`" in name}
    named |= {name.split("`")[1] for name in ATTRIBUTES.values() if "`" in name}
    known = {*EmbeddingTrainer().get_params(), *dir(EmbeddingTrainer), "callbacks"}
    assert named <= known


@pytest.mark.parametrize("name", [*ATTRIBUTES, *SUCCESSORS])
def test_attributes_of_gensim_name_their_successor(name):
    trainer = EmbeddingTrainer()
    assert not hasattr(trainer, name) and not hasattr(trainer, "other")
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as error:
        getattr(trainer, name)
    (note,) = error.value.__notes__
    assert (ATTRIBUTES | SUCCESSORS)[name] in note and "\n" not in note
    with pytest.raises(AttributeError, match="has no attribute 'other'") as error:
        _ = trainer.other
    assert not hasattr(error.value, "__notes__")


@pytest.mark.parametrize(("hs", "known"), [(0, False), (1, True)])
def test_numbers_for_hs_say_what_to_write(hs, known):
    for call in (EmbeddingTrainer, EmbeddingTrainer().set_params):
        with pytest.raises(
            TypeError, match=f"`hs` must be True or False, got {hs}"
        ) as e:
            call(hs=hs)
        assert e.value.__notes__ == [f"gensim's hs={hs} is hs={known} here."]


def test_trainers_are_copied_and_pickled(trained):
    for again in (copy.deepcopy(trained), pickle.loads(pickle.dumps(trained))):
        np.testing.assert_array_equal(again["tea"], trained["tea"])
