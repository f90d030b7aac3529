"""Scores of `KeyedVectors` on similarity sets and analogies, with gensim's rules."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from embedder.gensim.corpora import open_file, to_unicode
from embedder.gensim.similar import best

_AT_ONCE = 256  # questions
_log = logging.getLogger("gensim.models.keyedvectors")


class _Question(NamedTuple):
    words: tuple[str, ...]  # a is to b as c is to the fourth
    section: dict[str, Any]
    is_known: bool


def known_words(
    vectors: Any, restrict_vocab: int | None, case_insensitive: bool
) -> dict[str, int]:
    """The first keys and their rows; of keys that differ in case the first."""
    found: dict[str, int] = {}
    for key in vectors.index_to_key[:restrict_vocab]:
        text = key.upper() if case_insensitive else key
        found.setdefault(text, vectors.get_index(key))
    return found


def word_analogies(
    vectors: Any,
    path: Any,
    restrict_vocab: int | None,
    case_insensitive: bool,
    dummy4unknown: bool,
) -> tuple[float, list[dict[str, Any]]]:
    """Share of right answers by 3CosAdd, and the questions of each section."""
    known = known_words(vectors, restrict_vocab, case_insensitive)
    _log.info(
        "Evaluating word analogies for top %i words in the model on %s",
        *(restrict_vocab, path),
    )
    sections: list[dict[str, Any]] = []
    asked: list[_Question] = []
    num_questions = num_unknown = 0
    with open_file(path) as file:
        for number, raw in enumerate(file):
            line = to_unicode(raw)
            if line.startswith(": "):
                name = line.lstrip(": ").strip()
                sections.append({"section": name, "correct": [], "incorrect": []})
                continue
            if not sections:
                raise ValueError(
                    f"Missing section header before line #{number} in {path}"
                )
            words = tuple((line.upper() if case_insensitive else line).split())
            if len(words) != 4:
                _log.info("Skipping invalid line #%i in %s", number, path)
                continue
            num_questions += 1
            is_known = all(word in known for word in words)
            num_unknown += not is_known
            if is_known or dummy4unknown:
                asked.append(_Question(words, sections[-1], is_known))
    of_known = [each.words for each in asked if each.is_known]
    answers = iter(_answers(vectors, of_known, known, restrict_vocab, case_insensitive))
    for words, section, is_known in asked:
        answer = next(answers) if is_known else None
        section["correct" if answer == words[3] else "incorrect"].append(words)
        if is_known and answer != words[3]:
            _log.debug("%s: expected %s, predicted %s", words, words[3], answer)
    for section in sections:
        log_section(section)
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
    return log_section(total), [*sections, total]


def log_section(section: dict[str, Any]) -> float:
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
    asked: list[tuple[str, ...]],
    known: dict[str, int],
    restrict_vocab: int | None,
    case_insensitive: bool,
) -> Iterator[str | None]:
    """The answer to each question of known words, by 3CosAdd."""
    unit = vectors.get_normed_vectors()
    searched = unit[:restrict_vocab]
    for start in range(0, len(asked), _AT_ONCE):
        chunk = asked[start : start + _AT_ONCE]
        rows = np.array([[known[word] for word in words[:3]] for words in chunk])
        a, b, c = (unit[rows[:, place]] for place in range(3))
        scores = (b + c - a) @ searched.T
        np.put_along_axis(scores, rows, -np.inf, axis=1)
        for words, found in zip(chunk, scores, strict=True):
            answer = None
            for row in best(found, 5):
                key = vectors.index_to_key[row]
                answer = key.upper() if case_insensitive else key
                if answer in known and answer not in words[:3]:
                    break
            yield answer


def word_pairs(
    vectors: Any,
    path: Any,
    delimiter: str,
    encoding: str,
    restrict_vocab: int | None,
    case_insensitive: bool,
    dummy4unknown: bool,
) -> tuple[Any, Any, float]:
    """Pearson's and Spearman's correlation with a file, and % of unknown pairs."""
    from scipy import stats

    known = known_words(vectors, restrict_vocab, case_insensitive)
    expected: list[float] = []
    found: list[float] = []
    num_unknown = 0
    with open_file(path, "r", encoding=encoding) as file:
        for number, line in enumerate(file):
            if line.startswith("#"):
                continue
            text = line.upper() if case_insensitive else line
            try:
                first, second, value = text.split(delimiter)
                score = float(value)
            except ValueError:
                _log.info("Skipping invalid line #%d in %s", number, path)
                continue
            if first in known and second in known:
                expected.append(score)
                pair = known[first], known[second]
                found.append(float(vectors.cosine_of_rows(*pair)))
                continue
            num_unknown += 1
            if dummy4unknown:
                expected.append(score)
                found.append(0.0)
            else:
                _log.info("Skipping line #%d with OOV words: %s", number, line.strip())
    if not expected:
        raise ValueError(
            f"No valid similarity judgements found in {path}: either invalid format or "
            f"all are out-of-vocabulary in {vectors}"
        )
    spearman = stats.spearmanr(expected, found)
    pearson = stats.pearsonr(expected, found)
    num_pairs = len(expected) + (0 if dummy4unknown else num_unknown)
    unknown = 100 * num_unknown / num_pairs
    log_pairs(pearson, spearman, unknown, path)
    return pearson, spearman, unknown


def log_pairs(pearson: Any, spearman: Any, unknown: float, path: Any) -> None:
    """Logs what `word_pairs` returns."""
    _log.info("Pearson correlation coefficient against %s: %.4f", path, pearson[0])
    _log.info(
        "Spearman rank-order correlation coefficient against %s: %.4f",
        *(path, spearman[0]),
    )
    _log.info("Pairs with unknown words ratio: %.1f%%", unknown)
