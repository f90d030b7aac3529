"""Scores of phrases as of `gensim.models.phrases`, and a program's own scorer."""

import inspect
import math
import sys
from collections.abc import Callable
from typing import Any

NEVER = -math.inf
"""The score of what is no phrase."""

ENGLISH_CONNECTOR_WORDS = frozenset(
    "a an the for of with without at from to in on by and or".split()
)
"""gensim's list of words inside phrases, which begin and end none."""

_ARGUMENTS = (
    *("worda_count", "wordb_count", "bigram_count"),
    *("len_vocab", "min_count", "corpus_word_count"),
)


def original_scorer(
    worda_count: float,
    wordb_count: float,
    bigram_count: float,
    len_vocab: float,
    min_count: float,
    corpus_word_count: float,
) -> float:
    """(count(ab) - min_count) / (count(a) count(b)) * len_vocab; -inf without a word.

    Args:
      len_vocab: different words and pairs; word2phrase.c has the words of the corpus.
    """
    product = worda_count * wordb_count
    if product == 0:
        return NEVER
    return (bigram_count - min_count) / float(product) * len_vocab


def npmi_scorer(
    worda_count: float,
    wordb_count: float,
    bigram_count: float,
    len_vocab: float,
    min_count: float,
    corpus_word_count: float,
) -> float:
    """log(p(ab) / (p(a) p(b))) / -log p(ab), Bouma 2009; -inf below `min_count`.

    Raises:
      ZeroDivisionError: a word has no count, or each word begins the pair; as in
        gensim.
    """
    if bigram_count < min_count:
        return NEVER
    total = float(corpus_word_count)
    first, second, both = (x / total for x in (worda_count, wordb_count, bigram_count))
    try:
        return math.log(both / (first * second)) / -math.log(both)
    except ValueError:  # a count is 0
        return NEVER


_BY_NAME: dict[str, Callable[..., float]] = {
    "default": original_scorer,
    "npmi": npmi_scorer,
}


def scorer_of(scoring: Any, threshold: float) -> Callable[..., float]:
    """The scorer that the argument `scoring` of `Phrases` names, or is.

    Raises:
      ValueError: there is none of the name, it lacks arguments, or `threshold` is out
        of bounds.
    """
    if threshold <= 0 and scoring == "default":
        raise ValueError("threshold should be positive for default scoring")
    if scoring == "npmi" and not -1 <= threshold <= 1:
        raise ValueError("threshold should be between -1 and 1 for npmi scoring")
    if isinstance(scoring, str):
        if scoring not in _BY_NAME:
            raise ValueError(f"unknown scoring method string {scoring} specified")
        return _BY_NAME[scoring]
    if missing := _missing_arguments(scoring):
        raise ValueError(f"scoring function missing expected parameters {missing}")
    return scoring


def _missing_arguments(scoring: Any) -> list[str]:
    known = inspect.getfullargspec(scoring).args
    return [name for name in _ARGUMENTS if name not in known]


def scorer_name(scoring: Any) -> str:
    """What a file has for a scorer: `default`, `npmi`, or `module:name` of a function.

    Raises:
      TypeError: no module has it by a name.
    """
    for name, known in _BY_NAME.items():
        if scoring is known:
            return name
    module = getattr(scoring, "__module__", None) or ""
    function = getattr(scoring, "__qualname__", None) or ""
    if not function or _of_module(module, function) is not scoring:
        raise TypeError(
            "`scoring` must be a function of a module to be saved, got "
            f"{scoring!r:.60}."
        )
    return f"{module}:{function}"


def named_scorer(name: str) -> Callable[..., float]:
    """The scorer that `scorer_name` named.

    A function is looked up in modules that the program has imported, and must have the
    arguments of a scorer: a file imports nothing.

    Raises:
      ValueError: there is none.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    module, _, function = name.partition(":")
    scorer = _of_module(module, function)
    if not inspect.isfunction(scorer) or _missing_arguments(scorer):
        raise ValueError(
            f"its `scoring` is {name!r:.80}, which no imported module has as a scorer: "
            "import its module before `load`"
        )
    return scorer


def _of_module(module: str, name: str) -> Any:
    """What an imported module has by that name; None: nothing."""
    return getattr(sys.modules.get(module), name, None)
