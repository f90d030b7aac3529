"""Vectors of keys, and nearest neighbours by cosine similarity.

Axis letters: V keys, D dimensions, Q queries.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np

from embedder.errors import InputError, InputKeyError, InputTypeError
from embedder.vectors.search import (
    Metric,
    Table,
    cosines,
    nearest_rows,
    table_of,
    unit_rows,
)
from embedder.vectors.spelling import near_keys
from embedder.vectors.subwords import Ngrams

if TYPE_CHECKING:
    from embedder.vectors.attributes import AttributeRows
    from embedder.vectors.index import VectorIndex

KeyType = Literal["text", "integer"]
Method = Literal["auto", "exact"]  # auto: by the index, if there is one
_KEYS = 2**14  # that are looked up at once
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """Unique keys with a vector and optionally a count each; a key's id is its row.

    `matrix` becomes a read-only view, without a copy if its dtype and order allow. The
    first exact query by cosine computes `unit`, a second matrix of the same size;
    beside these a search takes some 30 MB, see `search.nearest_rows`.

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
    ngrams: Callable[[], Ngrams] | None = None
    """Reads the rows of n-grams, of which unknown keys have their vectors; None: they
    have none. They have no ids, and are no results."""
    attributes: "Callable[[], AttributeRows] | None" = None
    """Reads the rows of attributes, of which unknown keys with attributes have their
    vectors; None: there are none. They have no ids, and are no results."""
    _index: "VectorIndex | None" = field(default=None, init=False)  # of `use_index`

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

    def __getitem__(self, key: str | list[str]) -> np.ndarray:
        """Vector of `key`, read-only, f[D]; of a list of n keys f[n, D]. InputKeyError
        if one is unknown.

        With `ngrams` an unknown key has the mean of its n-grams, with `attributes` that
        of its attributes.
        """
        if isinstance(key, list):
            vectors = np.empty((len(key), self.matrix.shape[1]), self.matrix.dtype)
            for row, each in enumerate(key):
                vectors[row] = self[each]
            return vectors
        if self.has_vector(key) and key not in self:
            rows = next(each for each in self._shared_rows if each.has_vector(key))
            vector = rows.vector(key).astype(self.matrix.dtype)
            vector.flags.writeable = False
            return vector
        return self.matrix[self.index(key)]

    def has_vector(self, key: str) -> bool:
        """Whether `key` is known, or has n-grams or attributes."""
        if key in self or not isinstance(key, str):
            return key in self
        return any(each.has_vector(key) for each in self._shared_rows)

    @cached_property
    def _shared_rows(self) -> "list[Ngrams | AttributeRows]":
        return [read() for read in (self.ngrams, self.attributes) if read is not None]

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
        first, second = unit_rows(np.stack([self[a], self[b]]).astype(np.float64))
        return float(cosines(first, second))

    def table(self, metric: Metric = "cosine") -> Table:
        """The table that `search.nearest_rows` searches."""
        return self._cosines if metric == "cosine" else self._products

    @cached_property
    def _cosines(self) -> Table:
        return table_of(self.matrix, self.unit)

    @cached_property
    def _products(self) -> Table:
        return table_of(self.matrix, None)

    def use_index(self, path: str | os.PathLike[str]) -> "VectorIndex | None":
        """Has queries use the index of the run or file at `path`, where it can be used.

        Returns the index. None: there is none, or it is damaged, of other vectors or
        cannot be read, which is logged in one line; then queries are exact.
        """
        from embedder.vectors.index import IndexFaultError, index_folder, open_index

        index = None
        try:
            index = open_index(index_folder(Path(path)), self)
        except IndexFaultError as error:
            _log.warning("%s. Exact search is used.", error.args[0])
        object.__setattr__(self, "_index", index)
        return index

    def most_similar(
        self,
        positive: str | Sequence[str] | np.ndarray | None = None,
        negative: str | Sequence[str] | None = None,
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
        metric: Metric = "cosine",
        method: Method = "auto",
    ) -> list[tuple[str, float]]:
        """The `topn` keys with the highest cosine similarity to a query, and these.

        The query is the sum of the unit vectors of `positive` minus those of
        `negative`, each a key or a list of keys, which are excluded from the result.
        Highest similarity first, ties by id.

        Args:
          positive: keys, or a vector f[D] alone.
          among: only these keys can be in the result; unknown ones are ignored.
          metric: "cosine", or "dot": the product with the sum of the vectors as they
            are.
          method: "exact", or "auto": by the index of `use_index`, if there is one and
            `among` is None. It may miss a key; similarities are exact.

        Raises:
          InputKeyError: a key is unknown.
          InputError: there is no key, none of `among` is known, or `topn` is below 1;
            a vector has another size, or is given beside keys.
          InputTypeError: `topn` is not an integer.
        """
        check_positive_integer("topn", topn)
        if isinstance(positive, np.ndarray) and positive.dtype.kind == "f":
            shape = self.matrix.shape[1:]
            if positive.shape != shape or negative is not None:
                beside = "" if negative is None else f" beside negative={negative!r}"
                raise InputError(
                    f"`positive` must be tokens, or a vector {[*shape]} alone, got a "
                    f"vector {[*positive.shape]}{beside}."
                )
            (found,) = self.nearest_to(
                positive[np.newaxis], topn, among=among, metric=metric, method=method
            )
            return found
        plus, minus = _listed(positive), _listed(negative)
        if not plus and not minus:
            raise InputError("`positive` or `negative` must have a token, got none.")
        terms = np.stack([self[key] for key in plus + minus]).astype(np.float64)
        terms = unit_rows(terms) if metric == "cosine" else terms
        query = terms[: len(plus)].sum(axis=0) - terms[len(plus) :].sum(axis=0)
        excluded = [self.index(key) for key in plus + minus if key in self]
        rows = self.rows_of(among)
        nearest = self.nearest(query[None], topn, [excluded], rows, metric, method)
        return self._ranked(*(each[0] for each in nearest))

    def nearest_to(
        self,
        queries: np.ndarray,
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
        metric: Metric = "cosine",
        method: Method = "auto",
    ) -> list[list[tuple[str, float]]]:
        """The `topn` keys with the highest cosine similarity to each query, and these.

        Args:
          queries: vectors f[Q, D].
          among, metric, method: as of `most_similar`.
        """
        check_positive_integer("topn", topn)
        rows, queries = self.rows_of(among), np.asarray(queries, np.float64)
        nearest = self.nearest(queries, topn, among=rows, metric=metric, method=method)
        return [self._ranked(*each) for each in zip(*nearest, strict=True)]

    def analogy(
        self,
        a: str,
        b: str,
        c: str,
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
        method: Method = "auto",
    ) -> list[tuple[str, float]]:
        """Candidates for d in the analogy "a is to b as c is to d", best first.

        The keys with the highest cosine similarity to b - a + c (3CosAdd), with the
        unit vectors of the keys; see `most_similar`.
        """
        return self.most_similar([b, c], [a], topn, among=among, method=method)

    def neighbors(
        self,
        keys: str | Iterable[str],
        topn: int = 10,
        *,
        among: Collection[str] | None = None,
        metric: Metric = "cosine",
        method: Method = "auto",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids i64[Q, n] and similarities f64[Q, n] of the nearest keys.

        For each of the Q `keys` the n = min(topn, V - 1) nearest other keys, best
        first, as in `most_similar`; n = min(topn, V) if one is unknown and has n-grams.
        With `among`, n is at most the number of these keys; the row of a key with fewer
        ends with id -1 and similarity NaN. Memory stays bounded for any Q.

        Args:
          metric: "cosine", or "dot", the product of the two vectors.
          among, method: as of `most_similar`.

        Raises:
          InputKeyError, InputError, InputTypeError: see `most_similar`.
        """
        check_positive_integer("topn", topn)
        return self.neighbors_among(
            _listed(keys), topn, self.rows_of(among), metric, method
        )

    def neighbors_among(
        self,
        keys: Sequence[str],
        topn: int,
        among: np.ndarray | None = None,
        metric: Metric = "cosine",
        method: Method = "auto",
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `neighbors`, with `among` as of `neighbors_of_rows`."""
        others = {i: self[key] for i, key in enumerate(keys) if key not in self}
        ids = [self.key_to_index.get(key, -1) for key in keys]
        return self.neighbors_of_rows(ids, topn, among, metric, method, others)

    def neighbors_of_rows(
        self,
        ids: Sequence[int] | np.ndarray,
        topn: int,
        among: np.ndarray | None = None,
        metric: Metric = "cosine",
        method: Method = "auto",
        others: Mapping[int, np.ndarray] = MappingProxyType({}),
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `neighbors` has for the keys `ids`, i64[Q].

        Args:
          among: ids that can be in the result, ascending, i64[n]; None: all.
          others: the vector f[D] of each query that is no key, whose id is -1, by its
            place in `ids`.
        """
        most = len(self) if among is None else len(among)
        shape = len(ids), min(topn, len(self) - (not others), most)
        nearest, scores = np.full(shape, -1, np.int64), np.full(shape, np.nan)
        for start in range(0, len(ids) if shape[1] else 0, _KEYS):
            chunk = slice(start, start + _KEYS)
            rows = np.asarray(ids[chunk], np.int64)
            queries = self.matrix[rows].astype(np.float64)
            excluded = rows[:, None].tolist()
            for i in np.flatnonzero(rows < 0).tolist():
                queries[i], excluded[i] = others[start + i], []
            if metric == "cosine":  # the same bits as of `most_similar`
                queries = unit_rows(queries)
            nearest[chunk], scores[chunk] = self.nearest(
                queries, shape[1], excluded, among, metric, method
            )
        return nearest, scores

    def nearest(
        self,
        queries: np.ndarray,
        topn: int,
        excluded: list[list[int]] | None = None,
        among: np.ndarray | None = None,
        metric: Metric = "cosine",
        method: Method = "auto",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids i64[Q, n] and similarities f64[Q, n] as of `search.nearest_rows`.

        Args:
          queries: f64[Q, D].
          excluded: ids that are not results, of each query.
          among, metric, method: as of `neighbors_of_rows`.

        Raises:
          InputError: a query is not finite.
        """
        if not np.isfinite(queries).all():
            raise InputError("Queries must be finite, got a NaN or an infinity.")
        index = self._index
        if index is not None and method == "auto" and among is None:
            if index.about.metric == metric:
                return index.nearest_rows(queries, topn, excluded)
        table = self.table(metric)
        return nearest_rows(table, queries, topn, excluded=excluded, among=among)

    def rows_of(self, among: Collection[str] | None) -> np.ndarray | None:
        """Ids of the keys `among`, ascending, i64[n]; None: there is no `among`."""
        hidden = self.outside(among)
        return None if hidden is None else np.flatnonzero(~hidden)

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

    def _ranked(self, ids: np.ndarray, scores: np.ndarray) -> list[tuple[str, float]]:
        """Keys and similarities, without what is missing at the end."""
        pairs = zip(ids.tolist(), scores.tolist(), strict=True)
        return [(self.keys[row], score) for row, score in pairs if row >= 0]


def _listed(keys: str | Iterable[str] | None) -> list[str]:
    if keys is None:
        return []
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        return [keys]
    return [*keys]


def check_keys(among: Collection[object] | None) -> None:
    """Raises InputTypeError if `among` is a text, whose letters would be keys."""
    if isinstance(among, str):
        raise InputTypeError(f"`among` must be keys, got {short_repr(among)}.")


def as_integers(keys: Sequence[object]) -> list[int] | None:
    """`keys` as Python integers; None unless all of them are integers."""
    integers = [
        int(key)
        for key in keys
        if isinstance(key, int | np.integer) and not isinstance(key, bool)
    ]
    return integers if integers and len(integers) == len(keys) else None


def typed_keys(keys: list[str], key_type: KeyType) -> list[str] | list[int]:
    """`keys` as integers if that is their type, and each is the text of an integer."""
    if key_type == "text":
        return keys
    try:
        integers = [int(key) for key in keys]
    except ValueError:
        return keys
    return integers if [*map(str, integers)] == keys else keys


def check_positive_integer(name: str, value: int) -> None:
    """Raises InputTypeError or InputError unless `value` is an integer >= 1."""
    message = f"`{name}` must be an integer >= 1, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(message)
    if value < 1:
        raise InputError(message)


def _check_keys(original: object, keys: list[str]) -> None:
    if isinstance(original, str) or not all(isinstance(key, str) for key in keys):
        raise InputTypeError(
            f"`keys` must be a list of strings, got {short_repr(original)}."
        )
    if "" in keys:
        row = keys.index("")
        raise InputError(f"`keys` must not be empty, got '' at row {row}.")
    if len(set(keys)) < len(keys):
        seen: dict[str, int] = {}
        repeats = ((i, x) for i, x in enumerate(keys) if seen.setdefault(x, i) != i)
        second, key = next(repeats)
        raise InputError(
            f"`keys` must be unique, got {short_repr(key)} at rows {seen[key]} and "
            f"{second}."
        )
    try:
        "".join(keys).encode()
    except UnicodeEncodeError as error:
        bad = next(key for key in keys if error.object[error.start] in key)
        raise InputError(
            f"`keys` must be valid Unicode, got {bad!r} at row {keys.index(bad)}."
        ) from None


def _checked_matrix(matrix: np.ndarray, keys: list[str]) -> np.ndarray:
    """`matrix` as read-only, native, C-ordered f32 or f64[V, D]; f16 becomes f32."""
    matrix = np.asarray(matrix)
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize > 8:
        raise InputTypeError(
            f"`matrix` must hold float16, float32 or float64, got {matrix.dtype}."
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


def check_known(
    keys: Iterable[str],
    known: Sequence[str],
    what: str = "",
    *,
    of_examples: bool = False,
) -> None:
    """Raises InputKeyError with near keys for the first that is not `known`.

    Args:
      what: what the key is, as messages begin; "": nothing is said of it.
      of_examples: whether keys are those of examples, and not tokens.
    """
    all_known = {*known}
    for key in keys:
        if key not in all_known:
            near = " or ".join(map(repr, near_keys(key, known)))
            hint = f": did you mean {near}?" if near else "."
            if not of_examples:
                shown = f"{what} {key!r}".lstrip()
                raise InputKeyError(f"{shown} is not in the vocabulary{hint}")
            hint = hint if near else f": keys are such as {known[0]!r}."
            raise InputKeyError(f"{key!r} is not the key of an example{hint}")
