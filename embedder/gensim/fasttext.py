"""FastText with the interface of `gensim.models.FastText`, trained by embedder."""

import inspect
import logging
import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy import float32 as REAL

from embedder.gensim import files
from embedder.gensim.corpora import COMPRESSED, MAX_WORDS_IN_BATCH, local_path
from embedder.gensim.keyedvectors import KeyedVectors, warn_deprecated
from embedder.gensim.rows import prep_vectors
from embedder.gensim.vocabulary import TrimRule
from embedder.gensim.word2vec import Word2Vec, call_on_class_only

_RULE = "min_n", "max_n", "bucket"
_SETTINGS = {
    **{"dim": "vector_size", "ws": "window", "epoch": "epochs", "neg": "negative"},
    **{"minCount": "min_count", "t": "sample"},
}
"""Names that files of fastText have for attributes of models."""
_OF_RULE = {"minn": "min_n", "maxn": "max_n", "bucket": "bucket"}
_log = logging.getLogger("gensim.models.fasttext")


def ft_ngram_hashes(word: str, minn: int, maxn: int, num_buckets: int) -> list[int]:
    """The buckets of the n-grams of a word, in fastText's order."""
    return _buckets_of([word], minn, maxn, num_buckets)[0].tolist()


def _buckets_of(words: list, minn: int, maxn: int, num: int) -> list[np.ndarray]:
    """The buckets of the n-grams of each word, u32[n]; none where there are none."""
    if num == 0 or maxn < minn or maxn < 1:
        return [np.zeros(0, np.uint32)] * len(words)
    from embedder import ngram_buckets

    buckets, lengths = ngram_buckets([*map(str, words)], (max(minn, 1), maxn, num))
    parts = np.split(buckets.astype(np.uint32), np.cumsum(lengths)[:-1])
    return parts[: len(words)]  # of no words there would be one


