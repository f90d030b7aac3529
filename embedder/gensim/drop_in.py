"""Makes the classes of `gensim.models` those of `embedder.gensim`, and back.

Where gensim is not installed, modules of its names are made that have these alone, and
the words of texts.
"""

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

from embedder.gensim import (
    callbacks,
    corpora,
    fasttext,
    keyedvectors,
    phrase_scores,
    phrases,
    rows,
    rules,
    texts,
    word2vec,
)
from embedder.gensim.lifecycle import GENSIM_VERSION

_WORD2VEC = {
    "Word2Vec": word2vec.Word2Vec,
    "LineSentence": corpora.LineSentence,
    "PathLineSentences": corpora.PathLineSentences,
    "Text8Corpus": corpora.Text8Corpus,
    "BrownCorpus": corpora.BrownCorpus,
    "MAX_WORDS_IN_BATCH": corpora.MAX_WORDS_IN_BATCH,
}
_KEYED_VECTORS = {
    "KeyedVectors": keyedvectors.KeyedVectors,
    "Word2VecKeyedVectors": keyedvectors.KeyedVectors,
    "EuclideanKeyedVectors": keyedvectors.KeyedVectors,
    "REAL": keyedvectors.REAL,
    "load_word2vec_format": keyedvectors.load_word2vec_format,
    "_load_word2vec_format": keyedvectors._load_word2vec_format,
    "prep_vectors": rows.prep_vectors,
    "pseudorandom_weak_vector": rows.pseudorandom_weak_vector,
}
_FASTTEXT = {
    "FastText": fasttext.FastText,
    "FastTextKeyedVectors": fasttext.FastTextKeyedVectors,
    "ft_ngram_hashes": fasttext.ft_ngram_hashes,
    "load_facebook_model": fasttext.load_facebook_model,
    "load_facebook_vectors": fasttext.load_facebook_vectors,
    "save_facebook_model": fasttext.save_facebook_model,
}
_PHRASES = {
    "Phrases": phrases.Phrases,
    "FrozenPhrases": phrases.FrozenPhrases,
    "Phraser": phrases.Phraser,
    "_PhrasesTransformation": phrases.PhrasesTransformation,
    "ENGLISH_CONNECTOR_WORDS": phrase_scores.ENGLISH_CONNECTOR_WORDS,
    "original_scorer": phrase_scores.original_scorer,
    "npmi_scorer": phrase_scores.npmi_scorer,
}
_MODULES: dict[str, dict[str, Any]] = {
    "gensim.models": {
        "Word2Vec": word2vec.Word2Vec,
        "KeyedVectors": keyedvectors.KeyedVectors,
        "FastText": fasttext.FastText,
        "Phrases": phrases.Phrases,
    },
    "gensim.models.fasttext": _FASTTEXT,
    "gensim.models.phrases": _PHRASES,
    "gensim.models.word2vec": _WORD2VEC,
    "gensim.models.keyedvectors": _KEYED_VECTORS,
    "gensim.models.callbacks": {"CallbackAny2Vec": callbacks.CallbackAny2Vec},
}
"""Names that are replaced, by module."""

_PACKAGE = "gensim.models"
_OWN_HOME = "gensim.models.doc2vec"
"""A module that has gensim's own Word2Vec and KeyedVectors in any case.

gensim's Doc2Vec goes on to use these, so its pickles name them as of that module, and
gensim reads them with and without embedder.
"""
_SUBCLASSES = "gensim.models.poincare", _OWN_HOME
"""Modules that derive classes of their own from gensim's: loaded before these go."""

_OF_UTILS = {
    "RULE_DEFAULT": rules.RULE_DEFAULT,
    "RULE_DISCARD": rules.RULE_DISCARD,
    "RULE_KEEP": rules.RULE_KEEP,
    "keep_vocab_item": rules.keep_vocab_item,
    "prune_vocab": rules.prune_vocab,
    "any2unicode": corpora.to_unicode,
    "deaccent": texts.deaccent,
    "simple_preprocess": texts.simple_preprocess,
    "simple_tokenize": texts.simple_tokenize,
    "to_unicode": corpora.to_unicode,
    "tokenize": texts.tokenize,
}
_OF_TESTS = {"common_texts": texts.common_texts, "get_tmpfile": texts.get_tmpfile}
_originals: dict[str, Any] = {}  # gensim's modules and `unpickle`, while it is swapped


