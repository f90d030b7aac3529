"""Where sequences of tokens come from: text files, or lists in memory.

A corpus is read in chunks of bounded size, however long its lines are. Text is one
sequence a line, cut at ASCII white space, strict UTF-8; a file named .gz is gzip.
Tokens longer than LONGEST_TOKEN bytes are left out, so that memory is bounded and every
vocabulary can be written as word2vec text.
"""

import codecs
import gzip
import hashlib
import itertools
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.disk.files import LONGEST_TOKEN, errors_named
from embedder.disk.unchanged import check_unchanged, describe_file
from embedder.engine.prefetch import prefetch
from embedder.errors import InputEndError, InputError, InputTypeError
from embedder.tables.not_text import check_text
from embedder.tables.text_files import text_files

_CHUNK_BYTES = 2**22  # of text: more is slower, by new pages of memory
_CHUNK_TOKENS = 2**21  # of sequences in memory
_SPACES = bytes.maketrans(b"\t\v\f\r", b"    ")
_BOM = b"\xef\xbb\xbf"
_log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Tokens of some sequences that follow each other."""

    tokens: pl.Series  # str[number of tokens]
    lengths: np.ndarray  # i64[number of sequences], zeros among them
    is_open: bool  # the last sequence goes on in the next chunk


class Corpus(NamedTuple):
    """A corpus that can be read any number of times."""

    name: str
    source: str  # what messages call it
    manifest: list[dict[str, Any]]  # what tells it from another corpus
    chunks: Callable[[], Iterator[Chunk]]


def text_corpus(
    source: str | os.PathLike, errors: Literal["strict", "replace"] = "strict"
) -> Corpus:
    """The corpus in a text file, in the files that a glob matches, or in a folder.

    Args:
      errors: what to do with bytes that are not UTF-8, and with NUL: raise an error, or
        take U+FFFD for them.

    Raises:
      FileNotFoundError: there is no such file, or no match, or no text in the folder.
      OSError, ValueError: a file cannot be read, is not text, or changes while it is
        read (also when read later).
    """
    if not os.fspath(source):
        raise InputError("`corpus` must be a file, a glob or a folder, got ''.")
    files = {path: describe_file(path) for path in text_files(source)}
    for path in files:
        check_text(path)
    how = {} if errors == "strict" else {"unicode_errors": errors}
    return Corpus(
        name=_stem(Path(os.path.abspath(source))),
        source=os.fspath(source),
        manifest=[described | how for described in files.values()],
        chunks=lambda: prefetch(
            itertools.chain.from_iterable(
                _file_chunks(path, described, errors)
                for path, described in files.items()
            )
        ),
    )


def sequences_corpus(
    sequences: Iterable[Iterable[str]], name: str = "corpus"
) -> Corpus:
    """The corpus in an iterable of token lists, which is read once, here.

    Raises:
      TypeError: a sequence is a bare `str`, or a token is not a `str`.
      ValueError: a token is empty, or has a lone surrogate.
    """
    chunks = list(_sequence_chunks(sequences))
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk.lengths.tobytes())
        digest.update("\0".join(chunk.tokens.to_list()).encode())
    manifest = [{"sequences": name, "sha256": digest.hexdigest()}]
    return Corpus(name, name, manifest, lambda: iter(chunks))


def _stem(path: Path) -> str:
    """The name without .txt and .gz, and without what a glob adds."""
    name = path.name.removesuffix(".gz").removesuffix(".txt")
    return "".join(c for c in name if c not in "*?[]") or "corpus"


def _file_chunks(path: Path, described: dict[str, Any], errors: str) -> Iterator[Chunk]:
    """Chunks of one file; the end of a file ends its last sequence."""
    left_out = 0
    for data, is_open in _whole_lines(_read_pieces(path, errors)):
        chunk, num_long = _split_lines(data, is_open)
        left_out += num_long
        yield chunk
    check_unchanged(path, described)
    if left_out:
        _log.warning(
            "%s: tokens longer than %d bytes, left out: %d.",
            *(path, LONGEST_TOKEN, left_out),
        )


def _read_pieces(path: Path, errors: str) -> Iterator[str]:
    """The file's text, some megabytes at a time, checked to be text."""
    opener = gzip.open if path.suffix == ".gz" else open
    decode = _Replacing(path) if errors == "replace" else _decode
    offset, rest = 0, b""
    try:
        with errors_named(path), opener(path, "rb") as file:
            if path.suffix == ".gz" and not path.stat().st_size:
                raise InputEndError("it is empty")  # which Python takes for no text
            while data := file.read(_CHUNK_BYTES):
                start = offset - len(rest)
                offset += len(data)
                if start == 0 and data.startswith(_BOM):
                    start, data = len(_BOM), data.removeprefix(_BOM)
                text, rest = decode(path, rest + data, start)
                yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole .gz file: {error}.") from error
    if errors == "replace":
        yield decode.end(rest)
    elif rest:
        raise InputError(
            f"{path} is not UTF-8 text: it ends inside the character "
            f"at offset {offset - len(rest)}."
        )


