"""`save`, `load` and the lifecycle events of models, vectors and phrases.

gensim's own files are pickles, which gensim reads.
"""

import copy
import logging
import os
import platform
import sys
from datetime import datetime
from typing import Any

from embedder.gensim import files, phrase_scores
from embedder.gensim.corpora import local_path
from embedder.gensim.swapping import GENSIM_VERSION, own_classes

TRUST = "EMBEDDER_GENSIM_TRUST"
"""The environment variable that, as 1, has all pickles read as with trust=True."""
_OTHERS = (
    "load_word2vec_format reads files of word2vec, load_facebook_vectors those of "
    "fastText."
)
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


class SaveLoad:
    """Base of the classes whose objects are saved in a file, see `files`."""

    KIND: str

    def to_saved(self, path: Any, ignore: Any) -> files.Saved:
        """What `save` writes to `path`, without the attributes in `ignore`."""
        raise NotImplementedError

    @classmethod
    def from_saved(cls, saved: files.Saved) -> Any:
        """The object in a file of `save`.

        Raises:
          ValueError: parts are missing, or do not fit each other.
        """
        raise NotImplementedError

    def save(
        self,
        fname_or_handle: Any,
        separately: Any = None,
        sep_limit: int = 10 * 1024**2,
        ignore: Any = frozenset(),
        pickle_protocol: int = 4,
    ) -> None:
        """Writes one file (safetensors and JSON), which `load` reads.

        Attributes that a program added are saved if JSON has them, or if they are
        arrays of numbers; the log warns of others.

        `separately`, `sep_limit` and `pickle_protocol` have no effect; an attribute in
        `ignore` is left out.

        Raises:
          TypeError, ValueError: keys, words or attributes have values that no file can
            have, arrays have other sizes than the vectors, or the scorer of phrases is
            no function of a module.
        """
        files.write(fname_or_handle, self.to_saved(fname_or_handle, ignore))

    @classmethod
    def load(
        cls,
        fname: Any,
        mmap: str | None = None,
        *,
        rethrow: bool = False,
        trust: bool = False,
    ) -> Any:
        """The object in a file of `save`, as in gensim also one of a related class:
        of `KeyedVectors.load` a model, of `Word2Vec.load` a `FastText`.

        Args:
          mmap: "r", "r+" or "c": leave the arrays on disk, as `numpy.memmap` does.
          rethrow: no effect.
          trust: read also pickles of gensim, by gensim. A pickle can run any program.

        Raises:
          AttributeError: the file has something else.
          ValueError: the file is damaged, its scorer is in no imported module, or it is
            a pickle without `trust`.
          ImportError: it is a pickle, and gensim is not installed.
        """
        _log.info("loading %s object from %s", cls.__name__, fname)
        path = local_path(fname)
        if not files.is_saved(path):
            unpickled = _load_pickle(path, trust, mmap)
            cls._check_kind(type(unpickled))
            return unpickled
        saved = files.read(path, mmap)
        of_file = files.KINDS.get(saved.kind)
        if of_file is None:
            raise files.damaged(path, ValueError(f"it has a {saved.kind!r:.40}"))
        cls._check_kind(of_file)
        kind = cls if saved.kind == cls.KIND else of_file
        try:
            return kind.from_saved(saved)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise files.damaged(path, error) from None

    @classmethod
    def _check_kind(cls, of_file: Any) -> None:
        if of_file.KIND not in _LOADED[cls.KIND]:
            raise AttributeError(f"Model of type {of_file} can't be loaded by {cls}")

    def add_lifecycle_event(
        self, event_name: str, log_level: int | bool = logging.INFO, **event: Any
    ) -> None:
        """Logs an event, and appends it to `lifecycle_events` unless that is None."""
        facts = copy.deepcopy(event) | {
            "datetime": datetime.now().isoformat(),
            "gensim": GENSIM_VERSION,
            "python": sys.version,
            "platform": platform.platform(),
            "event": event_name,
        }
        if not hasattr(self, "lifecycle_events"):
            self.lifecycle_events: list[dict[str, Any]] | None = []
        if log_level:
            kind = type(self).__name__
            _log.log(int(log_level), "%s lifecycle event %s", kind, facts)
        if self.lifecycle_events is not None:
            self.lifecycle_events.append(facts)


def _load_pickle(path: Any, trust: bool, mmap: str | None) -> Any:
    """The `Word2Vec`, `FastText`, vectors of either, or phrases in a file of gensim.

    Raises:
      ValueError: without `trust` or `TRUST`, since a pickle can run any program; or it
        is of another class.
      ImportError: gensim is not installed.
    """
    by_environment = os.environ.get(TRUST, "")
    if not trust and by_environment not in ("", "0", "1"):
        raise ValueError(f"{TRUST} must be 0 or 1, got {by_environment!r:.40}.")
    if not trust and by_environment != "1":
        raise ValueError(
            f"{path} is not a file of `save`. If gensim wrote it, it is a pickle, "
            f"which can run any program: give trust=True, or set {TRUST}=1, to read it "
            f"by gensim. {_OTHERS}"
        )
    with own_classes() as gensim:
        if gensim is None:
            raise ImportError(
                f"gensim must be installed to read its pickle {path}: "
                "pip install gensim."
            )
        try:
            theirs = gensim.utils.SaveLoad.load(path, mmap=mmap)
        except gensim.utils.pickle.UnpicklingError as error:
            raise ValueError(f"{path} is no pickle: {error} {_OTHERS}") from None
        of_phrases = gensim.models.phrases
        if type(theirs) in (of_phrases.Phrases, of_phrases.FrozenPhrases):
            # Again by their own `load`, which knows earlier forms.
            return _phrases(of_phrases.Phrases.load(path), of_phrases)
        models = gensim.models.Word2Vec, gensim.models.FastText
        of_words = (
            gensim.models.KeyedVectors,
            gensim.models.fasttext.FastTextKeyedVectors,
        )
        if type(theirs) not in (*models, *of_words):
            raise ValueError(
                f"{path} must be of Word2Vec, KeyedVectors or Phrases, got "
                f"{type(theirs)}."
            )
        is_model = type(theirs) in models
    if not is_model:
        return _vectors(theirs)
    kind = files.KINDS["FastText" if hasattr(theirs.wv, "bucket") else "Word2Vec"]
    model = kind.__new__(kind)
    model.__setstate__(vars(theirs) | {"wv": _vectors(theirs.wv)})
    return model


def _vectors(theirs: Any) -> Any:
    if hasattr(theirs, "bucket"):
        rule = theirs.min_n, theirs.max_n, theirs.bucket
        ours = files.KINDS["FastTextKeyedVectors"](theirs.vector_size, *rule)
    else:
        ours = files.KINDS["KeyedVectors"](theirs.vector_size)
    vars(ours).update(vars(theirs))
    return ours


def _phrases(theirs: Any, module: Any) -> Any:
    """Phrases of gensim's `module` as ours, with our scorers for its own."""
    kind = files.KINDS[type(theirs).__name__]
    ours = kind.__new__(kind)
    vars(ours).update(vars(theirs))
    for scorer in (phrase_scores.original_scorer, phrase_scores.npmi_scorer):
        if theirs.scoring is getattr(module, scorer.__name__):
            ours.scoring = scorer
    return ours
