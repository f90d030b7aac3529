import inspect
import math
import re

import numpy as np
import pytest

import legacy
from legacy import EmbeddingTrainer
from legacy.trainer import initial_tables

SMALL = {"vector_size": 12, "min_count": 1, "sample": 0, "epochs": 3, "tile": 8}


def cats_and_cars(num_sequences=150) -> list[list[str]]:
    """Two sets of tokens that never meet; within each all are alike."""
    rng = np.random.default_rng(3)
    kinds = [["cat", "purr", "fur", "paw"], ["car", "road", "fuel", "tyre"]]
    return [list(rng.choice(kinds[i % 2], 12)) for i in range(num_sequences)]


@pytest.fixture
def corpus() -> list[list[str]]:
    return [[str(token) for token in sequence] for sequence in cats_and_cars()]


@pytest.fixture(params=["skipgram", "cbow"])
def architecture(request) -> str:
    return request.param


def same(a: EmbeddingTrainer, b: EmbeddingTrainer) -> bool:
    return (
        np.array_equal(a._model.tables, b._model.tables)
        and np.array_equal(a._model.accumulators, b._model.accumulators)
        and a.index_to_key == b.index_to_key
        and a.loss_history == b.loss_history
    )


def test_public_names():
    assert legacy.__all__ == ["EmbeddingTrainer", "FeatureEncoder"]


def test_constructor_stores_its_arguments():
    signature = inspect.signature(EmbeddingTrainer)
    given = {"window": 3, "alpha": 0.5, "cap": math.inf, "dtype": "float64"}
    trainer = EmbeddingTrainer(**given)
    for name, parameter in signature.parameters.items():
        assert getattr(trainer, name) == given.get(name, parameter.default)
        assert parameter.kind is parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name, value", [("window", 0), ("epochs", -1), ("tile", 0)])
def test_constructor_refuses(name, value):
    with pytest.raises(ValueError, match=rf"^`{name}` must be .*, got {value}\.$"):
        EmbeddingTrainer(**{name: value})


def test_constructor_refuses_other_types():
    with pytest.raises(TypeError, match=r"^`seed` must be .*, got True\.$"):
        EmbeddingTrainer(seed=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        EmbeddingTrainer(size=3)


def test_repr_has_all_arguments_in_order():
    text = repr(EmbeddingTrainer(window=3, architecture="cbow", cap=math.inf))
    assert text.startswith("EmbeddingTrainer(vector_size=100, window=3, negative=5, ")
    names = re.findall(r"(\w+)=", text)
    assert names == list(inspect.signature(EmbeddingTrainer).parameters)
    inf = math.inf  # noqa: F841  (for eval)
    assert repr(eval(text, {"EmbeddingTrainer": EmbeddingTrainer, "inf": inf})) == text


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.vectors,
        lambda t: t.index_to_key,
        lambda t: t.key_to_index,
        lambda t: t.most_similar("a"),
        lambda t: t.similarity("a", "b"),
        lambda t: t.save("never.npz"),
    ],
    ids=[
        "vectors",
        "index_to_key",
        "key_to_index",
        "most_similar",
        "similarity",
        "save",
    ],
)
def test_untrained(use):
    with pytest.raises(RuntimeError) as error:
        use(EmbeddingTrainer())
    assert str(error.value) == "The trainer is not trained yet: call `fit` first."
    assert EmbeddingTrainer().loss_history == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fit_learns(corpus, architecture, dtype):
    trainer = EmbeddingTrainer(
        **SMALL | {"epochs": 8}, architecture=architecture, dtype=dtype
    )
    assert trainer.fit(corpus) is trainer
    assert trainer.vectors.shape == (8, 12) and trainer.vectors.dtype == dtype
    assert len(trainer.loss_history) == 8
    assert trainer.loss_history[-1] < 0.9 * trainer.loss_history[0]
    near = {token for token, _ in trainer.most_similar("cat", topn=3)}
    assert near == {"purr", "fur", "paw"}
    assert trainer.similarity("cat", "fur") > trainer.similarity("cat", "car")


@pytest.mark.parametrize(
    "changes",
    [
        {"tile": 1, "noise": 5},
        {"window": 30, "tile": 2, "block": 64},
        {"blocks_per_update": 3},
        {"block": 8192},
        {"cap": math.inf, "alpha": 1e-3},
    ],
    ids=str,
)
def test_fit_learns_in_other_forms(corpus, architecture, changes):
    trainer = EmbeddingTrainer(**SMALL | changes, architecture=architecture)
    history = trainer.fit(corpus).loss_history
    assert history[-1] < history[0] <= 6 * math.log(2) * 1.2


def test_fit_is_reproducible(corpus, architecture):
    first, second = (
        EmbeddingTrainer(**SMALL, architecture=architecture).fit(corpus) for _ in "ab"
    )
    other = EmbeddingTrainer(**SMALL, architecture=architecture, seed=2).fit(corpus)
    assert same(first, second) and not same(first, other)
    assert same(first.fit(corpus), second)  # fit starts afresh


