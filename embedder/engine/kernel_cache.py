"""Numba's cache of compiled functions, which finds damage and survives failing disks.

Numba unpickles its files, and would run code with flipped bits. Here every file ends
with a digest, which is checked before the file is read. Numba ignores the digest.
"""

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from typing import BinaryIO

from numba.core import caching
from numba.core.dispatcher import Dispatcher

from embedder.disk.cache_files import read_cache_file, with_digest
from embedder.errors import InputNotFoundError

_log = logging.getLogger(__name__)


def kept(function: Dispatcher) -> Dispatcher:
    """`function` of `numba.njit`, which from now on keeps its code in files.

    The files are in the folder of Numba's own `cache=True`. If no folder can be written
    to, that is logged, and nothing is kept.
    """
    try:
        function._cache = _Cache(function.py_func)  # type: ignore[attr-defined]  # a private name
    except RuntimeError:  # Numba found no folder
        _log.info("No folder takes compiled code: it is not kept (NUMBA_CACHE_DIR).")
    return function


class _Files(caching.IndexDataCacheFile):
    """The files of one function, each with a digest at its end."""

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


class _InHome(caching.UserWideCacheLocator):
    """The user's cache folder; without a home Numba alone would make a folder ~."""

    @classmethod
    def from_function(cls, py_func, py_file):
        if not os.path.isabs(cls(py_func, py_file).get_cache_path()):
            return None
        return super().from_function(py_func, py_file)


class _Locators(caching.CompileResultCacheImpl):
    _locator_classes = [
        _InHome if each is caching.UserWideCacheLocator else each
        for each in caching.CompileResultCacheImpl._locator_classes
    ]


class _Cache(caching.FunctionCache):
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
