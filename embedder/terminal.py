"""Text for people: what a file or a corpus brings along does not rule the terminal."""

import sys
from typing import TextIO

_JOINERS = "\u200c\u200d"  # of Persian and Indic words, and of emoji


def say(text: str, to: TextIO | None = None) -> None:
    """Prints `text`, of any number of lines, as it is shown."""
    print("\n".join(map(shown, text.split("\n"))), file=to or sys.stdout)


def shown(text: str) -> str:
    """`text` with escapes for what prints nothing: control characters, newlines, marks
    that turn the direction of writing, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _JOINERS else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
