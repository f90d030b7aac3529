"""Formats of corpus files: a new one is a module with a reader, and an entry here."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from embedder.tables.chunks import Chunk, UnicodeErrors
from embedder.tables.not_text import check_text
from embedder.tables.plain_text import read_plain_text


class CorpusFormat(NamedTuple):
    """How files of one format are recognised and read."""

    endings: tuple[str, ...]  # of file names, compressed ones too
    check: Callable[[Path], None]  # InputError if a file is of another format
    read: Callable[[Path, UnicodeErrors], Iterator[Chunk]]
    """Chunks of one file in order; the last is not open. Leaves out tokens longer than
    MAX_TOKEN_BYTES; InputError for damage and for bytes that are not UTF-8."""


PLAIN_TEXT = CorpusFormat((".txt", ".gz"), check_text, read_plain_text)
FORMATS = (PLAIN_TEXT,)
"""The first with an ending of the file's name is its format, so `.gz` comes last."""


def endings() -> list[str]:
    """The endings of all formats."""
    return [ending for each in FORMATS for ending in each.endings]


def has_ending(path: Path) -> bool:
    """Whether a file is part of the corpus of its folder: a name and an ending."""
    return any(path.name.removesuffix(e) not in ("", path.name) for e in endings())


def format_of(path: Path) -> CorpusFormat:
    """The format of a file by its name; plain text if no ending fits."""
    named = (each for each in FORMATS if path.name.endswith(each.endings))
    return next(named, PLAIN_TEXT)
