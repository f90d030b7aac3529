"""Attributes of items: values that items share, each with a row of its own.

    S_i = i and the rows of its attributes;  v_i = (1 / |S_i|) sum_{s in S_i} e_s   (94)
    v_x = (1 / |A_x|) sum_{a in A_x} e_a                                           (103)
    u_x = (1 / |A_x|) sum_{a in A_x} mean over the items c with a of u_c           (104)
    s(x, c) = sum_{a in A_x and A_c} g_a / sum_{a in A_x or A_c} g_a               (105)

with A_x the attributes of an item x that no sequence has, and g_a = log(1 + V / V_a) of
an attribute that V_a of V items have. So attributes are learned as the n-grams of
`subwords` are: only the lists differ.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl

from embedder.disk.arrays import pack_strings, unpack_strings
from embedder.errors import InputError
from embedder.vectors.search import largest_columns
from embedder.vectors.spelling import near_keys
from embedder.vectors.subwords import Subwords, shared_rows

KEY, ATTRIBUTE = "key", "attribute"
"""Columns of pairs."""
ALIKE = 5
"""Items that stand for one that no sequence has; measured: decision 175."""
_CHUNK_VALUES = 2**22  # similarities that are computed at once: 16 MB
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_TEXT_BYTES = 120  # of a key or a name, as Python's text in a list and a dict


class Attributes(NamedTuple):
    """The attributes of n keys, each with at least one.

    `rows[starts[i] : starts[i + 1]]` are those of key i. Only the first names are of an
    item of the vocabulary, and have rows; an update may bring items with the others.
    """

    keys: list[str]  # sorted
    starts: np.ndarray  # i64[n + 1]
    rows: np.ndarray  # i32[m], numbers of `names`
    names: list[str]  # as "category=mugs"
    num_known: int  # of the names, that have rows

    @classmethod
    def of_pairs(cls, pairs: pl.DataFrame) -> Self:
        """Those of a frame with the columns key and attribute, both text."""
        pairs = pairs.unique().sort(KEY, ATTRIBUTE)
        names = pairs[ATTRIBUTE].unique().sort()
        runs = pairs[KEY].rle().struct.unnest()
        starts = np.concatenate([[0], runs["len"].to_numpy().cumsum(dtype=np.int64)])
        numbers = pl.int_range(len(names), eager=True, dtype=pl.Int32)
        rows = pairs[ATTRIBUTE].replace_strict(names, numbers, return_dtype=pl.Int32)
        keys = runs["value"].to_list()
        return cls(keys, starts, rows.to_numpy(), names.to_list(), len(names))

    @property
    def pairs(self) -> pl.DataFrame:
        """What `of_pairs` takes."""
        keys = pl.Series(KEY, self.keys, pl.String)
        names = pl.Series(ATTRIBUTE, self.names, pl.String)
        key = np.repeat(np.arange(len(keys)), np.diff(self.starts))
        return pl.DataFrame([keys.gather(key), names.gather(self.rows)])

    @property
    def digest(self) -> str:
        """SHA-256 of all keys and their attributes."""
        digest = hashlib.sha256()
        for array in self.arrays().values():
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def num_bytes(self) -> int:
        """Bytes of memory, about."""
        texts = _TEXT_BYTES * (len(self.keys) + len(self.names))
        return texts + self.starts.nbytes + self.rows.nbytes

    def known(self, tokens: Sequence[str]) -> Self:
        """The same, of which those have rows that one of `tokens` has."""
        place = {key: number for number, key in enumerate(self.keys)}
        number = np.array([place[x] for x in tokens if x in place], np.int64)
        is_known = np.zeros(len(self.names), bool)
        is_known[self.rows[_entries(self.starts, number)[1]]] = True
        order = np.concatenate([np.flatnonzero(is_known), np.flatnonzero(~is_known)])
        number_now = np.empty(len(order), np.int32)
        number_now[order] = np.arange(len(order))
        names = [self.names[number] for number in order.tolist()]
        rows, num_known = number_now[self.rows], int(is_known.sum())
        return type(self)(self.keys, self.starts, rows, names, num_known)

    def updated(self, newer: Self) -> Self:
        """These, but of the keys of `newer` its attributes."""
        others = pl.Series(newer.keys, dtype=pl.String).implode()
        old = self.pairs.filter(~pl.col(KEY).is_in(others))
        return self.of_pairs(pl.concat([old, newer.pairs]))

    def with_integer_keys(self) -> Self:
        """Those of keys that are integers, as a vocabulary of integers has them."""
        pairs = self.pairs
        return self.of_pairs(pairs.filter(pairs[KEY].str.contains(_INTEGER)))

    def rows_of(self, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """How many attributes with a row each of `keys` has, i64[m], and the numbers of
        these, one key after the other."""
        place = {key: number for number, key in enumerate(self.keys)}
        number = np.array([place.get(key, -1) for key in keys], np.int64)
        case, entry = _entries(self.starts, number)
        rows = self.rows[entry]
        is_known = rows < self.num_known
        return np.bincount(case[is_known], minlength=len(number)), rows[is_known]

    @property
    def keys_with_rows(self) -> list[str]:
        """The keys with an attribute that has a row."""
        is_known = self.rows < self.num_known
        num = np.add.reduceat(is_known, self.starts[:-1], dtype=np.int64)
        return [self.keys[number] for number in np.flatnonzero(num).tolist()]

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """All of it as arrays, for a file."""
        arrays: dict[str, np.ndarray] = {}
        for name, texts in (("keys", self.keys), ("names", self.names)):
            arrays[f"{prefix}{name}"], arrays[f"{prefix}{name}_ends"] = pack_strings(
                texts
            )
        arrays |= {f"{prefix}starts": self.starts, f"{prefix}rows": self.rows}
        return arrays | {f"{prefix}num_known": np.array([self.num_known], np.int64)}

    @classmethod
    def of_arrays(cls, read: Callable[[str], np.ndarray], prefix: str = "") -> Self:
        """Those that `arrays` gave.

        Args:
          read: an array by its name.

        Raises:
          InputError: they are damaged.
          KeyError: as of `read`.
        """
        keys, names = (
            unpack_strings(read(f"{prefix}{x}"), read(f"{prefix}{x}_ends"))
            for x in ("keys", "names")
        )
        starts, rows = read(f"{prefix}starts"), read(f"{prefix}rows")
        num_known = int(read(f"{prefix}num_known")[0])
        is_whole = (starts.dtype, starts.ndim, rows.dtype, rows.ndim) == (
            *(np.dtype(np.int64), 1),
            *(np.dtype(np.int32), 1),
        )
        is_whole = bool(is_whole) and len(starts) == len(keys) + 1 and not starts[0]
        is_whole = is_whole and starts[-1] == len(rows)
        is_whole = is_whole and 0 < num_known <= len(names)
        is_whole = is_whole and bool((np.diff(starts) > 0).all())
        if (
            not is_whole
            or rows.min(initial=0) < 0
            or len(names) <= rows.max(initial=-1)
        ):
            raise InputError("its attributes do not fit each other")
        return cls(keys, starts, rows, names, num_known)


def rows_with_attributes(tokens: Sequence[str], attributes: Attributes) -> Subwords:
    """The rows of a vocabulary: those of tokens, and after them those of attributes.

    An attribute's row starts by (96), with a hash of its name as its number.
    """
    lengths, rows = attributes.rows_of(tokens)
    hashes = [
        hashlib.blake2b(name.encode(), digest_size=8).digest()
        for name in attributes.names[: attributes.num_known]
    ]
    numbers = np.frombuffer(b"".join(hashes), "<u8") >> np.uint64(1)
    return shared_rows(None, lengths, rows, numbers.astype(np.int64))


@dataclass(frozen=True, eq=False, repr=False)
class AttributeRows:
    """The rows of attributes, of which items that no sequence has have their vectors.

    Args:
      table: rows of attributes, [K, D].
    """

    attributes: Attributes
    table: np.ndarray

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names)}

    @property
    def _names(self) -> list[str]:
        return self.attributes.names[: self.attributes.num_known]

    @cached_property
    def _place(self) -> dict[str, int]:
        return {key: number for number, key in enumerate(self.attributes.keys)}

    def has_vector(self, key: str) -> bool:
        """Whether a key has attributes with a row."""
        return key in self._place and len(self._rows(key)) > 0

    def vector(self, key: str) -> np.ndarray:
        """The vector of a key that no sequence has, (103), [D]."""
        return self.table[self._rows(key)].mean(axis=0)

    def _rows(self, key: str) -> np.ndarray:
        starts, number = self.attributes.starts, self._place[key]
        rows = self.attributes.rows[starts[number] : starts[number + 1]]
        return rows[rows < self.attributes.num_known]

    def vector_of(self, names: Sequence[str]) -> np.ndarray:
        """The vector of an item with these attributes, (103), [D].

        Args:
          names: as "category=mugs".

        Raises:
          InputError: one is unknown; the message has near ones.
        """
        for name in names:
            if name not in self._numbers:
                near = near_keys(name, self._names)
                hint = f": near ones are {', '.join(near)}" if near else ""
                raise InputError(
                    f"`attributes` must be COLUMN=VALUE of the run, got {name!r}{hint}."
                )
        numbers = [self._numbers[name] for name in dict.fromkeys(names)]
        return self.table[numbers].mean(axis=0)

    def unseen_keys(self, tokens: Sequence[str]) -> list[str]:
        """The keys with attributes that are none of `tokens`, sorted."""
        return sorted({*self.attributes.keys_with_rows} - {*tokens})

    def unseen(self, tokens: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """The `unseen_keys`, and their vectors, (103), [n, D]."""
        keys = self.unseen_keys(tokens)
        return keys, self._means(keys, self.table)

    def unseen_output(self, tokens: Sequence[str], output: np.ndarray) -> np.ndarray:
        """The output rows of `unseen` keys, (104), [n, D].

        Args:
          output: rows of `tokens`, [V, D].
        """
        lengths, rows = self.attributes.rows_of(tokens)
        having = _matrix(lengths, rows, len(self.table), output.dtype).T
        counts = np.maximum(np.bincount(rows, minlength=len(self.table)), 1)
        means = (having @ output) / counts[:, np.newaxis].astype(output.dtype)
        return self._means(self.unseen_keys(tokens), means)

    def alike(self, tokens: Sequence[str]) -> Any:
        """The `ALIKE` of `tokens` with the largest similarity (105) to each of the
        `unseen_keys`: a sparse matrix f32[n, V] whose rows are these similarities,
        divided by their sum; of equally similar tokens the first."""
        size, keys = len(self.table), self.unseen_keys(tokens)
        lengths, rows = self.attributes.rows_of(tokens)
        gains = np.log1p(len(tokens) / np.maximum(np.bincount(rows, minlength=size), 1))
        having = _matrix(lengths, rows, size, np.float32)
        lengths, rows = self.attributes.rows_of(keys)
        ends = np.cumsum(lengths)
        sets = [
            rows[end - n : end].tobytes() for end, n in zip(ends, lengths, strict=True)
        ]
        first = {each: number for number, each in reversed([*enumerate(sets)])}
        asked = _matrix(lengths, rows, size, np.float32)[[*first.values()]]
        own, total = asked @ gains, having @ gains
        asked.data *= gains[asked.indices]
        num = min(ALIKE, len(tokens))
        step = max(1, _CHUNK_VALUES // len(tokens))
        nearest = np.empty((len(first), num), np.int64)
        shares = np.empty((len(first), num), np.float32)
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            common = (asked[part] @ having.T).toarray()
            similarity = common / (own[part, np.newaxis] + total - common)
            nearest[part] = best = largest_columns(similarity, num)
            shares[part] = np.take_along_axis(similarity, best, 1)
        shares /= shares.sum(axis=1, keepdims=True)
        place = {each: number for number, each in enumerate(first)}
        chosen = [place[each] for each in sets]
        starts = np.arange(0, num * len(keys) + 1, num)
        values, columns = shares[chosen].ravel(), nearest[chosen].ravel()
        return _csr(values, columns, starts, (len(keys), len(tokens)))

    def _means(self, keys: Sequence[str], table: np.ndarray) -> np.ndarray:
        lengths, rows = self.attributes.rows_of(keys)
        sums = _matrix(lengths, rows, len(table), table.dtype) @ table
        return sums / np.maximum(lengths, 1)[:, np.newaxis].astype(table.dtype)


def _entries(starts: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the values of some groups, and of which of them each is; a group
    below 0 has none.

    Args:
      starts: of the groups, i64[n + 1].
      number: of the groups, i64[m].
    """
    lengths = np.where(number >= 0, np.diff(starts)[number], 0)
    case = np.repeat(np.arange(len(number)), lengths)
    before = np.cumsum(lengths) - lengths
    return case, np.arange(len(case)) + (starts[number] - before)[case]


def _matrix(lengths: np.ndarray, rows: np.ndarray, width: int, dtype: Any) -> Any:
    """A sparse matrix of ones, [len(lengths), width]."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return _csr(np.ones(len(rows), dtype), rows, starts, (len(lengths), width))


def _csr(
    values: np.ndarray, columns: np.ndarray, starts: np.ndarray, shape: tuple[int, int]
) -> Any:
    from scipy import sparse

    return sparse.csr_array((values, columns, starts), shape)
