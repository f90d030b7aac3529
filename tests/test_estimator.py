"""`EmbeddingTrainer` of the port and of the oracle: one behaviour."""

import copy
import decimal
import fractions
import inspect
import math
import pickle
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import pytest

import embedder
import legacy

SMALL = {"vector_size": 16, "min_count": 2, "epochs": 2, "block": 64, "sample": 0.01}
CLASSES = [embedder.EmbeddingTrainer, legacy.EmbeddingTrainer]


@pytest.fixture(params=CLASSES, ids=["port", "oracle"])
def trainer_class(request):
    return request.param


@pytest.fixture
def trained(trainer_class, sequences):
    return trainer_class(**SMALL).fit(sequences)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"architecture": "cbow", "alpha": 0.1},
        {"tile": 1, "noise": 5},
        {"blocks_per_update": 3, "block": 16},
        {"cap": math.inf, "sample": 0, "alpha": 0.003},
        {"optimizer": "adagrad"},
        {"optimizer": "adagrad", "architecture": "cbow", "blocks_per_update": 3},
    ],
    ids=["skipgram", "cbow", "classic", "several_blocks", "no_cap", "adagrad", "both"],
)
def test_fit_gives_the_vectors_and_losses_of_the_oracle(sequences, options):
    settings = SMALL | {"dtype": "float64"} | options
    actual = embedder.EmbeddingTrainer(**settings).fit(sequences)
    desired = legacy.EmbeddingTrainer(**settings).fit(sequences)
    assert actual.index_to_key == desired.index_to_key
    np.testing.assert_allclose(actual.vectors, desired.vectors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(actual.loss_history, desired.loss_history, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_partial_fit_goes_on_as_the_oracle_does(sequences, optimizer):
    options = SMALL | {"dtype": "float64", "optimizer": optimizer}
    actual, desired = (cls(**options) for cls in CLASSES)
    for trainer in (actual, desired):
        trainer.fit(sequences[:200]).partial_fit(sequences[200:])
    np.testing.assert_allclose(actual.vectors, desired.vectors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(actual.loss_history, desired.loss_history, rtol=1e-9)


def test_signature_is_that_of_the_oracle():
    """But that a window may be "session", and noise None, too."""
    port, oracle = (inspect.signature(cls) for cls in CLASSES)
    parameters = dict(port.parameters)
    assert parameters["window"].annotation == int | Literal["session"]
    assert parameters["noise"].annotation == int | None
    for name in ("window", "noise"):
        parameters[name] = parameters[name].replace(annotation=int)
    assert port.replace(parameters=[*parameters.values()]) == oracle


def message(error: Exception) -> str:
    """What an error says, without the window that the oracle does not have."""
    return str(error).replace("127 or 'session', got", "127, got")


def test_repr_is_that_of_the_oracle(trainer_class):
    trainer = trainer_class(window=3, architecture="cbow", cap=math.inf)
    text = repr(trainer)
    assert text == repr(eval(text, {"EmbeddingTrainer": CLASSES[1], "inf": math.inf}))
    assert text.startswith("EmbeddingTrainer(vector_size=100, window=3, negative=5, ")
    names = re.findall(r"(\w+)=", text)
    assert names == list(inspect.signature(trainer_class).parameters)


def test_constructor_stores_its_arguments(trainer_class):
    given = {"window": 3, "alpha": 0.5, "cap": math.inf, "dtype": "float64"}
    trainer = trainer_class(**given)
    for name, parameter in inspect.signature(trainer_class).parameters.items():
        assert getattr(trainer, name) == given.get(name, parameter.default)
        assert parameter.kind is parameter.KEYWORD_ONLY
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        trainer_class(size=3)


@pytest.mark.spread(2)
@pytest.mark.parametrize("writer", CLASSES, ids=["port", "oracle"])
@pytest.mark.parametrize("reader", CLASSES, ids=["port", "oracle"])
@pytest.mark.parametrize("options", [{"cap": math.inf}, {"optimizer": "adagrad"}])
def test_a_saved_model_is_read_by_both(tmp_path, sequences, writer, reader, options):
    saved = writer(**SMALL, **options).fit(sequences)
    saved.save(tmp_path / "model")
    loaded = reader.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.vectors, saved.vectors, strict=True)
    assert loaded.index_to_key == saved.index_to_key
    assert loaded.loss_history == saved.loss_history
    assert repr(loaded) == repr(saved)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


@pytest.mark.spread(1)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_loaded_trainer_goes_on_bit_for_bit(
    tmp_path, trainer_class, sequences, optimizer
):
    trainer = trainer_class(**SMALL, optimizer=optimizer).fit(sequences)
    trainer.save(tmp_path / "model.npz")
    loaded = trainer_class.load(tmp_path / "model.npz")
    for each in (trainer, loaded):
        each.partial_fit(sequences)
    np.testing.assert_array_equal(loaded.vectors, trainer.vectors, strict=True)


def test_adagrad_has_no_cap(trainer_class):
    with pytest.raises(ValueError) as error:
        trainer_class(optimizer="adagrad", cap=64.0)
    expected = "`cap` applies only to `optimizer` = 'sgd', got 64.0."
    assert str(error.value) == expected


def builtin(error: Exception) -> type:
    """The exception of Python that an error is, or derives from."""
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


@pytest.mark.parametrize("name", inspect.signature(CLASSES[0]).parameters)
@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 1, 2**64, 2.5, math.nan, math.inf, True, None, "skipgram", b"cbow"),
        *(np.int32(1), np.float32(0.5), np.True_, np.array(1), np.array([1, 2])),
        *(decimal.Decimal("0.5"), fractions.Fraction(1, 2), 10**400, [1], np.float32),
        np.dtype("float32"),
    ],
    ids=repr,
)
def test_arguments_are_taken_and_refused_as_by_the_oracle(name, value):
    if name == "noise" and value is None:  # the oracle has no whole sessions
        assert CLASSES[0](noise=None).noise is None
        return
    found = []
    for cls in CLASSES:
        try:
            found.append(repr(cls(**{name: value})))
        except (TypeError, ValueError) as error:
            found.append((builtin(error), message(error)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "use",
    [
        lambda trainer: trainer.vectors,
        lambda trainer: trainer.index_to_key,
        lambda trainer: trainer.key_to_index,
        lambda trainer: trainer.most_similar("a"),
        lambda trainer: trainer.similarity("a", "b"),
        lambda trainer: trainer.save("model.npz"),
    ],
)
def test_an_untrained_trainer_says_so(trainer_class, use):
    with pytest.raises(RuntimeError) as error:
        use(trainer_class())
    assert str(error.value) == "The trainer is not trained yet: call `fit` first."
    assert trainer_class().loss_history == []


def test_attributes_have_the_types_that_they_are_said_to_have(trained):
    assert trained.vectors.shape == (len(trained.index_to_key), 16)
    assert trained.vectors.dtype == np.float32
    assert [trained.key_to_index[key] for key in trained.index_to_key[:3]] == [0, 1, 2]
    assert trained.window == 5
    assert len(trained.loss_history) == 2
    assert all(type(loss) is float for loss in trained.loss_history)


@pytest.fixture
def hand_made(trainer_class, tmp_path):
    """Vectors in the plane: a (1, 0), b (2, 2), c (0, 3), d (-1, 0), e (0, 0)."""
    sequences = [[token] * (5 - i) for i, token in enumerate("abcde")]
    trainer = trainer_class(vector_size=2, min_count=1, epochs=0, dtype="float64")
    trainer.fit(sequences).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as members:
        table = np.array([[1, 0], [2, 2], [0, 3], [-1, 0], [0, 0]], float)
        members = dict(members) | {"input": table}
    np.savez(tmp_path / "model.npz", **members)
    return trainer_class.load(tmp_path / "model.npz")


def test_most_similar_by_hand(hand_made):
    found = hand_made.most_similar("a")
    assert [token for token, _ in found] == ["b", "c", "e", "d"]  # c and e by id
    expected = [math.sqrt(0.5), 0, 0, -1]
    assert [cosine for _, cosine in found] == pytest.approx(expected)
    assert all(type(cosine) is float for _, cosine in found)
    assert hand_made.most_similar("a", topn=2) == found[:2]


def test_most_similar_adds_and_subtracts(hand_made):
    found = hand_made.most_similar(["a", "c"], ["d"])
    # (1, 0) + (0, 1) - (-1, 0) = (2, 1), whose cosine to b is 3 / sqrt(10).
    assert [token for token, _ in found] == ["b", "e"]
    assert found[0][1] == pytest.approx(3 / math.sqrt(10))
    only_negative = hand_made.most_similar(negative="d", topn=1)
    assert only_negative == [("a", 1.0)]


def test_similarity(hand_made):
    assert hand_made.similarity("a", "b") == pytest.approx(math.sqrt(0.5))
    assert hand_made.similarity("a", "e") == 0.0


@pytest.mark.parametrize(
    "arguments", [("z",), (["a", "z"],), (None, "z"), (["a"], ["z"])]
)
def test_unknown_tokens_have_no_neighbours(hand_made, arguments):
    with pytest.raises(KeyError, match="Token 'z' is not in the vocabulary."):
        hand_made.most_similar(*arguments)
    with pytest.raises(KeyError, match="Token 'z' is not in the vocabulary."):
        hand_made.similarity("a", "z")


@pytest.mark.parametrize("arguments", [(), ([],), (None, [])])
def test_most_similar_of_nothing(hand_made, arguments):
    with pytest.raises(ValueError, match="must have a token, got none"):
        hand_made.most_similar(*arguments)


@pytest.mark.parametrize(
    ("topn", "error"),
    [(0, ValueError), (-1, ValueError)]
    + [(value, TypeError) for value in (1.5, None, "3", True)],
)
def test_most_similar_topn(hand_made, topn, error):
    with pytest.raises(error, match="`topn` must be an integer >= 1, got"):
        hand_made.most_similar("a", topn=topn)


@pytest.mark.parametrize(
    "use",
    [
        lambda trainer: trainer.fit(5),
        lambda trainer: trainer.fit(b"w0 w1"),
        lambda trainer: trainer.fit([5]),
        lambda trainer: trainer.fit([[b"w0"]]),
        lambda trainer: trainer.fit([[""]]),
        lambda trainer: trainer.fit([["\ud800"]]),
        lambda trainer: trainer.fit([["w0"]]),
        lambda trainer: trainer.partial_fit("no such file.txt"),
        lambda trainer: trainer.partial_fit([]),
        lambda trainer: trainer.load("no such model.npz"),
        lambda trainer: setattr(trainer, "window", 0) or trainer.fit([["w0"] * 9]),
        lambda trainer: setattr(trainer, "tile", 7) or trainer.partial_fit([["w0"]]),
        lambda trainer: trainer.__setattr__("vectors", 1),
        lambda trainer: trainer.__setattr__("loss_history", []),
    ],
)
def test_errors_are_those_of_the_oracle(sequences, use):
    found = []
    for cls in CLASSES:
        trainer = cls(**SMALL).fit(sequences)
        with pytest.raises(Exception) as error:
            use(trainer)
        found.append((builtin(error.value), message(error.value)))
    assert found[0] == found[1]


def test_vectors_are_read_only(trained):
    with pytest.raises(ValueError, match="read-only"):
        trained.vectors[0] = 0


@pytest.mark.slow
def test_arguments_may_be_set_between_trainings(sequences):
    actual, desired = (cls(**SMALL, dtype="float64") for cls in CLASSES)
    for trainer in (actual, desired):
        trainer.fit(sequences)
        trainer.epochs, trainer.alpha, trainer.window = 1, 0.01, 2
        trainer.vector_size = 20  # from the next `fit` on
        trainer.partial_fit(sequences)
        trainer.seed = 5
        trainer.partial_fit(sequences).fit(sequences)
        assert len(trainer.loss_history) == 1 and "seed=5" in repr(trainer)
    np.testing.assert_allclose(actual.vectors, desired.vectors, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["sgd", "adagrad"])
def test_another_optimizer_between_trainings_starts_afresh(sequences, before):
    after = {"sgd": "adagrad", "adagrad": "sgd"}[before]
    options = SMALL | {"dtype": "float64", "optimizer": before}
    actual, desired = (cls(**options) for cls in CLASSES)
    for trainer in (actual, desired):
        trainer.fit(sequences)
        trainer.optimizer = after
        trainer.partial_fit(sequences)
        trainer.optimizer = before
        trainer.partial_fit(sequences)
    np.testing.assert_allclose(actual.vectors, desired.vectors, rtol=1e-9, atol=1e-9)


def test_partial_fit_trains_one_epoch_more(trained, sequences):
    earlier, losses = trained.vectors, trained.loss_history
    before = earlier.copy()
    assert trained.partial_fit(sequences) is trained
    assert trained.loss_history[:2] == losses and len(trained.loss_history) == 3
    np.testing.assert_array_equal(earlier, before)  # an array once read stays
    assert not np.array_equal(trained.vectors, before)


def test_unknown_tokens_are_left_out_later(trainer_class, sequences, trained):
    with_others = [[*sequence, "dog"] for sequence in sequences] + [["dog", "bone"]]
    other = trainer_class(**SMALL).fit(sequences).partial_fit(with_others)
    trained.partial_fit(sequences)
    assert other.index_to_key == trained.index_to_key
    np.testing.assert_array_equal(other.vectors, trained.vectors)


def test_only_unknown_tokens_change_nothing(trained, caplog):
    before = trained.vectors.copy()
    trained.partial_fit([["new", "newer"]])
    np.testing.assert_array_equal(trained.vectors, before)
    assert len(trained.loss_history) == 3 and trained.loss_history[-1] == 0
    message = "No token (of the corpus is in the vocabulary|has another in its window)"
    assert re.search(message, caplog.text)


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_copy_is_the_same(trainer_class, sequences, clone, dtype):
    trainer = trainer_class(**SMALL, dtype=dtype).fit(sequences)
    other = clone(trainer)
    np.testing.assert_array_equal(other.vectors, trainer.vectors, strict=True)
    assert other.partial_fit(sequences).loss_history[:2] == trainer.loss_history
    trainer.partial_fit(sequences)
    np.testing.assert_array_equal(other.vectors, trainer.vectors, strict=True)
    assert repr(clone(trainer_class())) == repr(trainer_class())


def test_a_copy_goes_its_own_way(trained, sequences):
    other = copy.deepcopy(trained)
    before = trained.vectors.copy()
    other.partial_fit(sequences)
    np.testing.assert_array_equal(trained.vectors, before)
    assert len(trained.loss_history) == 2


def test_a_loaded_trainer_answers(tmp_path, trained):
    trained.save(tmp_path / "model.npz")
    loaded = type(trained).load(tmp_path / "model.npz")
    assert loaded.most_similar("w0") == trained.most_similar("w0")
    assert loaded.similarity("w0", "w1") == trained.similarity("w0", "w1")
    assert loaded.window == trained.window


@pytest.mark.row("B5")
@pytest.mark.slow
def test_a_sentence_of_a_million_tokens(sequences):
    tokens = [token for sequence in sequences for token in sequence]
    sentence = (tokens * (1_000_000 // len(tokens) + 1))[:1_000_000]
    settings = SMALL | {"epochs": 1, "vector_size": 4, "dtype": "float64"}
    actual, desired = (cls(**settings).fit([sentence]) for cls in CLASSES)
    np.testing.assert_allclose(actual.vectors, desired.vectors, rtol=1e-9, atol=1e-9)


def test_fit_takes_generators_and_files(trainer_class, sequences, trained, text_file):
    lazy = ((token for token in sequence) for sequence in sequences)
    for source in (lazy, text_file, str(text_file)):
        again = trainer_class(**SMALL).fit(source)
        assert again.index_to_key == trained.index_to_key
        np.testing.assert_array_equal(again.vectors, trained.vectors)


@pytest.mark.row("B7")
@pytest.mark.parametrize(
    ("corpus", "error", "message"),
    [
        ([], ValueError, "The corpus has no tokens."),
        ([[]], ValueError, "The corpus has no tokens."),
        (
            [["a"]],
            ValueError,
            "No token occurs `min_count` = 2 times or more: the most",
        ),
        (["a b"], TypeError, "A sequence must be a list of tokens, got"),
        ([["a", 1]], TypeError, "A token must be a str, got 1."),
        ("no such file", FileNotFoundError, "Corpus no such file does not exist."),
    ],
    ids=["none", "empty", "rare", "string", "integer", "missing_file"],
)
def test_fit_refuses_bad_corpora(trainer_class, corpus, error, message):
    trainer = trainer_class(**SMALL)
    with pytest.raises(error, match=message):
        trainer.fit(corpus)
    with pytest.raises(RuntimeError, match="not trained yet"):
        trainer.vectors  # noqa: B018


def test_an_error_leaves_the_trainer_as_it_was(trained, sequences):
    before = trained.vectors.copy()
    with pytest.raises(ValueError):
        trained.fit([])
    with pytest.raises(TypeError):
        trained.partial_fit([["w0", 1]])
    trained.alpha, trained.cap = 1e30, math.inf
    for train in (trained.fit, trained.partial_fit):
        with pytest.raises(FloatingPointError, match="diverged.*`alpha`"):
            train(sequences)
    np.testing.assert_array_equal(trained.vectors, before)
    assert len(trained.loss_history) == 2


@pytest.mark.spread(1)
def test_tokens_may_have_spaces_and_any_letters(trainer_class):
    tokens = ["New York", "na\u00efve caf\u00e9", "\u65e5\u672c", "\u2028", "a\tb"]
    trainer = trainer_class(**SMALL).fit([tokens * 3])
    assert trainer.index_to_key == tokens
    assert trainer.key_to_index == {token: i for i, token in enumerate(tokens)}
    assert len(trainer.most_similar("New York", topn=9)) == 4


@pytest.mark.spread(2)
@pytest.mark.row("B7")
@pytest.mark.parametrize(
    "corpus",
    [
        [["one", "one"]],
        [["a"]] * 5,
        [["x"] * 5000],
    ],
    ids=["one_token", "no_pairs", "long"],
)
def test_fit_takes_odd_corpora(trainer_class, corpus):
    trainer = trainer_class(**SMALL).fit(corpus)
    assert np.isfinite(trainer.vectors).all()
    assert np.isfinite(trainer.loss_history).all()


@pytest.mark.spread(1)
@pytest.mark.row("B10")
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "words",
    [list("abcdefgh"), ["a"] * 99 + ["b"]],
    ids=["equal_counts", "one_word_is_99_percent"],
)
def test_defaults_learn_where_every_row_reaches_the_cap(
    trainer_class, architecture, words
):
    rng = np.random.default_rng(0)
    corpus = rng.choice(words, size=(1000, 20)).tolist()
    trainer = trainer_class(vector_size=16, architecture=architecture).fit(corpus)
    assert np.isfinite(trainer.vectors).all()
    assert trainer.loss_history[-1] <= trainer.loss_history[0]
    assert trainer.loss_history[-1] < (1 + 5) * math.log(2)


def test_no_epochs_give_the_initial_vectors(trainer_class, sequences):
    trainer = trainer_class(**SMALL | {"epochs": 0}).fit(sequences)
    assert trainer.loss_history == []
    assert 0 < np.abs(trainer.vectors).max() <= 0.5 / 16


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("architecture", "dtype"), [("skipgram", "float32"), ("cbow", "float64")]
)
def test_learns_which_tokens_are_used_alike(trainer_class, architecture, dtype):
    """Two topics that never meet: neighbours are of one's own topic."""
    rng = np.random.default_rng(0)
    corpus = [
        [f"{topic}{i}" for i in rng.integers(0, 10, size=20)] for topic in "ab" * 200
    ]
    settings = SMALL | {"epochs": 5, "sample": 0}
    trainer = trainer_class(**settings, architecture=architecture, dtype=dtype)
    assert trainer.fit(corpus) is trainer and trainer.vectors.dtype == dtype
    assert trainer.loss_history[-1] < 0.9 * trainer.loss_history[0]
    for token in trainer.index_to_key:
        nearest = [key[0] for key, _ in trainer.most_similar(token, topn=5)]
        assert nearest == [token[0]] * 5


class Described(embedder.EmbeddingTrainer):
    """A subclass with a signature and an attribute of its own."""

    def __init__(self, description, /, **options):
        super().__init__(**options)
        self.description = description


@pytest.mark.spread(1)
@pytest.mark.row("F35")
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_a_copy_of_a_subclass_has_all_its_attributes(sequences, clone, is_trained):
    trainer = Described(["of news"], **SMALL)
    if is_trained:
        trainer.fit(sequences).most_similar("w0")
    trainer.later = {"added": 1}
    other = clone(trainer)
    assert type(other) is Described and repr(other) == repr(trainer)
    assert other.description == ["of news"] and other.later == {"added": 1}
    if is_trained:
        assert other.most_similar("w0") == trainer.most_similar("w0")
    before = list(trainer.loss_history)
    assert len(other.partial_fit(sequences).loss_history) == len(before) + 1
    assert trainer.loss_history == before


@pytest.mark.slow
@pytest.mark.row("F34")
def test_no_concurrent_partial_fit_is_lost(sequences):
    """As many as there are threads, all started before one has ended."""
    parts = [sequences[start : start + 75] for start in range(0, 300, 75)]
    trainer = embedder.EmbeddingTrainer(**SMALL).fit(sequences)
    starting = threading.Barrier(len(parts))

    def go_on(part):
        starting.wait(timeout=60)
        trainer.partial_fit(part)

    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(go_on, parts))
    assert len(trainer.loss_history) == 2 + len(parts)


