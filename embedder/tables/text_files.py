"""Which files a text corpus is: one, those that a glob matches, those of a folder."""

import functools
import glob
import logging
import os
import re
from pathlib import Path

from embedder.disk.digests import DIGESTS_FILE
from embedder.errors import InputError, InputNotFoundError

_RUN = (
    "config.toml",
    "corpus.json",
    DIGESTS_FILE,
)  # files by which a run is recognised
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/.*)|/proc/[^/]+/fd/.*")
_log = logging.getLogger(__name__)


def text_files(source: str | os.PathLike) -> list[Path]:
    """The files of a corpus, in its order; of a glob or a folder none that runs wrote.

    Raises:
      FileNotFoundError: there is no such file, or no match, or no text in the folder.
      ValueError: one is not a regular file.
    """
    path = Path(source)
    if os.fspath(source) == "-" or _STREAM.fullmatch(os.path.abspath(path)):
        raise InputError(
            f"Corpus {source} must be a file on disk, not a stream: it is read more "
            "than once. Write the text to a file."
        )
    if path.is_dir():
        return _checked(
            source,
            sorted(p for p in path.iterdir() if p.suffix in (".txt", ".gz")),
            f"Corpus {source} is a folder without .txt or .gz files.",
        )
    if path.exists():
        _check_regular(path)
        return [path]
    if glob.has_magic(str(source)):
        found = sorted(Path(p) for p in glob.glob(str(source), recursive=True))
        return _checked(source, found, f"Corpus {source} matches no file.")
    raise InputNotFoundError(f"Corpus {source} does not exist.")


def _checked(source, found: list[Path], otherwise: str) -> list[Path]:
    """`found` without folders and without files that runs wrote."""
    paths = [path for path in found if not path.is_dir()]
    if not paths:
        raise InputNotFoundError(otherwise)
    is_run = functools.cache(_is_run)
    kept = [p for p in paths if not any(map(is_run, _parents(p)))]
    if not kept:
        raise InputNotFoundError(f"Corpus {source} has only files that runs wrote.")
    for path in kept:
        _check_regular(path)
    if left_out := len(paths) - len(kept):
        _log.info("Corpus %s: files that runs wrote, left out: %d.", source, left_out)
    return kept


def _parents(path: Path):
    return Path(os.path.abspath(path)).parents


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _RUN)


def _check_regular(path: Path) -> None:
    """Refuses what is neither a file nor missing; opening it names a missing one."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"Corpus {path} must be a regular file: it is read more than once."
        )
