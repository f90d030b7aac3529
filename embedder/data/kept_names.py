"""The names of keys that belong to a run: its table of names, names.parquet."""

import contextlib
import io
import sys
from collections.abc import Collection
from pathlib import Path

import polars as pl

from embedder.base.terminal import say, shown
from embedder.config import read_toml
from embedder.data.names import Names, read_names, without_names
from embedder.data.vocabulary import read_vocabulary
from embedder.disk.copies import local_copy
from embedder.disk.files import short_reason
from embedder.disk.run_names import damaged, keep_names, read_content
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir, locked
from embedder.errors import InputError


def given_names(source: str, run: Workdir, cache: Path | None = None) -> bytes | None:
    """The content of names.parquet for a run; None: it is given no names.

    Names that the run has stand for their table if that is gone.

    Args:
      source: path or URL of a table of names; "": none.
      cache: folder of caches, for the copy of a URL; None: that of the user.

    Raises:
      OSError, InputError: the table, or names.parquet of the run, cannot be read.
    """
    if not source:
        return None
    table = Path(local_copy(source, cache))
    return read_content(run) if _has(run, source, table) else read_names(table).content


def _has(run: Workdir, source: str, table: Path) -> bool:
    """Whether the names of the run are `table`, or are of it and it is gone."""
    if not (run.is_started and run.names.exists()):
        return False
    if table.exists():
        return table.samefile(run.names)
    return getattr(read_toml(run.config).family, "names", "") == without_secrets(source)


def kept_names(path: Path) -> Names | None:
    """The names of the run at `path`; None: it has none, or `path` is a file. Raises
    InputError if they are damaged."""
    run = Workdir(path)
    if read_content(run) is None:
        return None
    try:
        return read_names(run.names)
    except InputError as error:
        raise damaged(run, short_reason(error)) from error


def names_of(path: Path, source: str | None) -> Names | None:
    """The names in the table `source`; None: those that the run at `path` has. Raises
    OSError or InputError if the table, or names.parquet of the run, cannot be read."""
    return kept_names(path) if source is None else read_names(source)


def keep_given(path: Path, source: str | None, names: Names | None) -> None:
    """Lets the run at `path` keep the names that a verb was given, of the table
    `source`, if it is finished, of tokens, and without names, and can be written to."""
    run = Workdir(path)
    # The copy of a run at a URL has no checksums.
    is_without = run.is_finished and run.sums.exists() and not run.names.exists()
    if source is None or names is None or not (is_without and run.vocabulary.exists()):
        return
    if warning_about(names, read_vocabulary(run.vocabulary).tokens) is None:
        with contextlib.suppress(OSError, InputError), locked(run):
            keep_names(run, names.content)
            about = f"{run.names}: kept, so --names is no longer needed."
            say(shown(about), sys.stderr)


def names_in(content: bytes, path: Path) -> Names:
    """The names in the content of names.parquet; `path`: what messages call it."""
    return Names(pl.read_parquet(io.BytesIO(content)).lazy(), path)


def warning_about(names: Names, tokens: Collection[str]) -> str | None:
    """The warning that none of the tokens has a name; None: one has."""
    if names.of_key.keys().isdisjoint(map(str, tokens)):
        return without_names(names)
    return None
