"""A folder that files are written to: a local one, or one behind a URL of fsspec."""

import contextlib
import os
import posixpath
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embedder.disk.files import atomic_file
from embedder.disk.remote import Remote
from embedder.disk.urls import HIDDEN, is_url, is_web, without_secrets
from embedder.errors import InputError, InputNotFoundError

_LOCAL = "file://"


class Store(Remote):
    """The files of a folder, by their names relative to it; with retries.

    A file appears whole or not at all: object stores put an object at once, and local
    files are renamed when they are whole. Raises InputError if nothing can be written
    there.
    """

    _use = "accessed"

    def __init__(self, target: str, argument: str):
        if not target or HIDDEN in target or is_web(target) or target == "-":
            raise InputError(
                f"{argument} must be a folder, or a URL that can be written, such as "
                f"s3://bucket/run, got {without_secrets(target)!r}."
            )
        if not is_url(target) and "::" in target:  # fsspec would read it as two URLs
            raise InputError(f"{argument} must be without ::, got {target!r}.")
        super().__init__(target if is_url(target) else _LOCAL + os.path.abspath(target))
        self.local: Path | None = None
        """The folder, if it is local."""
        protocol = self._fs.protocol
        if "file" in ((protocol,) if isinstance(protocol, str) else protocol):
            self.local, self.shown = Path(self.path), target.removeprefix(_LOCAL)
            if self.local.exists() and not self.local.is_dir():
                raise InputError(f"{argument} must be a folder, got the file {target}.")
        elif self.magic:
            raise InputError(
                f"{argument} must be without *, ? and [, got {self.shown}."
            )

    def names(self) -> list[str]:
        """The names of all files, sorted; none if there is no such folder."""
        folder = self.path.rstrip("/") + "/"

        def find(fs: Any) -> list[str]:
            fs.invalidate_cache()
            return list(fs.find(folder))

        try:
            paths = self._call(find)
        except InputNotFoundError:
            return []
        names = (path.removeprefix(folder) for path in paths)
        return sorted(name for name in names if name.strip("/"))

    def read_file(self, name: str) -> bytes | None:
        """The content of a file; None: there is none."""

        def read(fs: Any) -> bytes:
            fs.invalidate_cache()
            return fs.cat_file(self._path(name))

        try:
            return self._call(read)
        except InputNotFoundError:
            return None

    def fetch(self, name: str, path: Path) -> None:
        """Copies a file to the local `path`; InputNotFoundError if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._call(lambda fs: fs.get_file(self._path(name), str(path)))

    def write(self, name: str, data: bytes) -> None:
        """Writes a file; the old one stays until the new one is whole."""
        self._put(
            name,
            lambda part: part.write_bytes(data),
            lambda fs: fs.pipe_file(self._path(name), data),
        )

    def upload(self, name: str, path: Path) -> None:
        """Copies the local file at `path`; the old one stays until it is whole."""
        self._put(
            name,
            lambda part: shutil.copyfile(path, part),
            lambda fs: fs.put_file(str(path), self._path(name)),
        )

    def _put(
        self, name: str, write: Callable[[Path], object], put: Callable[[Any], object]
    ) -> None:
        if self.local is not None:
            target = self.local / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(target) as part:
                write(part)
            return
        try:
            self._call(put)
        except InputNotFoundError:
            raise InputNotFoundError(
                f"{self.shown} cannot be written: its bucket or folder does not exist."
            ) from None

    def remove(self, name: str) -> None:
        """Removes a file, if it is there, and local folders that are empty then."""
        with contextlib.suppress(InputNotFoundError):
            self._call(lambda fs: fs.rm_file(self._path(name)))
        parent = posixpath.dirname(name)
        while self.local is not None and parent:
            with contextlib.suppress(OSError):
                (self.local / parent).rmdir()
            parent = posixpath.dirname(parent)

    def _path(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"
