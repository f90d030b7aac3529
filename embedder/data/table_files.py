"""The files of a corpus or table: one, the matches of a glob, or those in a folder."""

import functools
import glob
import itertools
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from embedder.data.tables.table_formats import (
    format_by_name,
    known_format,
    table_endings,
)
from embedder.disk.digests import DIGESTS_FILE
from embedder.disk.files import is_image_name
from embedder.errors import InputError, InputNotFoundError

_TEXTS = ".txt", ".gz"  # endings of the names of texts


def has_ending(path: Path) -> bool:
    """Whether a file is part of the corpus of its folder: a name and an ending."""
    name = path.name.lower()
    return any(name.removesuffix(e) not in ("", name) for e in _TEXTS)


_RUN = "config.toml", "corpus.json", DIGESTS_FILE  # a folder with all is a run's
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/.*)|/proc/[^/]+/fd/.*")
_NAMES_READ = 10_000  # of files, to see what a folder without texts has


def corpus_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files of the corpus at `source`, sorted.

    Files that runs wrote are left out of a folder and of the matches of a glob.

    Raises:
      InputNotFoundError: no file exists at `source`, matches, or is in the folder.
      InputError: a file is not a regular file.
    """
    path = Path(source)
    if os.fspath(source) == "-" or _STREAM.fullmatch(os.path.abspath(path)):
        raise InputError(
            f"Corpus {source} must be a file on disk, not a stream: it is read more "
            "than once. Write the text to a file."
        )
    if path.is_dir():
        shown = [p for p in path.iterdir() if not p.name.startswith((".", "_"))]
        paths = sorted(p for p in path.iterdir() if has_ending(p) and not p.is_dir())
        if not paths:
            names = (name for _, _, names in os.walk(path) for name in names)
            has = f"without {' or '.join(_TEXTS)} files"
            if any(map(is_image_name, itertools.islice(names, _NAMES_READ))):
                has = "of images: give --model encoder to train on them"
            raise InputNotFoundError(f"Corpus {source} is a folder {has}.")
        _log_no_texts(path, [p for p in shown if p not in paths])
        return _checked(source, paths)
    if path.exists():
        _check_regular(path)
        return [path]
    if glob.has_magic(str(source)):
        matches = sorted(Path(p) for p in glob.glob(str(source), recursive=True))
        if paths := [path for path in matches if not path.is_dir()]:
            return _checked(source, paths)
        raise InputNotFoundError(f"Corpus {source} matches no file.")
    raise InputNotFoundError(f"Corpus {source} does not exist.")


def _log_no_texts(folder: Path, others: list[Path]) -> None:
    """Logs how many files and folders beside the texts of a folder are not read."""
    files = [x for x in others if x.is_file() and not format_by_name(x)]
    below = [path for path in others if path.is_dir()]
    found = (path for each in below for path in each.rglob("*"))
    texts = filter(has_ending, itertools.islice(found, _MOST_LOOKED_AT))
    num_texts = len(outside_runs(texts))
    if files := outside_runs(files):
        text = "Corpus %s: files that do not end in .txt or .gz, left out: %d."
        _log.info(text, folder, len(files))
    if num_texts:
        _log.warning(
            "Corpus %s: texts in folders below, left out: %d; a glob takes them: "
            "'%s/**/*.txt'.",
            *(folder, num_texts, folder),
        )


def _checked(source: str | os.PathLike[str], paths: list[Path]) -> list[Path]:
    """`paths` without files that runs wrote."""
    others = outside_runs(paths)
    if not others:
        raise InputNotFoundError(f"Corpus {source} has only files that runs wrote.")
    for path in others:
        _check_regular(path)
    if left_out := len(paths) - len(others):
        _log.info("Corpus %s: files that runs wrote, left out: %d.", source, left_out)
    return others


def outside_runs(paths: Iterable[Path]) -> list[Path]:
    """`paths` without those in folders of runs, which wrote them."""

    @functools.cache
    def is_run(folder: Path) -> bool:
        return all((folder / name).is_file() for name in _RUN)

    return [p for p in paths if not any(map(is_run, Path(os.path.abspath(p)).parents))]


def _check_regular(path: Path) -> None:
    """Refuses pipes, devices and folders; a missing file fails when it is opened."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"Corpus {path} must be a regular file: it is read more than once."
        )


_LAKES = {
    "_delta_log": "Delta Lake",
    ".hoodie": "Hudi",
    "metadata/*.metadata.json": "Iceberg",
}
"""What folders of tables with versions have, some of whose files are removed rows."""

