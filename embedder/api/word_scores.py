"""Evaluation of vectors on files of human judgements: similarities and analogies."""

from os import PathLike

from embedder.data.word_files import read_analogies, read_pairs
from embedder.metrics.words import (
    AnalogiesResult,
    AnalogyAnswers,
    AnalogyQuestions,
    PairsResult,
    ScoredPairs,
    analogies_result,
)
from embedder.vectors.vectors import Vectors, check_positive_integer


def evaluate_pairs(vectors: Vectors, path: str | PathLike[str]) -> PairsResult:
    """Correlations of cosine similarities with the scores of a file of word pairs.

    A line is `word1 word2 score`, separated by tabs (by blanks if there is no tab).
    Empty lines, lines that start with # and a heading in the first line are skipped. If
    either side is constant, its correlations are 0.0. With n-grams unknown words are
    used, too.

    Raises:
      InputError: a line has another form, or fewer than two pairs can be used.
      OSError: the file cannot be read.
    """
    return ScoredPairs.of(vectors, read_pairs(path)).score(vectors.matrix)


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
    check_positive_integer("restrict_vocab", restrict_vocab)
    questions = AnalogyQuestions(read_analogies(path), vectors.keys, restrict_vocab)
    return questions.answers(vectors.unit)
