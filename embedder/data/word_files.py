"""Files of pairs of words with scores, and of analogy questions."""

import itertools
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np

from embedder.data.tables.reader import read_rows
from embedder.data.tables.text_form import Roles, head_of, plain_name
from embedder.errors import InputError
from embedder.metrics.words import WordAnalogies, WordPairs
from embedder.vectors.vectors import short_repr
from embedder.vectors.white_space import strip

_USUAL = {
    "first": ("word1", "worda", "first", "w1", "key1"),
    "second": ("word2", "wordb", "second", "w2", "key2"),
    "score": ("score", "human", "humanmean", "similarity", "simlex999", "relatedness"),
}


def is_analogies(path: str | PathLike[str]) -> bool:
    """Whether a file has analogy questions: its first line names a section."""
    head = head_of(Path(path), 2**10).removeprefix(b"\xef\xbb\xbf")
    return head.lstrip().startswith(b":")


def looks_like_pairs(path: str | PathLike[str], num_lines: int) -> bool:
    """Whether the first lines of a file, but a heading, are two words and a number."""
    _, rows = _rows(path)
    found = [
        len(cells) == 3 and _is_number(cells[2])
        for _, cells in itertools.islice(rows, num_lines)
        if not cells[0].startswith("#")
    ]
    return bool(found) and all(found)


def read_pairs(path: str | PathLike[str]) -> WordPairs:
    """The pairs of words in a file, with their scores.

    A line is `word1 word2 score`, separated by tabs (by blanks if there is no tab).
    Empty lines, lines that start with # and a heading in the first line are skipped.

    Raises:
      InputError: a line has another form.
      OSError: the file cannot be read.
    """
    pairs: list[tuple[str, str, float]] = []
    names, rows = _rows(path)
    plain = [*map(plain_name, names)]
    found = [
        [k for k, name in enumerate(plain) if name in _USUAL[kind]] for kind in _USUAL
    ]
    a, b, c = (each[0] for each in found) if all(found) else (0, 1, 2)
    width = max(len(names), 3) if all(found) else 3
    for number, cells in rows:
        score = _number(cells[c]) if len(cells) == width else None
        if score is not None:
            pairs.append((cells[a], cells[b], score))
        elif not cells[0].startswith("#"):
            raise InputError(
                f"{path} line {number}: must be two words and a finite score, "
                f"got {short_repr(' '.join(cells))}."
            )
    return WordPairs(str(path), pairs)


def _rows(
    path: str | PathLike[str],
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows of a table of pairs; the first row is a
    header if it has no score."""

    def is_header(rows: list[list[str]]) -> bool:
        return len(rows[0]) > 2 and not any(map(_is_number, rows[0]))

    return read_rows(Path(path), Roles(is_header=is_header, blanks=True, least=3))


def _is_number(text: str) -> bool:
    return _number(text) is not None


def _number(text: str) -> float | None:
    """`text` as a finite number, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def read_analogies(path: str | PathLike[str]) -> WordAnalogies:
    """The questions `a b c d` in a file; a line `: NAME` starts a section.

    Raises:
      InputError: a line has another form.
      OSError: the file cannot be read.
    """
    lines: list[tuple[str, list[str] | None]] = []
    name = None
    roles = Roles(is_header=lambda rows: False, least=1, blanks=True, separators="")
    for number, words in read_rows(Path(path), roles)[1]:
        if words[0].startswith(":"):
            name = strip(" ".join(words)[1:])
            lines.append((name, None))
            continue
        if name is None or len(words) != 4:
            rule = "`: NAME` of a section" if name is None else "four words"
            raise InputError(
                f"{path} line {number}: must be {rule}, got "
                f"{short_repr(' '.join(words))}."
            )
        lines.append((name, words))
    return WordAnalogies(str(path), lines)
