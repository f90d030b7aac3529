"""White space between words: that of ASCII alone, as bytes are split.

Other blanks, as U+00A0 or U+3000, are part of a word: `str.split` would cut there.
"""

import re

WHITE_SPACE = " \t\n\v\f\r"
_WORD = re.compile(r"\S+", re.ASCII)


def split(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text)


def strip(text: str) -> str:
    """A text without white space at its ends."""
    return text.strip(WHITE_SPACE)


def is_word(text: str) -> bool:
    """Whether a text is one word: not empty, and without white space."""
    return _WORD.fullmatch(text) is not None