def test_fit_takes_generators_and_files_alike(corpus, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(map(" ".join, corpus)))
    expected = EmbeddingTrainer(**SMALL).fit(corpus)
    lazily = EmbeddingTrainer(**SMALL).fit((t for t in tokens) for tokens in corpus)
    assert same(lazily, expected)
    assert same(EmbeddingTrainer(**SMALL).fit(path), expected)
    assert same(EmbeddingTrainer(**SMALL).fit(str(path)), expected)


def test_fit_without_epochs_gives_the_initial_vectors(corpus):
    trainer = EmbeddingTrainer(**SMALL | {"epochs": 0}, seed=2**64 - 1).fit(corpus)
    assert trainer.loss_history == []
    expected = initial_tables(8, 12, 2**64 - 1, "float32")
    np.testing.assert_array_equal(trainer.vectors, expected[0])
    assert np.abs(expected[0]).max() <= 0.5 / 12 and not expected[1].any()
    assert np.unique(expected[0]).size > 90


def test_initial_tables_by_their_draws():
    rng = np.random.default_rng(np.random.SeedSequence(3, spawn_key=(1,)))
    expected = (rng.random((50, 10), dtype=np.float32) - np.float32(0.5)) / np.float32(
        10
    )
    found = initial_tables(50, 10, 3, "float32")
    np.testing.assert_array_equal(found[0], expected, strict=True)


def test_initial_tables_are_the_same_draws_in_both_dtypes():
    single, double = (initial_tables(50, 10, 3, d)[0] for d in ("float32", "float64"))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "corpus, loss",
    [([["a"]], 0.0), ([["a"] * 5], None), ([["a"], ["b"]], 0.0), ([["a", "b"]], None)],
    ids=str,
)
def test_fit_tiny_corpora(architecture, corpus, loss):
    trainer = EmbeddingTrainer(**SMALL, architecture=architecture).fit(corpus)
    assert np.isfinite(trainer.vectors).all()
    if loss is None:  # the output table starts at zero
        assert trainer.loss_history[0] == pytest.approx(6 * math.log(2), rel=1e-6)
    else:
        assert trainer.loss_history == [loss] * 3


def test_fit_diverges_without_a_word_of_warning_from_numpy(corpus):
    trainer = EmbeddingTrainer(**SMALL | {"cap": math.inf, "alpha": 1e30})
    with pytest.raises(FloatingPointError, match="Training diverged in epoch 0: lower"):
        trainer.fit(corpus)


def test_fit_with_one_dominating_token(architecture):
    corpus = [["the"] * 99 + ["rare"]] * 20
    trainer = EmbeddingTrainer(**SMALL, architecture=architecture).fit(corpus)
    assert np.isfinite(trainer.vectors).all()
    assert trainer.loss_history[-1] < trainer.loss_history[0]


def test_fit_unicode_and_spaces():
    tokens = ["New York", "naïve café", "日本", "\u2028", "a\tb"]
    trainer = EmbeddingTrainer(**SMALL).fit([tokens * 3])
    assert trainer.index_to_key == tokens
    assert trainer.key_to_index == {token: i for i, token in enumerate(tokens)}
    assert (
        trainer.most_similar("New York", topn=9)[3:]
        == (trainer.most_similar("New York", topn=9)[3:4])
    )


@pytest.mark.parametrize(
    "corpus, error, message",
    [
        ([], ValueError, "^The corpus has no tokens"),
        ([["a", "b"]], ValueError, "^No token occurs `min_count` = 5 times or more"),
        (["a b"], TypeError, "A sequence must be a list of tokens"),
        ([["a", 1]], TypeError, "A token must be a str"),
        ("no such file.txt", FileNotFoundError, r"no such file\.txt does not exist"),
    ],
    ids=str,
)
def test_fit_refuses(corpus, error, message):
    trainer = EmbeddingTrainer()
    with pytest.raises(error, match=message):
        trainer.fit(corpus)
    with pytest.raises(RuntimeError, match="not trained yet"):
        trainer.vectors  # noqa: B018


def test_errors_leave_the_trainer_as_it_was(corpus):
    trainer = EmbeddingTrainer(**SMALL).fit(corpus)
    expected = EmbeddingTrainer(**SMALL).fit(corpus)
    trainer.alpha, trainer.cap = 1e38, math.inf
    with pytest.raises(FloatingPointError, match="Training diverged in epoch 0"):
        trainer.partial_fit(corpus)
    with pytest.raises(FloatingPointError, match="Training diverged in epoch 0"):
        trainer.fit(corpus)
    with pytest.raises(ValueError, match="no tokens"):
        trainer.partial_fit([])
    assert same(trainer, expected)


