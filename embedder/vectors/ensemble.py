"""An ensemble: the vectors of K replicas of a model, and how far they agree.

Replicas differ by their seed alone, so their spread is what a vector owes to chance.
Spaces of replicas are rotated against each other: cosine similarities can be compared
at once, vectors only after an alignment.

Axis letters: K replicas, V tokens, D dimensions, Q queries.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast

import numpy as np

from embedder.errors import InputError, InputKeyError, InputTypeError
from embedder.vectors.search import ROUNDING, cosines, unit_rows
from embedder.vectors.vectors import (
    KeyType,
    Vectors,
    as_integers,
    check_keys,
    check_positive_integer,
)

CHUNK_VALUES = 2**24  # scores of one matrix product: 64 MB in float32
FREQUENT = 100  # occurrences; in small corpora stability rises with the count up to it
UNSTABLE = 0.3  # two replicas share fewer than three of ten nearest tokens
_NEAREST = 10  # tokens that stability compares
_TOKENS = 2**16  # whose nearest tokens are held at once
Token = str | int


class Neighbor(NamedTuple):
    """A token near another one, by the cosine similarities of K replicas."""

    token: Token  # of the type of `Ensemble.tokens`
    similarity: float  # mean of the replicas
    lower: float  # ends of the interval over the replicas, see `neighbors`
    upper: float
    frequency: int  # number of replicas that have it among their `topn` nearest


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """The vectors of K replicas for the same tokens; a token's id is its row.

    Tokens are all text or all integers; methods take and return them as they are.
    `vectors` may be memory-mapped: methods read it replica by replica.

    Raises:
      InputError: `vectors` is not [K, V, D] with K >= 2, or a replica or the tokens are
        what `Vectors` refuses.
      InputTypeError: `vectors` is neither float32 nor float64, or as of `Vectors`.
    """

    tokens: list[str] | list[int]
    vectors: np.ndarray  # f32 or f64[K, V, D]
    counts: np.ndarray  # i64[V]

    def __post_init__(self):
        vectors = np.asarray(self.vectors).view()
        if vectors.dtype not in (np.float32, np.float64):
            raise InputTypeError(
                f"`vectors` must be float32 or float64, got {vectors.dtype}."
            )
        if vectors.ndim != 3 or len(vectors) < 2:
            raise InputError(
                "`vectors` must have shape [K, V, D] with K >= 2 replicas, got "
                f"{vectors.shape}."
            )
        vectors.flags.writeable = False
        integers = as_integers(self.tokens)
        texts = cast(list[str], self.tokens)  # if not, `Vectors` refuses them
        if integers is not None:
            texts = [*map(str, integers)]
        checked = [Vectors(texts, each, self.counts) for each in vectors]
        object.__setattr__(self, "tokens", integers or checked[0].keys)
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "counts", checked[0].counts)

    def __repr__(self) -> str:
        num_replicas, num_tokens, size = self.vectors.shape
        return f"Ensemble({num_replicas} replicas, {num_tokens} tokens, {size} numbers)"

    def __len__(self) -> int:
        """The number of replicas, K."""
        return len(self.vectors)

    @property
    def key_type(self) -> KeyType:
        """The type of `tokens`."""
        return "text" if isinstance(self.tokens[0], str) else "integer"

    @cached_property
    def texts(self) -> list[str]:
        """The tokens as text, as they are in files."""
        return [str(token) for token in self.tokens]

    def index(self, token: Token) -> int:
        """Id of `token`; InputKeyError if it is unknown."""
        return self._first.index(self._text(token))

    def replica(self, number: int) -> Vectors:
        """The vectors of replica `number`, from 0; their keys are text."""
        return self._with_keys(self.vectors[number])

    @cached_property
    def rotations(self) -> np.ndarray:
        """The rotation of each replica to the first, f64[K, D, D].

        See `nearest_orthogonal`, of the vectors scaled to length one, so that all
        tokens have equal weight.
        """
        _, _, size = self.vectors.shape
        products = np.zeros((len(self), size, size))
        for rows in self._chunks():
            first, *others = (unit_rows(each) for each in rows)
            for k, other in enumerate(others, 1):
                products[k] += other.T @ first
        rotations = nearest_orthogonal(products)
        rotations[0] = np.eye(size)
        return rotations

    def aligned(self) -> "Ensemble":
        """The ensemble with each replica rotated to the first; see `rotations`.

        Vectors keep their lengths, and replicas their cosine similarities.
        """
        vectors = np.empty_like(self.vectors, subok=False)
        start = 0
        for rows in self._chunks():
            stop = start + rows.shape[1]
            vectors[:, start:stop] = rows @ self.rotations
            start = stop
        return Ensemble(self.tokens, vectors, self.counts)

    def mean(self) -> Vectors:
        """The mean over the aligned replicas of each token's vector, at its own length.

        The mean is shorter than the vectors where replicas disagree.
        """
        means = [(rows @ self.rotations).mean(axis=0) for rows in self._chunks()]
        matrix = np.concatenate(means).astype(self.vectors.dtype)
        return self._with_keys(matrix)

    def neighbors(
        self,
        tokens: Sequence[Token],
        topn: int = 10,
        *,
        order: Literal["mean", "lower"] = "mean",
        percent: float = 90.0,
        among: Collection[Token] | None = None,
    ) -> list[list[Neighbor]]:
        """The `topn` nearest other tokens of each of `tokens`, best first, ties by id.

        Args:
          order: by the mean cosine similarity of the replicas, or by the lower end of
            its interval.
          percent: the probability that the interval has the similarity of one more
            replica, in (0, 100]. 90: from the 5th to the 95th percentile. Of fewer than
            19 replicas that is from the least to the largest, with less.
          among: only these tokens can be neighbours; unknown ones are ignored.

        Raises:
          InputKeyError: a token is unknown.
          InputError, InputTypeError: `topn` is no integer >= 1, `percent` is out of its
            range, or none of `among` is known.
        """
        check_positive_integer("topn", topn)
        if not 0 < percent <= 100:
            raise InputError(f"`percent` must be in (0, 100], got {percent!r}.")
        size = max(1, CHUNK_VALUES // self.vectors[..., 0].size)
        neighbors: list[list[Neighbor]] = []
        check_keys(among)
        texts = None if among is None else [*map(str, among)]
        hidden = self._first.outside(texts)
        for chunk in _pieces(self._as_texts(tokens), size):
            scores, nearest = self._scores(chunk, topn, texts)
            for i, token in enumerate(chunk):
                row = self.index(token)
                keys = _key(scores[i], order, percent)
                keys[row] = -np.inf
                if hidden is not None:
                    keys[hidden] = -np.inf
                ids = _candidates(keys, topn)
                exact = np.stack([_exact(each[[row, *ids]]) for each in self.vectors])
                best = np.argsort(-_key(exact, order, percent), kind="stable")[:topn]
                neighbors.append(
                    self._described(ids[best], exact[:, best], nearest[:, i], percent)
                )
        return neighbors

    def stability(self, tokens: Sequence[Token]) -> np.ndarray:
        """How far the replicas agree on the nearest tokens of each of `tokens`, f64[Q].

            mean of |A_i ∩ A_j| / 10 over all pairs of replicas i < j

        where A_k are the 10 nearest tokens in replica k; all others if there are fewer,
        and 0 if there is none. 1: all agree; of unrelated replicas about 10 / V.

        Reference: Wendlandt et al. 2018 (NAACL); Antoniak and Mimno 2018 (TACL) compare
        the same sets by another index.

        Raises:
          InputKeyError: a token is unknown.
        """
        stabilities = [np.empty(0)]
        for chunk in _pieces(self._as_texts(tokens), _TOKENS):
            nearest = [each.neighbors(chunk, _NEAREST)[0] for each in self._replicas()]
            overlaps = [  # how many ids two replicas share, i64[Q]
                (a[:, :, None] == b[:, None, :]).sum(axis=(1, 2))
                for a, b in itertools.combinations(nearest, 2)
            ]
            stabilities.append(np.mean(overlaps, axis=0) / max(1, nearest[0].shape[1]))
        return np.concatenate(stabilities)

    def frequent(self, num: int) -> np.ndarray:
        """Ids of the `num` most frequent tokens, ties by id, i64[num]."""
        check_positive_integer("num", num)
        return np.argsort(-self.counts, kind="stable")[:num]

    @cached_property
    def _first(self) -> Vectors:
        return self.replica(0)

    def _with_keys(self, matrix: np.ndarray) -> Vectors:
        return Vectors(self.texts, matrix, self.counts, self.key_type)

    def _text(self, token: Token) -> str:
        """A token as text; an integer is none of the tokens that are text."""
        if isinstance(token, str) or self.key_type == "integer":
            return str(token)
        raise InputKeyError(f"Token {token!r} is not in the vocabulary.")

    def _as_texts(self, tokens: Sequence[Token]) -> list[str]:
        return [self._text(token) for token in tokens]

    def _replicas(self) -> Iterator[Vectors]:
        return (self.replica(k) for k in range(len(self)))

    def _chunks(self) -> Iterator[np.ndarray]:
        """The vectors of some tokens after others, f64[K, chunk, D]."""
        num_replicas, num_tokens, size = self.vectors.shape
        step = max(1, CHUNK_VALUES // (num_replicas * size))
        for start in range(0, num_tokens, step):
            yield self.vectors[:, start : start + step].astype(np.float64)

    def _scores(
        self, tokens: Sequence[str], topn: int, among: Collection[str] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cosine similarities to all tokens f[Q, K, V], rounded, and the ids of the
        nearest of `among` i64[K, Q, n]."""
        num_replicas, num_tokens, _ = self.vectors.shape
        shape = len(tokens), num_replicas, num_tokens
        scores, nearest = np.empty(shape, self.vectors.dtype), []
        rows = [self.index(token) for token in tokens]
        for k, each in enumerate(self._replicas()):
            scores[:, k] = each.unit[rows] @ each.unit.T
            nearest.append(each.neighbors(tokens, topn, among=among)[0])
        return scores, np.stack(nearest)

    def _described(
        self, ids: np.ndarray, exact: np.ndarray, nearest: np.ndarray, percent: float
    ) -> list[Neighbor]:
        """Neighbours `ids` by their cosines f64[K, n] and the nearest ids i64[K, n]."""
        means, (lower, upper) = exact.mean(axis=0), interval(exact, percent)
        return [
            Neighbor(
                token=self.tokens[id_],
                similarity=float(means[i]),
                lower=float(lower[i]),
                upper=float(upper[i]),
                frequency=int((nearest == id_).any(axis=1).sum()),
            )
            for i, id_ in enumerate(ids)
        ]


