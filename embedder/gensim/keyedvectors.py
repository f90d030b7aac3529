"""Vectors by key, with the methods of `gensim.models.KeyedVectors`.

Rows can be added and changed, unlike those of `embedder.Vectors`.
"""

import logging
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy import float32 as REAL

from embedder.gensim import (
    evaluations,
    files,
    loading,
    saved_vectors,
    similar,
    word2vec_format,
)
from embedder.gensim.lifecycle import add_event
from embedder.gensim.rows import (
    add_rows,
    allocate,
    prep_vectors,
    row_factors,
    sort_by_count,
)
from embedder.gensim.similar import KEY_TYPES

_MIGRATION = "See https://github.com/RaRe-Technologies/gensim/wiki/Migrating-from-Gensim-3.x-to-4"
_log = logging.getLogger("gensim.models.keyedvectors")


class KeyedVectors:
    """Vectors of keys, their attributes, and queries.

    `vectors` [V, D], `index_to_key`, `key_to_index` and `expandos` (an array [V] for
    each attribute of keys, such as `count`) may be read and changed as in gensim.

    Args:
      vector_size: D.
      count: rows to allocate, which `add_vector` fills.
      dtype: of the vectors.
      mapfile_path: not used.
    """

    KIND = "KeyedVectors"

    def __init__(
        self,
        vector_size: int,
        count: int = 0,
        dtype: Any = np.float32,
        mapfile_path: Any = None,
    ):
        self.vector_size = vector_size
        self.index_to_key: list[Any] = [None] * count
        self.key_to_index: dict[Any, int] = {}
        self.next_index = 0  # the row that `add_vector` fills
        self.vectors = np.zeros((count, vector_size), dtype)
        self.norms: np.ndarray | None = None  # lengths of rows, once computed
        self.expandos: dict[str, np.ndarray] = {}
        self.mapfile_path = mapfile_path
        self.lifecycle_events: list[dict[str, Any]] | None = []

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}<vector_size={self.vector_size}, {len(self)} keys>"

    def __len__(self) -> int:
        return len(self.index_to_key)

    def __contains__(self, key: Hashable) -> bool:
        return self.has_index_for(key)

    def __getitem__(self, key_or_keys: Any) -> np.ndarray:
        """The vector of a key [D], or those of several [n, D]."""
        if isinstance(key_or_keys, KEY_TYPES):
            return self.get_vector(key_or_keys)
        return np.vstack([self.get_vector(key) for key in key_or_keys])

    def __setitem__(self, keys: Any, weights: Any) -> None:
        """Adds or replaces the vectors of a key, or of a list of keys."""
        if not isinstance(keys, list):
            keys, weights = [keys], np.asarray(weights).reshape(1, -1)
        self.add_vectors(keys, weights, replace=True)

    def get_index(self, key: Hashable, default: int | None = None) -> int:
        """The row of a key; an integer that is no key is a row itself.

        Raises:
          KeyError: it is not present, and there is no `default`.
        """
        index = self.key_to_index.get(key, -1)
        if index >= 0:
            return index
        if isinstance(key, int | np.integer) and 0 <= key < len(self):
            return int(key)
        if default is not None:
            return default
        raise KeyError(f"Key '{key}' not present")

    def has_index_for(self, key: Hashable) -> bool:
        """Whether `key` has a row."""
        return self.get_index(key, -1) >= 0

    def get_vector(self, key: Hashable, norm: bool = False) -> np.ndarray:
        """The vector of `key`, read-only, [D]; with `norm` at length 1."""
        index = self.get_index(key)
        if norm:
            result = self.vectors[index] / self._norms[index]
        else:
            result = self.vectors[index]
        result.setflags(write=False)  # else `norms` would not fit
        return result

    def word_vec(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """The old name of `get_vector`."""
        _warn_deprecated("word_vec", "Use get_vector instead")
        return self.get_vector(*args, **kwargs)

    def get_mean_vector(
        self,
        keys: Any,
        weights: Any = None,
        pre_normalize: bool = True,
        post_normalize: bool = False,
        ignore_missing: bool = True,
    ) -> np.ndarray:
        """The weighted mean of the vectors of keys, or of vectors themselves, [D].

        Args:
          weights: [n]; None: all are 1.
          pre_normalize: take vectors of keys at length 1.
          post_normalize: return the mean at length 1.
          ignore_missing: leave out unknown keys.

        Raises:
          ValueError: there is no key, or another number of weights.
          KeyError: a key is unknown, without `ignore_missing`.
        """
        if len(keys) == 0:
            raise ValueError("cannot compute mean with no input")
        dtype = self.vectors.dtype
        factors = np.ones(len(keys), dtype) if weights is None else np.asarray(weights)
        if len(keys) != len(factors):
            raise ValueError("keys and weights array must have same number of elements")
        total, mean = 0.0, np.zeros(self.vector_size, dtype)
        for key, factor in zip(keys, factors.astype(dtype), strict=True):
            if isinstance(key, np.ndarray):
                mean += factor * key
            elif key in self:
                mean += factor * self.get_vector(key, norm=pre_normalize)
            elif ignore_missing:
                continue
            else:
                raise KeyError(f"Key '{key}' not present in vocabulary")
            total += abs(factor)
        if total > 0:
            mean = mean / total
        return similar.unit(mean).astype(REAL) if post_normalize else mean

    def add_vector(self, key: Hashable, vector: Any) -> int:
        """Adds a vector in the next free row, and returns its number.

        Without a free row all rows are copied: add many by `add_vectors`.
        """
        index = self.next_index
        if index < len(self) and self.index_to_key[index] is None:
            self.index_to_key[index] = key
            self.key_to_index[key] = index
            self.vectors[index] = vector
            self.norms = None
        else:
            index = len(self)
            warnings.warn(
                "Adding single vectors to a KeyedVectors which grows by one each time "
                "can be costly. Consider adding in batches or preallocating to the "
                "required size.",
                UserWarning,
                stacklevel=2,
            )
            self.add_vectors([key], [vector])
        self.next_index = index + 1
        return index

    def add_vectors(
        self,
        keys: Any,
        weights: Any,
        extras: dict[str, np.ndarray] | None = None,
        replace: bool = False,
    ) -> None:
        """Adds vectors.

        Args:
          keys: one key, or a list.
          weights: the vector, or [n, D].
          extras: attributes of the keys, [n] each.
          replace: replace the vectors and attributes of known keys, which else stay.
        """
        add_rows(self, keys, weights, extras or {}, replace)

    def allocate_vecattrs(self, attrs: Any = None, types: Any = None) -> None:
        """Makes the arrays of attributes as long as `index_to_key`; new ones are 0.

        Args:
          attrs, types: names and types; None: of all attributes that there are.

        Raises:
          TypeError: an attribute has another type already.
        """
        allocate(self, attrs, types)

    def set_vecattr(self, key: Hashable, attr: str, val: Any) -> None:
        """Sets an attribute of a key."""
        self.allocate_vecattrs([attr], [type(val)])
        self.expandos[attr][self.get_index(key)] = val

    def get_vecattr(self, key: Hashable, attr: str) -> Any:
        """An attribute of a key."""
        return self.expandos[attr][self.get_index(key)]

    def resize_vectors(self, seed: int | None = 0) -> None:
        """Makes `vectors` as long as `index_to_key`; new rows are drawn from `seed`."""
        shape = len(self), self.vector_size
        self.vectors = prep_vectors(shape, prior_vectors=self.vectors, seed=seed)
        self.allocate_vecattrs()
        self.norms = None

    def sort_by_descending_frequency(self) -> None:
        """Sorts keys by descending count, of equal counts the later key first."""
        sort_by_count(self)

    def fill_norms(self, force: bool = False) -> None:
        """Computes the lengths of rows, unless they are known."""
        if self.norms is None or force:
            self.norms = np.linalg.norm(self.vectors, axis=1)

    @property
    def _norms(self) -> np.ndarray:
        self.fill_norms()
        assert self.norms is not None
        return self.norms

    def get_normed_vectors(self) -> np.ndarray:
        """All vectors at length 1, [V, D]."""
        return self.vectors / self._norms[:, np.newaxis]

    def unit_normalize_all(self) -> None:
        """Scales all vectors to length 1, for good."""
        self.vectors /= self._norms[:, np.newaxis]
        self.norms = np.ones(len(self.vectors))

    def init_sims(self, replace: bool = False) -> None:
        """The old name of `fill_norms`, with `replace` of `unit_normalize_all`."""
        _warn_deprecated("init_sims", f"Use fill_norms() instead. {_MIGRATION}")
        self.fill_norms()
        if replace:
            _log.warning(
                "destructive init_sims(replace=True) deprecated & no longer required "
                "for space-efficiency"
            )
            self.unit_normalize_all()

    def most_similar(
        self,
        positive: Any = None,
        negative: Any = None,
        topn: int | None = 10,
        clip_start: int = 0,
        clip_end: int | None = None,
        restrict_vocab: int | None = None,
        indexer: Any = None,
    ) -> Any:
        """The keys nearest by cosine to the mean of +`positive` and -`negative`.

        Args:
          positive, negative: keys or vectors, one or several, or (key, weight).
          topn: how many; None: the cosines of all keys, [V].
          clip_start, clip_end, restrict_vocab: search only these rows.
          indexer: an index with a method `most_similar(vector, topn)`.

        Raises:
          KeyError: a key is unknown.
        """
        rows = slice(clip_start, clip_end or len(self.vectors))
        rows = slice(0, restrict_vocab) if restrict_vocab else rows
        return similar.most_similar(self, positive, negative, topn, rows, indexer)

    def similar_by_key(
        self, key: Hashable, topn: int | None = 10, restrict_vocab: int | None = None
    ) -> Any:
        """`most_similar` of one key."""
        return self.most_similar([key], topn=topn, restrict_vocab=restrict_vocab)

    def similar_by_word(
        self, word: Hashable, topn: int | None = 10, restrict_vocab: int | None = None
    ) -> Any:
        """`most_similar` of one key."""
        return self.similar_by_key(word, topn, restrict_vocab)

    def similar_by_vector(
        self, vector: Any, topn: int | None = 10, restrict_vocab: int | None = None
    ) -> Any:
        """`most_similar` of one vector."""
        return self.most_similar([vector], topn=topn, restrict_vocab=restrict_vocab)

    def most_similar_cosmul(
        self,
        positive: Any = None,
        negative: Any = None,
        topn: int | None = 10,
        restrict_vocab: int | None = None,
    ) -> Any:
        """The best keys by products of cosines, 3CosMul of Levy and Goldberg 2014.

        `restrict_vocab` has no effect, as in gensim.

        Raises:
          ValueError: there is no positive key.
        """
        return similar.most_similar_cosmul(self, positive, negative, topn)

    def most_similar_to_given(self, key1: Hashable, keys_list: Sequence) -> Any:
        """The key of `keys_list` that is nearest to `key1`."""
        return max(keys_list, key=lambda key: self.similarity(key1, key))

    def closer_than(self, key1: Hashable, key2: Hashable) -> list[Any]:
        """The keys that are nearer to `key1` than `key2` is."""
        distances = self.distances(key1)
        own, bound = self.get_index(key1), distances[self.get_index(key2)]
        nearer = np.flatnonzero(distances < bound).tolist()
        return [self.index_to_key[row] for row in nearer if row != own]

    def words_closer_than(self, word1: Hashable, word2: Hashable) -> list[Any]:
        """The old name of `closer_than`."""
        _warn_deprecated("words_closer_than", "Use closer_than instead")
        return self.closer_than(word1, word2)

    def rank(self, key1: Hashable, key2: Hashable) -> int:
        """The rank of `key2` among the keys nearest to `key1`, from 1."""
        return len(self.closer_than(key1, key2)) + 1

    def rank_by_centrality(
        self, words: Any, use_norm: bool = True
    ) -> list[tuple[Any, Any]]:
        """(cosine with the mean of `words`, word), highest first.

        Raises:
          ValueError: none of them is known.
        """
        return similar.rank_by_centrality(self, words, use_norm)

    def doesnt_match(self, words: Any) -> Any:
        """The word that is farthest from the mean of all."""
        return self.rank_by_centrality(words)[-1][1]

    @staticmethod
    def cosine_similarities(vector_1: np.ndarray, vectors_all: np.ndarray) -> Any:
        """Cosines of a vector [D] with others [n, D], [n]."""
        norms = np.linalg.norm(vector_1) * np.linalg.norm(vectors_all, axis=1)
        return vectors_all @ vector_1 / norms

    def distances(self, word_or_vector: Any, other_words: Any = ()) -> np.ndarray:
        """1 - cosine of a key or vector with `other_words`, or with all keys."""
        is_key = isinstance(word_or_vector, KEY_TYPES)
        vector = self.get_vector(word_or_vector) if is_key else word_or_vector
        rows = [self.get_index(word) for word in other_words or ()]
        others = self.vectors[rows] if rows else self.vectors
        return 1 - self.cosine_similarities(vector, others)

    def distance(self, w1: Hashable, w2: Hashable) -> Any:
        """1 - cosine of two keys."""
        return 1 - self.similarity(w1, w2)

    def similarity(self, w1: Any, w2: Any) -> Any:
        """Cosine of two keys."""
        return similar.cosine(self[w1], self[w2])

    def cosine_of_rows(self, first: int, second: int) -> Any:
        """Cosine of two rows."""
        return similar.cosine(self.vectors[first], self.vectors[second])

    def n_similarity(self, ws1: Any, ws2: Any) -> Any:
        """Cosine of the means of two lists of keys.

        Raises:
          ZeroDivisionError: one of them is empty.
        """
        if not len(ws1) or not len(ws2):
            raise ZeroDivisionError("At least one of the passed list is empty.")
        means = (self.get_mean_vector(x, pre_normalize=False) for x in (ws1, ws2))
        return similar.cosine(*means)

    def relative_cosine_similarity(
        self, wa: Hashable, wb: Hashable, topn: int = 10
    ) -> float:
        """Cosine of two keys over the sum of those of the `topn` nearest to `wa`.

        Reference: Leeuwenberg et al. 2016, PBML 105, equation (1).
        """
        nearest = self.similar_by_word(wa, topn)
        if not nearest:
            raise ValueError(
                "Cannot calculate relative cosine similarity without any similar words."
            )
        return float(self.similarity(wa, wb)) / sum(score for _, score in nearest)

    def wmdistance(self, document1: Any, document2: Any, norm: bool = True) -> float:
        """Word Mover's Distance of two lists of words; inf if one has no known word.

        Raises:
          ImportError: POT (the package `pot`) is not installed.
        """
        return similar.word_movers_distance(self, document1, document2, norm)

    def evaluate_word_analogies(
        self,
        analogies: Any,
        restrict_vocab: int | None = 300000,
        case_insensitive: bool = True,
        dummy4unknown: bool = False,
        similarity_function: str = "most_similar",
    ) -> tuple[float, list[dict[str, Any]]]:
        """Share of analogies that 3CosAdd solves, and the questions of each section.

        `similarity_function` has no effect, as in gensim.
        """
        return evaluations.word_analogies(
            self, analogies, restrict_vocab, case_insensitive, dummy4unknown
        )

    def evaluate_word_pairs(
        self,
        pairs: Any,
        delimiter: str = "\t",
        encoding: str = "utf8",
        restrict_vocab: int | None = 300000,
        case_insensitive: bool = True,
        dummy4unknown: bool = False,
    ) -> tuple[Any, Any, float]:
        """Pearson's and Spearman's correlation with a file, and % of unknown pairs.

        Raises:
          ValueError: no pair of the file is known.
        """
        return evaluations.word_pairs(
            *(self, pairs, delimiter, encoding, restrict_vocab),
            *(case_insensitive, dummy4unknown),
        )

    @staticmethod
    def log_accuracy(section: dict[str, Any]) -> None:
        """Logs the share of right answers of a section."""
        evaluations.log_section(section)

    @staticmethod
    def log_evaluate_word_pairs(
        pearson: Any, spearman: Any, oov: float, pairs: Any
    ) -> None:
        """Logs what `evaluate_word_pairs` returns."""
        evaluations.log_pairs(pearson, spearman, oov, pairs)

    def vectors_for_all(
        self,
        keys: Iterable,
        allow_inference: bool = True,
        copy_vecattrs: bool = False,
    ) -> "KeyedVectors":
        """The vectors of the known keys among `keys`, as new `KeyedVectors`.

        Args:
          allow_inference: has no effect: unknown keys have no vectors.
          copy_vecattrs: copy attributes; without it `count` is made up.
        """
        found = [key for key in dict.fromkeys(keys) if key in self]
        rows = [self.get_index(key) for key in found]
        new = KeyedVectors(self.vector_size, dtype=self.vectors.dtype)
        new.add_vectors(found, self.vectors[rows].reshape(-1, self.vector_size))
        new.expandos["count"] = np.arange(len(found), 0, -1, dtype=np.int64)
        if copy_vecattrs:
            new.expandos |= {name: x[rows] for name, x in self.expandos.items()}
        new.next_index = len(found)
        return new

    def save_word2vec_format(
        self,
        fname: Any,
        fvocab: Any = None,
        binary: bool = False,
        total_vec: int | None = None,
        write_header: bool = True,
        prefix: str = "",
        append: bool = False,
        sort_attr: str = "count",
    ) -> None:
        """Writes the format of word2vec.c.

        Args:
          fvocab: also write a line `key count` for each key to this file.
          total_vec: the number of rows that the first line says; None: that of keys.
          write_header: write the first line.
          prefix: of each key in the file.
          append: append to the file.
          sort_attr: the attribute by which rows are sorted, highest first.

        Raises:
          ValueError: `fvocab` is given, and keys have no attribute `sort_attr`.
        """
        total = len(self) if total_vec is None else total_vec
        word2vec_format.save(
            *(self, fname, fvocab, binary, total if write_header else None, prefix),
            mode="ab" if append else "wb",
            sort_attr=sort_attr,
        )

    @classmethod
    def load_word2vec_format(
        cls,
        fname: Any,
        fvocab: Any = None,
        binary: bool = False,
        encoding: str = "utf8",
        unicode_errors: str = "strict",
        limit: int | None = None,
        datatype: Any = REAL,
        no_header: bool = False,
    ) -> "KeyedVectors":
        """Reads the format of word2vec.c.

        Args:
          fvocab: a file with a line `key count` for each key; None: counts are made up.
          encoding, unicode_errors: of keys, as of `bytes.decode`.
          limit: read only the first rows.
          datatype: of the vectors.
          no_header: the file is text and begins with its first row, as of GloVe.

        Raises:
          EOFError: the file is too short.
          UnicodeDecodeError: a key is not in `encoding`.
          ValueError: the first line has not two numbers, or a row another size.
        """
        return word2vec_format.load(
            *(cls, fname, fvocab, binary, encoding, unicode_errors),
            *(limit, datatype, no_header),
        )

    def intersect_word2vec_format(
        self,
        fname: Any,
        lockf: float = 0.0,
        binary: bool = False,
        encoding: str = "utf8",
        unicode_errors: str = "strict",
    ) -> None:
        """Replaces the vectors of those keys that a file of word2vec.c has, too.

        Args:
          lockf: the factor of their rates from then on; 0.0: they stay as they are.

        Raises:
          ValueError: the file has vectors of another size.
        """
        factors = row_factors(self)
        num = word2vec_format.merge(
            *(self, fname, factors, lockf, binary, (encoding, unicode_errors))
        )
        self.vectors_lockf, self.norms = factors, None
        self.add_lifecycle_event(
            "intersect_word2vec_format",
            msg=f"merged {num} vectors into {self.vectors.shape} matrix from {fname}",
        )

    def save(
        self,
        fname_or_handle: Any,
        separately: Any = None,
        sep_limit: int = 10 * 1024**2,
        ignore: Any = frozenset(),
        pickle_protocol: int = 4,
    ) -> None:
        """Writes one file (safetensors and JSON), which `load` reads.

        Attributes that a program gave the vectors are saved if JSON has them, or if
        they are arrays of numbers; the log warns of others.

        `separately`, `sep_limit` and `pickle_protocol` have no effect; an attribute in
        `ignore` is left out.

        Raises:
          TypeError, ValueError: keys or attributes have values that no file can have,
            or arrays have other sizes than the vectors.
        """
        saved = files.Saved(self.KIND, *self.parts(ignore))
        type(self).filled(saved)  # raises what `load` would
        files.write(fname_or_handle, saved)

    @classmethod
    def load(cls, fname: Any, mmap: str | None = None, *, trust: bool = False) -> Any:
        """The object in a file of `save`: vectors, or a model, as in gensim.

        Args:
          mmap: "r", "r+" or "c": leave the arrays on disk, as `numpy.memmap` does.
          trust: read also pickles of gensim, by gensim. A pickle can run any program.

        Raises:
          AttributeError: `FastTextKeyedVectors.load` of a file without n-grams.
          ValueError: the file is damaged, or a pickle without `trust`.
          ImportError: it is a pickle, and gensim is not installed.
        """
        return loading.load(cls, fname, mmap, trust)

    def parts(
        self, ignore: Any = frozenset(), prefix: str = ""
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What a file of `save` has: facts, and arrays by `prefix` and a name.

        Paths are left out, as they follow from the counts.
        """
        return saved_vectors.parts(self, ignore, prefix)

    @classmethod
    def filled(cls, saved: files.Saved, prefix: str = "") -> Any:
        """The vectors in a file of `save`, without what follows from others.

        Raises:
          ValueError: parts are missing, or do not fit each other.
        """
        self = cls.__new__(cls)
        KeyedVectors.__init__(self, 0)
        saved_vectors.fill(self, saved, prefix)
        return self

    @classmethod
    def from_saved(cls, saved: files.Saved, prefix: str = "") -> Any:
        """The vectors in a file of `save`.

        Raises:
          ValueError: parts are missing, or do not fit each other.
        """
        return cls.filled(saved, prefix)

    def add_lifecycle_event(
        self, event_name: str, log_level: int = logging.INFO, **event: Any
    ) -> None:
        """Logs an event, and appends it to `lifecycle_events`."""
        add_event(self, event_name, log_level, **event)

    def similarity_unseen_docs(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not for words."""
        raise NotImplementedError(
            "Call similarity_unseen_docs on a Doc2Vec model instead."
        )

    @property
    def vectors_norm(self) -> NoReturn:
        """Gone since gensim 4."""
        raise AttributeError(
            "The `.vectors_norm` attribute is computed dynamically since Gensim 4.0.0. "
            f"Use `.get_normed_vectors()` instead.\n{_MIGRATION}"
        )

    @property
    def index2entity(self) -> NoReturn:
        """Gone since gensim 4."""
        raise AttributeError(
            "The index2entity attribute has been replaced by index_to_key since "
            f"Gensim 4.0.0.\n{_MIGRATION}"
        )

    @property
    def index2word(self) -> NoReturn:
        """Gone since gensim 4."""
        raise AttributeError(
            "The index2word attribute has been replaced by index_to_key since "
            f"Gensim 4.0.0.\n{_MIGRATION}"
        )

    @property
    def vocab(self) -> NoReturn:
        """Gone since gensim 4."""
        raise AttributeError(
            "The vocab attribute was removed from KeyedVector in Gensim 4.0.0.\n"
            "Use KeyedVector's .key_to_index dict, .index_to_key list, and methods "
            ".get_vecattr(key, attr) and .set_vecattr(key, attr, new_val) instead.\n"
            f"{_MIGRATION}"
        )


Word2VecKeyedVectors = EuclideanKeyedVectors = KeyedVectors


def load_word2vec_format(*args: Any, **kwargs: Any) -> KeyedVectors:
    """`KeyedVectors.load_word2vec_format`."""
    return KeyedVectors.load_word2vec_format(*args, **kwargs)


def _load_word2vec_format(cls: Any, fname: Any, **options: Any) -> Any:
    """gensim's private reader, with its `binary_chunk_size`."""
    return word2vec_format.load(cls, fname, **options)


def _warn_deprecated(name: str, advice: str) -> None:
    warnings.warn(
        f"Call to deprecated `{name}` ({advice}).", DeprecationWarning, stacklevel=3
    )
