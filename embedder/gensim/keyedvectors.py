"""Vectors by key, with the methods of `gensim.models.KeyedVectors`.

Rows can be added and changed, unlike those of `embedder.Vectors`.
"""

import logging
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy import float32 as REAL

from embedder.gensim import contents, evaluations, files, similar, word2vec_format
from embedder.gensim.rows import prep_vectors
from embedder.gensim.saving import SaveLoad
from embedder.gensim.similar import KEY_TYPES

_MIGRATION = "See https://github.com/RaRe-Technologies/gensim/wiki/Migrating-from-Gensim-3.x-to-4"
_log = logging.getLogger("gensim.models.keyedvectors")


def warn_deprecated(name: str, advice: str) -> None:
    """Warns the caller of the caller of an old name."""
    warnings.warn(
        f"Call to deprecated `{name}` ({advice}).", DeprecationWarning, stacklevel=3
    )


def _gone(message: str) -> property:
    """An attribute that gensim 4 has no more."""

    def fail(self: Any) -> NoReturn:
        raise AttributeError(message)

    return property(fail)


@files.saved
class KeyedVectors(SaveLoad):
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
    vectors_lockf: np.ndarray  # of models: factors of the rates of rows

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
        vector = self.vectors[index]
        result = vector / self._norms[index] if norm else vector
        result.setflags(write=False)  # else `norms` would not fit
        return result

    def word_vec(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """The old name of `get_vector`."""
        warn_deprecated("word_vec", "Use get_vector instead")
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

        Raises:
          ValueError: the vector has another size.
        """
        if np.size(vector) != self.vectors.shape[1]:
            size = self.vectors.shape[1]
            raise ValueError(
                f"`vector` must be [{size}], got {np.size(vector)} values."
            )
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

        Raises:
          ValueError: there are not as many vectors or attributes as keys, or the
            vectors have another size.
        """
        if isinstance(keys, KEY_TYPES):
            keys, weights = [keys], np.asarray(weights).reshape(1, -1)
        weights, extras = np.asarray(weights), extras or {}
        shape = len(keys), self.vectors.shape[1]
        if weights.shape != shape:
            raise ValueError(f"`weights` must be {[*shape]}, got {[*weights.shape]}.")
        for name, extra in extras.items():
            if len(extra) != len(keys):
                raise ValueError(
                    f"`{name}` must have {len(keys)} values, got {len(extra)}."
                )
        self.allocate_vecattrs([*extras], [extra.dtype for extra in extras.values()])
        is_known = np.array([key in self.key_to_index for key in keys], bool)
        old = [self.get_index(keys[i]) for i in np.flatnonzero(is_known)]
        for i in np.flatnonzero(~is_known):
            self.key_to_index[keys[i]] = len(self.index_to_key)
            self.index_to_key.append(keys[i])
        added = weights[~is_known].astype(self.vectors.dtype)
        self.vectors = np.vstack([self.vectors, added])
        self.allocate_vecattrs()
        first_new = len(self) - len(added)
        for name, extra in extras.items():
            self.expandos[name][first_new:] = extra[~is_known]
        if replace and old:
            self.vectors[old] = weights[is_known]
            for name, extra in extras.items():
                self.expandos[name][old] = extra[is_known]
        self.norms = None

    def allocate_vecattrs(self, attrs: Any = None, types: Any = None) -> None:
        """Makes the arrays of attributes as long as `index_to_key`; new ones are 0.

        Args:
          attrs, types: names and types; None: of all attributes that there are.

        Raises:
          TypeError: an attribute has another type already.
        """
        if attrs is None:
            attrs = [*self.expandos]
            types = [self.expandos[name].dtype for name in attrs]
        for name, kind in zip(attrs, types, strict=True):
            dtype = {int: np.int64, str: object}.get(kind, kind)
            array = self.expandos.setdefault(name, np.zeros(len(self), dtype))
            if not np.issubdtype(dtype, array.dtype):
                raise TypeError(
                    f"Can't allocate type {dtype} for attribute {name}, conflicts with "
                    f"its existing type {array.dtype}"
                )
            if len(array) != len(self):
                added = np.zeros(max(len(self) - len(array), 0), array.dtype)
                self.expandos[name] = np.concatenate([array[: len(self)], added])

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
        if not len(self):
            return
        counts = np.asarray(self.expandos["count"], np.int64)
        order = len(counts) - 1 - np.argsort(-counts[::-1], kind="stable")
        self.index_to_key = [self.index_to_key[row] for row in order.tolist()]
        self.key_to_index = {key: row for row, key in enumerate(self.index_to_key)}
        self.allocate_vecattrs()
        for name, array in self.expandos.items():
            self.expandos[name] = array[order]
        if len(self.vectors):
            _log.warning(
                "sorting after vectors have been allocated is expensive & error-prone"
            )
            self.vectors, self.norms = self.vectors[order], None

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
        warn_deprecated("init_sims", f"Use fill_norms() instead. {_MIGRATION}")
        self.fill_norms()
        if replace:
            _log.warning(
                "destructive init_sims(replace=True) deprecated & no longer required "
                "for space-efficiency"
            )
            self.unit_normalize_all()

    most_similar = similar.most_similar
    most_similar_cosmul = similar.most_similar_cosmul
    rank_by_centrality = similar.rank_by_centrality
    wmdistance = similar.wmdistance
    evaluate_word_analogies = evaluations.evaluate_word_analogies
    evaluate_word_pairs = evaluations.evaluate_word_pairs
    log_accuracy = staticmethod(evaluations.log_accuracy)
    log_evaluate_word_pairs = staticmethod(evaluations.log_evaluate_word_pairs)
    save_word2vec_format = word2vec_format.save_word2vec_format
    intersect_word2vec_format = word2vec_format.intersect_word2vec_format
    load_word2vec_format = classmethod(word2vec_format.load_word2vec_format)

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
        warn_deprecated("words_closer_than", "Use closer_than instead")
        return self.closer_than(word1, word2)

    def rank(self, key1: Hashable, key2: Hashable) -> int:
        """The rank of `key2` among the keys nearest to `key1`, from 1."""
        return len(self.closer_than(key1, key2)) + 1

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

    def vectors_for_all(
        self, keys: Iterable, allow_inference: bool = True, copy_vecattrs: bool = False
    ) -> "KeyedVectors":
        """The vectors of the known keys among `keys`, as new `KeyedVectors`.

        Args:
          allow_inference: has no effect: unknown keys have no vectors.
          copy_vecattrs: copy attributes; without it `count` is made up.
        """
        known = [key for key in dict.fromkeys(keys) if key in self]
        new = KeyedVectors(self.vector_size, dtype=self.vectors.dtype)
        vectors = np.array([self.get_vector(key) for key in known])
        new.add_vectors(known, vectors.reshape(-1, self.vector_size))
        new.expandos["count"] = np.arange(len(known), 0, -1, dtype=np.int64)
        if copy_vecattrs:
            rows = [self.get_index(key) for key in known]
            new.expandos |= {name: x[rows] for name, x in self.expandos.items()}
        new.next_index = len(known)
        return new

    def to_saved(self, path: Any, ignore: Any) -> files.Saved:
        """Raises what `load` would."""
        saved = files.Saved(self.KIND, *self.parts(ignore))
        type(self).filled(saved)
        return saved

    def parts(
        self, ignore: Any = frozenset(), prefix: str = ""
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What a file of `save` has: facts, and arrays by `prefix` and a name.

        Paths are left out, as they follow from the counts.
        """
        return contents.of_vectors(self, ignore, prefix)

    @classmethod
    def filled(cls, saved: files.Saved, prefix: str = "") -> Any:
        """The vectors in a file of `save`, without what follows from others.

        Raises:
          ValueError: parts are missing, or do not fit each other.
        """
        self = cls.__new__(cls)
        KeyedVectors.__init__(self, 0)
        contents.fill_vectors(self, saved, prefix)
        return self

    @classmethod
    def from_saved(cls, saved: files.Saved, prefix: str = "") -> Any:
        return cls.filled(saved, prefix)

    def similarity_unseen_docs(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not for words."""
        raise NotImplementedError(
            "Call similarity_unseen_docs on a Doc2Vec model instead."
        )

    vectors_norm = _gone(
        "The `.vectors_norm` attribute is computed dynamically since Gensim 4.0.0. "
        f"Use `.get_normed_vectors()` instead.\n{_MIGRATION}"
    )
    index2entity = _gone(
        "The index2entity attribute has been replaced by index_to_key since "
        f"Gensim 4.0.0.\n{_MIGRATION}"
    )
    index2word = _gone(
        "The index2word attribute has been replaced by index_to_key since "
        f"Gensim 4.0.0.\n{_MIGRATION}"
    )
    vocab = _gone(
        "The vocab attribute was removed from KeyedVector in Gensim 4.0.0.\n"
        "Use KeyedVector's .key_to_index dict, .index_to_key list, and methods "
        ".get_vecattr(key, attr) and .set_vecattr(key, attr, new_val) instead.\n"
        f"{_MIGRATION}"
    )


Word2VecKeyedVectors = EuclideanKeyedVectors = KeyedVectors

load_word2vec_format = KeyedVectors.load_word2vec_format
_load_word2vec_format = word2vec_format.load_word2vec_format
