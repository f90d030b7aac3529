"""Evaluation of vectors on human judgements: word similarities and analogies.

Words are looked up case-insensitively, as gensim does by default: of the keys that
differ only in case, the first one (the most frequent) is used. Such keys are called the
spellings of a word.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import NamedTuple

import numpy as np

from embedder.errors import InputError
from embedder.vectors.search import cosines, unit_rows
from embedder.vectors.vectors import Vectors, check_positive_integer, short_repr

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


def evaluate_pairs(vectors: Vectors, path: str | PathLike[str]) -> PairsResult:
    """Correlations of cosine similarities with the scores of a file of word pairs.

    A line is `word1 word2 score`, separated by tabs (by blanks if there is no tab).
    Empty lines, lines that start with # and a heading in the first line are skipped. If
    either side is constant, its correlations are 0.0.

    Raises:
      InputError: a line has another form, or fewer than two pairs can be used.
      OSError: the file cannot be read.
    """
    return ScoredPairs(path, vectors.keys).score(vectors.matrix)


class ScoredPairs:
    """The word pairs of a file that are in `keys`, to score many matrices against.

    Raises:
      InputError, OSError: see `evaluate_pairs`.
    """

    def __init__(self, path: str | PathLike[str], keys: Sequence[str]):
        first = {word: ids[0] for word, ids in _spellings(keys).items()}
        pairs = list(_read_pairs(path))
        used = [pair for pair in pairs if pair[0] in first and pair[1] in first]
        if len(used) < 2:
            raise InputError(
                f"{path} must have 2 pairs or more with both words in the vocabulary, "
                f"got {len(used)} of {len(pairs)}."
            )
        self.num_pairs = len(pairs)
        """Pairs in the file."""
        self.rows = np.array([(first[a], first[b]) for a, b, _ in used])
        """Rows of the words of each pair that is used, i64[n, 2]."""
        self.scores = np.array([score for _, _, score in used])
        """Human scores of these pairs, f64[n]."""

    def cosines(self, matrix: np.ndarray) -> np.ndarray:
        """The cosine of each pair by `matrix` f[V, D], f64[n]."""
        unit = unit_rows(matrix[self.rows.ravel()].astype(np.float64))
        return cosines(unit[0::2], unit[1::2])

    def correlations(self, values: np.ndarray) -> tuple[float, float]:
        """Spearman's and Pearson's correlation of f[n], a value for each pair, with the
        scores; 0.0 if one side is constant."""
        return _correlations(values, self.scores)

    def score(self, matrix: np.ndarray) -> PairsResult:
        """Correlations for `matrix` f[V, D], which has a row for each of the keys."""
        spearman, pearson = self.correlations(self.cosines(matrix))
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


def evaluate_analogies(
    vectors: Vectors, path: str | PathLike[str], *, restrict_vocab: int = 30_000
) -> AnalogiesResult:
    """Accuracy on a file of analogy questions `a b c d`: a is to b as c is to d.

    The answer is the word with the highest cosine similarity to b - a + c (3CosAdd;
    Mikolov et al. 2013, arXiv:1301.3781), except a, b and c in any spelling. A line
    `: NAME` starts a section.

    Args:
      restrict_vocab: only the first, most frequent keys are candidates. Questions with
        another word are not used, but counted.

    Raises:
      InputError: a line has another form, or `restrict_vocab` is not an integer >= 1.
      OSError: the file cannot be read.
    """
    found = analogy_answers(vectors, path, restrict_vocab=restrict_vocab)
    return analogies_result(found)


def analogy_answers(
    vectors: Vectors, path: str | PathLike[str], *, restrict_vocab: int = 30_000
) -> AnalogyAnswers:
    """The answers to a file of questions, see `evaluate_analogies`, and those of a
    baseline that ignores a and b (Linzen 2016, arXiv:1606.07736)."""
    return AnalogyQuestions(path, vectors.keys, restrict_vocab).answers(vectors.unit)


class AnalogyQuestions:
    """The questions of a file, to ask many models of the vocabulary `keys`.

    Raises:
      InputError, OSError: see `evaluate_analogies`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        keys: Sequence[str],
        restrict_vocab: int = 30_000,
    ):
        check_positive_integer("restrict_vocab", restrict_vocab)
        spellings = _spellings(keys[:restrict_vocab])
        group_of_word = {word: group for group, word in enumerate(spellings)}
        self._path = path
        self._num_candidates = restrict_vocab
        self._groups = [*spellings.values()]
        self._names: list[str] = []
        sections: list[int] = []
        questions: list[list[int]] = []
        for name, question in _read_analogies(path):
            if question is None:
                self._names.append(name)
                continue
            sections.append(len(self._names) - 1)
            questions.append([group_of_word.get(word, -1) for word in question])
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


