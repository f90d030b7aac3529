"""Loads any file of `save`, as gensim's `load` does: the file says of which class."""

import logging
from typing import Any

from embedder.gensim import files, pickles

_OF_VECTORS = "KeyedVectors", "FastTextKeyedVectors"
_OF_MODELS = "Word2Vec", "FastText"
_OF_PHRASES = "Phrases", "FrozenPhrases"
_LOADED = {
    "KeyedVectors": (*_OF_VECTORS, *_OF_MODELS),
    "FastTextKeyedVectors": ("FastTextKeyedVectors", "FastText"),
    "Word2Vec": _OF_MODELS,
    "FastText": ("FastText",),
    "Phrases": _OF_PHRASES,
    "FrozenPhrases": _OF_PHRASES,
}
"""`KIND` of a class -> those that its `load` returns."""

_log = logging.getLogger("gensim.utils")


def load(kind: Any, path: Any, mmap: str | None, trust: bool) -> Any:
    """The object in a file; of the class `kind`, if that has the `KIND` of the file.

    Raises:
      AttributeError: `kind` does not load what the file has.
      ValueError: it is damaged, or a pickle without `trust`.
      ImportError: it is a pickle, and gensim is not installed.
    """
    _log.info("loading %s object from %s", kind.__name__, path)
    if not files.is_saved(path):
        found = pickles.load(path, trust, mmap)
        _check_kind(kind, type(found))
        return found
    saved = files.read(path, mmap)
    of_file = _classes().get(saved.kind)
    if of_file is None:
        raise files.damaged(path, ValueError(f"it has a {saved.kind!r:.40}"))
    _check_kind(kind, of_file)
    loaded = kind if saved.kind == kind.KIND else of_file
    try:
        return loaded.from_saved(saved)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise files.damaged(path, error) from None


def _classes() -> dict[Any, Any]:
    from embedder.gensim.fasttext import FastText, FastTextKeyedVectors
    from embedder.gensim.keyedvectors import KeyedVectors
    from embedder.gensim.phrases import FrozenPhrases, Phrases
    from embedder.gensim.word2vec import Word2Vec

    classes: list[Any] = [KeyedVectors, FastTextKeyedVectors, Word2Vec, FastText]
    return {each.KIND: each for each in (*classes, Phrases, FrozenPhrases)}


def _check_kind(kind: Any, of_file: Any) -> None:
    if of_file.KIND not in _LOADED[kind.KIND]:
        raise AttributeError(f"Model of type {of_file} can't be loaded by {kind}")
