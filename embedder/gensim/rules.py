"""Which words a vocabulary keeps, as of `gensim.utils`."""

import logging
from collections.abc import Callable, Hashable, MutableMapping
from typing import Any

TrimRule = Callable[[Any, int, int], int]
"""(word, count, min_count) -> RULE_DEFAULT, RULE_DISCARD or RULE_KEEP."""

RULE_DEFAULT = 0
RULE_DISCARD = 1
RULE_KEEP = 2
_log = logging.getLogger("gensim.utils")


def keep_vocab_item(
    word: Hashable, count: int, min_count: int, trim_rule: TrimRule | None = None
) -> bool:
    """Whether a vocabulary keeps `word`: by `trim_rule`, else by `min_count`."""
    ruled = RULE_DEFAULT if trim_rule is None else trim_rule(word, count, min_count)
    if ruled in (RULE_KEEP, RULE_DISCARD):
        return ruled == RULE_KEEP
    return count >= min_count


def prune_vocab(
    vocab: MutableMapping[Any, int], min_reduce: int, trim_rule: TrimRule | None = None
) -> int:
    """Removes words below `min_reduce`; returns the sum of their counts."""
    before = len(vocab)
    dropped = [
        word
        for word, count in vocab.items()
        if not keep_vocab_item(word, count, min_reduce, trim_rule)
    ]
    total = sum(vocab.pop(word) for word in dropped)
    _log.info(
        "pruned out %i tokens with count <=%i (before %i, after %i)",
        *(len(dropped), min_reduce, before, len(vocab)),
    )
    return total