def swap_in() -> None:
    """Replaces the classes in gensim's modules, which it makes if there are none.

    A module of gensim is replaced by a copy with other names, as the methods of its
    classes look up each other in it. The package `gensim.models` itself has no methods.
    """
    if _originals or _is_made("gensim"):
        return
    if importlib.util.find_spec("gensim") is None:
        _make_modules()
        return
    package = importlib.import_module(_PACKAGE)
    for name in (*_MODULES, *_SUBCLASSES):
        importlib.import_module(name)
    for name in _MODULES.keys() - {_PACKAGE}:
        _originals[name] = sys.modules[name]
        _set_module(name, _changed(sys.modules[name], _MODULES[name]))
    for name, value in _MODULES[_PACKAGE].items():
        _originals[name] = getattr(package, name)
        setattr(package, name, value)
    for kind in (_originals["Word2Vec"], _originals["KeyedVectors"]):
        kind.__module__ = _OWN_HOME
    utils = vars(importlib.import_module("gensim.utils"))
    _originals["unpickle"] = utils["unpickle"]
    utils["unpickle"] = _unpickle


def swap_out() -> None:
    """Puts gensim's own classes back, or removes the modules that were made."""
    if _originals:
        vars(sys.modules["gensim.utils"])["unpickle"] = _originals.pop("unpickle")
    for name in ("Word2Vec", "KeyedVectors"):
        if name in _originals:
            _originals[name].__module__ = f"{_PACKAGE}.{name.lower()}"
    for name, value in _originals.items():
        if name in _MODULES:
            _set_module(name, value)
        else:
            setattr(sys.modules[_PACKAGE], name, value)
    _originals.clear()
    for name in [name for name in sys.modules if _is_made(name)]:
        del sys.modules[name]
    sys.meta_path[:] = [x for x in sys.meta_path if not isinstance(x, _Refuser)]


def _unpickle(path: Any) -> Any:
    """`gensim.utils.unpickle`: files of gensim name classes of gensim."""
    with own_classes() as gensim:
        return gensim.utils.unpickle(path)


def _changed(module: types.ModuleType, names: dict[str, Any]) -> types.ModuleType:
    """A copy of a module with other values of some names."""
    copy = types.ModuleType(module.__name__, module.__doc__)
    vars(copy).update(vars(module) | names)
    return copy


def _set_module(name: str, module: types.ModuleType) -> None:
    """Makes `module` the one that is imported by a name."""
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


@contextlib.contextmanager
def own_classes() -> Iterator[Any]:
    """The package gensim with its own classes within the body; None: not installed."""
    is_swapped = bool(_originals) or _is_made("gensim")
    swap_out()
    try:
        has_gensim = importlib.util.find_spec("gensim") is not None
        yield importlib.import_module("gensim") if has_gensim else None
    finally:
        if is_swapped:
            swap_in()


def _is_made(name: str) -> bool:
    return isinstance(sys.modules.get(name), _Made)


class _Made(types.ModuleType):
    """A module of gensim's name that only has what embedder gives."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"module {self.__name__!r} {_lack(name)}")


class _Refuser:
    """Says what to install, where a program imports more of gensim than was made."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError for a name within gensim."""
        package, _, rest = name.partition(".")
        if package == "gensim":  # another name than `name`, else Python hides the text
            raise ModuleNotFoundError(f"The module {_lack(rest)}", name=package)


def _lack(name: str) -> str:
    return f"of embedder.gensim has no {name!r}, which gensim has: pip install gensim."


def _make_modules() -> None:
    parts = {"gensim": {"__version__": GENSIM_VERSION}, **_MODULES}
    parts |= {"gensim.utils": _OF_UTILS, "gensim.test": {}}
    parts["gensim.test.utils"] = _OF_TESTS
    for name, values in parts.items():
        module = _Made(name)
        module.__path__ = []  # a package: its modules can be imported
        module.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
        vars(module).update(values)
        if name == "gensim":
            sys.modules[name] = module
        else:
            _set_module(name, module)
    sys.meta_path.insert(0, _Refuser())
