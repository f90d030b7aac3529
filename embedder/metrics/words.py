"""Evaluation of vectors on human judgements: word similarities and analogies.

A word is the key that is written like it; where there is none, the first (the most
frequent) of the keys that differ from it only in case, which have the same lower-case
form. Such keys are called the spellings of a word.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from embedder.errors import InputError
from embedder.metrics.intervals import RESAMPLES, Estimate, estimate, resamples
from embedder.vectors.search import cosines, unit_rows
from embedder.vectors.vectors import Vectors, check_positive_integer

CHUNK_VALUES = 2**23  # scores of one matrix product: 32 MB in float32


@dataclass(frozen=True)
class PairsResult:
    """Correlations of cosine similarities with human scores."""

    spearman: float  # rank correlation
    pearson: float
    num_pairs: int  # in the file
    num_used: int
    num_unknown: int  # pairs left out: a word is not in the vocabulary


@dataclass(frozen=True)
class AnalogyScore:
    """Accuracy on one section of questions, or on all of them."""

    name: str
    num_correct: int
    num_used: int
    num_unknown: int  # questions left out: a word is not in the vocabulary

    @property
    def accuracy(self) -> float:
        """Correct answers per used question, in [0, 1]; 0.0 if none is used."""
        return self.num_correct / max(self.num_used, 1)


@dataclass(frozen=True)
class AnalogiesResult:
    """Accuracy on all questions, and on each section in the file's order."""

    total: AnalogyScore
    sections: tuple[AnalogyScore, ...]


class WordPairs(NamedTuple):
    """Pairs of words with scores, of a file."""

    path: str
    pairs: list[tuple[str, str, float]]


class WordAnalogies(NamedTuple):
    """Questions of four words, of a file."""

    path: str
    lines: list[tuple[str, list[str] | None]]
    """(section, None) for each section, then (section, four words) for each of its
    questions."""


class ScoredPairs:
    """The word pairs of a file that are in `keys`, to score many matrices against.

    Args:
      vector_of: gives an unknown word a vector f[D], or None.

    Raises:
      InputError: fewer than two pairs can be used.
    """

    def __init__(
        self,
        words: WordPairs,
        keys: Sequence[str],
        vector_of: Callable[[str], np.ndarray | None] = lambda word: None,
    ):
        path, pairs = words
        id_of, others = _Words(keys).id, dict[str, np.ndarray]()
        for word in itertools.chain.from_iterable(pair[:2] for pair in pairs):
            if id_of(word) < 0 and (vector := vector_of(word)) is not None:
                others[word] = vector
        rows = {word: len(keys) + i for i, word in enumerate(others)}
        found = [(rows.get(a, id_of(a)), rows.get(b, id_of(b))) for a, b, _ in pairs]
        used = [i for i, row in enumerate(found) if min(row) >= 0]
        if len(used) < 2:
            raise InputError(
                f"{path} must have 2 pairs or more with both words in the vocabulary, "
                f"got {len(used)} of {len(pairs)}."
            )
        self.num_pairs = len(pairs)
        """Pairs in the file."""
        self.rows = np.array([found[i] for i in used])
        """Rows of the words of each pair that is used, i64[n, 2]; V and more are of
        `others`."""
        self.scores = np.array([pairs[i][2] for i in used])
        """Human scores of these pairs, f64[n]."""
        self.others = [*others.values()]
        """Vectors of unknown words, f[D] each."""

    @classmethod
    def of(cls, vectors: Vectors, words: WordPairs) -> Self:
        """The pairs of a file, to score `vectors`, whose n-grams give unknown words."""
        return cls(
            words,
            vectors.keys,
            lambda word: vectors[word] if vectors.has_vector(word) else None,
        )

    def cosines(self, matrix: np.ndarray) -> np.ndarray:
        """The cosine of each pair by `matrix` f[V, D], f64[n]."""
        words = self.rows.ravel()
        vectors = matrix[np.minimum(words, len(matrix) - 1)].astype(np.float64)
        for i in np.flatnonzero(words >= len(matrix)):
            vectors[i] = self.others[words[i] - len(matrix)]
        unit = unit_rows(vectors)
        return cosines(unit[0::2], unit[1::2])

    def score(self, matrix: np.ndarray) -> PairsResult:
        """Correlations for `matrix` f[V, D], which has a row for each of the keys."""
        found = correlations(self.cosines(matrix), self.scores, num=0)
        spearman, pearson = (each.value for each in found)
        num_used = len(self.scores)
        num_unknown = self.num_pairs - num_used
        return PairsResult(spearman, pearson, self.num_pairs, num_used, num_unknown)


class AnalogyAnswers(NamedTuple):
    """Which questions of a file are answered correctly."""

    names: list[str]  # of the sections
    section: np.ndarray  # i64[Q], the section of each question
    is_known: np.ndarray  # bool[Q], whether all its words are in the vocabulary
    is_right: np.ndarray  # bool[Q], by b - a + c
    is_nearest: np.ndarray  # bool[Q], by c alone: its nearest neighbour is the answer