_EDGE_ENDINGS = ".edges", ".edgelist", ".mtx", ".npz"
_MOST_LOOKED_AT = 10_000  # files of folders below, which are only counted
_log = logging.getLogger(__name__)


def table_files(source: str | os.PathLike[str], *, is_table: bool) -> list[Path]:
    """The files of the table at `source`: a file, a glob or a folder.

    A folder with text files is text. Folders named `key=value` are searched, too.

    Args:
      is_table: `source` is said to be a table, whatever its files look like.

    Returns:
      [] unless all files are tables.

    Raises:
      InputNotFoundError: the only tables are in folders below.
      OSError, InputError: see `corpus_files`; a folder is of a format with versions.
    """
    folder = Path(source)
    if folder.is_dir() and (tables := _in_folder(folder, is_table)):
        return tables
    if folder.is_dir() and not is_table:
        return []
    tables = corpus_files(source)
    return tables if is_table or all(map(known_format, tables)) else []


def edge_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files of the edge list at `source`: a file, a glob or a folder.

    Of a folder those that are tables or text by name, also in folders `key=value`.

    Raises:
      OSError, InputError: see `corpus_files`.
    """
    folder = Path(source)
    if not folder.is_dir():
        return corpus_files(source)
    paths = _files_of(folder)
    edge_lists = [
        path
        for path in paths
        if format_by_name(path)
        or has_ending(path)
        or path.name.lower().removesuffix(".gz").endswith(_EDGE_ENDINGS)
    ]
    if not edge_lists:
        raise InputNotFoundError(f"Corpus {folder} is a folder without edge lists.")
    _log_left_out(folder, len(paths) - len(edge_lists), len(_tables_below(folder)))
    return edge_lists


def check_no_lake(folder: Path, what: str = "Corpus") -> None:
    """Refuses a folder of a format that keeps deleted rows.

    Args:
      what: what messages call it.
    """
    for sign, name in _LAKES.items():
        if any(folder.glob(sign)):
            raise InputError(
                f"{what} {folder} is a table of {name}, whose files also have deleted "
                "rows: write the snapshot that you want to Parquet, and give that."
            )


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder, which must be of no format that keeps deleted rows."""
    check_no_lake(folder)
    return sorted(outside_runs(path for path in _walk(folder) if path.is_file()))


def _log_left_out(folder: Path, num_others: int, num_below: int) -> None:
    if num_below:
        text = "Corpus %s: tables in folders below, left out: %d."
        _log.warning(text, folder, num_below)
    if num_others:
        text = "Corpus %s: files that are no tables, left out: %d."
        _log.info(text, folder, num_others)


def _in_folder(folder: Path, is_table: bool) -> list[Path]:
    paths = _files_of(folder)
    tables = [path for path in paths if format_by_name(path)]
    texts = [
        path
        for path in paths
        if path.parent == folder and has_ending(path) and path not in tables
    ]
    if tables and texts and not is_table:
        _log.info("Corpus %s: tables beside text, left out: %d.", folder, len(tables))
        return []
    below = [] if texts else _tables_below(folder)
    if below and not tables:
        raise InputNotFoundError(
            f"Corpus {folder} has tables only in folders below ({len(below)}): give "
            f"them by a glob, as '{folder}/**/*{below[0].suffix}'."
        )
    if tables:
        _log_left_out(folder, len(paths) - len(tables), len(below))
    return tables


def _walk(folder: Path) -> Iterator[Path]:
    """The files of a folder and of its partitions, without hidden ones."""
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            continue
        if not path.is_dir():
            yield path
        elif "=" in path.name:
            yield from _walk(path)


def _tables_below(folder: Path) -> list[Path]:
    """The tables in folders below that are no partitions."""
    tables = []
    for number, path in enumerate(folder.rglob("*")):
        if number == _MOST_LOOKED_AT:
            break
        below = path.relative_to(folder).parts
        is_hidden = any(name.startswith((".", "_")) for name in below)
        is_partition = all("=" in name for name in below[:-1])
        if not is_hidden and not is_partition and format_by_name(path):
            tables += [path] if path.is_file() and outside_runs([path]) else []
    return tables


def table_name(source: str | os.PathLike[str]) -> str:
    """The name of a table: of its file, without the ending, or of its folder."""
    name = Path(os.path.abspath(source)).name.removesuffix(".gz")
    endings = (each for each in table_endings() if name.lower().endswith(each))
    name = name[: len(name) - len(next(endings, ""))]
    return "".join(c for c in name if c not in "*?[]") or "corpus"
