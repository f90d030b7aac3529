"""Finds phrases: pairs of adjacent tokens that occur together more often than chance.

Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their
Compositionality" (arXiv:1310.4546), equation 6, as word2phrase.c has it; or normalized
pointwise mutual information (Bouma 2009). A pass counts all pairs, and then joins those
with a score above the threshold, from the left to the right of each sequence. Words
with connectors between them, as in `bank of america`, are a pair, too, as gensim's
Phrases has it.
"""

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.data.corpus import sequences_corpus, text_corpus
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.data.shards import Shard
from embedder.disk.files import is_utf8
from embedder.errors import InputError, InputTypeError
from embedder.vectors.vectors import check_positive_integer
from embedder.vectors.white_space import is_word
from embedder.vectors.word2vec import MAX_TOKEN_BYTES

_BETWEEN = 2**31  # second ids from here on: a word and the connectors before it
_BITS = 63  # of the number of the connectors between two words


class Links(NamedTuple):
    """Pairs of words, from the left to the right of each sequence."""

    lefts: np.ndarray  # i64[n], positions
    rights: np.ndarray  # i64[n]
    keys: np.ndarray  # u64[n]: equal for equal words with equal connectors between


class Linker:
    """Links words that may make a phrase, and tells what a key is of.

    Neighbours are linked. With connectors, as in `bank of america`, so are the words on
    both sides of one or more of them; a connector begins and ends no phrase.

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
        is_pair = sequence[lefts] == sequence[rights]
        is_pair &= rights - lefts - 1 <= self._most
        lefts, rights = lefts[is_pair], rights[is_pair]
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
            connectors = ids[lefts[inside] + offset]
            digits = np.searchsorted(self._connectors, connectors) + 1
            between[inside] = between[inside] * base + digits
        both = np.stack([between, ids[rights]], axis=1)
        each, inverse = np.unique(both, axis=0, return_inverse=True)
        numbers = []
        for number, word in each.tolist():
            if (number, word) not in self._numbers:
                self._numbers[number, word] = len(self._ends)
                self._ends.append((self._digits(number), word))
            numbers.append(_BETWEEN + self._numbers[number, word])
        return np.array(numbers, np.uint64)[inverse.reshape(-1)]

    def _digits(self, between: int) -> list[int]:
        """The ids of connectors by their number."""
        connectors: list[int] = []
        while between:
            between, digit = divmod(between, len(self._connectors) + 1)
            connectors.insert(0, int(self._connectors[digit - 1]))
        return connectors


PhraseScore = Literal["word2vec", "npmi"]
_THRESHOLDS: dict[PhraseScore, float] = {"word2vec": 100.0, "npmi": 0.5}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PhraseOptions:
    """Which pairs are phrases.

    Raises:
      InputError: a value is out of bounds; the message names the flag.
    """

    score: PhraseScore = "word2vec"
    threshold: float | None = None  # a phrase is above it; None: that of the score
    min_count: int = 5  # of pairs; delta of the score of word2vec
    passes: int = 1
    delimiter: str = "_"
    max_pairs: int = 20_000_000  # different ones in memory
    connectors: tuple[str, ...] = ()  # tokens inside phrases, as `of`

    def __post_init__(self) -> None:
        for name in ("min_count", "passes", "max_pairs"):
            check_positive_integer(name, getattr(self, name))
        _check_threshold(self.score, self.limit)
        is_text = is_utf8(self.delimiter) and is_word(self.delimiter)
        if not is_text or "\0" in self.delimiter:
            raise InputError(
                "`delimiter` must be text without white space, at least one character, "
                f"got {self.delimiter!r}."
            )
        for connector in self.connectors:
            if not is_word(connector):
                raise InputError(
                    "`connectors` must be tokens without white space, got "
                    f"{connector!r}."
                )

    @property
    def limit(self) -> float:
        """The threshold."""
        return _THRESHOLDS[self.score] if self.threshold is None else self.threshold


def _check_threshold(score: PhraseScore, threshold: float) -> None:
    low, high = (0.0, math.inf) if score == "word2vec" else (-1.0, 1.0)
    if not low < threshold < high:
        rule = "a number > 0" if score == "word2vec" else "between -1 and 1"
        raise InputError(
            f"`threshold` must be {rule} for `score` = {score!r}, got {threshold}."
        )


class _Pairs(NamedTuple):
    """Pairs of ids by ascending key, and how often each occurs."""

    keys: np.ndarray  # u64[n], of `Links`
    counts: np.ndarray  # i64[n]


class _Join(NamedTuple):
    """The phrases of a pass."""

    keys: np.ndarray  # u64[n], ascending
    ids: np.ndarray  # i32[n], of the joined token


class Phrases:
    """The phrases of a corpus, and the corpus with them joined.

    Args:
      corpus: with all its tokens, whatever their counts.
      is_empty: bool[n], which of the n sequences have no tokens: they are not in
        `corpus`, but iteration gives them. None: it gives those of `corpus`.

    Attributes:
      found: columns phrase, score and count, by descending count. A phrase that
        several passes find has the numbers of the first.
      tokens: of the corpus and of the phrases, by id.
    """

    def __init__(
        self,
        corpus: Encoded,
        options: PhraseOptions,
        is_empty: np.ndarray | None = None,
    ):
        self._corpus, self._options, self._is_empty = corpus, options, is_empty
        self._joins: list[_Join] = []
        self.tokens = [*corpus.vocabulary.tokens]
        ids = dict(corpus.vocabulary.ids)
        self._linker = Linker([ids[x] for x in {*options.connectors} if x in ids])
        passes = [self._pass(ids) for _ in range(options.passes)]
        each = pl.concat(passes).unique("phrase", keep="first", maintain_order=True)
        order = "count", "score", "phrase"
        self.found = each.sort(*order, descending=[True, True, False])

    def shards(self) -> Iterator[Shard]:
        """The sequences with phrases joined: ids i32, lengths i32, shard by shard."""
        for number in range(len(self._corpus.shard_tokens)):
            shard = self._corpus.read(number)
            for join in self._joins:
                shard = _joined(*shard, join, self._linker)
            yield shard

    def __iter__(self) -> Iterator[list[str]]:
        """The sequences with phrases joined, as lists of tokens."""
        joined = (
            [self.tokens[id] for id in part]
            for ids, lengths in self.shards()
            for part in np.split(ids, np.cumsum(lengths)[:-1])
        )
        if self._is_empty is None:
            return joined
        return ([] if is_empty else next(joined) for is_empty in self._is_empty)

    def _pass(self, ids: dict[str, int]) -> pl.DataFrame:
        """Finds the phrases of a pass; adds them to the joins, to `ids` and tokens."""
        counts, options = self._token_counts(), self._options
        is_frequent = counts >= options.min_count
        pairs = _count_pairs(self.shards, self._linker, is_frequent, options.max_pairs)
        ends = self._linker.ends(pairs.keys)
        scores = phrase_scores(pairs.counts, ends, counts, options)
        is_phrase = (scores > options.limit) & (pairs.counts >= options.min_count)
        rows = np.flatnonzero(is_phrase)
        join = options.delimiter.join
        phrases = map(self._linker.ids_of, pairs.keys[rows].tolist())
        texts = [join(self.tokens[id] for id in each) for each in phrases]
        is_short = [len(text.encode()) <= MAX_TOKEN_BYTES for text in texts]
        rows, texts = rows[np.array(is_short, bool)], [*compress(texts, is_short)]
        for text in texts:
            if text not in ids:  # else a token has the same text: the phrase is it
                ids[text] = len(self.tokens)
                self.tokens.append(text)
        joined = [ids[text] for text in texts]
        self._joins.append(_Join(pairs.keys[rows], np.array(joined, np.int32)))
        columns = {"phrase": texts, "score": scores[rows], "count": pairs.counts[rows]}
        types = {"phrase": pl.String, "score": pl.Float64, "count": pl.Int64}
        return pl.DataFrame(columns, schema=types)

    def _token_counts(self) -> np.ndarray:
        """How often each token occurs after the passes so far, i64[V]."""
        if not self._joins:
            return self._corpus.vocabulary.counts
        counts = np.zeros(len(self.tokens), np.int64)
        for ids, _ in self.shards():
            counts += np.bincount(ids, minlength=len(counts))
        return counts


def find_phrases(
    sequences_or_path: Iterable[Iterable[str]] | str | os.PathLike[str],
    *,
    score: PhraseScore = "word2vec",
    threshold: float | None = None,
    min_count: int = 5,
    passes: int = 1,
    delimiter: str = "_",
    connectors: Iterable[str] = (),
    max_pairs: int = 20_000_000,
) -> Phrases:
    """The phrases of sequences of tokens, or of the path of a text: a Polars frame
    `found`, and by iteration the sequences with phrases joined, to train on: as many as
    were given, or those lines of a text that have a token.

    Args:
      score, threshold, min_count, passes, delimiter, connectors, max_pairs: the flags
        of `embedder phrases`.

    Raises:
      InputError: an argument is out of bounds, or the text is refused.
      InputTypeError: `connectors` is one text, or tokens are integers.
      OSError: the text cannot be read.
    """
    if isinstance(connectors, str):
        raise InputTypeError(
            f"`connectors` must be several tokens, got {connectors!r}."
        )
    options = PhraseOptions(
        *(score, threshold, min_count, passes, delimiter, max_pairs), tuple(connectors)
    )
    if isinstance(sequences_or_path, str | os.PathLike):
        return Phrases(encode(text_corpus(sequences_or_path), 1), options)
    corpus = sequences_corpus(sequences_or_path)
    if corpus.key_type == "integer":
        raise InputTypeError(
            "`sequences_or_path` must have tokens of text, got integers: a phrase of "
            "them is none. Give str(token)."
        )
    is_empty = np.concatenate([chunk.lengths for chunk in corpus.chunks()]) == 0
    return Phrases(encode(corpus, 1), options, is_empty)


def phrase_scores(
    together: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    counts: np.ndarray,
    options: PhraseOptions,
) -> np.ndarray:
    """The score of each pair, f64[n].

    word2vec: (count(ab) - min_count) / (count(a) count(b)) * N, with N the number of
    tokens. npmi: log(p(ab) / (p(a) p(b))) / -log p(ab), with p = count / N.

    Args:
      together: how often each pair occurs, i64[n].
      ends: ids of the first words, and of the second, i64[n].
      counts: of tokens by id, i64[V].
    """
    both = together.astype(np.float64)
    first, second = (counts[ids].astype(np.float64) for ids in ends)
    total = float(counts.sum())
    if options.score == "word2vec":
        return (both - options.min_count) / first / second * total
    return np.log(both * total / first / second) / -np.log(both / total)


def _count_pairs(
    shards: Callable[[], Iterator[Shard]],
    linker: Linker,
    is_frequent: np.ndarray,
    max_pairs: int,
) -> _Pairs:
    """Counts the pairs of two frequent tokens: others cannot reach min_count.

    If there are more than `max_pairs` different ones, the rarest are dropped, as by
    gensim's `max_vocab_size`: their counts start again from 0.
    """
    parts: list[_Pairs] = []
    floor = 0
    for ids, lengths in shards():
        links, frequent = linker.links(ids, lengths), is_frequent[ids]
        are_frequent = frequent[links.lefts] & frequent[links.rights]
        keys, counts = np.unique(links.keys[are_frequent], return_counts=True)
        parts.append(_Pairs(keys, counts.astype(np.int64)))
        # Merging parts of similar size reads each pair only a few times in all.
        while len(parts) > 1 and len(parts[-2].keys) <= 2 * len(parts[-1].keys):
            parts[-2:] = [_merged(*parts[-2:])]
        if sum(len(part.keys) for part in parts) > max_pairs:
            whole = _merged_all(parts)
            while len(whole.keys) > max_pairs:
                floor += 1
                above = whole.counts > floor
                whole = _Pairs(whole.keys[above], whole.counts[above])
            parts = [whole]
    if floor:
        _log.warning(
            "More than `max_pairs` = %d different pairs: those counted up to %d times "
            "were dropped at times. Counts of phrases may be too low; give a larger "
            "--max-pairs if memory allows (about 50 bytes each).",
            *(max_pairs, floor),
        )
    return _merged_all(parts)


def _merged_all(parts: list[_Pairs]) -> _Pairs:
    whole = _Pairs(np.empty(0, np.uint64), np.empty(0, np.int64))
    for part in reversed(parts):  # the small ones first
        whole = _merged(part, whole)
    return whole


def _merged(first: _Pairs, second: _Pairs) -> _Pairs:
    """The pairs of both, with counts added up."""
    keys = np.concatenate([first.keys, second.keys])
    counts = np.concatenate([first.counts, second.counts])
    if len(keys) == 0:
        return first
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return _Pairs(keys[starts], np.add.reduceat(counts, starts))


def _joined(ids: np.ndarray, lengths: np.ndarray, join: _Join, linker: Linker) -> Shard:
    """A shard with phrases joined: of overlapping ones the left, then the next."""
    if len(join.keys) == 0:
        return ids, lengths
    links = linker.links(ids, lengths)
    slots = np.minimum(np.searchsorted(join.keys, links.keys), len(join.keys) - 1)
    is_phrase = join.keys[slots] == links.keys
    # In a row of overlapping phrases, each second one is joined, from the first on.
    follows = np.zeros(len(is_phrase), bool)
    follows[1:] = is_phrase[:-1] & (links.lefts[1:] == links.rights[:-1])
    positions = np.arange(len(is_phrase))
    begin = np.maximum.accumulate(np.where(is_phrase & ~follows, positions, 0))
    to_join = np.flatnonzero(is_phrase & ((positions - begin) % 2 == 0))
    result, lefts = ids.copy(), links.lefts[to_join]
    result[lefts] = join.ids[slots[to_join]]
    steps = np.zeros(len(ids) + 1, np.int8)
    steps[lefts + 1] = 1
    steps[links.rights[to_join] + 1] -= 1
    is_start = np.cumsum(steps[:-1], dtype=np.int8) == 0
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    return result[is_start], np.add.reduceat(is_start, starts, dtype=np.int32)
