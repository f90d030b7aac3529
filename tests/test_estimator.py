"""`EmbeddingTrainer`: numbers of the oracle, lookups, copies, other libraries."""

import copy
import inspect
import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import polars as pl
import pytest
import sklearn.base

import legacy
from embedder import EmbeddingTrainer, Vectors, read_vectors
from embedder.api.gensim_names import ATTRIBUTES, SUCCESSORS

SMALL = {"vector_size": 16, "min_count": 2, "epochs": 2, "block": 64, "sample": 0.01}
CLASSES = [EmbeddingTrainer, legacy.EmbeddingTrainer]
WORDS = [["tea", "milk", "sugar"], ["nail", "hammer", "screw"]] * 100
SETTINGS = {"vector_size": 8, "min_count": 1, "sample": 0, "epochs": 8}


@pytest.fixture
def trained(sequences) -> EmbeddingTrainer:
    lazy = ((token for token in sequence) for sequence in sequences)
    return EmbeddingTrainer(**SMALL).fit(lazy)


def both_trained(train) -> None:
    """The port and the oracle have the same numbers after `train`."""
    actual, desired = (cls(**SMALL | {"dtype": "float64"}) for cls in CLASSES)
    train(actual), train(desired)
    assert actual.index_to_key == desired.index_to_key
    np.testing.assert_allclose(actual.vectors, desired.vectors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(actual.loss_history, desired.loss_history, rtol=1e-9)


@pytest.mark.slow
def test_arguments_may_be_set_between_trainings(sequences):
    """Another optimizer starts afresh."""

    def train(trainer):
        trainer.fit(sequences)
        trainer.epochs, trainer.alpha, trainer.window = 1, 0.01, 2
        trainer.vector_size = 20  # from the next `fit` on
        trainer.optimizer = "adagrad"
        trainer.partial_fit(sequences)
        trainer.seed, trainer.optimizer = 5, "sgd"
        trainer.partial_fit(sequences)
        if trainer.window == 2:
            assert "seed=5" in repr(trainer)

    both_trained(train)
    both_trained(lambda trainer: (train(trainer), trainer.fit(sequences)))


def test_the_signature_and_repr_are_those_of_the_oracle():
    """But that a window may be "session", and noise None, which is 32 but for it."""
    port, oracle = (inspect.signature(cls) for cls in CLASSES)
    parameters = dict(port.parameters)
    assert parameters["window"].annotation == int | Literal["session"]
    assert parameters["noise"].annotation == int | None
    for name in ("window", "noise"):
        parameters[name] = parameters[name].replace(annotation=int)
    parameters["noise"] = parameters["noise"].replace(default=32)
    assert port.replace(parameters=[*parameters.values()]) == oracle
    given = {"window": 3, "architecture": "cbow", "cap": math.inf, "dtype": "float64"}
    text, desired = (repr(cls(**given)) for cls in CLASSES)
    assert text == desired
    assert text.startswith("EmbeddingTrainer(vector_size=100, window=3, negative=5, ")
    again = eval(text, {"EmbeddingTrainer": EmbeddingTrainer, "inf": math.inf})
    for name, parameter in oracle.parameters.items():
        assert getattr(again, name) == given.get(name, parameter.default)
        assert parameter.kind is parameter.KEYWORD_ONLY


def test_partial_fit_trains_one_epoch_more(trained, sequences, caplog):
    """Unknown tokens are left out, and alone they change nothing."""
    earlier, losses = trained.vectors, trained.loss_history
    before = earlier.copy()
    assert trained.vectors.shape == (len(trained.index_to_key), 16)
    assert trained.vectors.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        trained.vectors[0] = 0
    other = copy.deepcopy(trained)
    assert trained.partial_fit(sequences) is trained
    assert trained.loss_history[:2] == losses and len(trained.loss_history) == 3
    assert all(type(loss) is float for loss in trained.loss_history)
    np.testing.assert_array_equal(earlier, before)  # an array once read stays
    assert not np.array_equal(trained.vectors, before)
    np.testing.assert_array_equal(other.vectors, before)  # a copy goes its own way
    other.partial_fit([*([*each, "dog"] for each in sequences), ["dog", "bone"]])
    assert other.index_to_key == trained.index_to_key
    np.testing.assert_array_equal(other.vectors, trained.vectors)
    other.partial_fit([["new", "newer"]])
    np.testing.assert_array_equal(other.vectors, trained.vectors)
    assert len(other.loss_history) == 4 and other.loss_history[-1] == 0
    message = "No token (of the corpus is in the vocabulary|has another in its window)"
    assert re.search(message, caplog.text)


def test_an_error_leaves_the_trainer_as_it_was(trained, sequences):
    before = trained.vectors.copy()
    with pytest.raises(ValueError):
        trained.fit([])
    with pytest.raises(TypeError):
        trained.partial_fit([["w0", 1]])
    with pytest.raises(ValueError):
        trained.set_params(window=0, epochs=7)
    assert (trained.window, trained.epochs) == (5, 2)
    trained.alpha, trained.cap = 1e30, math.inf
    for train in (trained.fit, trained.partial_fit):
        with pytest.raises(FloatingPointError, match="diverged.*`alpha`"):
            train(sequences)
    np.testing.assert_array_equal(trained.vectors, before)
    assert len(trained.loss_history) == 2


def test_tokens_may_have_spaces_and_any_letters():
    tokens = ["New York", "na\u00efve caf\u00e9", "\u65e5\u672c", "\u2028", "a\tb"]
    trainer = EmbeddingTrainer(**SMALL | {"epochs": 0}).fit([tokens * 3])
    assert trainer.index_to_key == tokens
    assert trainer.key_to_index == {token: i for i, token in enumerate(tokens)}
    assert len(trainer.most_similar("New York", topn=9)) == 4
    assert trainer.loss_history == [] and 0 < np.abs(trainer.vectors).max() <= 0.5 / 16


@pytest.mark.spread(1)
@pytest.mark.row("B10")
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("words", ["abcdefgh", "a" * 99 + "b"])
def test_defaults_learn_where_every_row_reaches_the_cap(architecture, words):
    corpus = np.random.default_rng(0).choice([*words], size=(1000, 20)).tolist()
    trainer = EmbeddingTrainer(vector_size=16, architecture=architecture).fit(corpus)
    assert np.isfinite(trainer.vectors).all()
    assert trainer.loss_history[-1] <= trainer.loss_history[0] < (1 + 5) * math.log(2)


class Described(EmbeddingTrainer):
    """A subclass with a signature and an attribute of its own."""

    def __init__(self, description, /, **options):
        super().__init__(**options)
        self.description = description


@pytest.mark.row("F35")
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_a_copy_has_all_attributes_and_goes_on_alike(sequences, clone, is_trained):
    trainer = Described(["of news"], **SMALL)
    if is_trained:
        trainer.fit(sequences).most_similar("w0")
    trainer.later = {"added": 1}
    other = clone(trainer)
    assert type(other) is Described and repr(other) == repr(trainer)
    assert other.description == ["of news"] and other.later == {"added": 1}
    before = list(trainer.loss_history)
    if is_trained:
        assert other.most_similar("w0") == trainer.most_similar("w0")
        other.partial_fit(sequences)
        assert len(other.loss_history) == 3 and trainer.loss_history == before
        trainer.partial_fit(sequences)
        np.testing.assert_array_equal(other.vectors, trainer.vectors, strict=True)


@pytest.mark.row("F34")
def test_concurrent_fits_leave_what_one_of_them_has_made(sequences):
    """And no `partial_fit` is lost. An error before lets the next one in."""
    corpora = [sequences, [["a", "b", "c"] * 10] * 10]
    desired = [EmbeddingTrainer(**SMALL).fit(corpus).vectors for corpus in corpora]
    trainer = EmbeddingTrainer(**SMALL)
    with pytest.raises(ValueError):
        trainer.fit([])
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(trainer.fit, corpora))
        which = 0 if "w0" in trainer.index_to_key else 1
        np.testing.assert_array_equal(trainer.vectors, desired[which])
        list(pool.map(trainer.partial_fit, 3 * [corpora[which]]))
    assert len(trainer.loss_history) == 2 + 3


