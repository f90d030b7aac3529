"""Keys with their vectors, and which keys are near which.

Axis letters: V keys, D dimensions, Q queries.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embedder.errors import InputError, InputKeyError, InputTypeError

CHUNK_VALUES = 2**24  # scores that one product may hold: 64 MB in float32
ROUNDING = 1e-5  # more than a float32 product of two unit vectors can be wrong by


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """Unique keys, each with a vector and perhaps a count; the id of a key is its row.

    The matrix is kept without a copy where it can be, and read-only. The first query
    makes a second matrix of the same size, `unit`.

    Raises:
      ValueError: a key is empty, repeated or not Unicode, a value is not finite, or
        the shapes do not fit.
      TypeError: the keys are not strings, or the dtypes not floats and integers.
    """

    keys: list[str]
    matrix: np.ndarray  # f32 or f64[V, D]
    counts: np.ndarray | None = None  # i64[V]

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
        """Vector of `key`, a read-only view f[D]."""
        return self.matrix[self.index(key)]

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """Id of each key."""
        return {key: index for index, key in enumerate(self.keys)}

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors scaled to length one, zero vectors left zero, f[V, D]."""
        return unit_rows(self.matrix)

    def index(self, key: str) -> int:
        """Id of `key`; KeyError if there is none."""
        try:
            return self.key_to_index[key]
        except KeyError:
            raise InputKeyError(f"Token {key!r} is not in the vocabulary.") from None

    def near_spellings(self, key: str, num: int = 3) -> list[str]:
        """At most `num` keys spelled like `key`, for a message; about 0.3 s in 70 k."""
        return difflib.get_close_matches(key, self.keys, n=num, cutoff=0.75)

    def similarity(self, a: str, b: str) -> float:
        """Cosine of the vectors of `a` and `b`; 0.0 where one is zero."""
        first, second = self._exact_unit([self.index(a), self.index(b)])
        return float(cosines(first, second))

    def most_similar(
        self,
        positive: str | Sequence[str] | None = None,
        negative: str | Sequence[str] | None = None,
        topn: int = 10,
    ) -> list[tuple[str, float]]:
        """The `topn` keys nearest to the mean of +`positive` and -`negative`.

        Each is a key or a list of keys, whose vectors count with length one. Nearness
        is the cosine, highest first, ties by id. The keys asked for are left out.

        Raises:
          KeyError: a key is not there.
        """
        check_positive_integer("topn", topn)
        plus, minus = self._ids(positive), self._ids(negative)
        if not plus and not minus:
            raise InputError("`positive` or `negative` must have a token, got none.")
        query = self._exact_unit(plus).sum(axis=0) - self._exact_unit(minus).sum(axis=0)
        ((ids, scores),) = self._nearest(query[None], [plus + minus], topn)
        return [(self.keys[i], float(s)) for i, s in zip(ids, scores, strict=True)]

    def nearest_to(
        self, queries: np.ndarray, topn: int = 10
    ) -> list[list[tuple[str, float]]]:
        """For each vector of `queries` [Q, D] the nearest keys and their cosines."""
        check_positive_integer("topn", topn)
        nothing: list[list[int]] = [[]] * len(queries)
        nearest = self._nearest(np.asarray(queries, np.float64), nothing, topn)
        return [
            [(self.keys[i], float(s)) for i, s in zip(ids, scores, strict=True)]
            for ids, scores in nearest
        ]

    def analogy(
        self, a: str, b: str, c: str, topn: int = 10
    ) -> list[tuple[str, float]]:
        """What `c` is to as `a` is to `b` (3CosAdd): the nearest to b - a + c."""
        return self.most_similar([b, c], [a], topn)

    def neighbors(
        self, keys: str | Iterable[str], topn: int = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """Nearest keys of each of `keys`, itself left out, as in `most_similar`.

        One matrix product for all of them, cut so that memory stays bounded.

        Returns:
          Ids i64[Q, n] and cosines f64[Q, n], best first; n = min(topn, V - 1).
        """
        check_positive_integer("topn", topn)
        rows = self._ids(keys)
        shape = len(rows), min(topn, len(self) - 1)
        ids, scores = np.empty(shape, np.int64), np.empty(shape)
        nearest = self._nearest(self._exact_unit(rows), [[row] for row in rows], topn)
        for place, found in enumerate(nearest):
            ids[place], scores[place] = found
        return ids, scores

    def _ids(self, keys: str | Iterable[str] | None) -> list[int]:
        if keys is None:
            return []
        return [self.index(key) for key in ([keys] if isinstance(keys, str) else keys)]

    def _exact_unit(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Unit vectors of `ids` in double precision, f64[len(ids), D]."""
        return unit_rows(self.matrix[np.asarray(ids, np.int64)].astype(np.float64))

    def _nearest(
        self, queries: np.ndarray, left_out: Sequence[Sequence[int]], topn: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and cosines of the best rows for each query f64[Q, D]."""
        step = max(1, CHUNK_VALUES // len(self))
        for start in range(0, len(queries), step):
            chunk = unit_rows(queries[start : start + step])
            scores = chunk.astype(self.unit.dtype) @ self.unit.T  # [chunk, V]
            for place, query in enumerate(chunk):
                yield self._best(query, scores[place], left_out[start + place], topn)

    def _best(
        self, query: np.ndarray, scores: np.ndarray, left_out: Sequence[int], topn: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best rows by their exact cosine, among all that may be within rounding.

        The product rounds equal rows differently, by where they stand; the second
        look makes equal rows tie, in every batch size.
        """
        scores[left_out] = -np.inf
        num = min(topn, len(self) - len(set(left_out)))
        if num == 0:
            return np.empty(0, np.int64), np.empty(0)
        worst = np.partition(scores, len(self) - num)[len(self) - num]
        ids = np.flatnonzero(scores >= worst - ROUNDING)
        exact = cosines(self._exact_unit(ids), query)
        order = np.argsort(-exact, kind="stable")[:num]
        return ids[order], exact[order]


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Rows of f[N, D] scaled to length one, zero rows left zero.

    Divides by the largest value first, so that no square overflows or vanishes.
    """
    largest = np.maximum(matrix.max(axis=1), -matrix.min(axis=1))[:, None]
    scaled = matrix / np.where(largest > 0, largest, 1)
    norms = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    scaled /= np.where(norms > 0, norms, 1)
    return scaled


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Dot products of unit rows, the same for equal rows wherever they stand."""
    return np.clip((first * second).sum(axis=-1), -1.0, 1.0)


def check_positive_integer(name: str, value: int) -> None:
    """Raises unless `value` is an integer >= 1."""
    message = f"`{name}` must be an integer >= 1, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(message)
    if value < 1:
        raise InputError(message)


def _check_keys(given: object, keys: list[str]) -> None:
    if isinstance(given, str) or not all(isinstance(key, str) for key in keys):
        raise InputTypeError(f"`keys` must be a list of strings, got {short(given)}.")
    if "" in keys:
        row = keys.index("")
        raise InputError(f"`keys` must not be empty, got '' at row {row}.")
    if len(set(keys)) < len(keys):
        first, second, key = _first_repeat(keys)
        raise InputError(
            f"`keys` must be unique, got {short(key)} at rows {first} and {second}."
        )
    try:
        "".join(keys).encode()
    except UnicodeEncodeError as error:
        bad = next(key for key in keys if error.object[error.start] in key)
        raise InputError(
            f"`keys` must be valid Unicode, got {bad!r} at row {keys.index(bad)}."
        ) from None


def _first_repeat(keys: list[str]) -> tuple[int, int, str]:
    """The two rows of the key that is repeated first, and the key."""
    seen: dict[str, int] = {}
    for row, key in enumerate(keys):
        if seen.setdefault(key, row) != row:
            return seen[key], row, key
    raise AssertionError("no key is repeated")


def _checked_matrix(matrix: np.ndarray, keys: list[str]) -> np.ndarray:
    """`matrix` as read-only, native, C-ordered f32 or f64[V, D]; raises if not."""
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
            f"({short(keys[row])}), column {column}."
        )
    return matrix


def _checked_counts(counts: np.ndarray, num_keys: int) -> np.ndarray:
    """`counts` as a read-only i64[V]; raises if it cannot be."""
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


def short(value: object) -> str:
    """`repr` of a value, cut for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
