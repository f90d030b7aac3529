"""Methods of `KeyedVectors`: scores on pairs and analogies, by gensim's rules."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from embedder.gensim.corpora import open_file, to_unicode
from embedder.gensim.similar import best, cosine

_AT_ONCE = 256  # questions
_log = logging.getLogger("gensim.models.keyedvectors")


class _Question(NamedTuple):
    words: tuple[str, ...]  # a is to b as c is to the fourth
    section: dict[str, Any]
    is_known: bool


def _known_words(
    vectors: Any, restrict_vocab: int | None, case_insensitive: bool
) -> dict[str, int]:
    """The first keys and their rows; of keys that differ in case the first."""
    rows: dict[str, int] = {}
    for key in vectors.index_to_key[:restrict_vocab]:
        text = key.upper() if case_insensitive else key
        rows.setdefault(text, vectors.get_index(key))
    return rows


def evaluate_word_analogies(
    self: Any,
    analogies: Any,
    restrict_vocab: int | None = 300000,
    case_insensitive: bool = True,
    dummy4unknown: bool = False,
    similarity_function: str = "most_similar",
) -> tuple[float, list[dict[str, Any]]]:
    """Share of analogies that 3CosAdd solves, and the questions of each section.

    `similarity_function` has no effect, as in gensim.
    """
    known = _known_words(self, restrict_vocab, case_insensitive)
    _log.info(
        "Evaluating word analogies for top %i words in the model on %s",
        *(restrict_vocab, analogies),
    )
    sections: list[dict[str, Any]] = []
    questions: list[_Question] = []
    num_questions = num_unknown = 0
    with open_file(analogies) as file:
        for number, raw in enumerate(file):
            line = to_unicode(raw)
            if line.startswith(": "):
                name = line.lstrip(": ").strip()
                sections.append({"section": name, "correct": [], "incorrect": []})
                continue
            if not sections:
                raise ValueError(
                    f"Missing section header before line #{number} in {analogies}"
                )
            words = tuple((line.upper() if case_insensitive else line).split())
            if len(words) != 4:
                _log.info("Skipping invalid line #%i in %s", number, analogies)
                continue
            num_questions += 1
            is_known = all(word in known for word in words)
            num_unknown += not is_known
            if is_known or dummy4unknown:
                questions.append(_Question(words, sections[-1], is_known))
    of_known = [each.words for each in questions if each.is_known]
    answers = _answers(self, of_known, known, restrict_vocab, case_insensitive)
    for words, section, is_known in questions:
        answer = next(answers) if is_known else None
        section["correct" if answer == words[3] else "incorrect"].append(words)
        if is_known and answer != words[3]:
            _log.debug("%s: expected %s, predicted %s", words, words[3], answer)
    for section in sections:
        log_accuracy(section)
    total: dict[str, Any] = {"section": "Total accuracy"}
    for kind in ("correct", "incorrect"):
        total[kind] = [*itertools.chain.from_iterable(each[kind] for each in sections)]
    _log.info(
        "Quadruplets with out-of-vocabulary words: %.1f%%",
        100 * num_unknown / num_questions,
    )
    if not dummy4unknown:
        _log.info(
            "NB: analogies containing OOV words were skipped from evaluation! "
            'To change this behavior, use "dummy4unknown=True"'
        )
    return log_accuracy(total), [*sections, total]


def log_accuracy(section: dict[str, Any]) -> float:
    """Logs and returns the share of right answers; 0.0 of a section without any."""
    right, wrong = len(section["correct"]), len(section["incorrect"])
    if not right + wrong:
        return 0.0
    share = right / (right + wrong)
    _log.info(
        "%s: %.1f%% (%i/%i)", section["section"], 100.0 * share, right, right + wrong
    )
    return share


def _answers(
    vectors: Any,
    questions: list[tuple[str, ...]],
    known: dict[str, int],
    restrict_vocab: int | None,
    case_insensitive: bool,
) -> Iterator[str | None]:
    """The answer to each question of known words, by 3CosAdd."""
    unit = vectors.get_normed_vectors()
    searched = unit[:restrict_vocab]
    for start in range(0, len(questions), _AT_ONCE):
        chunk = questions[start : start + _AT_ONCE]
        rows = np.array([[known[word] for word in words[:3]] for words in chunk])
        a, b, c = (unit[rows[:, place]] for place in range(3))
        scores = (b + c - a) @ searched.T
        np.put_along_axis(scores, rows, -np.inf, axis=1)
        for words, word_scores in zip(chunk, scores, strict=True):
            answer = None
            for row in best(word_scores, 5):
                if np.isnan(word_scores[row]):  # a, b or c has no direction
                    break
                key = vectors.index_to_key[row]
                answer = key.upper() if case_insensitive else key
                if answer in known and answer not in words[:3]:
                    break
            yield answer


def evaluate_word_pairs(
    self: Any,
    pairs: Any,
    delimiter: str = "\t",
    encoding: str = "utf8",
    restrict_vocab: int | None = 300000,
    case_insensitive: bool = True,
    dummy4unknown: bool = False,
) -> tuple[Any, Any, float]:
    """Pearson's and Spearman's correlation with a file, and % of unknown pairs.

    Raises:
      ValueError: no pair of the file is known.
    """
    from scipy import stats

    known = _known_words(self, restrict_vocab, case_insensitive)
    expected: list[float] = []
    cosines: list[float] = []
    num_unknown = 0
    with open_file(pairs, "r", encoding=encoding) as file:
        for number, line in enumerate(file):
            if line.startswith("#"):
                continue
            text = line.upper() if case_insensitive else line
            try:
                first, second, value = text.split(delimiter)
                score = float(value)
            except ValueError:
                _log.info("Skipping invalid line #%d in %s", number, pairs)
                continue
            if first in known and second in known:
                expected.append(score)
                rows = self.vectors[[known[first], known[second]]]
                cosines.append(float(cosine(*rows)))
                continue
            num_unknown += 1
            if dummy4unknown:
                expected.append(score)
                cosines.append(0.0)
            else:
                _log.info("Skipping line #%d with OOV words: %s", number, line.strip())
    if not expected:
        raise ValueError(
            f"No valid similarity judgements found in {pairs}: either invalid format "
            f"or all are out-of-vocabulary in {self}"
        )
    spearman = stats.spearmanr(expected, cosines)
    pearson = stats.pearsonr(expected, cosines)
    num_pairs = len(expected) + (0 if dummy4unknown else num_unknown)
    unknown = 100 * num_unknown / num_pairs
    log_evaluate_word_pairs(pearson, spearman, unknown, pairs)
    return pearson, spearman, unknown


def log_evaluate_word_pairs(
    pearson: Any, spearman: Any, oov: float, pairs: Any
) -> None:
    """Logs what `evaluate_word_pairs` returns."""
    _log.info("Pearson correlation coefficient against %s: %.4f", pairs, pearson[0])
    _log.info(
        "Spearman rank-order correlation coefficient against %s: %.4f",
        *(pairs, spearman[0]),
    )
    _log.info("Pairs with unknown words ratio: %.1f%%", oov)