def is_analogies(path: str | PathLike[str]) -> bool:
    """Whether a file has analogy questions: its first line names a section."""
    return next((line for _, line in _numbered_lines(path)), "").startswith(":")


def looks_like_pairs(path: str | PathLike[str], num_lines: int) -> bool:
    """Whether the first lines of a file, but a heading, are two words and a number."""
    found = []
    for number, line in itertools.islice(_numbered_lines(path), num_lines):
        fields = line.split("\t") if "\t" in line else line.split()
        is_pair = len(fields) == 3 and _number(fields[-1]) is not None
        if not line.startswith("#") and (is_pair or number > 1):
            found.append(is_pair)
    return bool(found) and all(found)


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
      groups: ids of each word's spellings; the vector of the first is the word's.
      questions: indices in `groups` of a, b, c and d, i64[Q, 4].
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
        a, b, c = unit[spellings[given.T, 0]]
        scores = (b - a + c if offset else c) @ unit.T
        excluded = spellings[given].reshape(len(given), 3 * width)
        np.put_along_axis(scores, excluded, -np.inf, axis=1)
        answers[start : start + size] = group_of_id[scores.argmax(axis=1)]
    # If all keys are excluded, argmax returns one of them: a, b and c are no answers.
    is_given = (questions[:, :3] == questions[:, 3:]).any(axis=1)
    return (answers == questions[:, 3]) & ~is_given


def _spellings(keys: Sequence[str]) -> dict[str, list[int]]:
    """Upper-case word -> ids of the keys with that upper-case form, ascending."""
    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key.upper(), []).append(index)
    return groups


def _correlations(cosine: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Spearman's and Pearson's correlation; 0.0 if one side is constant."""
    from scipy import stats

    if np.ptp(cosine) == 0 or np.ptp(score) == 0:
        return 0.0, 0.0
    spearman, pearson = stats.spearmanr(cosine, score), stats.pearsonr(cosine, score)
    return float(spearman.statistic), float(pearson.statistic)


def _read_pairs(path: str | PathLike[str]) -> Iterator[tuple[str, str, float]]:
    """The upper-case words and the score of each pair."""
    may_be_heading = True
    for number, line in _numbered_lines(path):
        if line.startswith("#"):
            continue
        fields = line.split("\t") if "\t" in line else line.split()
        score = _number(fields[-1])
        if len(fields) == 3 and score is not None:
            yield fields[0].strip().upper(), fields[1].strip().upper(), score
        elif len(fields) != 3 or not may_be_heading:
            raise InputError(
                f"{path} line {number}: must be two words and a finite score, "
                f"got {short_repr(line)}."
            )
        may_be_heading = False


def _number(text: str) -> float | None:
    """`text` as a finite number, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _read_analogies(
    path: str | PathLike[str],
) -> Iterator[tuple[str, list[str] | None]]:
    """(section, None) for each section, then (section, four upper-case words) for each
    of its questions."""
    name = None
    for number, line in _numbered_lines(path):
        if line.startswith(":"):
            name = line[1:].strip()
            yield name, None
            continue
        words = line.upper().split()
        if name is None or len(words) != 4:
            rule = "`: NAME` of a section" if name is None else "four words"
            raise InputError(
                f"{path} line {number}: must be {rule}, got {short_repr(line)}."
            )
        yield name, words


def _numbered_lines(path: str | PathLike[str]) -> Iterator[tuple[int, str]]:
    """The number, from 1, and the text of each line that is not empty."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}.") from error
