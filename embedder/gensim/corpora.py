"""Sentences of text files, one list of words each; they can be read again and again."""

import bz2
import contextlib
import gzip
import itertools
import logging
import lzma
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

MAX_WORDS_IN_BATCH = 10000
"""The longest sentence that the readers yield, unless they are told otherwise."""

COMPRESSED = (".bz2", ".gz", ".xz", ".zst")
"""Endings that `corpus_file` refuses."""

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_READ_BYTES = 2**16
_log = logging.getLogger("gensim.models.word2vec")


def local_path(path: str | os.PathLike[str]) -> str:
    """The path that a program gives, which as in gensim may have `file://` and ~."""
    return os.path.expanduser(os.fspath(path).removeprefix("file://"))


def open_file(path: str | os.PathLike[str], mode: str = "rb", **options: Any) -> IO:
    """A local file, decompressed or compressed by its ending: .gz, .bz2 or .xz.

    Raises:
      ValueError: it ends in .zst.
    """
    path = local_path(path)
    ending = Path(path).suffix.lower()
    if ending == ".zst":
        raise ValueError(f"{path} is of zstd: give a file that is .gz or not packed.")
    opener = _OPENERS.get(ending, open)
    if opener is not open and "b" not in mode:
        mode += "t"
    return opener(path, mode, **options)


def to_unicode(
    text: bytes | str, encoding: str = "utf8", errors: str = "strict"
) -> str:
    """`text`, decoded if it is bytes."""
    return text if isinstance(text, str) else text.decode(encoding, errors)


class LineSentence:
    """A sentence a line, words separated by white space.

    Args:
      source: path, compressed or not, or an open file, which is rewound.
      max_sentence_length: longer lines are cut into several sentences.
      limit: read only this many lines; None: all.
    """

    def __init__(
        self,
        source: Any,
        max_sentence_length: int = MAX_WORDS_IN_BATCH,
        limit: int | None = None,
    ):
        self.source = source
        self.max_sentence_length = max_sentence_length
        self.limit = limit

    def __iter__(self) -> Iterator[list[str]]:
        opened: Any = contextlib.nullcontext(self.source)
        if hasattr(self.source, "seek"):
            self.source.seek(0)
        else:
            opened = open_file(self.source)
        with opened as file:
            yield from _cut_lines(file, self.max_sentence_length, self.limit)


class PathLineSentences:
    """`LineSentence` of all files of a folder, by name; or of one file.

    Args:
      source: path of the folder, which is not searched below, or of a file.
      max_sentence_length, limit: as of `LineSentence`, of each file.

    Raises:
      ValueError: there is nothing at `source`.
    """

    def __init__(
        self,
        source: Any,
        max_sentence_length: int = MAX_WORDS_IN_BATCH,
        limit: int | None = None,
    ):
        self.source = source
        self.max_sentence_length = max_sentence_length
        self.limit = limit
        if os.path.isfile(source):
            self.input_files = [source]
        elif os.path.isdir(source):
            self.source = os.path.join(source, "")
            _log.info("reading directory %s", self.source)
            self.input_files = sorted(self.source + name for name in os.listdir(source))
        else:
            raise ValueError("input is neither a file nor a path")
        _log.info("files read into PathLineSentences:%s", "\n".join(self.input_files))

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.input_files:
            _log.info("reading file %s", path)
            with open_file(path) as file:
                yield from _cut_lines(file, self.max_sentence_length, self.limit)


class Text8Corpus:
    """A file without lines, cut into sentences of `max_sentence_length` words."""

    def __init__(self, fname: Any, max_sentence_length: int = MAX_WORDS_IN_BATCH):
        self.fname = fname
        self.max_sentence_length = max_sentence_length

    def __iter__(self) -> Iterator[list[str]]:
        size, words, rest = self.max_sentence_length, [], b""
        with open_file(self.fname) as file:
            while block := file.read(_READ_BYTES):
                whole, blank, rest = (rest + block).rpartition(b" ")
                words += to_unicode(whole + blank).split()
                while len(words) >= size:
                    yield words[:size]
                    words = words[size:]
        yield from _pieces(words + to_unicode(rest).split(), size)


class BrownCorpus:
    """The Brown corpus of NLTK: words as `word/TA`, with two letters of their tags."""

    def __init__(self, dirname: Any):
        self.dirname = dirname

    def __iter__(self) -> Iterator[list[str]]:
        for path in filter(Path.is_file, Path(self.dirname).iterdir()):
            with open_file(path) as file:
                yield from filter(None, map(_tagged_words, file))


def _tagged_words(line: bytes) -> list[str]:
    """Words of a line of `word/TAG`, without punctuation."""
    pairs = (token.split("/") for token in to_unicode(line).split())
    return [
        f"{pair[0].lower()}/{pair[1][:2]}"
        for pair in pairs
        if len(pair) == 2 and pair[1][:2].isalpha()
    ]


def _cut_lines(
    lines: Iterable[bytes | str], size: int, limit: int | None
) -> Iterator[list[str]]:
    for line in itertools.islice(lines, limit):
        yield from _pieces(to_unicode(line).split(), size)


def _pieces(words: list[str], size: int) -> Iterator[list[str]]:
    return (words[start : start + size] for start in range(0, len(words), size))
