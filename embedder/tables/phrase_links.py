"""Links between words of a sequence that may make a phrase.

Neighbours are linked. With connectors, as in `bank of america`, so are the words on
both sides of one or more of them; a connector begins and ends no phrase.
"""

from typing import NamedTuple

import numpy as np

_BETWEEN = 2**31  # second ids from here on: a word and the connectors before it
_BITS = 63  # of the number of the connectors between two words


class Links(NamedTuple):
    """Pairs of words, from the left to the right of each sequence."""

    lefts: np.ndarray  # i64[n], positions
    rights: np.ndarray  # i64[n]
    keys: np.ndarray  # u64[n]: equal for equal words with equal connectors between


class Linker:
    """Links the words of shards, and tells what a key is of.

    Args:
      connectors: ids of those tokens; none: neighbours are linked.
    """

    def __init__(self, connectors: list[int]):
        self._connectors = np.sort(np.array(connectors, np.int64))
        base = len(connectors) + 1
        self._most = int(_BITS / np.log2(base)) if connectors else 0  # between words
        self._numbers: dict[tuple[int, int], int] = {}
        self._ends: list[tuple[list[int], int]] = []

    def links(self, ids: np.ndarray, lengths: np.ndarray) -> Links:
        """The links of a shard: ids i32, lengths of its sequences."""
        words = np.arange(len(ids))
        if len(self._connectors):
            words = np.flatnonzero(~np.isin(ids, self._connectors))
        lefts, rights = words[:-1], words[1:]
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        kept = sequence[lefts] == sequence[rights]
        kept &= rights - lefts - 1 <= self._most
        lefts, rights = lefts[kept], rights[kept]
        seconds = ids[rights].astype(np.uint64)
        apart = rights - lefts > 1
        if apart.any():
            seconds[apart] = self._seconds(ids, lefts[apart], rights[apart])
        return Links(lefts, rights, (ids[lefts].astype(np.uint64) << 32) | seconds)

    def ends(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the first and of the second word of each key, i64[n] each."""
        first = (keys >> np.uint64(32)).astype(np.int64)
        second = (keys & np.uint64(2**32 - 1)).astype(np.int64)
        apart = second >= _BETWEEN
        if apart.any():
            words = np.array([word for _, word in self._ends])
            second[apart] = words[second[apart] - _BETWEEN]
        return first, second

    def ids_of(self, key: int) -> list[int]:
        """The ids of the first word of a key, of the connectors, and of the second."""
        first, second = key >> 32, key & (2**32 - 1)
        if second < _BETWEEN:
            return [first, second]
        between, word = self._ends[second - _BETWEEN]
        return [first, *between, word]

    def _seconds(
        self, ids: np.ndarray, lefts: np.ndarray, rights: np.ndarray
    ) -> np.ndarray:
        """Numbers of the words at `rights` with the connectors before them, u64[n]."""
        base, between = len(self._connectors) + 1, np.zeros(len(lefts), np.int64)
        for offset in range(1, int((rights - lefts).max())):
            inside = np.flatnonzero(lefts + offset < rights)
            found = ids[lefts[inside] + offset]
            digits = np.searchsorted(self._connectors, found) + 1
            between[inside] = between[inside] * base + digits
        both = np.stack([between, ids[rights]], axis=1)
        each, inverse = np.unique(both, axis=0, return_inverse=True)
        numbers = [self._number(*pair) for pair in each.tolist()]
        return np.array(numbers, np.uint64)[inverse.reshape(-1)]

    def _number(self, between: int, word: int) -> int:
        if (between, word) not in self._numbers:
            self._numbers[between, word] = len(self._ends)
            self._ends.append((self._digits(between), word))
        return _BETWEEN + self._numbers[between, word]

    def _digits(self, between: int) -> list[int]:
        """The ids of connectors by their number."""
        found: list[int] = []
        while between:
            between, digit = divmod(between, len(self._connectors) + 1)
            found.insert(0, int(self._connectors[digit - 1]))
        return found
