"""The files of a corpus: one file, the matches of a glob, or those in a folder."""

import functools
import glob
import itertools
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from embedder.disk.digests import DIGESTS_FILE
from embedder.disk.kinds import is_image_name
from embedder.errors import InputError, InputNotFoundError
from embedder.tables.corpus_formats import endings, has_ending

_RUN = (
    "config.toml",
    "corpus.json",
    DIGESTS_FILE,
)  # a folder with all of them is a run's
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/.*)|/proc/[^/]+/fd/.*")
_NAMES_READ = 10_000  # of files, to see what a folder without texts has
_log = logging.getLogger(__name__)


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
        found = sorted(p for p in path.iterdir() if has_ending(p) and not p.is_dir())
        if not found:
            raise InputNotFoundError(f"Corpus {source} is a folder {_content(path)}.")
        return _checked(source, found)
    if path.exists():
        _check_regular(path)
        return [path]
    if glob.has_magic(str(source)):
        found = sorted(Path(p) for p in glob.glob(str(source), recursive=True))
        if paths := [path for path in found if not path.is_dir()]:
            return _checked(source, paths)
        raise InputNotFoundError(f"Corpus {source} matches no file.")
    raise InputNotFoundError(f"Corpus {source} does not exist.")


def _content(folder: Path) -> str:
    """What a folder without texts has, for a message."""
    names = (name for _, _, names in os.walk(folder) for name in names)
    if any(map(is_image_name, itertools.islice(names, _NAMES_READ))):
        return "of images: give --model encoder to train on them"
    return f"without {' or '.join(endings())} files"


def _checked(source: str | os.PathLike[str], paths: list[Path]) -> list[Path]:
    """`paths` without files that runs wrote."""
    kept = outside_runs(paths)
    if not kept:
        raise InputNotFoundError(f"Corpus {source} has only files that runs wrote.")
    for path in kept:
        _check_regular(path)
    if left_out := len(paths) - len(kept):
        _log.info("Corpus %s: files that runs wrote, left out: %d.", source, left_out)
    return kept


def outside_runs(paths: Iterable[Path]) -> list[Path]:
    """`paths` without those in folders of runs, which wrote them."""
    is_run = functools.cache(_is_run)
    return [p for p in paths if not any(map(is_run, _parents(p)))]


def _parents(path: Path) -> Sequence[Path]:
    return Path(os.path.abspath(path)).parents


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _RUN)


def _check_regular(path: Path) -> None:
    """Refuses pipes, devices and folders; a missing file fails when it is opened."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"Corpus {path} must be a regular file: it is read more than once."
        )
