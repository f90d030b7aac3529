"""Reads the pickles that gensim's own `save` writes, by gensim."""

import os
from typing import Any

from embedder.gensim import phrase_scores

TRUST = "EMBEDDER_GENSIM_TRUST"
"""The environment variable that, as 1, has all pickles read as with trust=True."""


def load(path: Any, trust: bool, mmap: str | None) -> Any:
    """The `Word2Vec`, `FastText`, vectors of either, or phrases in a file of gensim.

    Raises:
      ValueError: without `trust` or `TRUST`, since a pickle can run any program; or it
        is of another class.
      ImportError: gensim is not installed.
    """
    if not (trust or _is_trusted()):
        raise ValueError(
            f"{path} is not a file of `save`. If gensim wrote it, it is a pickle, "
            f"which can run any program: give trust=True, or set {TRUST}=1, to read it "
            "by gensim."
        )
    from embedder.gensim.drop_in import own_classes

    with own_classes() as gensim:
        if gensim is None:
            raise ImportError(
                f"gensim must be installed to read its pickle {path}: "
                "pip install gensim."
            )
        found = gensim.utils.SaveLoad.load(path, mmap=mmap)
        of_phrases = gensim.models.phrases
        if type(found) in (of_phrases.Phrases, of_phrases.FrozenPhrases):
            # Again by their own `load`, which knows earlier forms.
            return _phrases(of_phrases.Phrases.load(path), of_phrases)
        models = gensim.models.Word2Vec, gensim.models.FastText
        of_words = (
            gensim.models.KeyedVectors,
            gensim.models.fasttext.FastTextKeyedVectors,
        )
        if type(found) not in (*models, *of_words):
            raise ValueError(
                f"{path} must be of Word2Vec, KeyedVectors or Phrases, got "
                f"{type(found)}."
            )
        is_model = type(found) in models
    return _model(found) if is_model else _vectors(found)


def _is_trusted() -> bool:
    found = os.environ.get(TRUST, "")
    if found not in ("", "0", "1"):
        raise ValueError(f"{TRUST} must be 0 or 1, got {found!r:.40}.")
    return found == "1"


def _vectors(found: Any) -> Any:
    from embedder.gensim.fasttext import FastTextKeyedVectors
    from embedder.gensim.keyedvectors import KeyedVectors

    vectors = KeyedVectors(found.vector_size)
    if hasattr(found, "bucket"):
        rule = found.min_n, found.max_n, found.bucket
        vectors = FastTextKeyedVectors(found.vector_size, *rule)
    vars(vectors).update(vars(found))
    return vectors


def _model(found: Any) -> Any:
    from embedder.gensim.fasttext import FastText
    from embedder.gensim.word2vec import Word2Vec

    kind = FastText if hasattr(found.wv, "bucket") else Word2Vec
    model = kind(vector_size=found.vector_size, seed=found.seed)
    known = {name: x for name, x in vars(found).items() if name not in ("wv", "load")}
    vars(model).update(known)
    model.wv = _vectors(found.wv)
    return model


def _phrases(found: Any, module: Any) -> Any:
    """Phrases of gensim's `module` as ours, with our scorers for its own."""
    from embedder.gensim import phrases

    kind = getattr(phrases, type(found).__name__)
    result = kind.__new__(kind)
    vars(result).update(vars(found))
    for scorer in (phrase_scores.original_scorer, phrase_scores.npmi_scorer):
        if found.scoring is getattr(module, scorer.__name__):
            result.scoring = scorer
    return result
