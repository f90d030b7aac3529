"""Vectors of keys, and nearest neighbours by cosine similarity.

Axis letters: V keys, D dimensions, Q queries.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from embedder.errors import InputError, InputKeyError, InputTypeError
from embedder.vectors.spelling import near_keys

CHUNK_VALUES = 2**24  # scores of one matrix product: 64 MB in float32
KeyType = Literal["text", "integer"]
ROUNDING = 1e-5  # above the error of a float32 product of two unit vectors
_BLOCK = 64  # values of which `largest` takes the maximum first


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """Unique keys with a vector and optionally a count each; a key's id is its row.

    `matrix` becomes a read-only view, without a copy if its dtype and order allow. The
    first query computes `unit`, a second matrix of the same size.

    Raises:
      InputError: a key is empty, repeated or not valid Unicode, a value is not finite,
        or the shapes do not agree.
      InputTypeError: a key is not a `str`, `matrix` has no floats, or `counts` no
        integers.
    """

    keys: list[str]  # text, also of integers
    matrix: np.ndarray  # f32 or f64[V, D]
    counts: np.ndarray | None = None  # i64[V]
    key_type: KeyType = "text"  # in Parquet, and of the data

    def __post_init__(self):
        keys = list(self.keys)
        _check_keys(self.keys, keys)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "matrix", _checked_matrix(self.matrix, keys))
        if self.counts is not None:
            object.__setattr__(self, "counts", _checked_counts(self.counts, len(keys)))

    def __repr__(self) -> str:
        return f"Vectors({len(self)} keys, {self.matrix.shape[1]} dimensions)"

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.key_to_index

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def __getitem__(self, key: str) -> np.ndarray:
        """Vector of `key`, a read-only view f[D]; InputKeyError if it is unknown."""
        return self.matrix[self.index(key)]

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """Key -> id."""
        return {key: index for index, key in enumerate(self.keys)}

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors scaled to length one, f[V, D]; zero vectors stay zero."""
        return unit_rows(self.matrix)

    def index(self, key: str) -> int:
        """Id of `key`; InputKeyError if it is unknown."""
        try:
            return self.key_to_index[key]
        except KeyError:
            raise InputKeyError(f"Token {key!r} is not in the vocabulary.") from None

    def near_spellings(self, key: str, num: int = 3) -> list[str]:
        """At most `num` keys spelled like `key`; takes 0.3 s for 70,000 keys."""
        return near_keys(key, self.keys, num)

    def similarity(self, a: str, b: str) -> float:
        """Cosine similarity of the vectors of `a` and `b`; 0.0 if one is zero."""
        first, second = self._exact_unit([self.index(a), self.index(b)])
        return float(cosines(first, second))

    def most_similar(
        self,
        positive: str | Sequence[str] | None = None,
        negative: str | Sequence[str] | None = None,
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """The `topn` keys with the highest cosine similarity to a query, and these.

        The query is the sum of the unit vectors of `positive` minus those of
        `negative`, each a key or a list of keys, which are excluded from the result.
        Highest similarity first, ties by id.

        Args:
          among: only these keys can be in the result; unknown ones are ignored.

        Raises:
          InputKeyError: a key is unknown.
          InputError: there is no key, none of `among` is known, or `topn` is below 1.
          InputTypeError: `topn` is not an integer.
        """
        check_positive_integer("topn", topn)
        plus, minus = self._ids(positive), self._ids(negative)
        if not plus and not minus:
            raise InputError("`positive` or `negative` must have a token, got none.")
        query = self._exact_unit(plus).sum(axis=0) - self._exact_unit(minus).sum(axis=0)
        hidden = self.outside(among)
        ((ids, scores),) = self._nearest(query[None], [plus + minus], topn, hidden)
        return [(self.keys[i], float(s)) for i, s in zip(ids, scores, strict=True)]

    def nearest_to(
        self,
        queries: np.ndarray,
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
    ) -> list[list[tuple[str, float]]]:
        """The `topn` keys with the highest cosine similarity to each query, and these.

        Args:
          queries: vectors f[Q, D].
          among: as of `most_similar`.
        """
        check_positive_integer("topn", topn)
        excluded: list[list[int]] = [[]] * len(queries)
        rows, hidden = np.asarray(queries, np.float64), self.outside(among)
        nearest = self._nearest(rows, excluded, topn, hidden)
        return [
            [(self.keys[i], float(s)) for i, s in zip(ids, scores, strict=True)]
            for ids, scores in nearest
        ]

    def analogy(
        self,
        a: str,
        b: str,
        c: str,
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """Candidates for d in the analogy "a is to b as c is to d", best first.

        The keys with the highest cosine similarity to b - a + c (3CosAdd), with the
        unit vectors of the keys; see `most_similar`.
        """
        return self.most_similar([b, c], [a], topn, among=among)

    def neighbors(
        self,
        keys: str | Iterable[str],
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids i64[Q, n] and cosine similarities f64[Q, n] of the nearest keys.

        For each of the Q `keys` the n = min(topn, V - 1) nearest other keys, best
        first, as in `most_similar`. With `among`, n is at most the number of these
        keys; the row of a key with fewer ends with id -1 and similarity NaN. Memory
        stays bounded for any Q.

        Raises:
          InputKeyError, InputError, InputTypeError: see `most_similar`.
        """
        check_positive_integer("topn", topn)
        rows, hidden = self._ids(keys), self.outside(among)
        num_candidates = len(self) if hidden is None else int((~hidden).sum())
        shape = len(rows), min(topn, len(self) - 1, num_candidates)
        ids, scores = np.full(shape, -1, np.int64), np.full(shape, np.nan)
        queries, excluded = self._exact_unit(rows), [[row] for row in rows]
        nearest = self._nearest(queries, excluded, topn, hidden)
        for query, (best, cosine) in enumerate(nearest):
            ids[query, : len(best)], scores[query, : len(best)] = best, cosine
        return ids, scores

    def outside(self, among: Collection[str] | None) -> np.ndarray | None:
        """Whether each key is none of `among`, bool[V]; None: there is no `among`.

        Raises:
          InputError: none of `among` is known.
        """
        if among is None:
            return None
        check_keys(among)
        known = [self.key_to_index[key] for key in among if key in self.key_to_index]
        if not known:
            raise InputError(
                f"`among` must have a key of the vocabulary, got {len(among)} others."
            )
        hidden = np.ones(len(self), bool)
        hidden[known] = False
        return hidden

    def _ids(self, keys: str | Iterable[str] | None) -> list[int]:
        if keys is None:
            return []
        return [self.index(key) for key in ([keys] if isinstance(keys, str) else keys)]

    def _exact_unit(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Unit vectors of `ids`, computed in float64, f64[len(ids), D]."""
        return unit_rows(self.matrix[np.asarray(ids, np.int64)].astype(np.float64))

    def _nearest(
        self,
        queries: np.ndarray,
        excluded: Sequence[Sequence[int]],
        topn: int,
        hidden: np.ndarray | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and cosine similarities of the best rows for each query f64[Q, D]."""
        size = max(1, CHUNK_VALUES // len(self))
        for start in range(0, len(queries), size):
            chunk = unit_rows(queries[start : start + size])
            scores = chunk.astype(self.unit.dtype) @ self.unit.T  # [chunk, V]
            for i, query in enumerate(chunk):
                yield self._best(query, scores[i], excluded[start + i], topn, hidden)

    def _best(
        self,
        query: np.ndarray,
        scores: np.ndarray,
        excluded: Sequence[int],
        topn: int,
        hidden: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best rows by `scores`, ranked again by cosines in float64.

        A matrix product rounds equal rows differently, by their position and the size
        of the batch. The second ranking, of all rows within ROUNDING, makes them tie.
        """
        scores[excluded] = -np.inf
        num_left = len(self) - len(set(excluded))
        if hidden is not None:
            scores[hidden] = -np.inf
            num_left = int((scores > -np.inf).sum())
        num = min(topn, num_left)
        if num == 0:
            return np.empty(0, np.int64), np.empty(0)
        worst = largest(scores, num)
        ids = np.flatnonzero(scores >= worst - ROUNDING)
        exact = cosines(self._exact_unit(ids), query)
        order = np.argsort(-exact, kind="stable")[:num]
        return ids[order], exact[order]


def check_keys(among: Collection[object] | None) -> None:
    """Raises InputTypeError if `among` is a text, whose letters would be keys."""
    if isinstance(among, str):
        raise InputTypeError(f"`among` must be keys, got {short_repr(among)}.")


def as_integers(keys: Sequence[object]) -> list[int] | None:
    """`keys` as Python integers; None unless all of them are integers."""
    found = [
        int(key)
        for key in keys
        if isinstance(key, int | np.integer) and not isinstance(key, bool)
    ]
    return found if found and len(found) == len(keys) else None


def typed_keys(keys: list[str], key_type: KeyType) -> list[str] | list[int]:
    """`keys` as integers if that is their type, and each is the text of an integer."""
    if key_type == "text":
        return keys
    try:
        integers = [int(key) for key in keys]
    except ValueError:
        return keys
    return integers if [*map(str, integers)] == keys else keys


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """The rows of f[N, D] scaled to length one; zero rows stay zero.

    Divides by the largest value first, so that no square overflows or underflows.
    """
    largest = np.maximum(matrix.max(axis=1), -matrix.min(axis=1))[:, None]
    scaled = matrix / np.where(largest > 0, largest, 1)
    norms = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    scaled /= np.where(norms > 0, norms, 1)
    return scaled


def largest(values: np.ndarray, num: int) -> np.floating:
    """The `num`-th largest of f[n], counted from 1; NaN is larger than all numbers.

    At least `num` values are as large as the `num`-th largest of the maxima of blocks;
    only these are partitioned.
    """
    whole = len(values) // _BLOCK * _BLOCK
    maxima = values[:whole].reshape(-1, _BLOCK).max(axis=1)
    if num <= len(maxima) // 2:
        values = values[~(values < np.partition(maxima, -num)[-num])]  # also NaN
    return np.partition(values, -num)[-num]


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine similarities of pairs of unit rows, in [-1, 1].

    Equal rows have equal cosines at any position, which a matrix product does not give.
    """
    return np.clip((first * second).sum(axis=-1), -1.0, 1.0)


def check_positive_integer(name: str, value: int) -> None:
    """Raises InputTypeError or InputError unless `value` is an integer >= 1."""
    message = f"`{name}` must be an integer >= 1, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(message)
    if value < 1:
        raise InputError(message)


def _check_keys(given: object, keys: list[str]) -> None:
    if isinstance(given, str) or not all(isinstance(key, str) for key in keys):
        raise InputTypeError(
            f"`keys` must be a list of strings, got {short_repr(given)}."
        )
    if "" in keys:
        row = keys.index("")
        raise InputError(f"`keys` must not be empty, got '' at row {row}.")
    if len(set(keys)) < len(keys):
        first, second, key = _first_repeat(keys)
        raise InputError(
            f"`keys` must be unique, got {short_repr(key)} at rows {first} and "
            f"{second}."
        )
    try:
        "".join(keys).encode()
    except UnicodeEncodeError as error:
        bad = next(key for key in keys if error.object[error.start] in key)
        raise InputError(
            f"`keys` must be valid Unicode, got {bad!r} at row {keys.index(bad)}."
        ) from None


def _first_repeat(keys: list[str]) -> tuple[int, int, str]:
    """The rows of the first repetition, and its key."""
    seen: dict[str, int] = {}
    for row, key in enumerate(keys):
        if seen.setdefault(key, row) != row:
            return seen[key], row, key
    raise AssertionError("no key is repeated")


def _checked_matrix(matrix: np.ndarray, keys: list[str]) -> np.ndarray:
    """`matrix` as read-only, native, C-ordered f32 or f64[V, D]; f16 becomes f32."""
    matrix = np.asarray(matrix)
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize > 8:
        raise InputTypeError(
            f"`matrix` must hold floats of 16 to 64 bits, got {matrix.dtype}."
        )
    if matrix.ndim != 2 or len(matrix) != len(keys) or matrix.size == 0:
        raise InputError(
            f"`matrix` must have shape [V, D], V = {len(keys)} the number of keys, "
            f"neither of them 0, got {matrix.shape}."
        )
    dtype = np.float64 if matrix.dtype.itemsize == 8 else np.float32
    matrix = np.ascontiguousarray(matrix, dtype).view()
    matrix.flags.writeable = False
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise InputError(
            f"`matrix` must be finite, got {matrix[row, column]} at row {row} "
            f"({short_repr(keys[row])}), column {column}."
        )
    return matrix


def _checked_counts(counts: np.ndarray, num_keys: int) -> np.ndarray:
    """`counts` as a read-only copy i64[V]."""
    counts = np.asarray(counts)
    if counts.dtype.kind not in "iu":
        raise InputTypeError(f"`counts` must hold integers, got {counts.dtype}.")
    if counts.shape != (num_keys,):
        raise InputError(f"`counts` must have shape ({num_keys},), got {counts.shape}.")
    counts = counts.astype(np.int64)
    if counts.min() < 0:
        raise InputError(f"`counts` must be >= 0, got {counts.min()}.")
    counts.flags.writeable = False
    return counts


def short_repr(value: object) -> str:
    """`repr` of a value for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
