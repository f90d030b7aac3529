"""Writes a corpus with its phrases joined, and the list of the phrases."""

import contextlib
import gzip
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder.base.threads import use_threads
from embedder.data.corpus import text_corpus
from embedder.data.encode import encode_cached
from embedder.data.phrases import PhraseOptions, Phrases
from embedder.data.plain_text import UnicodeErrors
from embedder.data.shards import Shard
from embedder.data.sources import is_corpus_file
from embedder.data.table_files import corpus_files, table_files
from embedder.disk.copies import local_copy
from embedder.disk.files import (
    atomic_file,
    check_utf8_path,
    is_gzip_name,
    name_file_in_errors,
)
from embedder.errors import InputError

_LIST_ENDINGS = ".parquet", ".csv", ".tsv"


def write_phrases(
    source: str,
    to: Path,
    options: PhraseOptions,
    *,
    list_to: Path | None = None,
    unicode_errors: UnicodeErrors = "strict",
    overwrite: bool = False,
) -> pl.DataFrame:
    """The phrases of a text: columns phrase, score and count, see `Phrases`.

    Writes the text with phrases joined to `to`, one sequence a line, and the phrases to
    `list_to`. A temporary folder holds the text as ids, 4 bytes for each token.

    Raises:
      InputError: an ending, a target or the text is refused.
      OSError: a file cannot be read or written.
    """
    use_threads()
    _check_target("to", to, (".txt", ".gz"), overwrite)
    if list_to is not None:
        _check_target("list", list_to, _LIST_ENDINGS, overwrite)
    copy = local_copy(source, is_wanted=is_corpus_file)
    _check_source(source, copy, to, list_to)
    with tempfile.TemporaryDirectory(prefix="embedder-phrases-") as folder:
        corpus = encode_cached(text_corpus(copy, unicode_errors), 1, Path(folder))
        phrases = Phrases(corpus, options)
        with name_file_in_errors(to), atomic_file(to) as part:
            with contextlib.ExitStack() as stack:
                file: Any = stack.enter_context(open(part, "wb"))
                if is_gzip_name(to):  # equal texts give equal bytes
                    packed = gzip.GzipFile("", "wb", 6, file, mtime=0)
                    file = stack.enter_context(packed)
                tokens = pl.Series("token", phrases.tokens, dtype=pl.String)
                for shard in phrases.shards():
                    file.write(_text(tokens, shard).encode())
    if list_to is not None:
        _write_list(phrases.found, list_to)
    return phrases.found


def _check_target(
    argument: str, path: Path, endings: tuple[str, ...], overwrite: bool
) -> None:
    if path.suffix.lower() not in endings:
        raise InputError(
            f"`{argument}` must end in {' or '.join(endings)}, got {str(path)!r}."
        )
    check_utf8_path(path, f"`{argument}`")
    if path.is_dir():
        raise InputError(f"`{argument}` must be a file, got the folder {path}.")
    if not path.parent.is_dir():
        raise InputError(f"`{argument}`: folder {path.parent} does not exist.")
    if path.exists() and not overwrite:
        raise InputError(
            f"`{argument}` {path} exists: give --overwrite to replace it, or another "
            "name."
        )


def _check_source(source: str, copy: str, to: Path, list_to: Path | None) -> None:
    """Refuses tables, and targets that are one file or are part of the corpus."""
    if not copy:
        return  # the reader says what is wrong
    if table_files(copy, is_table=False):
        raise InputError(
            f"`corpus` must be text, got the table {source}: write its tokens to a "
            ".txt file, one sequence a line."
        )
    if list_to is not None and os.path.realpath(list_to) == os.path.realpath(to):
        raise InputError(f"`to` and `list` must be two files, got {to} for both.")
    if os.path.realpath(to.parent) == os.path.realpath(copy):
        raise InputError(
            f"`to` {to} is in the folder of the corpus, and would be part of it: give "
            "another folder."
        )
    read = {os.path.realpath(path) for path in corpus_files(copy)}
    for argument, path in (("to", to), ("list", list_to)):
        if path is not None and os.path.realpath(path) in read:
            raise InputError(
                f"`{argument}` {path} is a file of the corpus: give another name."
            )


def _text(tokens: pl.Series, shard: Shard) -> str:
    """The lines of a shard, tokens separated by a blank."""
    ids, lengths = shard
    ends = np.full(len(ids), " ", dtype=object)
    ends[np.cumsum(lengths, dtype=np.int64) - 1] = "\n"
    parts = tokens.gather(ids) + pl.Series(ends, dtype=pl.String)
    return parts.str.join("").item()


def _write_list(phrases: pl.DataFrame, path: Path) -> None:
    try:
        with name_file_in_errors(path), atomic_file(path) as part:
            ending = path.suffix.lower()
            if ending == ".parquet":
                phrases.write_parquet(part)
            else:
                phrases.write_csv(part, separator="\t" if ending == ".tsv" else ",")
    except pl.exceptions.PolarsError as error:
        raise OSError(f"A table cannot be written to {path.parent}: {error}") from error
