"""Reads plain text: one sequence a line, tokens separated by ASCII white space.

The text is UTF-8; a file named .gz is gzip. It is read in chunks of bounded size,
however long its lines are. Tokens longer than MAX_TOKEN_BYTES are left out, so that
memory is bounded and every vocabulary can be written as word2vec text.
"""

import codecs
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.data.tables.text_form import marked_encoding
from embedder.disk.files import is_gzip_name, open_unpacked
from embedder.errors import InputEndError, InputError
from embedder.vectors.word2vec import MAX_TOKEN_BYTES

UnicodeErrors = Literal["strict", "replace"]
"""For bytes that are not UTF-8, and NUL: raise an error, or replace by U+FFFD."""


class Chunk(NamedTuple):
    """Tokens of consecutive sequences."""

    tokens: pl.Series  # str[number of tokens], none empty
    lengths: np.ndarray  # i64[number of sequences], tokens of each, may be 0
    is_open: bool  # the last sequence continues in the next chunk
    weights: np.ndarray | None = None  # f32[number of sequences]; None: all are 1
    names: pl.Series | None = None  # of sequences: sessions in rows of items


_CHUNK_BYTES = 2**22  # of text: more is slower, by page faults of new memory
_SPACES = bytes.maketrans(b"\t\v\f\r", b"    ")
_log = logging.getLogger(__name__)


def read_plain_text(path: Path, errors: UnicodeErrors) -> Iterator[Chunk]:
    """Chunks of one file; the end of the file ends its last sequence.

    Logs how many tokens are left out for their length, and how often U+FFFD occurs.

    Raises:
      InputError: the file is not UTF-8 text, or not a whole .gz file.
      OSError: it cannot be read.
    """
    num_left_out = 0
    for text, is_open in _whole_lines(_read_pieces(path, errors)):
        chunk, num_long = _split_lines(text, is_open)
        num_left_out += num_long
        yield chunk
    if num_left_out:
        _log.warning(
            "%s: tokens longer than %d bytes, left out: %d.",
            *(path, MAX_TOKEN_BYTES, num_left_out),
        )


def _read_pieces(path: Path, errors: UnicodeErrors) -> Iterator[str]:
    """The text of a file, about _CHUNK_BYTES at a time."""
    decoder = _Replacing(path) if errors == "replace" else _Strict(path)
    offset = 0
    with open_unpacked(path) as file:
        if is_gzip_name(path) and not path.stat().st_size:
            raise InputEndError("it is empty")  # Python reads it as empty text
        while data := file.read(_CHUNK_BYTES):
            has_mark = offset == 0 and data.startswith(codecs.BOM_UTF8)
            skipped = len(codecs.BOM_UTF8) if has_mark else 0
            yield decoder.decode(data[skipped:], offset + skipped)
            offset += len(data)
    if rest := decoder.end():
        yield rest


class _Strict:
    """Decodes UTF-8 piece by piece; other ASCII white space becomes blanks.

    It refuses bytes that are not UTF-8, and NUL, with their offset in the file.
    """

    def __init__(self, path: Path):
        self._path = path
        self._rest = b""  # the start of a character that a piece cut in two
        self._rest_offset = 0

    def decode(self, data: bytes, offset: int) -> str:
        if not offset and (encoding := marked_encoding(data)) != "utf-8":
            raise InputError(
                f"{self._path} is {encoding.upper()} text: write it as UTF-8, as by "
                f"iconv -f {encoding.upper()} -t UTF-8."
            )
        data, offset = self._rest + data, offset - len(self._rest)
        if (nul := data.find(b"\0")) >= 0:
            raise InputError(
                f"{self._path} is not text: NUL byte at offset {offset + nul}."
            )
        self._rest = b""
        try:
            return data.translate(_SPACES).decode()
        except UnicodeDecodeError as error:
            start = error.start
            if error.reason != "unexpected end of data" or len(data) - start >= 4:
                raise InputError(
                    f"{self._path} is not UTF-8 text: byte {data[start]:#04x} "
                    f"at offset {offset + start}."
                ) from error
        self._rest, self._rest_offset = data[start:], offset + start
        return data[:start].translate(_SPACES).decode()

    def end(self) -> str:
        if self._rest:
            raise InputError(
                f"{self._path} is not UTF-8 text: it ends inside the character "
                f"at offset {self._rest_offset}."
            )
        return ""


class _Replacing:
    """Decodes as `_Strict`, with U+FFFD for bytes that are not UTF-8, and for NUL."""

    def __init__(self, path: Path):
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num = 0  # of U+FFFD, those of the file included

    def decode(self, data: bytes, offset: int) -> str:
        return self._replaced(self._decoder.decode(data.translate(_SPACES)))

    def end(self) -> str:
        text = self._replaced(self._decoder.decode(b"", final=True))
        if self._num:
            _log.warning("%s: U+FFFD occurs %d times.", self._path, self._num)
        return text

    def _replaced(self, text: str) -> str:
        text = text.replace("\0", "\ufffd")
        self._num += text.count("\ufffd")
        return text


def _whole_lines(pieces: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Text of whole lines, and whether its last line continues in the next text.

    Cuts between lines, or between tokens in a line that is longer than a piece. Of a
    token that is longer than a piece and than MAX_TOKEN_BYTES, only the start is kept,
    long enough to be left out later.
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
            rest = text[: MAX_TOKEN_BYTES + 1]
    yield rest, False


def _split_lines(text: str, is_open: bool) -> tuple[Chunk, int]:
    """The chunk of a text, and the number of tokens left out for their length."""
    lists = pl.Series("token", text.split("\n")).str.split(" ")
    lengths = lists.list.len().to_numpy().astype(np.int64)
    tokens = lists.explode()
    sizes = tokens.str.len_bytes().to_numpy()
    is_token = (sizes > 0) & (sizes <= MAX_TOKEN_BYTES)
    if not is_token.all():
        starts = np.cumsum(lengths) - lengths
        lengths = np.add.reduceat(is_token, starts, dtype=np.int64)
        tokens = tokens.filter(pl.Series(is_token))
    num_long = int(np.count_nonzero(sizes > MAX_TOKEN_BYTES))
    return Chunk(tokens, lengths, is_open), num_long
