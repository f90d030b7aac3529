"""The corpus at a path: text, or sessions in a table."""

import os
from pathlib import Path

from embedder.disk.copies import local_copy
from embedder.errors import InputError
from embedder.tables.chunks import UnicodeErrors
from embedder.tables.columns import NOT_GIVEN, Columns
from embedder.tables.corpus import Corpus, text_corpus
from embedder.tables.corpus_formats import has_ending
from embedder.tables.sessions import table_corpus
from embedder.tables.table_files import FORMATS, table_files


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
    tables = tuple(ending for each in FORMATS for ending in each.endings)
    return has_ending(Path(name)) or name.lower().endswith(tables)
