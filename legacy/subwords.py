"""Subwords as fastText has them: rows of n-grams, and vectors of words made of them.

Reference: Bojanowski et al. 2017, arXiv:1607.04606; fastText, `src/dictionary.cc`.
"""

from typing import NamedTuple

import numpy as np

_MASK = 2**64 - 1


class Subwords(NamedTuple):
    """The rows of V words and K buckets that each word has; a row counts as often as it
    is listed."""

    words: np.ndarray  # i64[n], the word of each entry, ascending
    rows: np.ndarray  # i64[n]: the word itself, or V + the place of its bucket
    shares: np.ndarray  # f64[n], 1 / |S_w| of the word
    buckets: np.ndarray  # i64[K], ascending
    scale: float  # mean of |S_w| over the tokens of the corpus


NO_SUBWORDS = Subwords(*[np.zeros(0, np.int64)] * 2, np.zeros(0), np.zeros(0), 0.0)
"""In the place of subwords where there are none."""


def ngrams(word: str, least: int, most: int) -> list[str]:
    """Parts of `<word>` of `least` to `most` characters; a single end is none."""
    if word == "</s>":  # fastText's end of a sentence
        return []
    text, found = f"<{word}>", []
    for start in range(len(text)):
        for size in range(least, most + 1):
            is_end = size == 1 and start in (0, len(text) - 1)
            if start + size <= len(text) and not is_end:
                found.append(text[start : start + size])
    return found


def bucket(ngram: str, num_buckets: int) -> int:
    """The number of an n-gram: FNV-1a with 32 bits, over bytes with their sign."""
    value = 0x811C9DC5
    for byte in ngram.encode("utf-8"):
        value ^= byte if byte < 0x80 else byte + 0xFFFFFF00
        value = value * 0x01000193 % 2**32
    return value % num_buckets


def subwords(
    tokens: list[str], counts: np.ndarray, bounds: tuple[int, int], num_buckets: int
) -> Subwords:
    """The subwords of a vocabulary."""
    numbers = [
        [bucket(part, num_buckets) for part in ngrams(t, *bounds)] for t in tokens
    ]
    buckets = np.array(sorted({x for each in numbers for x in each}), np.int64)
    place = {number: len(tokens) + k for k, number in enumerate(buckets.tolist())}
    words, rows, shares = [], [], []
    for word, each in enumerate(numbers):
        own = [word, *(place[number] for number in each)]
        words += [word] * len(own)
        rows += own
        shares += [1 / len(own)] * len(own)
    sizes = np.bincount(words, minlength=len(tokens))
    scale = float(sizes @ counts / counts.sum())
    return Subwords(np.array(words), np.array(rows), np.array(shares), buckets, scale)


def initial_rows(found: Subwords, input_table: np.ndarray, seed: int) -> np.ndarray:
    """The rows before training, [V + K, D]: of words those of the input table; of
    buckets uniform on (-0.5, 0.5) / D, by the seed and the number of the bucket."""
    scalar, size = input_table.dtype.type, input_table.shape[1]
    own = np.empty((len(found.buckets), size), np.float32)
    for k, number in enumerate(found.buckets.tolist()):
        start = _mix(_mix(seed) + number)
        for d in range(size):
            own[k, d] = (_mix(start + (d + 1) * 0x9E3779B97F4A7C15) >> 40) / 2**24
    rows = (own.astype(input_table.dtype) - scalar(0.5)) / scalar(size)
    return np.concatenate([input_table, rows])


def compose(found: Subwords, rows: np.ndarray) -> np.ndarray:
    """The vectors of all words, [V, D]: v_w = (1 / |S_w|) sum of the rows in S_w."""
    vectors = np.zeros((found.words[-1] + 1, rows.shape[1]), rows.dtype)
    shares = found.shares.astype(rows.dtype)[:, np.newaxis]
    np.add.at(vectors, found.words, shares * rows[found.rows])
    return vectors


def apply_step(
    found: Subwords, rows: np.ndarray, gradients, weights, rate: float, cap: float
) -> None:
    """Moves the rows in place, given the gradient [V, D] and the weight [V] of words.

    G_s = n sum_w (m_sw / |S_w|) G_w;   c_s = n sum_w (m_sw / |S_w|) c_w
    e_s <- e_s - rate * min(1, cap / c_s) * G_s
    """
    shares = (found.scale * found.shares).astype(rows.dtype)
    total, weight = np.zeros_like(rows), np.zeros(len(rows), rows.dtype)
    np.add.at(total, found.rows, shares[:, np.newaxis] * gradients[found.words])
    np.add.at(weight, found.rows, shares * weights[found.words])
    over = np.flatnonzero(weight > cap)
    total[over] *= (cap / weight[over])[:, np.newaxis]
    rows -= rows.dtype.type(rate) * total


def _mix(x: int) -> int:
    """The finalizer of SplitMix64 (Steele et al. 2014, OOPSLA)."""
    x &= _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31