@pytest.fixture(scope="module")
def words() -> EmbeddingTrainer:
    return EmbeddingTrainer(**SETTINGS).fit(WORDS)


@pytest.fixture(scope="module")
def integers() -> EmbeddingTrainer:
    ids = {word: 10 * i for i, word in enumerate(WORDS[0] + WORDS[1])}
    return EmbeddingTrainer(**SETTINGS).fit([[ids[x] for x in line] for line in WORDS])


def test_tokens_are_looked_up_in_their_own_type(words, integers):
    row = words.vectors[words.key_to_index["nail"]]
    np.testing.assert_array_equal(words["nail"], row)
    np.testing.assert_array_equal(integers[30], row)
    for trainer, keys in ((words, ["nail", "tea"]), (integers, [30, 0])):
        np.testing.assert_array_equal(trainer[keys], [row, words["tea"]])
        assert len(trainer) == 6 and trainer[[]].shape == (0, 8)
    assert [*words] == words.index_to_key and {*integers} == {*range(0, 60, 10)}
    assert "nail" in words and "pin" not in words and 30 not in words
    assert 30 in integers and np.int64(30) in integers and 35 not in integers
    assert "30" not in integers
    empty = EmbeddingTrainer()
    assert empty and len(empty) == 0 and "tea" not in empty and [*empty] == []


