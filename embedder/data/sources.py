"""The corpus at a path: text, or sessions in a table."""

import os
from pathlib import Path

from embedder.data.columns import NOT_GIVEN, Columns
from embedder.data.corpus import Corpus, text_corpus
from embedder.data.plain_text import UnicodeErrors
from embedder.data.sessions import table_corpus
from embedder.data.table_files import has_ending, table_files
from embedder.data.tables.table_formats import table_endings
from embedder.disk.copies import local_copy
from embedder.errors import InputError


def file_corpus(
    source: str | os.PathLike[str],
    errors: UnicodeErrors = "strict",
    columns: Columns = NOT_GIVEN,
) -> Corpus:
    """The corpus in a file, in the files that a glob matches, or in a folder.

    Args:
      errors: as of `text_corpus`.
      columns: of sessions in tables; if any but the weights is given, the files are
        tables.

    Raises:
      OSError, InputError: see `text_corpus` and `table_corpus`; text has no weights.
    """
    if not os.fspath(source):
        raise InputError("`corpus` must be a file, a glob or a folder, got ''.")
    source = local_copy(os.fspath(source), is_wanted=is_corpus_file)
    if tables := table_files(source, is_table=any(columns.of_sessions)):
        return table_corpus(tables, columns, os.fspath(source))
    if columns.weights:
        raise InputError(
            "`weights` applies only to sessions in tables, got "
            f"{columns.weights!r} for text: give --session and --item too if {source} "
            "is a table."
        )
    return text_corpus(source, errors)


def is_corpus_file(name: str) -> bool:
    """Whether a file of a remote folder may be part of a corpus: text, or a table."""
    return has_ending(Path(name)) or name.lower().endswith(table_endings())