def test_partial_fit_trains_one_epoch_more(corpus, architecture):
    trainer = EmbeddingTrainer(**SMALL, architecture=architecture).fit(corpus)
    before, losses = trainer.vectors, trainer.loss_history
    kept = before.copy()
    assert trainer.partial_fit(corpus) is trainer
    assert trainer.loss_history[:3] == losses and len(trainer.loss_history) == 4
    assert not np.array_equal(trainer.vectors, kept)
    np.testing.assert_array_equal(before, kept)  # an array once read stays


def test_partial_fit_on_an_untrained_trainer_is_one_epoch_of_fit(corpus):
    once = EmbeddingTrainer(**SMALL | {"epochs": 1}).fit(corpus)
    assert same(EmbeddingTrainer(**SMALL).partial_fit(corpus), once)


def test_partial_fit_goes_on_where_fit_ended(corpus):
    options = SMALL | {"alpha": 0.02, "min_alpha": 0.02}  # one rate in all epochs
    twice = EmbeddingTrainer(**options | {"epochs": 2}).fit(corpus)
    once = EmbeddingTrainer(**options | {"epochs": 1}).fit(corpus)
    assert same(once.partial_fit(corpus), twice)


def test_partial_fit_drops_unknown_tokens(corpus):
    with_others = [[*sequence, "dog"] for sequence in corpus] + [["dog", "bone"]]
    first, second = (EmbeddingTrainer(**SMALL).fit(corpus) for _ in "ab")
    first.partial_fit(corpus)
    second.partial_fit(with_others)
    assert second.index_to_key == first.index_to_key
    np.testing.assert_array_equal(first.vectors, second.vectors)


def test_partial_fit_of_unknown_tokens_alone(corpus, caplog):
    trainer = EmbeddingTrainer(**SMALL).fit(corpus)
    before = trainer.vectors
    trainer.partial_fit([["dog", "bone"]])
    np.testing.assert_array_equal(trainer.vectors, before)
    assert trainer.loss_history[-1] == 0.0
    assert "No token of the corpus is in the vocabulary." in caplog.text


def test_partial_fit_keeps_the_block(corpus):
    trainer = EmbeddingTrainer(**SMALL).fit(corpus)
    assert trainer.block is None and trainer._model.block == 64
    trainer.partial_fit(corpus * 200)
    assert trainer._model.block == 64


@pytest.fixture
def hand_made() -> EmbeddingTrainer:
    """Vectors in the plane: a (1, 0), b (2, 2), c (0, 3), d (-1, 0), e (0, 0)."""
    counts = {"a": 5, "b": 4, "c": 3, "d": 2, "e": 1}
    sequences = [[token] * count for token, count in counts.items()]
    trainer = EmbeddingTrainer(vector_size=2, min_count=1, epochs=0, dtype="float64")
    trainer.fit(sequences)
    trainer._model.tables[0] = [[1, 0], [2, 2], [0, 3], [-1, 0], [0, 0]]
    return trainer


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


@pytest.mark.parametrize(
    "arguments", [("z",), (["a", "z"],), (None, "z"), (["a"], ["z"])]
)
def test_most_similar_unknown_token(hand_made, arguments):
    with pytest.raises(KeyError, match="Token 'z' is not in the vocabulary."):
        hand_made.most_similar(*arguments)


@pytest.mark.parametrize("arguments", [(), ([],), (None, [])])
def test_most_similar_of_nothing(hand_made, arguments):
    with pytest.raises(ValueError, match="must have a token, got none"):
        hand_made.most_similar(*arguments)


@pytest.mark.parametrize(
    "topn, error",
    [(0, ValueError), (-1, ValueError)]
    + [(value, TypeError) for value in (1.5, None, "3", True)],
)
def test_most_similar_topn(hand_made, topn, error):
    with pytest.raises(error, match="`topn` must be an integer >= 1, got"):
        hand_made.most_similar("a", topn=topn)


def test_similarity(hand_made):
    assert hand_made.similarity("a", "b") == pytest.approx(math.sqrt(0.5))
    assert hand_made.similarity("a", "e") == 0.0
    with pytest.raises(KeyError, match="Token 'z' is not in the vocabulary."):
        hand_made.similarity("a", "z")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_save_and_load(corpus, architecture, dtype, tmp_path):
    path = tmp_path / "model"  # no suffix is added
    trainer = EmbeddingTrainer(**SMALL, architecture=architecture, dtype=dtype)
    trainer.fit(corpus).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    loaded = EmbeddingTrainer.load(str(path))
    assert same(loaded, trainer) and repr(loaded) == repr(trainer)
    assert loaded.most_similar("cat") == trainer.most_similar("cat")
    assert same(loaded.partial_fit(corpus[:90]), trainer.partial_fit(corpus[:90]))


def test_load_refuses(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, vectors=np.ones(3))
    with pytest.raises(ValueError, match=r"model\.npz is not a whole model file: "):
        EmbeddingTrainer.load(path)