def nearest_orthogonal(products: np.ndarray) -> np.ndarray:
    """The orthogonal Q with the least || U Q - T ||^2, given U^T T, f64[..., D, D].

    Q = P R^T with U^T T = P S R^T by singular values.

    Reference: Schönemann 1966, Psychometrika 31.
    """
    left, _, right = np.linalg.svd(products)
    return left @ right


def has_little_data(count: int, stability: float) -> bool:
    """Whether a token is too rare for its neighbours to be trusted.

    It occurs fewer than FREQUENT times, and its stability is below UNSTABLE. Frequent
    tokens of low stability, such as "the", have enough data.
    """
    return count < FREQUENT and stability < UNSTABLE


def _exact(vectors: np.ndarray) -> np.ndarray:
    """Cosine similarities of the first of f[1 + n, D] and the others, f64[n]."""
    unit = unit_rows(vectors.astype(np.float64))
    return cosines(unit[1:], unit[0])


def _pieces(tokens: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (tokens[i : i + size] for i in range(0, len(tokens), size))


def _key(scores: np.ndarray, order: str, percent: float) -> np.ndarray:
    """What ranks neighbours, f[N], of their cosine similarities f[K, N]."""
    if order == "mean":
        return scores.mean(axis=0)
    return interval(scores, percent)[0]


def _candidates(keys: np.ndarray, topn: int) -> np.ndarray:
    """Ids of the `topn` best by `keys` f[V], and of all within ROUNDING, but for -inf.

    They are ranked again by cosines in float64, see `search`.
    """
    num = min(topn, int((keys > -np.inf).sum()))
    if num == 0:
        return np.empty(0, np.int64)
    worst = np.partition(keys, len(keys) - num)[len(keys) - num]
    return np.flatnonzero(keys >= worst - ROUNDING)


def interval(scores: np.ndarray, percent: float) -> np.ndarray:
    """Lower and upper ends over the replicas, f64[2, N], of scores f[K, N].

    The quantile p is at rank p (K + 1) of the sorted scores, from 1 to K. One more
    replica is then below it with the probability p, whatever K is. NumPy's default,
    rank p (K - 1) + 1, makes the interval of few replicas too short.

    Reference: Hyndman and Fan 1996, Am. Stat. 50(4), definition 6 (Weibull).
    """
    ends = [50 - percent / 2, 50 + percent / 2]
    return np.percentile(scores, ends, axis=0, method="weibull")