def _decode(path: Path, data: bytes, offset: int) -> tuple[str, bytes]:
    """Text of `data`, and the bytes of a character that its end cuts in two."""
    if (nul := data.find(b"\0")) >= 0:
        raise InputError(f"{path} is not text: NUL byte at offset {offset + nul}.")
    try:
        return data.translate(_SPACES).decode(), b""
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and len(data) - error.start < 4:
            return data[: error.start].translate(_SPACES).decode(), data[error.start :]
        raise InputError(
            f"{path} is not UTF-8 text: byte {data[error.start]:#04x} "
            f"at offset {offset + error.start}."
        ) from error


class _Replacing:
    """Like `_decode`, with U+FFFD for what is not UTF-8 text."""

    def __init__(self, path: Path):
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num = 0  # of U+FFFD

    def __call__(self, path: Path, data: bytes, offset: int) -> tuple[str, bytes]:
        return self._text(self._decoder.decode(data.translate(_SPACES))), b""

    def end(self, rest: bytes) -> str:
        """The rest of the text; the log says how much was replaced."""
        text = self._text(self._decoder.decode(rest, final=True))
        if self._num:
            _log.warning("%s: U+FFFD stands in %d places.", self._path, self._num)
        return text

    def _text(self, text: str) -> str:
        text = text.replace("\0", "\ufffd")
        self._num += text.count("\ufffd")
        return text


def _whole_lines(pieces: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Cuts text between lines, or between tokens where a line is longer than a piece.

    Yields text and whether its last line goes on in the next one. Of a token that is
    too long, and longer than a piece, the start is kept, which is still too long.
    """
    rest = ""
    for piece in pieces:
        text = rest + piece
        cut = text.rfind("\n")
        is_open = cut < 0
        if is_open:
            cut = text.rfind(" ")
        if cut >= 0:
            yield text[:cut], is_open
            rest = text[cut + 1 :]
        else:
            rest = text[: LONGEST_TOKEN + 1]
    yield rest, False


def _split_lines(text: str, is_open: bool) -> tuple[Chunk, int]:
    """A chunk, and the number of tokens that are left out because they are too long."""
    lists = pl.Series("token", text.split("\n")).str.split(" ")
    lengths = lists.list.len().to_numpy().astype(np.int64)
    tokens = lists.explode()
    sizes = tokens.str.len_bytes().to_numpy()
    kept = (sizes > 0) & (sizes <= LONGEST_TOKEN)
    if not kept.all():
        starts = np.cumsum(lengths) - lengths
        lengths = np.add.reduceat(kept, starts, dtype=np.int64)
        tokens = tokens.filter(pl.Series(kept))
    num_long = np.count_nonzero(sizes > LONGEST_TOKEN)
    return Chunk(tokens, lengths, is_open), num_long


def _sequence_chunks(sequences: Iterable[Iterable[str]]) -> Iterator[Chunk]:
    if not isinstance(sequences, Iterable) or isinstance(sequences, bytes):
        raise InputTypeError(
            "`sequences_or_path` must be a path or an iterable of token lists, "
            f"got {sequences!r}."
        )
    tokens: list[str] = []
    lengths: list[int] = []
    for sequence in sequences:
        if isinstance(sequence, str | bytes) or not isinstance(sequence, Iterable):
            raise InputTypeError(
                f"A sequence must be a list of tokens, got {sequence!r}."
            )
        before = len(tokens)
        tokens.extend(sequence)
        lengths.append(len(tokens) - before)
        if len(tokens) >= _CHUNK_TOKENS:
            yield _chunk(tokens, lengths)
            tokens, lengths = [], []
    yield _chunk(tokens, lengths)


def _chunk(tokens: list[str], lengths: list[int]) -> Chunk:
    for token in tokens:
        if type(token) is not str and not isinstance(token, str):
            raise InputTypeError(f"A token must be a str, got {token!r}.")
        if not token:
            raise InputError("A token must not be empty, got ''.")
    try:
        series = pl.Series("token", tokens, dtype=pl.String)
    except UnicodeEncodeError as error:
        bad = error.object
        raise InputError(f"A token must be valid Unicode, got {bad!r}.") from None
    return Chunk(series, np.array(lengths, dtype=np.int64), is_open=False)
