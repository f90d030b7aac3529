"""Numba's cache of compiled functions, which finds damage and survives failing disks.

Numba unpickles its files, and would run code with flipped bits. Here every file ends
with a digest, which is checked before the file is read. Numba ignores the digest.

Numba has public settings for the folder (NUMBA_CACHE_DIR) and for the classes that find
one (NUMBA_CACHE_LOCATOR_CLASSES), of the whole process. What is missing is said at each
private class below.
"""

import contextlib
import hashlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numba
from numba.core import caching
from numba.core.dispatcher import Dispatcher

from embedder.disk.cache_files import read_cache_file, user_cache_folder, with_digest
from embedder.errors import InputNotFoundError

_log = logging.getLogger(__name__)


def cached_on_disk(function: Dispatcher) -> Dispatcher:
    """`function` of `numba.njit`, which from now on keeps its code in files.

    The files are in NUMBA_CACHE_DIR, else in `numba` of the user's cache folder, else
    beside the source. If no folder can be written to, that is logged, and nothing is
    kept.
    """
    try:
        # Missing: a cache of one's own for one function, `njit(cache=...)`.
        function._cache = _Cache(function.py_func)  # type: ignore[attr-defined]
    except RuntimeError:  # Numba found no folder
        _log.info("No folder takes compiled code: it is not kept (NUMBA_CACHE_DIR).")
    return function


class _Files(caching.IndexDataCacheFile):
    """The files of one function, each with a digest at its end.

    Missing: a public hook between what Numba compiles and what it reads and writes.
    """

    def _load_index(self):
        whole = read_cache_file(self._index_path) is not None
        return super()._load_index() if whole else {}

    def _load_data(self, name):
        if read_cache_file(self._data_path(name)) is None:
            raise InputNotFoundError(name)  # so Numba compiles it
        return super()._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath) -> Iterator[BinaryIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(with_digest(content.getvalue()))


class _InUserCache(caching.UserWideCacheLocator):
    """A folder beside the programs of JAX for each Numba and content of the sources.

    So all environments and checkouts of a user share what one of them has compiled.
    Sources are all of a file's folder, as its functions have settings or call functions
    from there. Missing: a public base class of locators, whose names Numba publishes.
    """

    def __init__(self, py_func, py_file):
        super().__init__(py_func, py_file)
        digest = hashlib.sha256(numba.__version__.encode())
        for path in sorted(Path(py_file).parent.glob("*.py")):
            digest.update(path.read_bytes())
        self._digest = digest.hexdigest()
        name = f"{Path(py_file).stem}_{self._digest[:16]}"
        self._cache_path = str(user_cache_folder().expanduser() / "numba" / name)

    def get_source_stamp(self):
        return self._digest

    @classmethod
    def from_function(cls, py_func, py_file):
        if not Path(py_file).exists():  # as of a frozen program
            return None
        try:
            return super().from_function(py_func, py_file)
        except RuntimeError:  # there is no home folder
            return None


class _Locators(caching.CompileResultCacheImpl):
    """The folder that the user has set, the user's cache, then those of Numba.

    Missing: locators for one package; the setting is for all functions of the process,
    and must stay free for the user.
    """

    _locator_classes = [
        caching.UserProvidedCacheLocator,
        _InUserCache,
        caching.InTreeCacheLocator,
        caching.IPythonCacheLocator,
        caching.ZipCacheLocator,
    ]


class _Cache(caching.FunctionCache):
    """Missing: as of `cached_on_disk`; and errors of the disk that end no program."""

    _impl_class = _Locators

    def __init__(self, py_func):
        super().__init__(py_func)
        self._cache_file = _Files(
            self.cache_path,
            self._impl.filename_base,
            self._impl.locator.get_source_stamp(),
        )

    def save_overload(self, sig, data) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _log.info("Compiled code is not kept: %s: %s.", self.cache_path, error)
