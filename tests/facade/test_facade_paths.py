"""embedder.gensim.Word2Vec with hs=1: tree, training, scores and files."""

import logging
import math

import gensim.models
import numpy as np
import pytest

import embedder
from embedder.gensim import KeyedVectors, Word2Vec

REAL = gensim.models.Word2Vec
RNG = np.random.default_rng(0)
PAIRS = [["tea", "milk", "sugar"], ["nail", "hammer", "screw"]]
SENTENCES = [RNG.choice(PAIRS[i % 2], 3).tolist() for i in range(600)]
OTHERS = [["tea", "new", "milk", "odd"], ["nail"], [], ["unseen", "tea"]]
SETTINGS = {"vector_size": 16, "min_count": 1, "sample": 0, "alpha": 0.05, "hs": 1}
negatives = pytest.mark.parametrize("negative", [0, 5])
both = pytest.mark.parametrize("sg", [0, 1])


def model(**settings) -> Word2Vec:
    return Word2Vec(SENTENCES, **SETTINGS | {"negative": 0} | settings)


def untrained(kind=Word2Vec, **settings):
    found = kind(**SETTINGS | {"negative": 0} | settings)
    found.build_vocab(SENTENCES + OTHERS)
    return found


def same_paths(ours, theirs) -> None:
    for name in ("code", "point"):
        for key in theirs.wv.index_to_key:
            found, expected = (x.wv.get_vecattr(key, name) for x in (ours, theirs))
            assert found.tolist() == expected.tolist()
            assert found.dtype == expected.dtype


@negatives
def test_the_tree_and_the_tables_are_those_of_gensim(negative):
    ours, theirs = (untrained(kind, negative=negative) for kind in (Word2Vec, REAL))
    same_paths(ours, theirs)
    for each in (ours, theirs):
        each.build_vocab([["new", "more", "tea"], ["more"]], update=True)
    same_paths(ours, theirs)
    assert ours.syn1.shape == theirs.syn1.shape
    assert ours.syn1.dtype == theirs.syn1.dtype
    assert hasattr(ours, "syn1neg") == hasattr(theirs, "syn1neg") == bool(negative)
    assert ours.estimate_memory() == theirs.estimate_memory()


def test_one_word_and_none_have_no_path(caplog):
    one = Word2Vec([["a", "a"]], **SETTINGS, negative=0)
    assert one.wv.get_vecattr("a", "code").tolist() == []
    assert one.score([["a", "a"]]).tolist() == [0]
    with caplog.at_level(logging.INFO, "gensim"):
        Word2Vec(**SETTINGS).create_binary_tree()
    assert "built huffman tree with maximum node depth 0" in caplog.text


@pytest.mark.spread(1)
@both
@negatives
def test_it_learns_which_words_go_together(sg, negative):
    found = model(sg=sg, negative=negative, epochs=10)
    near = {key for key, _ in found.wv.most_similar("nail", topn=2)}
    assert near == {"hammer", "screw"}
    assert found.loss_history[-1] < found.loss_history[0]


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("sg", "cbow_mean"), [(0, 1), (1, 1), pytest.param(0, 0, marks=pytest.mark.slow)]
)
@negatives
def test_vectors_are_those_of_the_trainer(sg, negative, cbow_mean):
    """Of means of cbow with four times `alpha`; nodes after the words."""
    settings = {"sg": sg, "negative": negative, "cbow_mean": cbow_mean}
    found = model(**settings, epochs=2)
    start = Word2Vec(**SETTINGS, **settings)
    start.build_vocab(SENTENCES)
    ids = [start.wv.key_to_index[word] for line in SENTENCES for word in line]
    sequences = np.array(ids, np.int32), np.full(len(SENTENCES), 3)
    has_means = not sg and bool(cbow_mean)
    passes = 6 if has_means and not negative else 8  # of an epoch: there are 6 words
    rate = (4 if has_means else 1) / passes
    lag = (0.05 - 1e-4) / 4  # half an epoch of two: a job has the rate of its start
    trainer = embedder.EmbeddingTrainer(
        **{"vector_size": 16, "min_count": 1, "sample": 0, "epochs": 2, "hs": True},
        **{"alpha": (0.05 + lag) * rate, "min_alpha": (1e-4 + lag) * rate},
        negative=negative,
        architecture="skipgram" if sg else "cbow",
        cbow_mean=bool(cbow_mean),
        cap=0.4 / rate / 0.05,
    )
    counts = start.wv.expandos["count"]
    outputs = [start.syn1neg, start.syn1] if negative else [start.syn1]
    tables = start.wv.vectors, np.concatenate(outputs), counts, None
    for epoch in range(2 * passes):
        epochs = range(epoch, epoch + 1)
        done = trainer.train_epochs(tables, sequences, epochs, range(2 * passes))
        tables = done.input, done.output, counts, None
    np.testing.assert_array_equal(found.wv.vectors, tables[0])
    np.testing.assert_array_equal(found.syn1, tables[1][-6:])
    if negative:
        np.testing.assert_array_equal(found.syn1neg, tables[1][:6])


@pytest.mark.slow
def test_nodes_start_anew_in_another_tree():
    found = model(negative=5)
    before = found.syn1neg.copy()
    found.build_vocab([["new", "tea"]], update=True)
    assert found.syn1.shape == (7, 16) and not found.syn1.any()
    np.testing.assert_array_equal(found.syn1neg[:6], before)
    found.train(SENTENCES, total_examples=600, epochs=1)
    assert found.syn1.any()


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def by_table(x: float) -> float:
    """gensim's logarithm: of the place 83 (x + 6) of 1,000 from -6 to 6."""
    return log_sigmoid(12 * int((x + 6) * 83) / 1000 - 6)