@files.saved
class FastTextKeyedVectors(KeyedVectors):
    """Vectors of keys that are made of n-grams; unknown keys have vectors, too.

    Args:
      vector_size: D.
      min_n, max_n: characters of n-grams.
      bucket: number of rows of n-grams; 0: there are none.
      count, dtype: as of `KeyedVectors`.
    """

    KIND = "FastTextKeyedVectors"

    def __init__(
        self,
        vector_size: int,
        min_n: int,
        max_n: int,
        bucket: int,
        count: int = 0,
        dtype: Any = REAL,
    ):
        super().__init__(vector_size, count, dtype)
        self.min_n, self.max_n, self.bucket = min_n, max_n, bucket
        self.buckets_word: list[np.ndarray] | None = None  # of each key, u32[n]
        self.vectors_vocab = np.zeros((count, vector_size), dtype)  # rows of keys
        self.vectors_ngrams: np.ndarray | None = None  # [bucket, D]
        self._reset_factors()

    def _reset_factors(self) -> None:
        self.vectors_vocab_lockf = np.ones(1, REAL)
        self.vectors_ngrams_lockf = np.ones(1, REAL)
        self.compatible_hash = True

    @property
    def _rule(self) -> tuple[int, int, int]:
        return self.min_n, self.max_n, self.bucket

    def __contains__(self, key: Any) -> bool:
        """Whether `key` has a vector: always, if there are n-grams."""
        return key in self.key_to_index if self.bucket == 0 else True

    def get_vector(self, word: Any, norm: bool = False) -> np.ndarray:
        """The vector of `word`, [D]; an unknown one has the mean of its n-grams.

        Raises:
          KeyError: it is unknown, and there are no n-grams.
        """
        if word in self.key_to_index:
            return super().get_vector(word, norm=norm)
        if self.bucket == 0:
            raise KeyError("cannot calculate vector for OOV word without ngrams")
        assert self.vectors_ngrams is not None
        rows = ft_ngram_hashes(word, *self._rule)
        if not rows:
            _log.warning(
                "could not extract any ngrams from %r, returning origin vector", word
            )
            return np.zeros(self.vectors_ngrams.shape[1], REAL)
        total = self.vectors_ngrams[rows].sum(axis=0)
        return total / (np.linalg.norm(total) if norm else len(rows))

    def get_sentence_vector(self, sentence: Any) -> np.ndarray:
        """The mean of the unit vectors of words, [D]."""
        return self.get_mean_vector(sentence)

    def vectors_for_all(
        self, keys: Iterable, allow_inference: bool = True, copy_vecattrs: bool = False
    ) -> KeyedVectors:
        """The vectors of `keys` as plain `KeyedVectors`; without `allow_inference` of
        the known ones alone. Attributes are copied only if all keys are known."""
        keys = [x for x in keys if allow_inference or x in self.key_to_index]
        are_known = all(key in self.key_to_index for key in keys if key in self)
        return super().vectors_for_all(keys, copy_vecattrs=copy_vecattrs and are_known)

    def resize_vectors(self, seed: int | None = 0) -> None:
        """Makes all rows as many as there are keys and buckets; new ones are drawn."""
        shape = len(self), self.vector_size
        self.vectors_vocab = prep_vectors(shape, self.vectors_vocab, seed)
        shape = self.bucket, self.vector_size
        after = None if seed is None else seed + 1
        self.vectors_ngrams = prep_vectors(shape, self.vectors_ngrams, after)
        self.allocate_vecattrs()
        self.recalc_char_ngram_buckets()
        self.adjust_vectors()

    def init_post_load(self, fb_vectors: np.ndarray) -> None:
        """Takes rows of keys and then of buckets, [V + bucket, D]."""
        num = len(self)
        assert fb_vectors.shape == (num + self.bucket, self.vector_size)
        self.vectors_vocab = np.array(fb_vectors[:num])
        self.vectors_ngrams = np.array(fb_vectors[num:])
        self.recalc_char_ngram_buckets()
        self.adjust_vectors()

    def recalc_char_ngram_buckets(self) -> None:
        """Finds the buckets of all keys, `buckets_word`."""
        self.buckets_word = _buckets_of(self.index_to_key, *self._rule)

    def adjust_vectors(self) -> None:
        """Makes `vectors` of the rows of keys and of their n-grams."""
        self.norms = None
        if self.bucket == 0:
            self.vectors = self.vectors_vocab
            return
        assert self.buckets_word is not None and self.vectors_ngrams is not None
        self.vectors = self.vectors_vocab.copy()
        for row, buckets in enumerate(self.buckets_word):
            self.vectors[row] += self.vectors_ngrams[buckets].sum(axis=0)
            self.vectors[row] /= len(buckets) + 1

    def parts(
        self, ignore: Any = frozenset(), prefix: str = ""
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As of `KeyedVectors`, with the rows of keys and of n-grams."""
        facts, arrays = super().parts(ignore, prefix)
        facts |= {name: int(getattr(self, name)) for name in _RULE}
        arrays[f"{prefix}vectors_vocab"] = self.vectors_vocab
        if self.vectors_ngrams is not None:
            arrays[f"{prefix}vectors_ngrams"] = self.vectors_ngrams
        return facts, arrays

    @classmethod
    def load(  # type: ignore[override]
        cls, fname_or_handle: Any, mmap: str | None = None, **options: Any
    ) -> Any:
        """As of `SaveLoad`, with gensim's name of the argument."""
        return super().load(fname_or_handle, mmap, **options)

    @classmethod
    def filled(cls, saved: files.Saved, prefix: str = "") -> "FastTextKeyedVectors":
        """As of `KeyedVectors`, with the rows of keys and of n-grams."""
        self: FastTextKeyedVectors = super().filled(saved, prefix)
        self.min_n, self.max_n, self.bucket = (saved.fact(x, int) for x in _RULE)
        shapes = {"vectors_vocab": (len(self), self.vector_size)}
        self.vectors_ngrams = None
        if f"{prefix}vectors_ngrams" in saved.arrays:
            shapes["vectors_ngrams"] = (self.bucket, self.vector_size)
        for name, shape in shapes.items():
            table = saved.array(prefix + name, 2, "f")
            if table.shape != shape:
                raise ValueError(f"`{name}` must be {[*shape]}, got {[*table.shape]}")
            setattr(self, name, table)
        self._reset_factors()
        return self

    @classmethod
    def from_saved(cls, saved: files.Saved, prefix: str = "") -> "FastTextKeyedVectors":
        """As of `KeyedVectors`, with the vectors that follow from rows."""
        self: FastTextKeyedVectors = super().from_saved(saved, prefix)
        self.recalc_char_ngram_buckets()
        if self.vectors_ngrams is not None:
            self.adjust_vectors()
        return self


@files.saved
class FastText(Word2Vec):
    """Skip-gram and CBOW over n-grams; arguments and defaults of gensim 4.4.

    Args:
      min_n, max_n: characters of n-grams; max_n < min_n: none.
      bucket: number of rows of n-grams.
      word_ngrams: must be 1, as in gensim.

    The others are those of `Word2Vec`, in the order of gensim.
    """

    KIND = "FastText"
    VECTORS = FastTextKeyedVectors
    wv: FastTextKeyedVectors
    file_name: Any  # that a program sets for `load_binary_data`

    def __init__(
        self,
        sentences: Iterable[Any] | None = None,
        corpus_file: Any = None,
        sg: int = 0,
        hs: int = 0,
        vector_size: int = 100,
        alpha: float = 0.025,
        window: int = 5,
        min_count: int = 5,
        max_vocab_size: int | None = None,
        word_ngrams: int = 1,
        sample: float = 1e-3,
        seed: int = 1,
        workers: int = 3,
        min_alpha: float = 0.0001,
        negative: int = 5,
        ns_exponent: float = 0.75,
        cbow_mean: int = 1,
        hashfxn: Callable[[str], int] = hash,
        epochs: int = 5,
        null_word: int = 0,
        min_n: int = 3,
        max_n: int = 6,
        sorted_vocab: int = 1,
        bucket: int = 2000000,
        trim_rule: TrimRule | None = None,
        batch_words: int = MAX_WORDS_IN_BATCH,
        callbacks: Iterable[Any] = (),
        max_final_vocab: int | None = None,
        shrink_windows: bool = True,
    ):
        shared = inspect.signature(Word2Vec).parameters
        arguments = {name: value for name, value in locals().items() if name in shared}
        if word_ngrams != 1:
            raise NotImplementedError(
                "Gensim's FastText implementation does not yet support word_ngrams != "
                "1."
            )
        self.word_ngrams = word_ngrams
        min_n, max_n, bucket = int(min_n), int(max_n), int(bucket)
        if bucket < 0:
            raise ValueError(f"`bucket` must be an integer >= 0, got {bucket!r}.")
        self._rule = min_n, max_n, 0 if max_n < min_n else bucket
        self.load_fasttext_format = call_on_class_only  # type: ignore[method-assign]
        super().__init__(**arguments)

    def new_vectors(self, vector_size: int) -> FastTextKeyedVectors:
        """Empty vectors of the model's n-grams."""
        owner = vars(self).get("wv", self)  # the vectors of a loaded model
        return FastTextKeyedVectors(vector_size, *owner._rule)

    def estimate_memory(
        self, vocab_size: int | None = None, report: dict[str, int] | None = None
    ) -> dict[str, int]:
        """Bytes that the model takes, by purpose, as in gensim."""
        num, row = vocab_size or len(self.wv), self.vector_size * 4
        sizes = {**(report or {}), "vocab": len(self.wv) * (700 if self.hs else 500)}
        sizes["syn0_vocab"] = len(self.wv) * row
        for name, is_used in (("syn1", self.hs), ("syn1neg", self.negative)):
            if is_used:
                sizes[name] = len(self.wv) * self.layer1_size * 4
        if self.wv.bucket:
            sizes["syn0_ngrams"] = self.wv.bucket * row
            ngrams = sum(map(len, _buckets_of(self.wv.index_to_key, *self.wv._rule)))
            sizes["buckets_word"] = 64 + 100 * len(self.wv) + 4 * ngrams
        sizes["total"] = sum(sizes.values())
        _log.info(
            "estimated required memory for %i words, %i buckets and %i dimensions: %i "
            "bytes",
            *(num, self.wv.bucket, self.vector_size, sizes["total"]),
        )
        return sizes

    def init_sims(self, replace: bool = False) -> None:
        """The old name of `wv.fill_norms`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.wv.init_sims(replace=replace)

    @classmethod
    def _empty(cls, facts: dict[str, Any]) -> "FastText":
        model = cls.__new__(cls)
        size, seed = facts["vector_size"], facts["seed"]
        FastText.__init__(model, vector_size=size, seed=seed, bucket=0)
        return model

    def load_binary_data(self, encoding: str = "utf8") -> None:
        """Becomes the model in a `.bin` of fastText, `file_name`; deprecated."""
        warn_deprecated("load_binary_data", "use load_facebook_model instead")
        vars(self).update(vars(load_facebook_model(self.file_name, encoding)))

    @classmethod
    def load_fasttext_format(cls, model_file: Any, encoding: str = "utf8") -> Any:
        """The old name of `load_facebook_model`."""
        return load_facebook_model(model_file, encoding)


def load_facebook_model(path: Any, encoding: str = "utf-8") -> FastText:
    """The model in a `.bin` of fastText, which can be trained on.

    Args:
      encoding: of its words; those that it does not fit get escapes.

    Raises:
      NotImplementedError: it is supervised.
      ValueError: it is damaged, packed or quantized.
    """
    from embedder import read_fasttext_model

    try:
        theirs = read_fasttext_model(local_path(path))
    except ValueError as error:
        if "it is supervised" not in str(error):
            raise
        raise NotImplementedError(str(error)) from None
    facts = theirs.settings
    settings = {ours: facts[name] for name, ours in (_SETTINGS | _OF_RULE).items()}
    model = FastText(
        **settings, hs=int(facts["loss"] == 1), sg=int(facts["model"] == 2)
    )
    words = [_decoded(word, encoding) for word in theirs.words]
    model.corpus_total_words = facts["ntokens"]
    model.raw_vocab = dict(zip(words, theirs.counts.tolist(), strict=True))
    model.prepare_vocab(update=True, min_count=1)
    model.wv.init_post_load(theirs.input)
    for name, is_used in (("syn1", model.hs), ("syn1neg", model.negative)):
        if is_used:
            setattr(model, name, np.array(theirs.output))
    model.add_lifecycle_event(
        "load_fasttext_format",
        msg=f"loaded {theirs.input.shape} weight matrix for fastText model from {path}",
    )
    return model


def load_facebook_vectors(path: Any, encoding: str = "utf-8") -> FastTextKeyedVectors:
    """The vectors in a `.bin` of fastText; see `load_facebook_model`."""
    return load_facebook_model(path, encoding).wv


def save_facebook_model(
    model: FastText,
    path: Any,
    encoding: str = "utf-8",
    lr_update_rate: int = 100,
    word_ngrams: int = 1,
) -> None:
    """Writes a `.bin` of fastText.

    Args:
      encoding: of the words.
      lr_update_rate, word_ngrams: written as they are.

    Raises:
      ValueError: `path` is of a packed file, or a word has U+0000.
    """
    if os.path.splitext(path)[1].lower() in COMPRESSED:
        raise ValueError(f"`path` must be of a file that is not packed, got {path}.")
    from embedder import FastTextModel, write_fasttext_model

    vectors = model.wv
    assert vectors.vectors_ngrams is not None, "there is a vocabulary"
    settings = {name: getattr(model, ours) for name, ours in _SETTINGS.items()}
    settings |= {name: getattr(vectors, ours) for name, ours in _OF_RULE.items()}
    settings |= {
        "loss": 1 if model.hs else 2,
        "model": 2 if model.sg else 1,
        "ntokens": model.corpus_total_words,
        **{"lrUpdateRate": lr_update_rate, "wordNgrams": word_ngrams},
    }
    words = [word.encode(encoding) for word in vectors.index_to_key]
    rows = np.concatenate([vectors.vectors_vocab, vectors.vectors_ngrams])
    output = model.syn1neg if model.negative else model.syn1
    counts = np.asarray(vectors.expandos["count"], np.int64)
    write_fasttext_model(
        FastTextModel(settings, words, counts, rows, output), local_path(path)
    )


def _decoded(word: bytes, encoding: str) -> str:
    try:
        return word.decode(encoding)
    except UnicodeDecodeError:
        shown = word.decode(encoding, "backslashreplace")
        _log.error(
            "failed to decode invalid unicode bytes %r; replacing invalid characters, "
            "using %r",
            *(word, shown),
        )
        return shown
