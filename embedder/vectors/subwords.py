"""Subwords as in fastText: a word has its own row, and a row for each of its n-grams.

    S_w = w and the rows of its n-grams;  v_w = (1 / |S_w|) sum_{s in S_w} e_s      (94)

An n-gram is a part of `<word>` of `min_n` to `max_n` characters. Its row is that of a
bucket, its hash modulo the number of buckets, ALGORITHM.md (93). Only buckets that the
vocabulary has are kept; all others stay as they start, (96), and so can be computed.

References: Bojanowski et al. 2017, TACL 5 (arXiv:1607.04606); fastText,
`src/dictionary.cc`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_OFFSET = np.uint32(2166136261)
_PRIME = np.uint32(16777619)
_END_OF_SENTENCE = "</s>"  # a token of fastText, which has no n-grams
_WORDS_AT_ONCE = 2**14  # bounds the memory of hashes


class NgramRule(NamedTuple):
    """Which n-grams a word has, and how many buckets there are for all of them."""

    min_n: int
    max_n: int
    num_buckets: int


def ngram_buckets(
    words: Sequence[str], rule: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of the n-grams of all words, one word after the other, i64[n], and
    how many each word has, i64[V].

    N-grams of a word are in the order of their first character, and then of their
    length. They count as often as they occur. A single `<` or `>` is none.

    Args:
      rule: the least and the most characters of an n-gram, and the number of buckets.
    """
    rule = NgramRule(*rule)
    size = _WORDS_AT_ONCE
    starts = range(0, len(words), size)
    parts = [_hashes_of_some(words[k : k + size], rule) for k in starts]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    hashes, lengths = map(np.concatenate, zip(*parts, strict=True))
    return hashes.astype(np.int64) % rule.num_buckets, lengths


def _hashes_of_some(
    words: Sequence[str], rule: NgramRule
) -> tuple[np.ndarray, np.ndarray]:
    """Hashes u32[n] of n-grams, and their numbers by word.

    The hash is FNV-1a over UTF-8 with 32 bits, whose bytes are extended with their
    sign, as in fastText: n-grams that are not ASCII have other hashes than by FNV-1a.
    """
    texts = [f"<{word}>".encode("utf-8", "surrogateescape") for word in words]
    data = np.frombuffer(b"".join(texts), np.int8)
    first_byte = np.flatnonzero((data & np.int8(-64)) != np.int8(-128))
    num_bytes = np.diff(first_byte, append=len(data))
    ends = np.cumsum([len(text) for text in texts])
    last = np.searchsorted(first_byte, ends) - 1  # character of each word, its ">"
    sizes = np.diff(last, prepend=-1)
    end = np.repeat(last, sizes)  # of each character: the last one of its word
    is_first = np.zeros(len(first_byte), bool)
    is_first[last - sizes + 1] = True
    signed = data.astype(np.int32).view(np.uint32)
    value = np.full(len(first_byte), _OFFSET)
    columns = rule.max_n - rule.min_n + 1
    hashes = np.empty((len(first_byte), columns), np.uint32)
    is_there = np.zeros((len(first_byte), columns), bool)
    character = np.arange(len(first_byte))
    for n in range(1, rule.max_n + 1):
        added = character + n - 1
        fits = added <= end
        at = np.where(fits, added, end)
        for byte in range(num_bytes.max()):
            takes = fits & (num_bytes[at] > byte)
            place = np.where(takes, first_byte[at] + byte, 0)
            value = np.where(takes, (value ^ signed[place]) * _PRIME, value)
        if n >= rule.min_n:
            column = n - rule.min_n
            hashes[:, column] = value
            is_alone = (is_first | (character == end)) if n == 1 else False
            is_there[:, column] = fits & ~np.asarray(is_alone)
    has_none = [row for row, word in enumerate(words) if word == _END_OF_SENTENCE]
    for row in has_none:
        is_there[last[row] - sizes[row] + 1 : last[row] + 1] = False
    lengths = np.add.reduceat(is_there.sum(axis=1), last - sizes + 1)
    return hashes[is_there], lengths


class Subwords(NamedTuple):
    """The rows of each of V words: its own one, and after it those of its n-grams.

    A table of subwords has V rows of words, and after them one of each of K buckets.
    """

    rule: NgramRule | None  # None: they are attributes
    starts: np.ndarray  # i64[V + 1], of each word in `rows`
    rows: np.ndarray  # i32[n]
    buckets: np.ndarray  # i64[K], of the rows from V on; of n-grams ascending

    @property
    def num_words(self) -> int:
        """V."""
        return len(self.starts) - 1

    @property
    def num_rows(self) -> int:
        """V + K."""
        return self.num_words + len(self.buckets)

    @property
    def lengths(self) -> np.ndarray:
        """|S_w| of each word, i64[V]."""
        return np.diff(self.starts)