def by_definition(model, sentence, log) -> float:
    """The score of a sentence, a branch at a time."""
    known, total = [word for word in sentence if word in model.wv], 0.0
    for at, word in enumerate(known):
        code, point = (model.wv.get_vecattr(word, x) for x in ("code", "point"))
        near = known[max(0, at - model.window) : at] + known[at + 1 :][: model.window]
        contexts = model.wv.vectors[[model.wv.key_to_index[x] for x in near]]
        if not model.sg:
            whole = contexts.sum(axis=0)
            contexts = [whole / max(len(near), 1) if model.cbow_mean else whole]
        for hidden in contexts:
            for bit, node in zip(code, point, strict=True):
                x = float(hidden @ model.syn1[node]) * (1 - 2 * int(bit))
                total += log(x) if abs(x) < 6 else 0.0
    return total


@both
@pytest.mark.parametrize("cbow_mean", [0, 1])
@pytest.mark.parametrize("window", [1, 2, 9])
def test_scores_are_those_of_gensim_without_its_table(sg, cbow_mean, window):
    settings = {"sg": sg, "window": window}
    ours, theirs = (untrained(kind, **settings) for kind in (Word2Vec, REAL))
    ours.cbow_mean = theirs.cbow_mean = cbow_mean
    rng = np.random.default_rng(1)
    for each in (ours.wv.vectors, ours.syn1):
        each[:] = rng.normal(scale=0.6, size=each.shape)
    theirs.wv.vectors[:], theirs.syn1[:] = ours.wv.vectors, ours.syn1
    texts = SENTENCES[:20] + OTHERS + [RNG.choice(PAIRS[0] + PAIRS[1], 40).tolist()]
    found, expected = (each.score(texts, len(texts)) for each in (ours, theirs))
    assert found.dtype == expected.dtype == np.float32
    assert found.min() < -50
    for scores, log in ((found, log_sigmoid), (expected, by_table)):
        exact = [by_definition(ours, text, log) for text in texts]
        np.testing.assert_allclose(scores, exact, rtol=1e-5, atol=1e-5)


def test_far_scores_add_nothing_as_in_gensim():
    ours, theirs = (untrained(kind, sg=1) for kind in (Word2Vec, REAL))
    for each in (ours, theirs):
        each.wv.vectors[:], each.syn1[:] = 1, 0.374  # 5.98
        near = each.score([["tea", "milk"]])
        each.syn1[:] = 0.376  # 6.02
        assert near[0] and not each.score([["tea", "milk"]])[0]


def test_only_so_many_sentences_are_scored(caplog):
    found = model()
    assert len(found.score(SENTENCES, total_sentences=7)) == 7
    assert "terminating after 7 sentences" in caplog.text
    caplog.clear()
    whole = found.score(iter(SENTENCES[:7]), total_sentences=7)
    assert not caplog.text
    np.testing.assert_array_equal(whole, found.score(SENTENCES[:7]))


@pytest.mark.parametrize(
    "settings", [{"sg": 1}, {"sg": 0, "cbow_mean": 0}], ids=["skipgram", "cbow-sums"]
)
def test_likely_sentences_score_higher(settings):
    found = model(epochs=2, **settings)
    likely, odd = found.score([["tea", "milk", "sugar"], ["tea", "screw", "sugar"]])
    assert likely > odd


@pytest.mark.row("B78")
def test_scores_without_a_tree_are_an_error_of_gensim():
    with pytest.raises(RuntimeError, match="only implemented score for the hierarch"):
        model(hs=0, negative=5).score(SENTENCES)
    with pytest.raises(RuntimeError, match="build vocabulary before scoring"):
        Word2Vec(**SETTINGS).score(SENTENCES)
    with pytest.raises(RuntimeError, match="predict_output_word for the negative"):
        model().predict_output_word(["tea"])


@pytest.mark.spread(1)
@negatives
def test_a_saved_model_has_its_tree_and_trains_on(tmp_path, negative):
    found = model(negative=negative)
    found.save(tmp_path / "m")
    again = Word2Vec.load(tmp_path / "m")
    same_paths(again, found)
    np.testing.assert_array_equal(again.syn1, found.syn1)
    np.testing.assert_array_equal(again.score(SENTENCES), found.score(SENTENCES))
    for each in (found, again):
        each.train(SENTENCES, total_examples=600, epochs=1)
    np.testing.assert_array_equal(again.wv.vectors, found.wv.vectors)
    found.wv.save(tmp_path / "v")
    assert {*KeyedVectors.load(tmp_path / "v").expandos} == {"count", "sample_int"}


def test_pickles_of_gensim_have_their_tree(tmp_path):
    theirs = REAL(SENTENCES, **SETTINGS, negative=0)
    theirs.save(str(tmp_path / "m"))
    ours = Word2Vec.load((tmp_path / "m").as_posix(), trust=True)
    same_paths(ours, theirs)
    np.testing.assert_array_equal(ours.syn1, theirs.syn1)
    assert ours.score(SENTENCES[:9])[0] < 0
    ours.train(SENTENCES, total_examples=600, epochs=1)
