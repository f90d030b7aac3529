"""How well vectors agree with people: word similarities and analogies.

Words are looked up as gensim does by default: whatever their case, and the first key
(the most frequent) of those that differ only in case stands for all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from embedder.errors import InputError
from embedder.vectors.vectors import (
    Vectors,
    check_positive_integer,
    cosines,
    short,
    unit_rows,
)

CHUNK_VALUES = 2**23  # scores that one product may hold: 32 MB in float32


@dataclass(frozen=True)
class PairsResult:
    """Correlations of the cosines with the scores that people gave."""

    spearman: float
    pearson: float
    num_pairs: int
    num_used: int
    num_unknown: int  # pairs left out: a word is not in the vocabulary


@dataclass(frozen=True)
class AnalogyScore:
    """Answers to one section of questions, or to all of them."""

    name: str
    num_correct: int
    num_used: int
    num_unknown: int  # questions left out: a word is not in the vocabulary

    @property
    def accuracy(self) -> float:
        """Share of the used questions that are answered correctly; 0.0 of none."""
        return self.num_correct / max(self.num_used, 1)


@dataclass(frozen=True)
class AnalogiesResult:
    """Scores of all questions and of each section, in the file's order."""

    total: AnalogyScore
    sections: tuple[AnalogyScore, ...]


def evaluate_pairs(vectors: Vectors, path: str | PathLike[str]) -> PairsResult:
    """Correlation of cosines with the scores of a file of word pairs.

    A line is `word1 word2 score`, separated by tabs (by blanks if there is no tab);
    empty lines, lines that start with # and a heading in the first line are passed
    over. A correlation with something constant is 0.0.

    Raises:
      ValueError: a line is something else, or fewer than two pairs can be used.
    """
    return Pairs(path, vectors.keys).score(vectors.matrix)


class Pairs:
    """Pairs of words with scores, of a file as `evaluate_pairs` reads them.

    Raises:
      ValueError: a line is something else, or fewer than two pairs are of `keys`.
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
        self._num = len(pairs)
        self._rows = np.array([(first[a], first[b]) for a, b, _ in used])
        self._scores = np.array([score for _, _, score in used])

    def score(self, matrix: np.ndarray) -> PairsResult:
        """Correlations of the cosines in `matrix`, whose rows are of the keys."""
        unit = unit_rows(matrix[self._rows.ravel()].astype(np.float64))
        spearman, pearson = _correlations(cosines(unit[0::2], unit[1::2]), self._scores)
        num_used = len(self._scores)
        return PairsResult(spearman, pearson, self._num, num_used, self._num - num_used)


def evaluate_analogies(
    vectors: Vectors, path: str | PathLike[str], *, restrict_vocab: int = 30_000
) -> AnalogiesResult:
    """Accuracy on a file of questions `a b c d`: a is to b as c is to d.

    The answer is the key nearest to b - a + c by cosine (3CosAdd) among the first
    `restrict_vocab`, the words of the question left out in every spelling. Questions
    with a word that is not among them are left out and counted. A line `: NAME` opens
    a section.

    Raises:
      ValueError: a line is something else.
    """
    check_positive_integer("restrict_vocab", restrict_vocab)
    groups = _spellings(vectors.keys[:restrict_vocab])
    words = {word: place for place, word in enumerate(groups)}
    names, sections, questions = [], [], []
    for name, question in _read_analogies(path):
        if question is None:
            names.append(name)
            continue
        sections.append(len(names) - 1)
        questions.append([words.get(word, -1) for word in question])
    question_ids = np.array(questions, np.int64).reshape(-1, 4)
    known = (question_ids >= 0).all(axis=1)
    correct = np.zeros(len(known), bool)
    correct[known] = _is_correct(
        vectors.unit[:restrict_vocab], list(groups.values()), question_ids[known]
    )
    return _analogies_result(names, np.array(sections, np.int64), known, correct)


def _analogies_result(
    names: list[str], sections: np.ndarray, known: np.ndarray, correct: np.ndarray
) -> AnalogiesResult:
    def score(name: str, chosen: np.ndarray) -> AnalogyScore:
        num_known = int(known[chosen].sum())
        num_unknown = int(chosen.sum()) - num_known
        return AnalogyScore(name, int(correct[chosen].sum()), num_known, num_unknown)

    return AnalogiesResult(
        total=score("total", np.ones(len(known), bool)),
        sections=tuple(score(name, sections == i) for i, name in enumerate(names)),
    )


def _is_correct(
    unit: np.ndarray, groups: list[list[int]], questions: np.ndarray
) -> np.ndarray:
    """Whether each question is answered, bool[Q].

    Args:
      unit: unit vectors f[V, D].
      groups: ids of each word's spellings, the first of which stands for the word.
      questions: places in `groups` of a, b, c and d, i64[Q, 4].
    """
    width = max(map(len, groups))
    spellings = np.array([ids + ids[:1] * (width - len(ids)) for ids in groups])
    group = np.empty(len(unit), np.int64)
    for place, ids in enumerate(groups):
        group[ids] = place
    answers = np.empty(len(questions), np.int64)
    step = max(1, CHUNK_VALUES // len(unit))
    for start in range(0, len(questions), step):
        asked = questions[start : start + step, :3]
        a, b, c = unit[spellings[asked.T, 0]]
        scores = (b - a + c) @ unit.T
        left_out = spellings[asked].reshape(len(asked), 3 * width)
        np.put_along_axis(scores, left_out, -np.inf, axis=1)
        answers[start : start + step] = group[scores.argmax(axis=1)]
    # With every key left out argmax still names one; no word of the question counts.
    asked_again = (questions[:, :3] == questions[:, 3:]).any(axis=1)
    return (answers == questions[:, 3]) & ~asked_again


def _spellings(keys: Sequence[str]) -> dict[str, list[int]]:
    """Ids of the keys with the same upper-case form, ascending."""
    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key.upper(), []).append(index)
    return groups


def _correlations(cosine: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Spearman's and Pearson's; 0.0 where one side is constant."""
    from scipy import stats

    if np.ptp(cosine) == 0 or np.ptp(score) == 0:
        return 0.0, 0.0
    spearman, pearson = stats.spearmanr(cosine, score), stats.pearsonr(cosine, score)
    return float(spearman.statistic), float(pearson.statistic)


def _read_pairs(path: str | PathLike[str]) -> Iterator[tuple[str, str, float]]:
    """Upper-case words and score of each pair."""
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
                f"got {short(line)}."
            )
        may_be_heading = False


def _number(text: str) -> float | None:
    """The finite number that `text` spells, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _read_analogies(
    path: str | PathLike[str],
) -> Iterator[tuple[str, list[str] | None]]:
    """(name, None) for each section, then (name, four upper-case words) for each of
    its questions."""
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
                f"{path} line {number}: must be {rule}, got {short(line)}."
            )
        yield name, words


def _numbered_lines(path: str | PathLike[str]) -> Iterator[tuple[int, str]]:
    """Numbers, from 1, and text of the lines that are not empty."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}.") from error