@pytest.mark.row("F34")
def test_concurrent_fits_leave_what_one_of_them_has_made(sequences):
    trainer = embedder.EmbeddingTrainer(**SMALL)
    corpora = [sequences, [["a", "b", "c"] * 10] * 10]
    desired = [
        embedder.EmbeddingTrainer(**SMALL).fit(corpus).vectors for corpus in corpora
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(trainer.fit, corpora))
    which = 0 if "w0" in trainer.index_to_key else 1
    np.testing.assert_array_equal(trainer.vectors, desired[which])
    assert len(trainer.loss_history) == 2


@pytest.mark.row("F34")
def test_an_error_lets_the_next_one_in(sequences):
    trainer = embedder.EmbeddingTrainer(**SMALL)
    with pytest.raises(ValueError):
        trainer.fit([])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(trainer.fit, sequences).result(timeout=60) is trainer


@pytest.mark.slow
def test_the_default_of_alpha_counts_the_epochs_of_earlier_trainings(
    sequences, monkeypatch, trainer_class
):
    module, name = {
        embedder.EmbeddingTrainer: ("embedder.config", "resolve_options"),
        legacy.EmbeddingTrainer: ("legacy.trainer", "default_alpha"),
    }[trainer_class]
    default = getattr(sys.modules[module], name)
    epochs = []

    def recorded(*given):
        epochs.append(given[3])
        return default(*given)

    monkeypatch.setattr(f"{module}.{name}", recorded)
    trainer = trainer_class(epochs=2).fit(sequences)
    trainer.partial_fit(sequences).partial_fit(sequences)
    assert epochs == [2, 3, 4]