def subwords_of(words: Sequence[str], rule: NgramRule) -> Subwords:
    """The subwords of a vocabulary."""
    hashes, lengths = ngram_buckets(words, rule)
    buckets, number = np.unique(hashes, return_inverse=True)
    return shared_rows(rule, lengths, number, buckets)


def shared_rows(
    rule: NgramRule | None, lengths: np.ndarray, number: np.ndarray, buckets: np.ndarray
) -> Subwords:
    """The rows of V words, which have their own one, and rows that words share.

    Args:
      lengths: how many of these each word has, i64[V].
      number: which of `buckets` they are, one word after the other, i[n].
    """
    num_words = len(lengths)
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    rows = np.empty(starts[-1], np.int32)
    is_own = np.zeros(len(rows), bool)
    is_own[starts[:-1]] = True
    rows[is_own] = np.arange(num_words)
    rows[~is_own] = num_words + number
    return Subwords(rule, starts, rows, buckets)


def composed(subwords: Subwords, table: np.ndarray) -> np.ndarray:
    """The vectors of all words, [V, D], equation (94).

    Args:
      table: rows of words and of buckets, [V + K, D].
    """
    from scipy import sparse

    lengths = subwords.lengths
    shares = np.repeat((1 / lengths).astype(table.dtype), lengths)
    shape = subwords.num_words, subwords.num_rows
    return sparse.csr_array((shares, subwords.rows, subwords.starts), shape) @ table


def first_rows(buckets: np.ndarray, size: int, seed: int, dtype) -> np.ndarray:
    """Rows of buckets at the start, uniform in [-0.5, 0.5) / D, [m, D], (96).

    A row follows from the seed and its bucket alone.
    """
    with np.errstate(over="ignore"):
        states = mixed(mixed(np.array([seed], np.uint64)) + buckets.astype(np.uint64))
        table = np.empty((len(buckets), size), dtype)
        for column in range(size):
            bits = mixed(states + np.uint64(column + 1) * GOLDEN) >> np.uint64(40)
            uniform = bits.astype(np.float32) / np.float32(2**24)
            table[:, column] = uniform
    scalar = table.dtype.type
    return (table - scalar(0.5)) / scalar(size)


GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64, u64[...] (Steele et al. 2014, OOPSLA)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False, repr=False)
class Ngrams:
    """Rows of n-grams, of which the vectors of unknown words are made, and what else a
    file of fastText has."""

    rule: NgramRule
    buckets: np.ndarray  # i64[K], ascending
    rows: np.ndarray  # [K, D]
    seed: int | None = None
    """Of the rows of all other buckets, (96); None: they are 0."""
    words: np.ndarray | None = None  # [V, D], own rows of the words
    output: np.ndarray | None = None  # [R, D]
    settings: Mapping[str, Any] | None = None
    """Of the training, by fastText's names."""

    def __repr__(self) -> str:
        return f"Ngrams({self.rule}, {len(self.buckets)} rows)"

    def rows_of(self, buckets: np.ndarray) -> np.ndarray:
        """The rows of any buckets, [m, D]."""
        at = np.searchsorted(self.buckets, buckets)
        at = np.minimum(at, max(len(self.buckets) - 1, 0))
        rows = np.zeros((len(buckets), self.rows.shape[1]), self.rows.dtype)
        known = np.zeros(len(buckets), bool)
        if len(self.buckets):
            known = self.buckets[at] == buckets
            rows[known] = self.rows[at[known]]
        if self.seed is not None and not known.all():
            size, dtype = self.rows.shape[1], self.rows.dtype
            rows[~known] = first_rows(buckets[~known], size, self.seed, dtype)
        return rows

    def has_vector(self, word: str) -> bool:
        """Whether a word has n-grams."""
        return len(ngram_buckets([word], self.rule)[0]) > 0

    def vector(self, word: str) -> np.ndarray:
        """The vector of a word that has no row of its own, [D]: the mean over its
        n-grams. That of a word without n-grams is 0."""
        buckets, _ = ngram_buckets([word], self.rule)
        if not len(buckets):
            return np.zeros(self.rows.shape[1], self.rows.dtype)
        return self.rows_of(buckets).mean(axis=0)
