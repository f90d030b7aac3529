"""FastText of embedder.gensim: its own files, those of fastText, and its refusals."""

import copy

import numpy as np
import pytest
from gensim.models import fasttext

from embedder.gensim import (
    FastText,
    FastTextKeyedVectors,
    Word2Vec,
    load_facebook_model,
    load_facebook_vectors,
    save_facebook_model,
)

SENTENCES = [["human", "interface"], ["humans", "computer", "interfaces"]] * 30
WORD2VEC = "min_count", "vector_size", "sample"
SETTINGS = {"min_count": 1, "vector_size": 6, "bucket": 300, "epochs": 1, "sample": 0}


@pytest.fixture(scope="module")
def model() -> FastText:
    return FastText(SENTENCES, sg=1, **SETTINGS)


def test_unknown_words_have_the_mean_of_their_ngrams(model):
    assert "humanity" in model.wv and "humanity" not in model.wv.key_to_index
    ngrams = model.wv.vectors_ngrams
    assert model.wv.vectors_vocab.shape == (5, 6) and ngrams.shape == (300, 6)
    rows = fasttext.ft_ngram_hashes("humanity", 3, 6, 300)
    expected = ngrams[rows].mean(axis=0)
    np.testing.assert_allclose(model.wv["humanity"], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        model.wv.get_vector("humanly", norm=True),
        model.wv["humanly"] / np.linalg.norm(model.wv["humanly"]),
        rtol=1e-5,
    )


def test_a_model_goes_on_from_its_file(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    first, again = FastText.load(path), FastText.load(path)
    np.testing.assert_array_equal(first.wv.vectors, model.wv.vectors)
    for each in (first, again):
        each.build_vocab([["humanoid", "interface"]], update=True)
        each.train(SENTENCES, total_examples=60, epochs=1)
    np.testing.assert_array_equal(first.wv["humanoid"], again.wv["humanoid"])
    assert len(first.wv.vectors_vocab) == 6
    model.wv.save(path)
    loaded = FastTextKeyedVectors.load(path)
    np.testing.assert_array_equal(loaded["unheard"], model.wv["unheard"])


def test_a_file_of_fasttext_comes_back(model, tmp_path):
    path, again = tmp_path / "model.bin", tmp_path / "again.bin"
    save_facebook_model(model, path)
    loaded = load_facebook_model(path)
    np.testing.assert_array_equal(loaded.wv["unheard"], model.wv["unheard"])
    np.testing.assert_array_equal(loaded.syn1neg, model.syn1neg)
    save_facebook_model(loaded, again)
    assert again.read_bytes() == path.read_bytes()
    older = FastText(vector_size=6)
    older.file_name = path
    with pytest.warns(DeprecationWarning, match="load_binary_data"):
        older.load_binary_data()
    np.testing.assert_array_equal(older.wv.vectors, loaded.wv.vectors)
    vectors = load_facebook_vectors(path)
    np.testing.assert_allclose(vectors.vectors, model.wv.vectors, rtol=1e-6)


@pytest.mark.parametrize("ngrams", [{"min_n": 0, "max_n": 0}, {"max_n": 0}])
def test_words_without_ngrams_train_as_words(ngrams):
    """gensim keeps the buckets where min_n is 0, too: unknown words are zeros."""
    settings = SETTINGS | {"sg": 1, "epochs": 2} | ngrams
    found, real = (
        kind(SENTENCES, **settings) for kind in (FastText, fasttext.FastText)
    )
    assert found.wv.bucket == real.wv.bucket
    assert ("unheard" in found.wv) == ("unheard" in real.wv)
    np.testing.assert_array_equal(found.wv.vectors, found.wv.vectors_vocab)
    plain = Word2Vec(**{k: x for k, x in settings.items() if k in WORD2VEC}, sg=1)
    plain.build_vocab(SENTENCES)
    start = FastText(**settings)
    start.build_vocab(SENTENCES)
    plain.wv.vectors[:] = start.wv.vectors
    plain.train(SENTENCES, total_examples=60, epochs=2)
    np.testing.assert_array_equal(found.wv.vectors, plain.wv.vectors)


@pytest.mark.parametrize("kind", [FastText, fasttext.FastText])
def test_a_vocabulary_without_words_is_not_trained(kind):
    """All words are as frequent, so at most two of them are none."""
    with pytest.raises(RuntimeError, match="you must first build vocabulary"):
        kind([["a", "b", "c"]] * 5, max_final_vocab=2, **SETTINGS)


def test_without_a_seed_models_differ():
    first, second = (FastText(SENTENCES, **SETTINGS, seed=None) for _ in range(2))
    assert not np.array_equal(first.wv.vectors, second.wv.vectors)


def test_keys_that_the_model_has_no_rows_for_are_refused(model):
    again = copy.deepcopy(model)
    again.wv.add_vectors(["added"], np.ones((1, 6)))
    with pytest.raises(RuntimeError, match="`wv` has 6 keys and `syn1neg` 5 rows"):
        again.train(SENTENCES, total_examples=60, epochs=1)


@pytest.mark.slow
@pytest.mark.parametrize("tree", [{}, {"hs": 1, "negative": 0}], ids=["ns", "hs"])
def test_cbow_has_the_sum_of_contexts_or_their_mean(tree):
    sums, means = (
        FastText(SENTENCES, sg=0, cbow_mean=mean, **SETTINGS | tree | {"epochs": 3})
        for mean in (0, 1)
    )
    assert sums.loss_history == sorted(sums.loss_history, reverse=True)
    assert sums.loss_history != means.loss_history
    assert not np.allclose(sums.wv["unheard"], means.wv["unheard"])


def test_rows_of_ngrams_cannot_be_locked(model):
    model.wv.vectors_vocab_lockf = np.zeros(1, np.float32)
    try:
        with pytest.raises(NotImplementedError, match="`vectors_vocab_lockf` must be"):
            model.train(SENTENCES, total_examples=60, epochs=1)
    finally:
        model.wv.vectors_vocab_lockf = np.ones(1, np.float32)
