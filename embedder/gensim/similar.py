"""Methods of `KeyedVectors`: nearest keys, centrality, distances of documents."""

import logging
from numbers import Integral
from typing import Any

import numpy as np

KEY_TYPES = (str, int, np.integer)
_log = logging.getLogger("gensim.models.keyedvectors")


def unit(vector: np.ndarray) -> np.ndarray:
    """`vector` at length 1; one of zeros stays as it is."""
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def cosine(first: np.ndarray, second: np.ndarray) -> np.float32:
    """Cosine of two vectors, summed in float64."""
    pair = unit(np.asarray(first, np.float64)), unit(np.asarray(second, np.float64))
    return np.float32(np.dot(*pair))


def as_list(items: Any) -> list[Any]:
    """A key, a vector, or several of them, as a list."""
    if items is None:
        return []
    is_vector = isinstance(items, np.ndarray) and items.ndim == 1
    return [items] if isinstance(items, KEY_TYPES) or is_vector else list(items)


def best(scores: np.ndarray, num: int) -> np.ndarray:
    """Positions of the `num` highest scores, best first, ties by position, NaN last."""
    costs = -scores  # NumPy sorts NaN to the end
    among = np.arange(len(scores))
    if 0 < num < len(scores) // 2:
        among = np.flatnonzero(~(costs > np.partition(costs, num - 1)[num - 1]))
    return among[np.argsort(costs[among], kind="stable")][:num]


def most_similar(
    self: Any,
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
    if isinstance(topn, Integral) and topn < 1:
        return []
    plus, minus = as_list(positive), as_list(negative)
    weights = np.array([1.0] * len(plus) + [-1.0] * len(minus))
    keys = []
    for place, item in enumerate(plus + minus):
        is_weighted = not isinstance(item, (*KEY_TYPES, np.ndarray))
        keys.append(item[0] if is_weighted else item)
        if is_weighted:
            weights[place] = item[1]
    self.fill_norms()
    mean = self.get_mean_vector(
        keys, weights, pre_normalize=True, post_normalize=True, ignore_missing=False
    )
    if indexer is not None and isinstance(topn, int):
        return indexer.most_similar(mean, topn)
    scores = self.vectors[rows] @ mean / self.norms[rows]
    if not topn:
        return scores
    own = {self.get_index(key, -1) for key in keys if isinstance(key, KEY_TYPES)}
    return _named(self, scores, int(topn), own - {-1}, rows.start or 0)


def most_similar_cosmul(
    self: Any,
    positive: Any = None,
    negative: Any = None,
    topn: int | None = 10,
    restrict_vocab: int | None = None,
) -> Any:
    """The best keys by 3CosMul, Levy and Goldberg 2014, equation (4).

    `restrict_vocab` has no effect, as in gensim.

    Raises:
      ValueError: there is no positive key.
    """
    if isinstance(topn, Integral) and topn < 1:
        return []
    plus, minus = as_list(positive), as_list(negative)
    own = {
        self.get_index(key)
        for key in plus + minus
        if not isinstance(key, np.ndarray) and key in self.key_to_index
    }
    if not plus:
        raise ValueError("cannot compute similarity with no input")
    self.fill_norms()

    def products(terms: list[Any]) -> np.ndarray:
        """Products of the cosines with all terms, each shifted to [0, 1]."""
        total = np.ones(len(self.vectors), np.float32)
        for term in terms:
            is_key = isinstance(term, str)
            query = self.get_vector(term, norm=True) if is_key else term
            total = total * (1 + self.vectors @ query / self.norms) / 2
        return total

    scores = products(plus) / (products(minus) + 0.000001)
    return _named(self, scores, int(topn), own, 0) if topn else scores


def rank_by_centrality(
    self: Any, words: Any, use_norm: bool = True
) -> list[tuple[Any, Any]]:
    """(cosine with the mean of `words`, word), highest first.

    Raises:
      ValueError: none of them is known.
    """
    known = [word for word in words if word in self]
    if len(known) < len(words):
        _log.warning(
            "vectors for words %s are not present in the model, ignoring these words",
            set(words) - set(known),
        )
    if not known:
        raise ValueError("cannot select a word from an empty list")
    matrix = np.stack([self.get_vector(word, norm=use_norm) for word in known])
    matrix = matrix.astype(np.float32)
    scores = matrix @ self.get_mean_vector(matrix, post_normalize=True)
    return sorted(zip(scores, known, strict=True), reverse=True)


def wmdistance(self: Any, document1: Any, document2: Any, norm: bool = True) -> float:
    """Word Mover's Distance (Kusner et al. 2015) of two lists of words; inf if one has
    no known word.

    Raises:
      ImportError: POT (the package `pot`) is not installed.
    """
    from ot import emd2
    from scipy.spatial.distance import cdist

    first, second = ([x for x in d if x in self] for d in (document1, document2))
    dropped = len(document1) - len(first), len(document2) - len(second)
    if any(dropped):
        _log.info(
            "Removed %d and %d OOV words from document 1 and 2 (respectively).",
            *dropped,
        )
    if not first or not second:
        _log.warning(
            "At least one of the documents had no words that were in the vocabulary."
        )
        return float("inf")
    words = sorted({*first, *second})
    if len(words) == 1:
        return 0.0
    points = np.stack([self.get_vector(x, norm=norm) for x in words])
    distances = cdist(points, points)
    is_first = np.array([word in first for word in words])
    is_second = np.array([word in second for word in words])
    distances[~(is_first[:, None] & is_second[None])] = 0
    if distances.sum() < 1e-8:
        _log.info("The distance matrix is all zeros. Aborting (returning inf).")
        return float("inf")
    shares = [
        np.array([document.count(word) / len(document) for word in words])
        for document in (first, second)
    ]
    return float(emd2(*shares, distances))


def _named(
    vectors: Any, scores: np.ndarray, topn: int, own: set[int], first: int
) -> list[tuple[Any, float]]:
    """The `topn` best keys that are not `own`, and their scores."""
    named = [
        (vectors.index_to_key[place + first], float(scores[place]))
        for place in best(scores, topn + len(own)).tolist()
        if place + first not in own
    ]
    return named[:topn]