class AnalogyQuestions:
    """The questions of a file, to ask many models of the vocabulary `keys`.

    Args:
      restrict_vocab: only the first, most frequent keys are candidates.

    Raises:
      InputError: `restrict_vocab` is not an integer >= 1.
    """

    def __init__(
        self,
        analogies: WordAnalogies,
        keys: Sequence[str],
        restrict_vocab: int = 30_000,
    ):
        check_positive_integer("restrict_vocab", restrict_vocab)
        words = _Words(keys[:restrict_vocab])
        self._path = analogies.path
        self._num_candidates = restrict_vocab
        self._groups = [*words.spellings.values()]
        self._names: list[str] = []
        sections: list[int] = []
        questions: list[list[int]] = []
        for name, question in analogies.lines:
            if question is None:
                self._names.append(name)
                continue
            sections.append(len(self._names) - 1)
            questions.append([*map(words.id, question)])
        self._sections = np.array(sections, np.int64)
        self._questions = np.array(questions, np.int64).reshape(-1, 4)
        self._is_known: np.ndarray = np.all(self._questions >= 0, axis=1)

    @property
    def num_known(self) -> int:
        """Questions whose words are all in the vocabulary."""
        return int(self._is_known.sum())

    def check_known(self) -> None:
        """Raises InputError if no question has only words of the vocabulary."""
        if not self._is_known.any():
            raise InputError(
                f"{self._path} must have a question of four words in the vocabulary, "
                f"got none of {len(self._is_known)}."
            )

    def answers(self, unit: np.ndarray) -> AnalogyAnswers:
        """The answers by unit vectors f[V, D] of the keys."""
        known, answers = self._is_known, []
        for offset in (1, 0):
            correct = np.zeros_like(known)
            correct[known] = _answered_correctly(
                *(unit[: self._num_candidates], self._groups),
                *(self._questions[known], offset),
            )
            answers.append(correct)
        return AnalogyAnswers(self._names, self._sections, known, *answers)


def analogies_result(answers: AnalogyAnswers) -> AnalogiesResult:
    """Accuracy on all questions, and on each section."""
    names, sections, known, correct, _ = answers

    def score(name: str, chosen: np.ndarray) -> AnalogyScore:
        num_known = int(known[chosen].sum())
        num_unknown = int(chosen.sum()) - num_known
        return AnalogyScore(name, int(correct[chosen].sum()), num_known, num_unknown)

    return AnalogiesResult(
        total=score("total", np.ones(len(known), bool)),
        sections=tuple(score(name, sections == i) for i, name in enumerate(names)),
    )


def _answered_correctly(
    unit: np.ndarray, groups: list[list[int]], questions: np.ndarray, offset: int
) -> np.ndarray:
    """Whether each question is answered correctly by `offset` (b - a) + c, bool[Q].

    Args:
      unit: unit vectors f[V, D].
      groups: ids of each word's spellings.
      questions: ids of a, b, c and d, i64[Q, 4].
    """
    width = max(map(len, groups))
    spellings = np.array([ids + ids[:1] * (width - len(ids)) for ids in groups])
    group_of_id = np.empty(len(unit), np.int64)
    for group, ids in enumerate(groups):
        group_of_id[ids] = group
    answers = np.empty(len(questions), np.int64)
    size = max(1, CHUNK_VALUES // len(unit))
    for start in range(0, len(questions), size):
        given = questions[start : start + size, :3]
        a, b, c = unit[given.T]
        scores = (b - a + c if offset else c) @ unit.T
        excluded = spellings[group_of_id[given]].reshape(len(given), 3 * width)
        np.put_along_axis(scores, excluded, -np.inf, axis=1)
        answers[start : start + size] = group_of_id[scores.argmax(axis=1)]
    # If all keys are excluded, argmax returns one of them: a, b and c are no answers.
    of_words = group_of_id[questions]
    is_given = (of_words[:, :3] == of_words[:, 3:]).any(axis=1)
    return (answers == of_words[:, 3]) & ~is_given


class _Words:
    """The ids of words among keys, see the top of this module."""

    def __init__(self, keys: Sequence[str]):
        self._exact = {key: index for index, key in enumerate(keys)}
        self.spellings: dict[str, list[int]] = {}
        """Lower-case form -> ids of the keys with it, ascending."""
        for index, key in enumerate(keys):
            self.spellings.setdefault(key.lower(), []).append(index)

    def id(self, word: str) -> int:
        """The id of a word; -1: it is unknown."""
        if word in self._exact:
            return self._exact[word]
        return self.spellings.get(word.lower(), [-1])[0]


class Correlations(NamedTuple):
    """Correlations of two scores; 0.0 where one is constant."""

    spearman: Estimate  # of ranks, the mean rank for ties
    pearson: Estimate


def correlations(
    first: np.ndarray, second: np.ndarray, num: int = RESAMPLES, seed: int = 0
) -> Correlations:
    """Correlations of f[n] and f[n] over pairs, with intervals by resampled pairs."""
    values = _weighted_correlations(first, second, np.ones((1, len(first))))[0]
    chunks = resamples(len(first), num, seed)
    found = [_weighted_correlations(first, second, counts) for counts in chunks]
    samples = np.concatenate([np.empty((0, 2)), *found])
    return Correlations(*map(estimate, values.tolist(), samples.T))


def _weighted_correlations(
    first: np.ndarray, second: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Spearman's and Pearson's, f64[r, 2], of pairs that count f64[r, n] times."""
    spearman = _pearson(_ranks(first, counts), _ranks(second, counts), counts)
    pearson = _pearson(first[np.newaxis], second[np.newaxis], counts)
    return np.stack([spearman, pearson], axis=1)


def _ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean ranks f64[r, n] of values that are there f64[r, n] times."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(group[order]) > 0))
    sizes = np.add.reduceat(counts[:, order], starts, axis=1)
    return (sizes.cumsum(axis=1) - sizes / 2)[:, group]


def _pearson(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=1, keepdims=True)
    first = first - (counts * first).sum(axis=1, keepdims=True) / total
    second = second - (counts * second).sum(axis=1, keepdims=True) / total
    sums = [
        (counts * x * y).sum(axis=1)
        for x, y in ((first, second), (first, first), (second, second))
    ]
    scale = np.sqrt(sums[1] * sums[2])
    is_constant = scale <= 1e-12 * np.abs(scale).max(initial=0)
    return np.where(is_constant, 0.0, sums[0] / np.where(is_constant, 1, scale))
