"""Sources of token sequences: files, lists in memory, or the demo corpus.

The demo corpus is CPython's documentation topics, real English on every machine.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.base.prefetch import prefetch
from embedder.base.stages import report_stage
from embedder.data.not_text import check_text
from embedder.data.plain_text import Chunk, UnicodeErrors, read_plain_text
from embedder.data.table_files import corpus_files
from embedder.disk.files import check_unchanged, file_fingerprint
from embedder.errors import InputError, InputTypeError

_CHUNK_TOKENS = 2**21  # of sequences in memory


class Corpus(NamedTuple):
    """A corpus that can be read any number of times."""

    name: str
    source: str  # what messages call it
    manifest: list[dict[str, Any]]  # equal for equal corpora; ready for JSON
    chunks: Callable[[], Iterator[Chunk]]
    chunks_in: Callable[[Path], Iterator[Chunk]] | None = None
    """`chunks` with temporary files in a folder, where they are needed."""
    key_type: Literal["text", "integer"] = "text"  # of tokens, which are text here
    item_name: str = "words"  # what messages call tokens, in the plural


def text_corpus(
    source: str | os.PathLike[str], errors: UnicodeErrors = "strict"
) -> Corpus:
    """The corpus in a file, in the files that a glob matches, or in a folder.

    Args:
      errors: for bytes that are not UTF-8, and NUL: "strict" raises an error,
        "replace" reads U+FFFD.

    Raises:
      InputNotFoundError: no file exists at `source`, matches, or is in the folder.
      InputError: a file is not of its format, is damaged, or changes while it is read;
        `chunks` raises it, too.
      OSError: a file cannot be read.
    """
    if not os.fspath(source):
        raise InputError("`corpus` must be a file, a glob or a folder, got ''.")
    fingerprints = {path: file_fingerprint(path) for path in corpus_files(source)}
    for path in fingerprints:
        check_text(path)
    options = {} if errors == "strict" else {"unicode_errors": errors}

    def chunks() -> Iterator[Chunk]:
        for path, fingerprint in fingerprints.items():
            yield from read_plain_text(path, errors)
            check_unchanged(path, fingerprint)

    return Corpus(
        name=_stem(Path(os.path.abspath(source))),
        source=os.fspath(source),
        manifest=[fingerprint | options for fingerprint in fingerprints.values()],
        chunks=lambda: prefetch(chunks()),
    )


def sequences_corpus(
    sequences: Iterable[Iterable[str | int]], name: str = "corpus"
) -> Corpus:
    """The corpus of an iterable of token lists, which is read here, once.

    Tokens are text, or all of them are integers.

    Raises:
      InputTypeError: a sequence is a `str`, or a token has another type.
      InputError: a token is empty, or has a lone surrogate.
    """
    reader = _TokenReader()
    chunks = list(_sequence_chunks(sequences, reader))
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk.lengths.tobytes())
        digest.update("\0".join(chunk.tokens.to_list()).encode())
    manifest = [{"sequences": name, "sha256": digest.hexdigest()}]
    kind = reader.key_type or "text"
    return Corpus(name, name, manifest, lambda: iter(chunks), key_type=kind)


def _stem(path: Path) -> str:
    """The name of a file without its ending, and without the special characters of a
    glob."""
    name = path.name
    for ending in (".gz", ".txt"):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return "".join(c for c in name if c not in "*?[]") or "corpus"


def _sequence_chunks(
    sequences: Iterable[Iterable[str | int]], reader: "_TokenReader"
) -> Iterator[Chunk]:
    if not isinstance(sequences, Iterable) or isinstance(sequences, bytes):
        raise InputTypeError(
            "`sequences_or_path` must be a path or an iterable of token lists, "
            f"got {sequences!r}."
        )
    tokens: list[str | int] = []
    lengths: list[int] = []
    num_read = 0
    report_stage("reading sequences")
    for sequence in sequences:
        if isinstance(sequence, str | bytes) or not isinstance(sequence, Iterable):
            raise InputTypeError(
                f"A sequence must be a list of tokens, got {sequence!r}."
            )
        before = len(tokens)
        tokens.extend(sequence)
        lengths.append(len(tokens) - before)
        if len(tokens) >= _CHUNK_TOKENS:
            yield _chunk(reader.texts(tokens), lengths)
            num_read += len(tokens)
            report_stage(f"reading sequences: {num_read:,} tokens")
            tokens, lengths = [], []
    yield _chunk(reader.texts(tokens), lengths)


class _TokenReader:
    """Turns tokens into text; the first one says whether they are integers."""

    key_type: Literal["text", "integer"] | None = None  # None: there was no token

    def texts(self, tokens: list[str | int]) -> list[str]:
        if self.key_type is None and tokens:
            self.key_type = "integer" if _is_integer(tokens[0]) else "text"
        if self.key_type == "integer":
            return [_integer_text(token) for token in tokens]
        return [_checked_text(token) for token in tokens]


def _is_integer(token: object) -> bool:
    return isinstance(token, int | np.integer) and not isinstance(token, bool)


def _integer_text(token: str | int) -> str:
    if not _is_integer(token):
        raise InputTypeError(
            f"A token must be an integer, as the first one is, got {token!r}."
        )
    return str(int(token))


def _checked_text(token: str | int) -> str:
    if not isinstance(token, str):
        raise InputTypeError(f"A token must be a str, got {token!r}.")
    if not token:
        raise InputError("A token must not be empty, got ''.")
    return token


def _chunk(tokens: list[str], lengths: list[int]) -> Chunk:
    try:
        series = pl.Series("token", tokens, dtype=pl.String)
    except UnicodeEncodeError as error:
        bad = error.object
        raise InputError(f"A token must be valid Unicode, got {bad!r}.") from None
    return Chunk(series, np.array(lengths, dtype=np.int64), is_open=False)


_WORD = re.compile(r"[a-z_]+(?:'[a-z]+)?")


def demo_corpus() -> Corpus:
    """The topics of Python's `help`: one sequence a paragraph, words in lower case."""
    return sequences_corpus(demo_sequences(), name="demo")


def demo_sequences() -> Iterator[list[str]]:
    """The sequences of `demo_corpus`."""
    from pydoc_data.topics import topics

    for topic in topics.values():
        for paragraph in topic.split("\n\n"):
            yield _WORD.findall(paragraph.lower().replace("\u2019", "'"))