@pytest.mark.parametrize("ending", [".parquet", ".safetensors", ".bin"])
def test_vectors_are_exported_by_the_ending(ending, words, integers, tmp_path):
    for trainer in (words, integers):
        trainer.export(tmp_path / f"v{ending}")
        again = read_vectors(tmp_path / f"v{ending}")
        assert again.keys == [*map(str, trainer.index_to_key)]
        np.testing.assert_array_equal(again.matrix, trainer.vectors)
    if ending == ".parquet":
        keys = pl.read_parquet(tmp_path / "v.parquet")["key"]
        assert keys.to_list() == integers.index_to_key
    with pytest.raises(ValueError, match="nonsense"):
        words.export(tmp_path / "v", format="nonsense")


@pytest.mark.parametrize("subwords", [(), (3, 4)])
def test_a_saved_trainer_is_a_file_of_vectors(tmp_path, subwords):
    path, texts = tmp_path / "trainer.npz", [["abcd", "bcde", "cdef"]] * 9
    settings = {"vector_size": 4, "min_count": 1, "subwords": subwords}
    trainer = EmbeddingTrainer(**settings).fit(texts)
    trainer.save(path)
    vectors = read_vectors(path)
    assert vectors.keys == trainer.index_to_key
    np.testing.assert_array_equal(vectors.matrix, trainer.vectors)
    if subwords:
        np.testing.assert_array_equal(vectors["abcx"], trainer["abcx"])


def test_queries_by_vector_and_the_odd_token(words, integers):
    expected = words.similarity("nail", "tea")
    assert words.similarity("nail", 2 * words["tea"]) == pytest.approx(expected)
    assert integers.similarity(integers[30], 0) == pytest.approx(expected)
    assert words.similarity(np.zeros(8), "tea") == 0
    (first, score), *rest = words.most_similar(words["nail"], topn=3)
    assert first == "nail" and score == pytest.approx(1)
    others = words.most_similar("nail", topn=2)
    assert [key for key, _ in rest] == [key for key, _ in others]
    assert integers.most_similar(integers[30], topn=1)[0][0] == 30
    vectors = Vectors(words.index_to_key, words.vectors)  # tested by hand
    for query in (
        ("tea",),
        (["tea", "nail"], ["milk"]),
        (None, "tea"),
        (words["tea"],),
    ):
        assert words.most_similar(*query) == vectors.most_similar(*query)
    np.testing.assert_array_equal(vectors[["tea", "nail"]], words[["tea", "nail"]])
    assert vectors[[]].shape == words[[]].shape == (0, 8)
    assert words.doesnt_match(["tea", "milk", "nail", "sugar"]) == "nail"
    assert integers.doesnt_match((0, 10, 30, 20)) == 30


@pytest.mark.parametrize(
    "settings", [{}, {"cap": math.inf}, {"window": "session", "noise": 32}]
)
def test_scikit_learn_clones_a_trainer(settings, words):
    trainer = EmbeddingTrainer(**settings)
    again = sklearn.base.clone(trainer)
    assert repr(again) == repr(trainer) and again is not trainer
    assert again.get_params() == trainer.get_params()
    assert {*settings} <= {*trainer.get_params()}
    assert len(sklearn.base.clone(words)) == 0
    assert again.set_params(epochs=2, window=3) is again
    assert (again.epochs, again.window) == (2, 3)


@pytest.mark.parametrize("name", [*ATTRIBUTES, *SUCCESSORS])
def test_names_of_gensim_name_their_successor(name):
    successor = (ATTRIBUTES | SUCCESSORS)[name]
    named = {successor.split("`")[1]} if "`" in successor else set()
    known = {*EmbeddingTrainer().get_params(), *dir(EmbeddingTrainer), "callbacks"}
    assert named <= known
    trainer = EmbeddingTrainer()
    assert not hasattr(trainer, name) and not hasattr(trainer, "other")
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as error:
        getattr(trainer, name)
    (note,) = error.value.__notes__
    assert successor in note and "\n" not in note
    with pytest.raises(AttributeError, match="has no attribute 'other'") as error:
        _ = trainer.other
    assert not hasattr(error.value, "__notes__")
    for call in (EmbeddingTrainer, trainer.set_params) if name in SUCCESSORS else ():
        with pytest.raises(TypeError) as error:
            call(**{name: 1})
        assert f"unexpected keyword argument {name!r}" in str(error.value)
        (note,) = error.value.__notes__  # so the message stays that of `legacy`
        assert SUCCESSORS[name] in note and "\n" not in note
